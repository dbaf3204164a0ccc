"""Changing many files of a git working tree as one step that can be killed, undone, and seen by `git status`.

Everything that takes time (new contents, the new index, a copy of what is overwritten) is prepared inside the
git directory; then a journal is written, files are moved into place one rename each, the index by one more,
and the journal is put away. A process that finds a journal knows that another was killed in between, and puts
the old files back. The put-away journal is what `restore` goes by until the next commit.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen import git
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ZERO = "0" * 40
MODES = ("100644", "100755", "120000")


@dataclass(frozen=True)
class File:
    """What git keeps of a file: its mode (one of MODES) and its bytes (a symbolic link's are its target)."""

    mode: str
    data: bytes


@dataclass(frozen=True)
class Change:
    """One path's new state.

    Attributes:
        path: relative to the project, with forward slashes.
        after: the new file; None removes it.
        stages: for a conflict, the base, our and their file (None where there is none); the index gets these
            three instead of `after`, which is what the working tree gets.
    """

    path: str
    after: File | None
    stages: tuple[File | None, File | None, File | None] | None = None


@dataclass(frozen=True)
class Worktree:
    """Where a project lies in git.

    Attributes:
        project: the project's folder.
        top: the root of the working tree; the project's own folder or one above it.
        prefix: the project relative to `top`, empty or with a slash at its end.
        git_dir: the git directory of this working tree.
        state: kernelgen's folder inside it, one for each project.
    """

    project: Path
    top: Path
    prefix: str
    git_dir: Path
    state: Path

    @property
    def index(self) -> Path:
        """The index file."""
        return self.git_dir / "index"

    def head(self) -> str:
        """The commit that is checked out; empty before the first one."""
        found = git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", cwd=self.project, check=False)
        return found.stdout.decode().strip()


def find(project: Path) -> Worktree | None:
    """The working tree that a folder is in, or None outside git."""
    if not project.is_dir():
        raise KernelgenError(f"there is no folder {str(project)!r}", way_out="give a project's folder")
    asked = ("--show-toplevel", "--absolute-git-dir", "--show-prefix")
    found = git.run("rev-parse", *asked, cwd=project, check=False)
    if found.returncode:
        if b"not a git repository" in found.stderr:
            return None
        raise KernelgenError(
            "git can't read the project", detail=found.stderr.decode(errors="replace").strip()
        )
    top, git_dir, prefix = found.stdout.decode("utf-8", "surrogateescape").split("\n")[:3]
    own = hashlib.sha256(prefix.encode("utf-8", "surrogateescape")).hexdigest()[:8] if prefix else "root"
    return Worktree(project, Path(top), prefix, Path(git_dir), Path(git_dir) / "kernelgen" / own)


@contextlib.contextmanager
def locked(tree: Worktree) -> Iterator[None]:
    """Keep two kernelgens from changing one project at once, and finish what a killed one left."""
    from filelock import FileLock, Timeout

    tree.state.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(tree.state / "lock", timeout=0):
            recover(tree)
            yield
    except Timeout as error:
        raise KernelgenError(
            "another kernelgen is changing this project", way_out="wait for it to end"
        ) from error


def read_commit(tree: Worktree, commit: str) -> dict[str, File]:
    """The project's files in a commit, by path relative to the project; submodules are left out."""
    listing = git.run("ls-tree", "-r", "-z", "--full-tree", f"{commit}:{tree.prefix}", cwd=tree.top).stdout
    entries = []
    for line in listing.split(b"\0")[:-1]:
        about, path = line.split(b"\t", 1)
        mode, _, oid = about.decode().split(" ")
        if mode in MODES:
            entries.append((path.decode("utf-8", "surrogateescape"), mode, oid))
    contents = _read_blobs(tree.top, [oid for _, _, oid in entries])
    return {path: File(mode, data) for (path, mode, _), data in zip(entries, contents, strict=True)}


def dirty_paths(tree: Worktree) -> list[str]:
    """Tracked files of the project that differ from the last commit, staged or not."""
    output = git.run(
        "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=dirty",
        "--", ".", cwd=tree.project,
    ).stdout  # fmt: skip
    return [entry[3:].decode("utf-8", "surrogateescape") for entry in output.split(b"\0") if entry]


def apply(tree: Worktree, changes: Sequence[Change], note: dict[str, Any]) -> None:
    """Make all changes, or, seen from the next call of any function here, none.

    Must run inside `locked`. The index ends up with every change staged, as after `git merge --no-commit`.

    Args:
        tree: a working tree whose tracked files are clean at the paths to change.
        changes: one for each path.
        note: what to keep with the journal.

    Raises:
        KernelgenError: another git process holds the index, or a path leads out of the project.
    """
    if (tree.git_dir / "index.lock").exists():
        raise KernelgenError(
            "another git process is changing this repository",
            where=str(tree.git_dir / "index.lock"),
            way_out="let it end; if none runs, remove the file",
        )
    for change in changes:
        _refuse_escape(tree, change.path)
    stage = _prepare(tree, changes)
    _back_up(tree, changes)
    entry = {"head": tree.head(), "changes": [_described(stage, change) for change in changes], "note": note}
    _write_durably(tree.state / "journal.json", json.dumps(entry))
    try:
        for change in changes:
            _put(stage / change.path if change.after else None, tree.project / change.path, tree.project)
        (tree.state / "index.new").replace(tree.index)
        (tree.state / "journal.json").replace(tree.state / "last.json")
    except BaseException as error:
        recover(tree)
        if isinstance(error, OSError):
            raise KernelgenError(
                f"a file can't be changed ({error.strerror}), so all were put back", where=str(error.filename)
            ) from error
        raise
    shutil.rmtree(stage, ignore_errors=True)
    # Only saves git from reading the files again.
    git.run("update-index", "-q", "--refresh", cwd=tree.top, check=False)


def is_half_done(tree: Worktree) -> bool:
    """Whether a process was killed while it changed the project; the next `locked` mends it."""
    return (tree.state / "journal.json").is_file()


def recover(tree: Worktree) -> bool:
    """Put back the old files if a process was killed while it changed them.

    A file that somebody has changed since is left as it is.

    Returns:
        Whether there was something to put back.
    """
    journal = tree.state / "journal.json"
    if not journal.is_file():
        return False
    entry = json.loads(journal.read_text(encoding="utf-8"))
    if entry["head"] != tree.head():  # its owner has committed since: what is there now is theirs
        journal.unlink()
        return False
    for change in entry["changes"]:
        path, old = tree.project / change["path"], tree.state / "old" / change["path"]
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            _beside(path).unlink()
        if _digest(path) in (change["after"], change["before"]):
            _put(old if change["before"] else None, path, tree.project, keep=True)
    # A copy, so that being killed in here does no harm either.
    shutil.copyfile(tree.state / "index.old", tree.state / "index.back")
    (tree.state / "index.back").replace(tree.index)
    journal.unlink()
    git.run("update-index", "-q", "--refresh", cwd=tree.top, check=False)
    return True


def last_note(tree: Worktree) -> dict[str, Any] | None:
    """The note of the last `apply` while its changes are not committed; None: nothing to restore."""
    try:
        entry = json.loads((tree.state / "last.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return dict(entry["note"]) if entry["head"] == tree.head() else None


def restore(tree: Worktree) -> list[str]:
    """Undo the last `apply`: the paths that it changed become what the last commit holds.

    Must run inside `locked`, and only where `last_note` finds something.

    Returns:
        The paths, relative to the project.
    """
    entry = json.loads((tree.state / "last.json").read_text(encoding="utf-8"))
    paths = [change["path"] for change in entry["changes"]]
    before = read_commit(tree, entry["head"])
    apply(tree, [Change(path, before.get(path)) for path in paths], {})
    (tree.state / "last.json").unlink()
    return paths


def _prepare(tree: Worktree, changes: Sequence[Change]) -> Path:
    """Write the new contents and the new index beside the old ones; returns the folder of the contents."""
    stage, index = tree.state / "stage", tree.state / "index.new"
    for leftover in (stage, tree.state / "old"):
        shutil.rmtree(leftover, ignore_errors=True)
    stage.mkdir(parents=True)
    shutil.copyfile(tree.index, index)
    shutil.copyfile(tree.index, tree.state / "index.old")
    files = [file for change in changes for file in (change.after, *(change.stages or ())) if file]
    ids = dict(zip(files, _write_blobs(tree, files), strict=True))
    env = {"GIT_INDEX_FILE": str(index)}

    def lines(entries: list[tuple[str, File | None, int]]) -> bytes:
        said = [(file.mode, ids[file]) if file else ("0", _ZERO) for _, file, _ in entries]
        named = zip(said, entries, strict=True)
        text = "".join(
            f"{mode} {oid} {stage}\t{tree.prefix}{path}\0" for (mode, oid), (path, _, stage) in named
        )
        return text.encode("utf-8", "surrogateescape")

    merged = lines([(change.path, change.after, 0) for change in changes])
    git.run("update-index", "-z", "--index-info", cwd=tree.top, stdin=merged, env=env)
    # git writes the files itself, so that filters and line ends are what they would be after a checkout.
    wanted = b"".join(
        f"{tree.prefix}{c.path}\0".encode("utf-8", "surrogateescape") for c in changes if c.after
    )
    whole = tree.state / "checkout"
    shutil.rmtree(whole, ignore_errors=True)
    git.run(
        "checkout-index", "-f", "-z", "--stdin", f"--prefix={whole}/", cwd=tree.top, stdin=wanted, env=env
    )
    if (whole / tree.prefix).is_dir():
        stage.rmdir()
        (whole / tree.prefix).rename(stage)
    shutil.rmtree(whole, ignore_errors=True)
    unmerged: list[tuple[str, File | None, int]] = []
    for change in changes:
        if change.stages:
            unmerged.append((change.path, None, 0))
            unmerged += [(change.path, f, n) for n, f in enumerate(change.stages, 1) if f]
    if unmerged:
        git.run("update-index", "-z", "--index-info", cwd=tree.top, stdin=lines(unmerged), env=env)
    return stage


def _back_up(tree: Worktree, changes: Sequence[Change]) -> None:
    """Copy what is about to be overwritten."""
    for change in changes:
        path, copy = tree.project / change.path, tree.state / "old" / change.path
        if os.path.lexists(path):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy, follow_symlinks=False)


def _described(stage: Path, change: Change) -> dict[str, Any]:
    """A change as the journal keeps it: digests tell later whether a file is still the old or the new one."""
    old = stage.parent / "old" / change.path
    return {"path": change.path, "before": _digest(old), "after": _digest(stage / change.path)}


def _digest(path: Path) -> str | None:
    """A hash of what is at a path, link or file; None where nothing is."""
    try:
        about = path.lstat()
        data = os.fsencode(path.readlink()) if stat.S_ISLNK(about.st_mode) else path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return hashlib.sha256(data).hexdigest()


def _put(new: Path | None, path: Path, project: Path, *, keep: bool = False) -> None:
    """Move a prepared file to its place by one rename; without one, remove the file and emptied folders."""
    if new is None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
        for folder in path.parents:
            if folder == project:
                break
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                try:
                    folder.rmdir()
                except OSError:
                    break
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if not keep:
        try:
            new.replace(path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            return
    # To be kept, or on another file system than the project (a worktree's git directory may be).
    shutil.copy2(new, _beside(path), follow_symlinks=False)
    _beside(path).replace(path)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.kernelgen")


def _refuse_escape(tree: Worktree, path: str) -> None:
    """Refuse a path that a symbolic link in the project would lead out of it."""
    folder = (tree.project / path).parent
    while not folder.exists():
        folder = folder.parent
    if not folder.resolve().is_relative_to(tree.project.resolve()):
        raise KernelgenError(f"{path!r} leads out of the project by a symbolic link", where=str(folder))


def _write_blobs(tree: Worktree, files: Sequence[File]) -> list[str]:
    """Put contents into the repository; returns their object ids. Unreferenced ones are harmless."""
    if not files:
        return []
    folder = tree.state / "blobs"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, file in enumerate(files):
        (folder / str(number)).write_bytes(file.data)
    names = "".join(f"{folder / str(number)}\n" for number in range(len(files)))
    done = git.run(
        "hash-object", "-w", "--no-filters", "--stdin-paths", cwd=tree.top, stdin=os.fsencode(names)
    )
    shutil.rmtree(folder)
    return done.stdout.decode().split()


def _read_blobs(cwd: Path, ids: Sequence[str]) -> list[bytes]:
    """The contents of objects, by one process."""
    if not ids:
        return []
    output = git.run("cat-file", "--batch", cwd=cwd, stdin="".join(f"{oid}\n" for oid in ids).encode()).stdout
    contents, at = [], 0
    for oid in ids:
        end = output.index(b"\n", at)
        kind = output[at:end].split(b" ")
        if len(kind) != 3:
            raise KernelgenError(f"git lacks the object {oid}", way_out="fetch the whole history first")
        size = int(kind[2])
        contents.append(output[end + 1 : end + 1 + size])
        at = end + 1 + size + 1
    return contents


def _write_durably(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
