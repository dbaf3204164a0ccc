"""What is source, what is build scratch and what is runtime, and how to be rid of the second and third.

- Source: what git tracks, and what it would track: never removed, wherever it lies.
- Scratch: what building and testing leave behind: `.kernelgen/`, bytecode, tools' caches, `result` links, and
  the files that kernel-builder's create-pyproject generates.
- Runtime: `build/<variant>/`, what a release ships. `release_files` is its one definition, publishing's own.

A path goes only if its name and its contents both say who made it. What has the name alone is kept and
reported.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kernelgen import fetch, git, variants
from kernelgen.errors import KernelgenError
from kernelgen.project import Project, data, find_root
from kernelgen.release import BuiltVariant

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRATCH = ".kernelgen"
_TOOL_CACHES = (".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
# Never entered: other people's trees, and whole environments.
_CLOSED = (".git", ".venv", "venv", ".direnv", "node_modules", _SCRATCH)

# What create-pyproject writes, and a word that its file has and a hand-written one of that name hardly would.
_GENERATED = {
    "CMakeLists.txt": "cmake/kernel.cmake",
    "setup.py": "build_kernel",
    "pyproject.toml": "kernels_ci",
    "torch-ext/registration.h": "REGISTER_EXTENSION",
    "cmake/utils.cmake": "",
    "cmake/kernel.cmake": "",
    "cmake/build-variants.cmake": "",
    "cmake/get_gpu_lang.cmake": "",
    "cmake/compile-metal.cmake": "",
    "cmake/hipify.py": "",
    "cmake/get_gpu_lang.py": "",
    "cmake/add_build_metadata.py": "",
    "cmake/metallib_to_header.py": "",
    "cmake/_ops.py.in": "",
}


@dataclass(frozen=True)
class Removed:
    """A path that went, or would go in a dry run."""

    path: str  # from the project's root, POSIX; absolute for the cache
    why: str
    size: int  # bytes


@dataclass(frozen=True)
class Kept:
    """A path that looks like ours and was left, with the reason."""

    path: str
    why: str


@dataclass(frozen=True)
class Cleaned:
    """What one cleaning did."""

    removed: tuple[Removed, ...]
    kept: tuple[Kept, ...]
    dry_run: bool = False

    @property
    def freed(self) -> int:
        """Bytes of all that went."""
        return sum(item.size for item in self.removed)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for --json."""
        return {**asdict(self), "freed": self.freed}


def clean(root: Path, *, release: bool = False, cache: bool = False, dry_run: bool = False) -> Cleaned:
    """Remove what is not source.

    Args:
        root: a kernel project.
        release: leave in `build/` what a release ships: variants of this name and version, without bytecode.
            Without it nothing of `build/` stays.
        cache: also the user's cache of toolchains, which all projects share; outside a project, only that.
        dry_run: only say what would go.

    Returns:
        What went and what was kept though it looked like ours.

    Raises:
        KernelgenError: no project here, a build of it is running, or (with release) no readable build.toml.
    """
    root = root.resolve()
    if not (root / "build.toml").is_file():
        if cache:  # the cache is nobody's project
            return Cleaned(_cache_rows(dry_run=dry_run), (), dry_run)
        find_root(root)  # refuses
    project = Project.load(root) if release else None
    sweep = _Sweep(root)
    sweep.build(project)
    sweep.scratch()
    sweep.generated()
    removed = [*sweep.removed]
    if not dry_run:
        with _no_build(root):
            for item in removed:
                _remove(root / item.path)
            _remove_empty(root, removed)
    rows = _cache_rows(dry_run=dry_run) if cache else ()
    return Cleaned((*removed, *rows), tuple(sweep.kept), dry_run)


def release_files(project: Project) -> list[Path]:
    """The runtime artefacts: every file that a release of this version ships from `build/`, sorted."""
    return [file for variant in release_variants(project) for file in variant.files()]


def release_variants(project: Project) -> list[BuiltVariant]:
    """The variants that a release ships: those that the loader reads, of this name and version."""
    found = (_as_variant(built.path) for built in variants.built(project))
    return [variant for variant in found if variant and _misfit(project, variant) is None]


def _as_variant(path: Path) -> BuiltVariant | None:
    """A variant directory with readable metadata."""
    try:
        metadata = json.loads((path / "metadata.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return BuiltVariant(path.name, path, metadata) if isinstance(metadata, dict) else None


def _misfit(project: Project, variant: BuiltVariant) -> str | None:
    """Why a release does not ship a variant; None when it does."""
    try:
        variants.parse(variant.name)
    except KernelgenError:
        return "not a variant's name"
    for key, wanted in (("name", project.name), ("version", project.version)):
        if variant.metadata.get(key) != wanted:
            return f"of {key} {variant.metadata.get(key)!r}, not {wanted!r}"
    return None


class _Sweep:
    """One walk through a project that decides, and removes nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.removed: list[Removed] = []
        self.kept: list[Kept] = []
        self._source = _source_files(root)
        self._tracked = _listed(root, "--cached")
        self._repository = git.run("rev-parse", "--git-dir", cwd=root, check=False).returncode == 0

    # -- scratch

    def scratch(self) -> None:
        """The build's own folder, bytecode, tools' caches and Nix's result links."""
        folder = self.root / _SCRATCH
        if folder.is_symlink():
            self._keep(folder, "a link that we did not make")
        elif folder.is_dir():
            self._take(folder, "build scratch", known=True)
        for path in _walk(self.root):
            if path.name == "__pycache__":
                self._bytecode(path)
            elif path.name in _TOOL_CACHES:
                self._take(path, "a tool's cache")
        for path in sorted(self.root.glob("result*")):
            if re.fullmatch(r"result(-[\w.-]+)?", path.name) and path.is_symlink():
                if os.readlink(path).startswith("/nix/store/"):  # noqa: PTH115 - the text of the link is wanted
                    self._take(path, "a link to a Nix build", known=True)
                else:
                    self._keep(path, "a link, but not to a Nix build")

    def _bytecode(self, folder: Path) -> None:
        if all(p.suffix in (".pyc", ".pyo") and p.is_file() for p in folder.iterdir()):
            self._take(folder, "bytecode", known=True)
        else:
            self._keep(folder, "holds more than bytecode")

    def generated(self) -> None:
        """What kernel-builder's create-pyproject and its build leave in a source tree."""
        build = self.root / "_cmake_build"
        if (build / "CMakeCache.txt").is_file() or (build / "build.ninja").is_file():
            self._take(build, "a CMake build")
        elif build.exists():
            self._keep(build, "not a CMake build")
        ours = [PurePosixPath(name) for name in _GENERATED]
        ours += [PurePosixPath(f"metadata-{b}.json") for b in data("build_toml.toml")["backends"]]
        ours += [_relative(self.root, p) for p in self.root.glob("*-ext/*/_ops.py")]
        for name in ours:
            self._generated_file(name)
        for path in sorted(self.root.glob("*-ext/*.egg-info")) + sorted(self.root.glob("*.egg-info")):
            self._take(path, "made by setuptools")

    def _generated_file(self, name: PurePosixPath) -> None:
        path = self.root / name
        if not path.is_file() or path.is_symlink() or name in self._source:
            return
        text = path.read_text("utf-8", errors="replace")
        mark = _GENERATED.get(str(name), "add_op_namespace_prefix" if name.name == "_ops.py" else '"id"')
        if name.parts[0] == "cmake" and not (self.root / "cmake/kernel.cmake").is_file():
            self._keep(path, "not of a generated cmake folder")
        elif mark in text and not self._repository:
            self._keep(path, "outside a git repository it may be source")
        elif mark in text:
            self._take(path, "generated by kernel-builder's create-pyproject")
        else:
            self._keep(path, "has a generated file's name, but other contents")

    # -- runtime

    def build(self, project: Project | None) -> None:
        """The variants: all of them, or with a project those that its release does not ship."""
        folder = self.root / "build"
        if folder.is_symlink():
            self._keep(folder, "a link: what it points to may not be ours")
            return
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if path.is_symlink():
                self._keep(path, "a link that we did not make")
                continue
            variant = _as_variant(path) if path.is_dir() else None
            if variant is None:
                self._unknown(path)
            elif project is None:
                self._take(path, "a built variant", known="id" in variant.metadata)
            elif misfit := _misfit(project, variant):
                self._take(path, f"a variant that is not released: {misfit}", known="id" in variant.metadata)
            else:
                self._unshipped(variant)

    def _unknown(self, path: Path) -> None:
        """Something in build/ without metadata: half a variant of ours, or somebody's."""
        half = re.fullmatch(r"\.?(torch|tvm-ffi)[\w.+-]*", path.name) is not None and path.is_dir()
        if (half and next(path.rglob("*.so"), None) is not None) or (half and not any(path.iterdir())):
            self._take(path, "an unfinished variant")
        elif path.is_dir() and path.name == "__pycache__":
            return  # the walk for bytecode had it
        else:
            self._keep(path, "not a variant: it has no metadata.json")

    def _unshipped(self, variant: BuiltVariant) -> None:
        """Files of a released variant that a release leaves out; bytecode folders were taken by the walk."""
        shipped = set(variant.files())
        for path in sorted(variant.path.rglob("*")):
            if path.is_file() and path not in shipped and path.parent.name != "__pycache__":
                self._take(path, "not shipped", known=True)

    # -- decisions

    def _take(self, path: Path, why: str, *, known: bool = False) -> None:
        """Remove a path, unless it or something in it is source.

        Args:
            path: a file, a link or a folder.
            why: what it is.
            known: it is ours by its contents, so only what git tracks in it is source; otherwise what git
                does not ignore is, too.
        """
        name = _relative(self.root, path)
        if any(name.is_relative_to(item.path) for item in self.removed):
            return
        source = self._tracked if known else self._source
        inside = sorted(s for s in source if s.is_relative_to(name))
        if not inside:
            self.removed.append(Removed(str(name), why, _size(path)))
            return
        verb = "is in git" if inside[0] in self._tracked else "is not ignored by git"
        said = str(inside[0]) if inside[0] != name else "it"
        self._keep(path, f"{why}, but {said} {verb}")

    def _keep(self, path: Path, why: str) -> None:
        self.kept.append(Kept(str(_relative(self.root, path)), why))


def _source_files(root: Path) -> frozenset[PurePosixPath]:
    """What git tracks here, and what it would: neither tracked nor ignored."""
    return _listed(root, "--cached", "--others", "--exclude-standard")


def _listed(root: Path, *options: str) -> frozenset[PurePosixPath]:
    """Files by `git ls-files`, from the project's root; none outside a repository."""
    done = git.run("ls-files", "-z", *options, "--", ".", cwd=root, check=False)
    if done.returncode:
        return frozenset()
    names = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    return frozenset(PurePosixPath(name) for name in names if name)


def _walk(root: Path) -> Iterator[Path]:
    """Folders that may be scratch; links, environments and other repositories are not entered."""
    for name in sorted(os.listdir(root)):  # noqa: PTH208 - names alone, before any is looked at
        path = root / name
        if path.is_symlink() or not path.is_dir() or name in _CLOSED:
            continue
        if name == "__pycache__" or name in _TOOL_CACHES:
            yield path
        elif not (path / ".git").exists():
            yield from _walk(path)


@contextlib.contextmanager
def _no_build(root: Path) -> Iterator[None]:
    """Hold the lock of the project's builds, which a build holds from its first step to its last.

    Raises:
        KernelgenError: a build is running.
    """
    try:
        file = (root / _SCRATCH / "lock").open("r+", encoding="utf-8")
    except OSError:  # never built
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = file.read().strip() or "?"
            raise KernelgenError(
                f"a build of this project is running (process {owner})",
                where=str(root),
                way_out="wait for it to end, then clean",
            ) from None
        yield


def _relative(root: Path, path: Path) -> PurePosixPath:
    return PurePosixPath(path.relative_to(root).as_posix())


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(p.lstat().st_size for p in path.rglob("*") if p.is_symlink() or not p.is_dir())


def _remove(path: Path) -> None:
    """Remove a file, a link (not what it points to) or a folder; one that has gone meanwhile is no fault."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise KernelgenError(f"cannot remove {path}: {error.strerror}", where=str(path)) from error


def _remove_empty(root: Path, removed: list[Removed]) -> None:
    """Folders that this cleaning emptied: build/ and cmake/."""
    for name in {PurePosixPath(item.path).parts[0] for item in removed} & {"build", "cmake"}:
        folder = root / name
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()


def _cache_rows(*, dry_run: bool) -> tuple[Removed, ...]:
    """Remove the toolchains in the user's cache, one row each."""
    paths, _ = fetch.clean_cache(dry_run=True)
    rows = tuple(Removed(str(path), "toolchain cache", _size(path)) for path in paths)
    if not dry_run:
        fetch.clean_cache()
    return rows
