"""Carrying a project to another version of its template, or to other answers; its owner's work survives.

Copier renders what the template wrote and what it writes now, outside the project; `merge` brings the
difference into the project's last commit; `journal` puts the result into the working tree in one step.
Copier's own update is not used: it patches in place, and drops edits in files that the template renames or no
longer has.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shutil
import tempfile
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen import git, journal, merge, template, yamltext
from kernelgen.errors import KernelgenError
from kernelgen.journal import Change, File, Worktree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from packaging.version import Version

ANSWERS = ".copier-answers.yml"
# Answers that file names are made of; another one is a move of the project, not an update.
IDENTITY = "kernel_name"


@dataclass(frozen=True)
class Status:
    """Whether a project can be updated: the tags of the version that made it and of the newest one."""

    current: str
    newest: str
    available: bool


@dataclass(frozen=True)
class Report:
    """What an update did, or with `dry_run` would do. Paths are relative to the project.

    Attributes:
        current: the tag of the version before.
        target: the tag of the version after; the same when only answers changed.
        added, changed, removed: files.
        moved: template renames that were followed, as (old, new).
        kept: files that were left against the template, and why.
        conflicts: files that need their owner; `git add` each when it is right, or abort.
        new_answers: questions that are new in this version and the defaults that answered them.
        diff: the whole change as a unified diff.
    """

    current: str
    target: str
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    kept: tuple[merge.Kept, ...] = ()
    conflicts: tuple[merge.Conflict, ...] = ()
    new_answers: Mapping[str, Any] = field(default_factory=dict)
    diff: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.added or self.changed or self.removed or self.moved or self.conflicts)


@dataclass(frozen=True)
class Rendered:
    """What a template version writes for some answers.

    Attributes:
        files: the tree, answers file included.
        owned: whether a path belongs to the owner once written (Copier's `_skip_if_exists`).
        questions: the names that can be answered.
        answers: the answers that went into the answers file.
    """

    files: merge.Tree
    owned: Callable[[str], bool]
    questions: frozenset[str]
    answers: Mapping[str, Any]


@dataclass(frozen=True)
class _Origin:
    """The template of a project: where it is, the tag that made the project, and every tag, oldest first."""

    url: str
    current: str
    newest: str
    tags: tuple[str, ...]


def check(project: Path) -> Status:
    """Whether a newer version of the project's template is at hand; writes nothing, needs no clean tree.

    Raises:
        KernelgenError: the project has no answers file, or its template can't be read.
    """
    origin = _origin(read_answers(project), None)
    return Status(origin.current, origin.newest, _version(origin.newest) > _version(origin.current))


def update(
    project: Path,
    *,
    dry_run: bool = False,
    to_version: str | None = None,
    drop: bool = False,
    data: Mapping[str, Any] | None = None,
    source: str | None = None,
) -> Report:
    """Carry a project to a newer template version, to other answers, or both.

    The changes are left staged, as after `git merge --no-commit`; until they are committed `abort` undoes
    them.

    Args:
        project: a project with an answers file, in git, its tracked files clean.
        dry_run: change nothing; the report has the diff.
        to_version: a version or tag of the template, "current" to change answers only; by default the newest.
        drop: let changed answers remove files that their owner has edited.
        data: answers to change.
        source: another template than the one in the answers file.

    Returns:
        What happened. With conflicts the files hold marks and are unmerged in the index.

    Raises:
        KernelgenError: nothing was changed; the message says why and the way out.
    """
    data = dict(data or {})
    answers = read_answers(project)
    if IDENTITY in data and data[IDENTITY] != answers.get(IDENTITY):
        raise KernelgenError(
            f"{IDENTITY} can't change in an update: files and namespaces are named after it",
            way_out=f"run `kernelgen rename {data[IDENTITY]}`, which takes your edits along",
        )
    tree = worktree(project)
    with journal.locked(tree):
        refuse_unready(tree)
        plan = _Planner(tree, read_answers(project), to_version, source).plan(data, drop=drop)
        return _carry_out(tree, plan, dry_run=dry_run)


def rename(project: Path, name: str, *, dry_run: bool = False) -> Report:
    """Give a project another kernel name: move its files, rewrite what the template wrote, keep all edits.

    The template version stays. Mentions of the old name in text that its owner wrote are left, and reported.

    Args:
        project: as for `update`.
        name: the new kernel name.
        dry_run: change nothing.

    Returns:
        What happened; `kept` lists files that still say the old name.

    Raises:
        KernelgenError: as for `update`, or the name is not one.
    """
    tree = worktree(project)
    with journal.locked(tree):
        refuse_unready(tree)
        answers = read_answers(project)
        plan = _Planner(tree, answers, "current", None).plan_rename(str(answers.get(IDENTITY)), name)
        return _carry_out(tree, plan, dry_run=dry_run)


def abort(project: Path) -> list[str]:
    """Undo the last update: every file that it touched becomes what the last commit holds.

    Returns:
        The paths that were put back.

    Raises:
        KernelgenError: no update since the last commit.
    """
    tree = worktree(project)
    with journal.locked(tree):
        if journal.last_note(tree) is None:
            raise KernelgenError(
                "there is no update to abort: none was made since the last commit",
                where=str(project),
                way_out="to undo a committed update, `git revert` its commit",
            )
        return journal.restore(tree)


def conflict_marks(project: Path) -> tuple[str, ...]:
    """Where conflicts of an update or a merge are unresolved.

    Returns:
        `path:line` for each mark in a tracked file, and the path alone for files that are unmerged in the
        index or have a `.rej` file of a failed patch beside them. Empty for a project outside git, and
        without git.
    """
    tree = journal.find(project) if shutil.which("git") else None
    if tree is None:
        return ()
    if journal.is_half_done(tree):
        with journal.locked(tree):
            pass
    grep = ("grep", "-l", "-z", "-I", "-E", "^>>>>>>> ")
    marked = git.run(*grep, cwd=project, check=False).stdout.split(b"\0")[:-1]
    found = []
    for raw in marked:
        path = os.fsdecode(raw)
        found += [f"{path}:{place.line}" for place in merge.places((project / path).read_bytes())]
    named = {where.rpartition(":")[0] for where in found}
    unmerged = git.run("ls-files", "-u", "-z", cwd=project).stdout.split(b"\0")[:-1]
    rejects = git.run("ls-files", "-o", "-z", "--", "*.rej", cwd=project).stdout.split(b"\0")[:-1]
    whole = {os.fsdecode(line.split(b"\t", 1)[1]) for line in unmerged} | {os.fsdecode(p) for p in rejects}
    return (*found, *sorted(whole - named))


def has_conflict_marks(project: Path) -> bool:
    """Whether an update or a merge has left something for a person to decide."""
    return bool(conflict_marks(project))


def refuse_conflict_marks(project: Path) -> None:
    """Stop where conflicts are unresolved.

    Raises:
        KernelgenError: names each place.
    """
    if marks := conflict_marks(project):
        raise KernelgenError(
            "there are unresolved conflicts",
            where=str(project),
            detail="\n".join(marks),
            way_out="decide each, then `git add` the files; or `kernelgen update --abort` to go back",
        )


def read_answers(project: Path) -> dict[str, Any]:
    """A project's answers, `_src_path` and `_commit` included.

    Raises:
        KernelgenError: there is no answers file, or it is not a YAML mapping.
    """
    path = project / ANSWERS
    try:
        answers = yamltext.answers(path)
    except FileNotFoundError as error:
        raise KernelgenError(
            "the project has no answers file", where=str(path), way_out="`kernelgen adopt` writes one"
        ) from error
    if not isinstance(answers, dict):
        raise KernelgenError("the answers file holds no answers", where=str(path))
    return answers


def render(url: str, ref: str | None, answers: Mapping[str, Any]) -> Rendered:
    """Render a template version into memory, by Copier.

    Args:
        url: any Copier source.
        ref: a tag or commit; None for the newest.
        answers: what to answer; names that begin with an underscore are left out, the rest is the default.

    Raises:
        KernelgenError: Copier refuses an answer, or the template can't be rendered.
    """
    import copier

    given = {key: value for key, value in answers.items() if not key.startswith("_")}
    with tempfile.TemporaryDirectory(prefix="kernelgen-render-") as folder, _quiet_git():
        target = Path(folder, "project")
        try:
            worker = copier.run_copy(
                url, target, given, vcs_ref=ref, defaults=True, overwrite=True, quiet=True, skip_tasks=True
            )
            match_skip = worker.match_skip
            questions = frozenset(
                name
                for name, about in worker.template.questions_data.items()
                if about.get("when") is not False
            )
        except Exception as error:  # Copier raises its own errors, Jinja's, ValueError, plumbum's
            raise KernelgenError(
                f"the template can't be rendered at version {ref or 'newest'}",
                where=url,
                detail=f"{type(error).__name__}: {str(error).strip()}",
            ) from error
        files = _read_folder(target)
    written = _parse_answers(files)
    return Rendered(files, lambda path: bool(match_skip(Path(path))), questions, written)


@dataclass(frozen=True)
class _Plan:
    """What is to be done to a working tree."""

    report: Report
    before: merge.Tree
    after: merge.Tree


@dataclass(frozen=True)
class _Planner:
    """Works out what an update changes; writes nothing."""

    tree: Worktree
    answers: Mapping[str, Any]
    to_version: str | None
    source: str | None

    def plan(self, data: Mapping[str, Any], *, drop: bool) -> _Plan:
        """First the version with the old answers, then the answers: renames and removals are no guess."""
        origin = _origin(self.answers, self.source)
        target = _target(origin, self.to_version)
        if target == origin.current and not data:
            return _Plan(Report(target, target), {}, {})
        ours = journal.read_commit(self.tree, "HEAD")
        old = render(origin.url, origin.current, self.answers)
        new = old if target == origin.current else render(origin.url, target, self.answers)
        _refuse_unknown(data, new.questions)
        merged = (
            self._merge_versions(ours, old, new, origin, target)
            if new is not old
            else merge.Merged(dict(ours))
        )
        final = new
        if any(new.answers.get(key) != value for key, value in data.items()):
            if merged.conflicts:
                raise KernelgenError(
                    f"updating to {target} gives conflicts, so answers can't be changed in the same step",
                    detail="\n".join(_describe(merged.conflicts)),
                    way_out="run `kernelgen update` without answers first",
                )
            final = render(origin.url, target, {**self.answers, **data})
            merged = self._merge_answers(merged, new, final, origin, drop=drop)
        merged.files[ANSWERS] = final.files[ANSWERS]
        added = {k: v for k, v in final.answers.items() if k not in self.answers and k not in data}
        return _Plan(_report(origin.current, target, ours, merged, added), ours, merged.files)

    def plan_rename(self, before: str, after: str) -> _Plan:
        """Render both names and merge everything by text, owned files too: their names are in them."""
        origin = _origin(self.answers, None)
        if after == before:
            raise KernelgenError(f"the kernel is named {before!r} already")
        ours = journal.read_commit(self.tree, "HEAD")
        old = render(origin.url, origin.current, self.answers)
        new = render(origin.url, origin.current, {**self.answers, IDENTITY: after})
        moves = _moves(old.files, new.files, before, after)
        labels = merge.Labels("yours", f"named {after}")
        merged = merge.merge(old.files, ours, new.files, owned=lambda _: False, labels=labels, renamed=moves)
        _move_the_rest(merged, ours, old.files)
        merged.files[ANSWERS] = new.files[ANSWERS]
        merged.kept += [
            merge.Kept(path, "edited by you; the new project has no such file")
            for path in merged.edited_removals
        ]
        written = {path: file for path, file in merged.files.items() if new.files.get(path) != file}
        merged.kept += _mentions(written, before, after)
        return _Plan(_report(origin.current, origin.current, ours, merged, {}), ours, merged.files)

    def _merge_versions(
        self, ours: merge.Tree, old: Rendered, new: Rendered, origin: _Origin, target: str
    ) -> merge.Merged:
        earlier = _Earlier(origin, self.answers)
        merged = merge.merge(
            _without_answers(old.files),
            ours,
            _without_answers(new.files),
            owned=new.owned,
            labels=merge.Labels("yours", f"template {target}"),
            renamed=merge.find_renames(old.files, new.files),
            pristine=lambda path, file: old.owned(path) and earlier.wrote(path, file),
        )
        reason = (
            f"template {target} no longer has it, and you have changed it; delete it if you don't need it"
        )
        merged.kept += [merge.Kept(path, reason) for path in merged.edited_removals]
        return merged

    def _merge_answers(
        self, so_far: merge.Merged, old: Rendered, new: Rendered, origin: _Origin, *, drop: bool
    ) -> merge.Merged:
        earlier = _Earlier(origin, self.answers)
        merged = merge.merge(
            _without_answers(old.files),
            so_far.files,
            _without_answers(new.files),
            owned=new.owned,
            labels=merge.Labels("yours", "new answers"),
            pristine=lambda path, file: old.owned(path) and earlier.wrote(path, file, current=True),
        )
        if merged.edited_removals and not drop:
            raise KernelgenError(
                "these answers would delete files that you have edited",
                where=str(self.tree.project),
                detail="\n".join(merged.edited_removals),
                way_out="pass --drop to delete them, or keep the answers",
            )
        for path in merged.edited_removals:
            del merged.files[path]
        merged.kept = so_far.kept + merged.kept
        merged.moved = so_far.moved | merged.moved
        return merged


class _Earlier:
    """What earlier template versions wrote for the same answers, rendered when first asked for."""

    _LIMIT = 20

    def __init__(self, origin: _Origin, answers: Mapping[str, Any]) -> None:
        self._origin = origin
        self._answers = answers
        self._trees: dict[str, merge.Tree] = {}

    def wrote(self, path: str, file: File, *, current: bool = False) -> bool:
        """Whether a version before the project's (with `current` that too) wrote this file as it is."""
        limit = _version(self._origin.current)
        tags = [t for t in self._origin.tags if _version(t) < limit or (current and _version(t) == limit)]
        return any(self._tree(tag).get(path) == file for tag in reversed(tags[-self._LIMIT :]))

    def _tree(self, tag: str) -> merge.Tree:
        if tag not in self._trees:
            try:
                self._trees[tag] = render(self._origin.url, tag, self._answers).files
            except KernelgenError:  # these answers don't fit that version, so it did not make this project
                self._trees[tag] = {}
        return self._trees[tag]


def worktree(project: Path, what: str = "an update") -> Worktree:
    """The git working tree of a project, which `what` merges with and can be undone by.

    Raises:
        KernelgenError: the project is not in git, or has no commit.
    """
    tree = journal.find(project)
    if tree is None:
        raise KernelgenError(
            f"{what} needs the project in git, to merge with what you have and to be undone",
            where=str(project),
            way_out=git.to_commit("git init && git add -A && git commit -m 'Start'", cwd=project),
        )
    if not tree.head():
        raise KernelgenError(
            "the project has no commit yet",
            where=str(project),
            way_out=git.to_commit("git add -A && git commit -m 'Start'", cwd=project),
        )
    return tree


def refuse_unready(tree: Worktree) -> None:
    """Only a committed state can be merged and come back."""
    refuse_conflict_marks(tree.project)
    _refuse_dirty(tree)


def _refuse_dirty(tree: Worktree) -> None:
    if dirty := journal.dirty_paths(tree):
        commit = git.to_commit("git commit -am ...", cwd=tree.top)
        raise KernelgenError(
            "the project has changes that are not committed",
            where=str(tree.project),
            detail="\n".join(dirty[:20] + (["..."] if len(dirty) > 20 else [])),
            way_out=f"commit them (`{commit}`) or set them aside (`git stash`), then update",
        )


def _origin(answers: Mapping[str, Any], override: str | None) -> _Origin:
    """Find the project's template and its versions."""
    src_path, current = answers.get("_src_path"), answers.get("_commit")
    if not src_path or not current:
        raise KernelgenError(
            "the answers file does not say which template made the project: it lacks _src_path or _commit",
            where=ANSWERS,
            way_out="`kernelgen adopt` writes both",
        )
    if override is None and template.is_own(str(src_path)):
        own = template.materialise()
        url, newest = own.path_or_url, own.ref
    else:
        url, newest = template.source(override or str(src_path)).path_or_url, None
    tags = _list_tags(url)
    released = [tag for tag in tags if not _version(tag).is_prerelease]
    newest = newest or next(reversed(released or tags), None)
    if newest is None:
        raise KernelgenError(
            "the template has no version tags", where=url, way_out="tag it, for example v0.1.0"
        )
    if str(current) not in tags:
        raise KernelgenError(
            f"the project was made by template version {current}, which is not known here",
            where=url,
            detail=f"known: {', '.join(tags[-5:])}",
            way_out="install the kernelgen that made it or a newer one (`pip install -U kernelgen`)",
        )
    return _Origin(url, str(current), newest, tags)


def _list_tags(url: str) -> tuple[str, ...]:
    """The version tags of a template, oldest first."""
    address = url.removeprefix("git+")
    for short, host in (("gh:", "https://github.com/"), ("gl:", "https://gitlab.com/")):
        if address.startswith(short):
            address = f"{host}{address.removeprefix(short).lstrip('/')}"
    if "://" not in address and not address.startswith("git@"):
        address = str(Path(address).expanduser())
    with tempfile.TemporaryDirectory(prefix="kernelgen-tags-") as nowhere:
        listed = git.run("ls-remote", "--tags", "--refs", "--", address, cwd=Path(nowhere), check=False)
    if listed.returncode:
        raise KernelgenError(
            "the template can't be reached, or is no git repository",
            where=url,
            detail=listed.stderr.decode(errors="replace").strip(),
            way_out="pass --template with an address that works here",
        )
    names = re.findall(r"\trefs/tags/(.+)$", listed.stdout.decode(errors="replace"), re.MULTILINE)
    return tuple(sorted(filter(_is_version, names), key=_version))


def _is_version(tag: str) -> bool:
    from packaging.version import InvalidVersion

    try:
        _version(tag)
    except InvalidVersion:
        return False
    return True


def _version(tag: str) -> Version:
    from packaging.version import Version

    return Version(tag)


def _target(origin: _Origin, asked: str | None) -> str:
    """The tag to update to."""
    if asked == "current":
        return origin.current
    target = origin.newest
    if asked is not None:
        if not _is_version(asked) or not (
            found := [t for t in origin.tags if _version(t) == _version(asked)]
        ):
            raise KernelgenError(
                f"the template has no version {asked!r}",
                where=origin.url,
                detail=f"known: {', '.join(origin.tags[-8:])}",
            )
        target = found[-1]
    if _version(target) < _version(origin.current):
        raise KernelgenError(
            f"the project is at template version {origin.current}, which is newer than {target}",
            way_out="upgrade kernelgen (`pip install -U kernelgen`)"
            if asked is None
            else f"an update can't go down; `git revert` the commit that brought {origin.current}",
        )
    return target


def _refuse_unknown(data: Mapping[str, Any], questions: frozenset[str]) -> None:
    """Copier ignores answers to questions that don't exist; a person has then misspelt one."""
    for key in data:
        if key not in questions:
            near = difflib.get_close_matches(key, questions, 1)
            raise KernelgenError(
                f"the template has no question {key!r}",
                way_out=f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(questions))}",
            )


def _carry_out(tree: Worktree, plan: _Plan, *, dry_run: bool) -> Report:
    """Show a plan, or apply it."""
    refuse_in_the_way(tree, plan.before, plan.after)
    if dry_run:
        return replace(plan.report, diff=merge.unified_diff(plan.before, plan.after))
    stages = {conflict.path: conflict.stages for conflict in plan.report.conflicts}
    paths = sorted(plan.before.keys() | plan.after.keys())
    changes = [
        Change(path, plan.after.get(path), stages.get(path))
        for path in paths
        if plan.before.get(path) != plan.after.get(path) or path in stages
    ]
    if changes:
        _refuse_dirty(tree)  # an editor may have saved a file in the meantime
        journal.apply(tree, changes, {"from": plan.report.current, "to": plan.report.target})
    return plan.report


def refuse_in_the_way(tree: Worktree, before: merge.Tree, after: merge.Tree) -> None:
    """Untracked files block only where a new file has to go, and not if they are that file already."""
    blocking = []
    for path in after.keys() - before.keys():
        there = tree.project / path
        same = there.is_file() and not there.is_symlink() and there.read_bytes() == after[path].data
        if os.path.lexists(there) and not same:
            blocking.append(path)
    if blocking:
        raise KernelgenError(
            "files that git does not track are where the update puts new ones",
            where=str(tree.project),
            detail="\n".join(sorted(blocking)),
            way_out="commit them, to have them merged, or move them away",
        )


def _report(
    current: str, target: str, before: merge.Tree, merged: merge.Merged, new_answers: Mapping[str, Any]
) -> Report:
    after = merged.files
    moved = tuple(sorted((a, b) for a, b in merged.moved.items() if a not in after))
    old_names, new_names = {a for a, _ in moved}, {b for _, b in moved}
    return Report(
        current,
        target,
        added=tuple(sorted(after.keys() - before.keys() - new_names)),
        changed=tuple(sorted(path for path in before.keys() & after.keys() if before[path] != after[path])),
        removed=tuple(sorted(before.keys() - after.keys() - old_names)),
        moved=moved,
        kept=tuple(merged.kept),
        conflicts=tuple(sorted(merged.conflicts, key=lambda conflict: conflict.path)),
        new_answers=new_answers,
    )


def _describe(conflicts: list[merge.Conflict]) -> list[str]:
    """`path:line` for every conflict."""
    return [f"{c.path}:{place.line}" for c in conflicts for place in c.places] + [
        c.path for c in conflicts if not c.places
    ]


def _without_answers(files: merge.Tree) -> merge.Tree:
    return {path: file for path, file in files.items() if path != ANSWERS}


def _parse_answers(files: merge.Tree) -> dict[str, Any]:
    written = written_answers(files)
    return {key: value for key, value in written.items() if not str(key).startswith("_")}


def written_answers(files: merge.Tree) -> dict[str, Any]:
    """What a rendered answers file holds, `_commit` included.

    Raises:
        KernelgenError: the template writes none, or none that can be read.
    """
    if ANSWERS not in files:
        raise KernelgenError(f"the template writes no {ANSWERS}, so its projects can't be updated")
    subject, way_out = "the answers file that the template writes", f"mend {ANSWERS}.jinja in the template"
    written = yamltext.parse(files[ANSWERS].data, f"{subject} is not YAML", where=ANSWERS, way_out=way_out)
    if not isinstance(written or {}, dict):
        raise KernelgenError(f"{subject} holds no answers", where=ANSWERS, way_out=way_out)
    return dict(written or {})


def _read_folder(root: Path) -> merge.Tree:
    """A folder's files as git would keep them."""
    files: merge.Tree = {}
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in [*names, *links]:
            path = Path(folder, name)
            key = path.relative_to(root).as_posix()
            if path.is_symlink():
                files[key] = File("120000", os.fsencode(path.readlink()))
            else:
                mode = "100755" if path.stat().st_mode & 0o100 else "100644"
                files[key] = File(mode, path.read_bytes())
    return files


@contextlib.contextmanager
def _quiet_git() -> Iterator[None]:
    """Run Copier without a hook's GIT_* variables and without its warnings."""
    from plumbum import local

    with warnings.catch_warnings(), local.env():
        warnings.simplefilter("ignore")
        for name in [name for name in local.env.getdict() if name.startswith("GIT_")]:
            del local.env[name]
        yield


def _moves(old: merge.Tree, new: merge.Tree, before: str, after: str) -> dict[str, str]:
    """Which file of a project under its old name is which under the new one."""
    forms = [(before, after), (before.replace("-", "_"), after.replace("-", "_"))]
    moves = {}
    for path in old.keys() - new.keys():
        candidates = (path.replace(a, b) for a, b in forms)
        found = next((path for path in candidates if path in new.keys() - old.keys()), None)
        if found:
            moves[path] = found
    rest = {path: file for path, file in old.items() if path not in moves}
    return moves | merge.find_renames(rest, {p: f for p, f in new.items() if p not in moves.values()})


def _move_the_rest(merged: merge.Merged, ours: merge.Tree, base: merge.Tree) -> None:
    """Files that the owner added to folders that moved go with them."""
    pairs = ((Path(old).parent, Path(new).parent) for old, new in merged.moved.items())
    folders = {old: new for old, new in pairs if old != new}
    for path in ours.keys() - base.keys():
        for old, new in folders.items():
            if path in merged.files and Path(path).is_relative_to(old) and old != Path():
                target = (new / Path(path).relative_to(old)).as_posix()
                if target not in merged.files:
                    merged.files[target] = merged.files.pop(path)
                    merged.moved[path] = target


def _mentions(files: merge.Tree, name: str, new: str) -> list[merge.Kept]:
    """Files that still say a name, in either form, other than as a part of the new one."""
    spellings = {re.escape(form) for form in (name, name.replace("-", "_"))}
    new_spellings = {re.escape(form) for form in (new, new.replace("-", "_"))}
    skipped, found = "|".join(new_spellings), "|".join(spellings)
    pattern = re.compile(rf"(?:{skipped})|\b({found})\b".encode())
    reason = f"still says {name!r}; look whether it should"
    return [
        merge.Kept(path, reason)
        for path, file in sorted(files.items())
        if any(match[1] for match in pattern.finditer(file.data))
    ]
