"""Merging what a template changed into a project: three trees of files in, one out, and what needs a person.

A path is *managed* (merged line by line) or *owned* (its owner's text stands, whatever the template now
writes). Files that the template renames take their owner's text along; files that their owner deleted stay
deleted.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgen import git
from kernelgen.errors import KernelgenError
from kernelgen.journal import File

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Tree = dict[str, File]
# Of one piece: half of one version and half of another is neither. The owner takes one side.
ATOMIC = frozenset({"flake.lock"})
_EMPTY = File("100644", b"")
_OURS, _MIDDLE, _THEIRS = b"<<<<<<< ", b"=======", b">>>>>>> "
# Larger files are data, and nothing that a template has written.
_RENAME_LIMIT = 1 << 20


@dataclass(frozen=True)
class Place:
    """One conflict in a file: the line (from 1) where it begins, and both sides' text."""

    line: int
    ours: str
    theirs: str


@dataclass(frozen=True)
class Conflict:
    """A file that needs its owner.

    Attributes:
        path: the file.
        places: where in it, empty for a file that is taken as a whole (binary files, flake.lock).
        stages: the base, our and their file.
        reason: for a whole file, what happened.
    """

    path: str
    places: tuple[Place, ...]
    stages: tuple[File | None, File | None, File | None]
    reason: str = ""


@dataclass(frozen=True)
class Kept:
    """A file that was left as it is although the template has other plans for it, and why."""

    path: str
    reason: str


@dataclass
class Merged:
    """The result of a merge.

    Attributes:
        files: the merged tree; files in conflict are there with marks, or as their owner's for whole files.
        conflicts: what needs a person.
        kept: what was kept against the template.
        edited_removals: files that the template no longer writes but their owner has changed; they are in
            `files`.
        moved: template renames that were followed, old path to new.
    """

    files: Tree
    conflicts: list[Conflict] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    edited_removals: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Labels:
    """What the conflict marks call our side and theirs."""

    ours: str
    theirs: str


def merge(
    base: Tree,
    ours: Tree,
    theirs: Tree,
    *,
    owned: Callable[[str], bool],
    labels: Labels,
    renamed: Mapping[str, str] | None = None,
    pristine: Callable[[str, File], bool] = lambda _path, _file: False,
) -> Merged:
    """Bring the template's changes from `base` to `theirs` into `ours`.

    Args:
        base: what the template wrote.
        ours: the project.
        theirs: what the template writes now.
        owned: whether a path of `theirs` belongs to the owner.
        labels: names for the marks.
        renamed: the template's renames, paths of `base` to paths of `theirs`.
        pristine: whether a file that differs from `base` is nevertheless as some template version wrote it.

    Returns:
        The merged tree. The arguments are not changed.
    """
    renamed = renamed or {}
    moved = find_renames(base, {path: file for path, file in ours.items() if path not in theirs}, 60)
    merged = Merged(dict(ours))
    for path in base:
        _merge_known(path, base, ours, theirs, renamed, moved, owned, labels, pristine, merged)
    for path in theirs.keys() - base.keys() - set(renamed.values()):
        mine = ours.get(path)
        if mine is None:
            merged.files[path] = theirs[path]
        elif mine != theirs[path] and not owned(path):
            _merge_content(path, None, mine, theirs[path], labels, merged)
    return merged


def find_renames(before: Tree, after: Tree, similarity: int = 50) -> dict[str, str]:
    """Files that are in `after` under another path than in `before`, as git sees it.

    Args:
        before: one tree.
        after: another.
        similarity: how much of the text must be the same, in percent.

    Returns:
        Old path to new path.
    """
    gone = {p: f for p, f in before.items() if p not in after and 0 < len(f.data) < _RENAME_LIMIT}
    new = {p: f for p, f in after.items() if p not in before and 0 < len(f.data) < _RENAME_LIMIT}
    if not gone or not new:
        return {}
    with tempfile.TemporaryDirectory(prefix="kernelgen-renames-") as folder:
        _write_tree(Path(folder, "a"), gone)
        _write_tree(Path(folder, "b"), new)
        options = (
            "--no-index",
            "--name-status",
            "-z",
            "--no-ext-diff",
            f"-M{similarity}%",
            "--diff-filter=R",
        )
        found = git.run("diff", *options, "a", "b", cwd=Path(folder), hermetic=True, check=False).stdout
    fields = found.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return {fields[i + 1][2:]: fields[i + 2][2:] for i in range(0, len(fields), 3)}


def unified_diff(before: Tree, after: Tree) -> str:
    """The difference of two trees as `git diff` shows it, renames included."""
    paths = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    with tempfile.TemporaryDirectory(prefix="kernelgen-diff-") as folder:
        _write_tree(Path(folder, "a"), {path: file for path, file in before.items() if path in paths})
        _write_tree(Path(folder, "b"), {path: file for path, file in after.items() if path in paths})
        options = ("--no-index", "--no-ext-diff", "--no-color", "--no-prefix", "-M")
        shown = git.run("diff", *options, "a", "b", cwd=Path(folder), hermetic=True, check=False)
    return shown.stdout.decode(errors="replace")


def places(data: bytes) -> tuple[Place, ...]:
    """The conflicts that are marked in a file: all three marks, in order, each at the start of a line."""
    found = []
    start: int | None = None
    middle: int | None = None
    lines = data.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith(_OURS):
            start, middle = number, None
        elif line.rstrip(b"\r\n") == _MIDDLE and start is not None:
            middle = number
        elif line.startswith(_THEIRS) and start is not None and middle is not None:
            sides = (
                b"".join(part).decode(errors="replace")
                for part in (lines[start + 1 : middle], lines[middle + 1 : number])
            )
            found.append(Place(start + 1, *sides))
            start = middle = None
    return tuple(found)


def _merge_known(
    path: str,
    base: Tree,
    ours: Tree,
    theirs: Tree,
    renamed: Mapping[str, str],
    moved: Mapping[str, str],
    owned: Callable[[str], bool],
    labels: Labels,
    pristine: Callable[[str, File], bool],
    merged: Merged,
) -> None:
    """Merge one file that the template wrote before."""
    mine = path if path in ours else moved.get(path)
    their = path if path in theirs else renamed.get(path)
    if mine is None:
        return  # deleted by its owner, and stays so
    if their is None:
        if mine == path and (ours[mine] == base[path] or pristine(path, ours[mine])):
            del merged.files[path]
        else:
            merged.edited_removals.append(mine)
        return
    target = their if mine == path else mine
    if target != mine and target in ours:
        merged.kept.append(Kept(mine, f"the template moved it to {their}, where you have a file of your own"))
        return
    if target != mine:
        merged.moved[mine] = target
        del merged.files[mine]
    if owned(their):
        merged.files[target] = ours[mine]
    else:
        _merge_content(target, base[path], ours[mine], theirs[their], labels, merged)


def _merge_content(
    path: str, base: File | None, ours: File, theirs: File, labels: Labels, merged: Merged
) -> None:
    """Merge one managed file, line by line where it has lines."""
    if base and ours.data == base.data:
        data = theirs.data
    elif ours.data == theirs.data or (base and theirs.data == base.data):
        data = ours.data
    elif path in ATOMIC or any(b"\0" in file.data for file in (ours, theirs)):
        data = ours.data
        reason = (
            "both you and the template have changed it, and it can't be merged line by line; yours is kept"
        )
        merged.conflicts.append(Conflict(path, (), (base, ours, theirs), reason))
    else:
        data = _merge_lines(base or _EMPTY, ours, theirs, labels)
        if found := places(data):
            merged.conflicts.append(Conflict(path, found, (base, ours, theirs)))
    mode = theirs.mode if base and ours.mode == base.mode else ours.mode
    merged.files[path] = File(mode, data)


def _merge_lines(base: File, ours: File, theirs: File, labels: Labels) -> bytes:
    """Merge three texts; the owner's line ends win."""
    crlf = b"\r\n" in ours.data and ours.data.count(b"\n") == ours.data.count(b"\r\n")
    with tempfile.TemporaryDirectory(prefix="kernelgen-merge-") as folder:
        for name, file in (("ours", ours), ("base", base), ("theirs", theirs)):
            same_ends = crlf and b"\r\n" not in file.data
            Path(folder, name).write_bytes(file.data.replace(b"\n", b"\r\n") if same_ends else file.data)
        options = ("-p", "-L", labels.ours, "-L", "base", "-L", labels.theirs)
        done = git.run(
            "merge-file", *options, "ours", "base", "theirs", cwd=Path(folder), hermetic=True, check=False
        )
    if not 0 <= done.returncode < 128:
        raise KernelgenError("git can't merge a file", detail=done.stderr.decode(errors="replace").strip())
    return done.stdout


def _write_tree(folder: Path, tree: Tree) -> None:
    folder.mkdir(exist_ok=True)
    for path, file in tree.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if file.mode == "120000":
            (folder / path).symlink_to(file.data.decode("utf-8", "surrogateescape"))
        else:
            (folder / path).write_bytes(file.data)
            (folder / path).chmod(0o755 if file.mode == "100755" else 0o644)
