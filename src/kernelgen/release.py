"""A release as it lies on disk: which files are shipped, and whether they may be.

The Hub's layout is kernel-builder's: the version branch holds `build/<variant>/**` and
`benchmarks/benchmark*.py`, the main branch holds the card as README.md.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kernelgen import git, surface, variants
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from kernelgen.project import Project

_TAG = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
# Never shipped; the loader does not fetch them either.
_BYTECODE = (".pyc", ".pyo")
_AGAIN = "build again, or remove the folder"


@dataclass(frozen=True)
class BuiltVariant:
    """One built variant: `build/<name>/` with its metadata.json, parsed."""

    name: str
    path: Path
    metadata: dict[str, Any]

    @property
    def backend(self) -> str:
        """The compute backend that it was built for."""
        backend = self.metadata.get("backend")
        return str(backend.get("type", "")) if isinstance(backend, dict) else ""

    def files(self) -> tuple[Path, ...]:
        """Every file that is shipped, sorted."""
        found = (p for p in self.path.rglob("*") if p.is_file() and p.suffix not in _BYTECODE)
        return tuple(sorted(p for p in found if "__pycache__" not in p.parts))

    def surface(self) -> surface.Surface:
        """Its public API."""
        init = self.path / "__init__.py"
        names = surface.public_names(init.read_text("utf-8")) if init.is_file() else None
        binaries = [p for p in self.path.glob("*") if p.suffix in (".so", ".pyd", ".dylib", ".dll")]
        schemas = surface.schemas_in(b"\0".join(p.read_bytes() for p in binaries)) if binaries else None
        return surface.Surface(names, schemas)


@dataclass(frozen=True)
class Release:
    """What one publish would ship.

    Attributes:
        project: the kernel.
        variants: the built variants, by name.
        files: path in the repository (version branch) to file on disk.
    """

    project: Project
    variants: tuple[BuiltVariant, ...]
    files: dict[str, Path]

    def surface(self) -> surface.Surface:
        """The public API over all variants."""
        return surface.merge(variant.surface() for variant in self.variants)


def collect(project: Project) -> Release:
    """Find what has been built.

    Raises:
        KernelgenError: nothing is built, a folder in build/ is no variant, or a metadata.json cannot be read.
    """
    folder = project.root / "build"
    found = variants.built(project)
    if not found:
        raise KernelgenError("nothing is built", where=str(folder), way_out="run: kernelgen build --all")
    for built in found:
        if built.variant is None:
            raise KernelgenError(
                f"{built.name!r} is not a variant name, and no loader would find it",
                where=str(built.path),
                way_out="remove it, or build again",
            )
    shipped = tuple(BuiltVariant(built.name, built.path, _metadata(built.path)) for built in found)
    files = {f"build/{f.relative_to(folder).as_posix()}": f for v in shipped for f in v.files()}
    for benchmark in sorted((project.root / "benchmarks").glob("benchmark*.py")):
        files[f"benchmarks/{benchmark.name}"] = benchmark
    return Release(project, shipped, files)


def _metadata(variant: Path) -> dict[str, Any]:
    path = variant / "metadata.json"
    try:
        value = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise KernelgenError("the variant has no metadata.json", where=str(variant), way_out=_AGAIN) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        what = f"metadata.json cannot be read: {error}"
        raise KernelgenError(what, where=str(path), way_out=_AGAIN) from None
    if not isinstance(value, dict):
        raise KernelgenError("metadata.json holds no table", where=str(path), way_out=_AGAIN)
    return value


def parse_tag(tag: str, version: int) -> str:
    """Judge a release tag.

    Args:
        tag: `v<major>.<minor>.<patch>`.
        version: the kernel's version, which the major number must equal.

    Raises:
        KernelgenError: the tag has another form or another major number.
    """
    match = _TAG.fullmatch(tag)
    if match is None:
        raise KernelgenError(
            f"{tag!r} is not a release tag", where="--tag", way_out=f"write it as v{version}.MINOR.PATCH"
        )
    if int(match[1]) != version:
        raise KernelgenError(
            f"the tag {tag} is for version {match[1]}, but build.toml says version = {version}",
            where="--tag",
            way_out=f"use a tag that begins with v{version}, or change the version in build.toml and rebuild",
        )
    return tag


def refusals(release: Release) -> list[str]:
    """Every reason not to ship this release that the project's folder alone can tell; empty when none."""
    project = release.project
    if git.run("rev-parse", "--verify", "HEAD", cwd=project.root, check=False).returncode:
        return [
            "the project has no git commit, so that nobody could tell what was published: commit it first"
        ]
    problems = [*_working_tree(project), *_conflicts(project)]
    for variant in release.variants:
        problems += [f"build/{variant.name}: {reason}" for reason in _variant(project, variant)]
    return problems


def _working_tree(project: Project) -> list[str]:
    """Files that differ from the commit; untracked ones count where the build could have seen them."""
    status = git.text("status", "--porcelain", "-z", "--untracked-files=all", "--", ".", cwd=project.root)
    top = Path(git.text("rev-parse", "--show-toplevel", cwd=project.root))
    inputs = _inputs(project)
    problems = []
    lines = iter(status.split("\0"))
    for line in lines:
        if not line:
            continue
        code, name = line[:2], line[3:]
        if "R" in code or "C" in code:
            next(lines, None)
        path = Path(top / name)
        shown = path.relative_to(project.root).as_posix() if path.is_relative_to(project.root) else name
        if code != "??":
            problems.append(f"{shown} has changes that are not committed")
        elif any(PurePosixPath(shown).is_relative_to(source) for source in inputs):
            problems.append(f"{shown} is not in git")
    return problems


def _inputs(project: Project) -> tuple[str, ...]:
    """What a build is made from, relative to the project: a change of these makes a build stale."""
    return ("build.toml", project.ext_dir, *project.listed_files())


def _conflicts(project: Project) -> list[str]:
    """Files in which an update's merge has left its marks."""
    found = git.run("grep", "-l", "-I", "-z", "-E", "^(<{7}|>{7}) ", "--", ".", cwd=project.root, check=False)
    marked = [name for name in found.stdout.decode("utf-8", "surrogateescape").split("\0") if name]
    return [f"{name} has conflict marks" for name in marked]


def _variant(project: Project, variant: BuiltVariant) -> list[str]:
    from kernelgen import package

    metadata = variant.metadata
    problems = [
        f"its {key} is {metadata.get(key)!r}, but build.toml says {wanted!r}: build again"
        for key, wanted in (("name", project.name), ("version", project.version))
        if metadata.get(key) != wanted
    ]
    if not problems and (reason := package.unpublishable(variant.path)):
        problems.append(reason)
    provenance = metadata.get("provenance")
    kernel = provenance.get("kernel") if isinstance(provenance, dict) else None
    if not isinstance(kernel, dict) or not kernel.get("commit"):
        return [*problems, "it does not say from which commit it was built: commit, then build again"]
    if kernel.get("dirty"):
        return [*problems, "it was built from sources that were not committed: commit, then build again"]
    return [*problems, *_stale(project, str(kernel["commit"]))]


def _stale(project: Project, commit: str) -> list[str]:
    """Whether the sources have changed since the commit that a variant was built from."""
    if git.run("cat-file", "-e", f"{commit}^{{commit}}", cwd=project.root, check=False).returncode:
        return [f"it was built from commit {commit[:12]}, which this repository does not have: build again"]
    inputs = [f":(literal){path}" for path in _inputs(project)]
    changed = git.text("diff", "--name-only", commit, "HEAD", "--", *inputs, cwd=project.root).splitlines()
    if not changed:
        return []
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return [f"it is older than the sources ({changed[0]}{more} changed since {commit[:12]}): build again"]
