"""Where the template comes from: the bundle in the wheel, made into a git repository that Copier can read.

Copier can update a project only from a git repository that holds both the version that made it and the newest
one. The wheel therefore carries a git bundle of template-only history with a tag for each release, and this
module keeps a clone of it in the user's data directory. In a checkout of kernelgen the files beside the
source are a version too: when they differ from the newest release they are committed to that clone under a
post-release tag, so that a change of the template can be tried on a real project before it is released.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen import git
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a template version consists of, relative to the root of a checkout.
PARTS = ("copier.yml", "includes", "template")
ENVIRONMENT_VARIABLE = "KERNELGEN_TEMPLATE"
_LITTER = re.compile(
    r"(\.pyc|\.swp|\.orig|\.rej|~)$|^(__pycache__|\.DS_Store|\.ruff_cache|\.mypy_cache|\.pytest_cache)$"
)
_DEVELOPMENT = re.compile(r"v(?P<base>[0-9.]+)\.post(?P<count>[0-9]+)\+g(?P<tree>[0-9a-f]{8})")
# Not the clock: the same files give the same commit on every machine. 2026-01-01T00:00:00Z.
_EPOCH = 1767225600
_FILE, _EXECUTABLE, _TREE = "100644", "100755", "40000"


@dataclass(frozen=True)
class TemplateSource:
    """A template that Copier can read.

    Attributes:
        path_or_url: what `_src_path` in the answers file becomes: `~/...` for a repository below the home
            directory.
        ref: the tag to use, or None to let Copier take the newest.
        version: the version behind `ref` without its "v", or None where only Copier can tell.
    """

    path_or_url: str
    ref: str | None
    version: str | None


@dataclass(frozen=True)
class TemplateFile:
    """One file of a template version: its path below the root, its git mode and its bytes."""

    path: str
    mode: str
    data: bytes


def source(override: str | None = None) -> TemplateSource:
    """The template to use.

    Args:
        override: any Copier source (`--template`); by default the KERNELGEN_TEMPLATE variable, else
            kernelgen's own.

    Returns:
        Where it is. A relative path is made absolute, because it would be read relative to another folder
        later.

    Raises:
        KernelgenError: the override is a path that does not exist, or kernelgen was installed without a
            template.
    """
    override = override or os.environ.get(ENVIRONMENT_VARIABLE)
    return _foreign(override) if override else materialise()


def materialise(data: Path | None = None) -> TemplateSource:
    """Make or refresh kernelgen's own template repository.

    Safe to run many times at once and to kill: a new repository appears by one rename, and in an existing one
    the tag is the last thing that git writes. When nothing changed since the last call no process is started.

    Args:
        data: the folder to keep it in, by default the user's data directory.

    Returns:
        The repository, the tag of the version that belongs to this kernelgen, and that version.

    Raises:
        KernelgenError: there is no bundle and no checkout, or the folder can't be written.
    """
    from filelock import FileLock
    from platformdirs import user_data_path

    data = data or user_data_path("kernelgen", appauthor=False)
    repository, stamp = data / "template", data / "template.json"
    bundle, root = bundle_path(), development_root()
    if not bundle.is_file() and root is None:
        raise KernelgenError(
            "this kernelgen carries no template",
            where=str(bundle),
            way_out="reinstall kernelgen, or pass --template",
        )
    fingerprint = _fingerprint(bundle, root)
    ref = _stamped(stamp, repository, fingerprint)
    if ref is None:
        try:
            data.mkdir(parents=True, exist_ok=True)
            with FileLock(data / "template.lock"):
                ref = _stamped(stamp, repository, fingerprint)
                if ref is None:
                    ref = _refresh(repository, bundle, root)
                    _write_atomically(stamp, json.dumps({"fingerprint": fingerprint, "ref": ref}))
        except OSError as error:
            raise KernelgenError(
                f"the template can't be kept in the data directory: {error.strerror}",
                where=str(error.filename or data),
                way_out="make it writable, or point XDG_DATA_HOME at a folder that is",
            ) from error
    return TemplateSource(in_home(repository), ref, ref.removeprefix("v"))


def bundle_path() -> Path:
    """The git bundle of every released template version; absent before the first release."""
    return Path(__file__).parent / "data" / "template.bundle"


def development_root() -> Path | None:
    """The folder with the template's files as they are now.

    Returns:
        The checkout that this module runs from; else the copy inside the package; else None.
    """
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file() and (checkout / "copier.yml").is_file():
        return checkout
    packaged = Path(__file__).parent / "_template"
    return packaged if (packaged / "copier.yml").is_file() else None


def in_home(path: Path) -> str:
    """A path as a project keeps it: `~/...` below the home directory, so that it names nobody's machine."""
    try:
        return f"~/{path.relative_to(Path.home()).as_posix()}"
    except ValueError:
        return str(path)


def is_own(src_path: str) -> bool:
    """Whether an answers file's `_src_path` was made by `materialise`, here or on another machine."""
    return Path(src_path).parts[-2:] == ("kernelgen", "template")


def released_versions(bundle: Path) -> dict[str, str]:
    """The tags of a bundle and their commits, oldest version first; empty when there is no bundle."""
    from packaging.version import Version

    if not bundle.is_file():
        return {}
    lines = git.text("bundle", "list-heads", str(bundle), cwd=bundle.parent, hermetic=True).splitlines()
    commits = {
        ref.removeprefix("refs/tags/"): commit for commit, ref in (line.split(" ", 1) for line in lines)
    }
    return {tag: commits[tag] for tag in sorted((t for t in commits if t.startswith("v")), key=Version)}


def read_tree(root: Path) -> list[TemplateFile]:
    """The template's files below a folder, sorted by path, without editors' and tools' litter.

    A file is executable when it starts with `#!`: wheels lose the mode bits, and a version must not depend on
    how kernelgen was installed.
    """
    # Copier clones with the user's configuration: core.autocrlf must not reach what it renders.
    files = [TemplateFile(".gitattributes", _FILE, b"* -text\n")]
    for path in _walk(root):
        data = path.read_bytes()
        mode = _EXECUTABLE if data.startswith(b"#!") else _FILE
        files.append(TemplateFile(path.relative_to(root).as_posix(), mode, data))
    return sorted(files, key=lambda file: file.path)


def tree_id(files: list[TemplateFile]) -> str:
    """The id that git gives to a tree of these files (40 hex digits), computed without git."""
    root: dict[str, Any] = {}
    for file in files:
        *folders, name = file.path.split("/")
        node = root
        for folder in folders:
            node = node.setdefault(folder, {})
        node[name] = (file.mode, _object_id("blob", file.data))
    return _tree_object(root)


def commit_version(
    repository: Path, files: list[TemplateFile], tag: str, parent: str | None, serial: int
) -> None:
    """Commit a template version under a tag, with nothing in it that depends on the machine or the hour.

    Args:
        repository: a git repository.
        files: the whole tree.
        tag: a tag that does not exist yet.
        parent: the commit of the version before, or None for the first.
        serial: seconds to add to a fixed date, so that git lists versions in order.
    """
    message = f"Template {tag}\n".encode()
    lines = [
        b"commit refs/heads/main",
        b"mark :1",
        f"committer kernelgen <kernelgen@localhost> {_EPOCH + serial} +0000".encode(),
        b"data %d" % len(message),
        message,
        *([f"from {parent}".encode()] if parent else []),
        b"deleteall",
    ]
    for file in files:
        quoted = file.path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines += [f'M {file.mode} inline "{quoted}"'.encode(), b"data %d" % len(file.data), file.data]
    lines += [f"reset refs/tags/{tag}".encode(), b"from :1", b"done", b""]
    git.run(
        "fast-import", "--quiet", "--force", "--done", cwd=repository, hermetic=True, stdin=b"\n".join(lines)
    )


def _foreign(override: str) -> TemplateSource:
    """Somebody else's template, named on the command line or in the environment."""
    if "://" in override or override.startswith(("git@", "git+", "gh:", "gl:")):
        return TemplateSource(override, None, None)
    path = Path(override).expanduser()
    if not path.exists():
        raise KernelgenError(
            f"there is no template at {override!r}",
            where=f"--template or {ENVIRONMENT_VARIABLE}",
            way_out="give a folder, a git repository, or an address such as gh:owner/name",
        )
    path = path.absolute().resolve()
    # Copier expands "~" for git repositories only.
    return TemplateSource(in_home(path) if (path / ".git").exists() else str(path), None, None)


def _refresh(repository: Path, bundle: Path, root: Path | None) -> str:
    """Bring the repository up to the bundle and the working tree; returns this kernelgen's tag."""
    for stale in repository.parent.glob("template.new-*"):
        shutil.rmtree(stale, ignore_errors=True)
    if _is_healthy(repository):
        return _import_versions(repository, bundle, root)
    fresh = Path(tempfile.mkdtemp(prefix="template.new-", dir=repository.parent))
    fresh.chmod(0o755)
    git.run("init", "-q", "--template=", "--initial-branch=main", cwd=fresh, hermetic=True)
    ref = _import_versions(fresh, bundle, root)
    if repository.exists():
        shutil.rmtree(repository)
    fresh.rename(repository)
    return ref


def _is_healthy(repository: Path) -> bool:
    """Whether git can read the repository."""
    if not (repository / ".git" / "HEAD").is_file():
        return False
    found = git.run("rev-parse", "-q", "--verify", "main^{tree}", cwd=repository, hermetic=True, check=False)
    return found.returncode == 0


def _import_versions(repository: Path, bundle: Path, root: Path | None) -> str:
    """Fetch the released versions, commit the working tree if it is none of them; returns the tag to use."""
    released = released_versions(bundle)
    known = _tags(repository)
    if not released.keys() <= known.keys():
        git.run(
            "fetch", "-q", "--no-write-fetch-head", "--force", str(bundle), "refs/tags/*:refs/tags/*",
            cwd=repository, hermetic=True,
        )  # fmt: skip
        known = _tags(repository)
    newest = next(reversed(released), None)
    ref = newest if root is None else _commit_working_tree(repository, root, newest, known)
    if ref is None:
        raise KernelgenError(
            "the template bundle holds no version", where=str(bundle), way_out="reinstall kernelgen"
        )
    git.run("reset", "-q", "--hard", f"refs/tags/{ref}", cwd=repository, hermetic=True)
    return ref


def _commit_working_tree(repository: Path, root: Path, newest: str | None, known: dict[str, str]) -> str:
    """The tag of the tree at `root`: the newest release if that is what it is, else a development version.

    A development version is a post-release (`v0.1.0.post3+g1a2b3c4d`), not a pre-release, because Copier
    looks for the newest version that is none; the count rises with each change, because Copier refuses to go
    down.
    """
    files = read_tree(root)
    tree = tree_id(files)
    if (
        newest
        and git.text("rev-parse", f"refs/tags/{newest}^{{tree}}", cwd=repository, hermetic=True) == tree
    ):
        return newest
    base = (newest or "v0.0.0").removeprefix("v")
    matches = [match for match in map(_DEVELOPMENT.fullmatch, known) if match and match["base"] == base]
    last = max(matches, key=lambda match: int(match["count"]), default=None)
    if last and last["tree"] == tree[:8]:
        return last.string
    count = int(last["count"]) + 1 if last else 1
    tag = f"v{base}.post{count}+g{tree[:8]}"
    commit_version(repository, files, tag, f"refs/tags/{newest}^0" if newest else None, count)
    return tag


def _tags(repository: Path) -> dict[str, str]:
    """Every tag of a repository and what it points to."""
    lines = git.text(
        "for-each-ref",
        "--format=%(refname:strip=2) %(objectname)",
        "refs/tags",
        cwd=repository,
        hermetic=True,
    )
    return dict(line.split(" ", 1) for line in lines.splitlines())


def _stamped(stamp: Path, repository: Path, fingerprint: str) -> str | None:
    """The tag found by an earlier call, if nothing has changed since; None if git has to look."""
    try:
        said = json.loads(stamp.read_text(encoding="utf-8"))
        if said["fingerprint"] != fingerprint:
            return None
        ref = str(said["ref"])
        loose = repository / ".git" / "refs" / "tags" / ref
        packed = repository / ".git" / "packed-refs"
        held = loose.is_file() or f" refs/tags/{ref}\n" in packed.read_text(encoding="utf-8")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return ref if held else None


def _fingerprint(bundle: Path, root: Path | None) -> str:
    """A hash of the sizes and times of all that the repository is made from."""
    seen = hashlib.sha256()
    for path in [bundle, *(_walk(root) if root else ())]:
        try:
            about = path.stat()
        except FileNotFoundError:
            continue
        seen.update(
            f"{path}\0{about.st_size}\0{about.st_mtime_ns}\0{about.st_ino}\n".encode(
                "utf-8", "surrogateescape"
            )
        )
    return seen.hexdigest()


def _walk(root: Path) -> Iterator[Path]:
    """The template's files below a folder, in a fixed order."""
    for part in PARTS:
        yield from _walk_one(root / part)


def _walk_one(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            if not _LITTER.search(child.name):
                yield from _walk_one(child)


def _object_id(kind: str, data: bytes) -> str:
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False).hexdigest()


def _tree_object(node: dict[str, Any]) -> str:
    """The id of a tree object; git sorts entries as if a folder's name ended in a slash."""
    entries = []
    for name, child in node.items():
        mode, oid = (_TREE, _tree_object(child)) if isinstance(child, dict) else child
        key = name.encode() + (b"/" if mode == _TREE else b"")
        entries.append((key, mode.encode() + b" " + name.encode() + b"\0" + bytes.fromhex(oid)))
    return _object_id("tree", b"".join(entry for _, entry in sorted(entries)))


def _write_atomically(path: Path, content: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as beside:
        beside.write(content)
    Path(beside.name).replace(path)
