"""New projects, and new declarations of old ones. Copier renders what is written here."""

from __future__ import annotations

import difflib
import keyword
import os
import re
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen import git, template, update, yamltext
from kernelgen.errors import KernelgenError
from kernelgen.project import refuse_license

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# kernel-builder's rule; copier.yml holds it too.
KERNEL_NAME = r"[a-z][a-z0-9-]*[a-z0-9]"
# Files, folders and a torch namespace are named after the kernel, and the Hub takes 96 for owner/name.
LONGEST_NAME = 64


@dataclass(frozen=True)
class NewProject:
    """What `new` made.

    Attributes:
        path: the project.
        answers: the declaration, as it stands in the answers file.
        commit: the first commit, or None where the files are only staged.
        note: why there is no commit, or no repository of the project's own.
    """

    path: Path
    answers: Mapping[str, Any]
    commit: str | None
    note: str | None


def new(
    path: Path,
    data: Mapping[str, Any],
    *,
    ask: bool = False,
    overwrite: bool = False,
    commit: bool = True,
    template_source: str | None = None,
) -> NewProject:
    """Render a new project and put it in git.

    Args:
        path: the folder to make; the kernel takes its name from it unless `data` names one.
        data: answers, by the names of copier.yml's questions; the others take their defaults.
        ask: put the other questions to the person at the terminal (Copier's prompts).
        overwrite: write into a folder that has files; files of the same names are replaced.
        commit: make the first commit; otherwise the files are staged.
        template_source: any Copier source in the place of kernelgen's own template.

    Returns:
        The project. Nothing has been written unless this returns.

    Raises:
        KernelgenError: the folder has files, an answer is unknown or refused, or the template fails.
    """
    path = path.absolute()
    answers = {"kernel_name": path.name, **data}
    check_kernel_name(str(answers["kernel_name"]))
    try:
        refuse_files(path, overwrite=overwrite)
        source = template.source(template_source)
        check_answers(answers, known=questions(source) if template_source is None else None)
        # Beside its place, for a rename; folders that are missing above it are made when nothing can fail.
        above = next(folder for folder in path.parents if folder.exists())
        with tempfile.TemporaryDirectory(prefix=".kernelgen-new.", dir=above) as folder:
            rendered = Path(folder) / "project"
            render(source, rendered, answers, ask=ask)
            final = update.read_answers(rendered)
            check_answers(final, known=None)
            path.parent.mkdir(parents=True, exist_ok=True)
            files = _move(rendered, path)
    except OSError as error:  # /proc, a full disk, a name that the file system does not take
        raise KernelgenError(
            f"the project cannot be written: {error.strerror or error}",
            where=str(path),
            way_out="choose another path",
        ) from error
    made, note = _into_git(path, files, commit=commit)
    return NewProject(path, final, made, note)


def refuse_files(path: Path, *, overwrite: bool) -> None:
    """Refuse a target that is a file, or a folder with files unless `overwrite` is set.

    Raises:
        KernelgenError: it is.
    """
    if path.exists() and not path.is_dir():
        raise KernelgenError(
            "there is a file where the project would go", where=str(path), way_out="choose another path"
        )
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise KernelgenError(
            "the folder is not empty",
            where=str(path),
            way_out="choose another path, or pass --overwrite to replace files of the same names",
        )


def questions(source: template.TemplateSource) -> frozenset[str]:
    """The names of the questions of kernelgen's own template that can be answered."""
    text = git.text(
        "show", f"{source.ref}:copier.yml", cwd=Path(source.path_or_url).expanduser(), hermetic=True
    )
    document = yamltext.parse(
        text,
        "the template's copier.yml is not YAML",
        where=source.path_or_url,
        way_out="install kernelgen again",
    )
    return frozenset(
        name
        for name, question in document.items()
        if not name.startswith("_") and question.get("when") is not False
    )


def check_answers(answers: Mapping[str, Any], *, known: frozenset[str] | None) -> None:
    """Hold answers against what only kernelgen can judge: unknown names, and the operators as a whole.

    Args:
        answers: by the questions' names; any may be absent.
        known: the questions there are, where that is to be checked.

    Raises:
        KernelgenError: with the nearest name for an unknown one, and a caret under the place in a schema.
    """
    for name in answers:
        if known is not None and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise KernelgenError(
                f"there is no question {name!r}",
                where="--data",
                way_out=f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}",
            )
    check_kernel_name(str(answers.get("kernel_name", "")))
    if answers.get("license") is not None:
        refuse_license(str(answers["license"]), "license")
    ops = answers.get("ops")
    if ops is not None:
        check_operators(ops, answers)


def check_kernel_name(name: str) -> None:
    """Refuse a name that is none to kernel-builder, or that C++ could not have as a namespace.

    Raises:
        KernelgenError: with a name that would do.
    """
    if not re.fullmatch(KERNEL_NAME, name):
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        raise KernelgenError(
            f"{name!r} cannot be a kernel's name",
            where="kernel_name",
            detail="  two or more of a-z, 0-9 and dashes; a letter first, no dash last",
            way_out=f"for example {better if re.fullmatch(KERNEL_NAME, better) else 'my-kernel'!r}",
        )
    if len(name) > LONGEST_NAME:
        raise KernelgenError(
            f"the kernel's name has {len(name)} characters, and {LONGEST_NAME} are the limit",
            where="kernel_name",
            detail=f"  {name[:LONGEST_NAME]}...",
            way_out="give a shorter one",
        )
    text = (Path(__file__).parent / "data" / "global_names.txt").read_text("utf-8")
    taken = {word for line in text.splitlines() if not line.startswith("#") for word in line.split()}
    python_name = name.replace("-", "_")
    if python_name in taken or keyword.iskeyword(python_name):
        raise KernelgenError(
            f"{name!r} cannot be a kernel's name: C, C++, CUDA or Python has {python_name!r} already",
            where="kernel_name",
            way_out=f"for example '{name}-kernel'",
        )


def check_changes(changes: Mapping[str, Any], answers: Mapping[str, Any]) -> None:
    """Hold other answers for a project of kernelgen's own template against what Copier cannot judge.

    Args:
        changes: the answers that change; the others stand, whatever they are.
        answers: all that the project has, `_src_path` included.

    Raises:
        KernelgenError: as for `check_answers`.
    """
    if not template.is_own(str(answers.get("_src_path", ""))):
        return
    if changes.get("license") is not None:
        refuse_license(str(changes["license"]), "license")
    if changes.keys() & {"ops", "backends", "abi", "autograd", "layers"}:
        check_operators({**answers, **changes}.get("ops"), {**answers, **changes})


def check_operators(ops: object, answers: Mapping[str, Any]) -> list[str]:
    """Parse and validate an `ops` answer; returns the schemas with even blanks and their defaults as written.

    Raises:
        KernelgenError: the answer is no list of schemas, or one of them cannot be taken.
    """
    from kernelgen import schema

    if not isinstance(ops, list) or not ops or not all(isinstance(text, str) for text in ops):
        raise KernelgenError(
            "`ops` must be a list of function schemas",
            where="ops",
            way_out='for example ["my_op(Tensor x) -> Tensor"]',
        )
    parsed = [schema.parse(text) for text in ops]
    schema.validate(
        parsed,
        kernel_name=str(answers.get("kernel_name", "")),
        backends=answers.get("backends") or ["cpu", "cuda"],
        abi=answers.get("abi") or "full",
        autograd=bool(answers.get("autograd")),
        layers=bool(answers.get("layers")),
    )
    return [one.text for one in parsed]


def render(
    source: template.TemplateSource, target: Path, answers: Mapping[str, Any], *, ask: bool = False
) -> None:
    """Render the template into a folder that does not exist yet.

    Raises:
        KernelgenError: an answer does not pass its question's validator, or the template is not one.
    """
    import copier
    import jinja2
    from copier.errors import CopierAnswersInterrupt, CopierError

    try:
        copier.run_copy(
            source.path_or_url,
            target,
            data=dict(answers),
            vcs_ref=source.ref,
            defaults=not ask,
            quiet=not ask,
        )
    except (KeyboardInterrupt, CopierAnswersInterrupt):
        raise KernelgenError("stopped; nothing was written") from None
    except (ValueError, TypeError) as error:
        # Copier raises these, and no class of its own, for an answer that is refused.
        raise KernelgenError(str(error).strip(), way_out="change that answer") from None
    except (CopierError, jinja2.TemplateError, OSError) as error:
        raise KernelgenError(
            f"the template cannot be rendered: {error}",
            where=source.path_or_url,
            way_out="check --template" if not source.version else None,
        ) from error


def add_operators(project: Path, schemas: Sequence[str], *, dry_run: bool = False) -> update.Report:
    """Declare more operators and merge what follows from them into the project, edits kept.

    Args:
        project: a project with answers, in git, its tracked files clean.
        schemas: function schemas, as for `new`.
        dry_run: change nothing; the report has the diff.

    Raises:
        KernelgenError: a schema cannot be taken, or the project is not ready for an update.
    """
    answers = update.read_answers(project)
    ops = check_operators([*answers.get("ops", []), *schemas], answers)
    return update.update(project, data={"ops": ops}, to_version="current", dry_run=dry_run)


def remove_operators(
    project: Path, names: Sequence[str], *, drop: bool = False, dry_run: bool = False
) -> update.Report:
    """Take operators out of the declaration; files that their owner edited go only with `drop`.

    Args:
        project: as for `add_operators`.
        names: operators, `name` or `name.overload`.
        drop: let edited files go.
        dry_run: change nothing; the report has the diff.

    Raises:
        KernelgenError: a name is not declared, the last operator would go, or edited files would.
    """
    answers = update.read_answers(project)
    declared = {text.split("(")[0].strip(): text for text in answers.get("ops", [])}
    for name in names:
        if name not in declared:
            near = difflib.get_close_matches(name, declared, 1)
            raise KernelgenError(
                f"there is no operator {name!r}",
                where=str(project / update.ANSWERS),
                way_out=f"did you mean {near[0]!r}?" if near else f"declared: {', '.join(declared)}",
            )
    ops = [text for name, text in declared.items() if name not in names]
    if not ops:
        raise KernelgenError("a kernel has one operator or more", way_out="add its successor first")
    return update.update(project, data={"ops": ops}, to_version="current", drop=drop, dry_run=dry_run)


def _move(rendered: Path, path: Path) -> list[str]:
    """Put a rendered project in its place: at once, or file by file over what is there. Returns its files."""
    files = sorted(file.relative_to(rendered) for file in rendered.rglob("*") if file.is_file())
    if not path.exists() or not any(path.iterdir()):
        rendered.replace(path)  # also the place of an empty folder
    else:
        for file in files:
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            (rendered / file).replace(path / file)
    return [str(file) for file in files]


def _into_git(path: Path, files: Sequence[str], *, commit: bool) -> tuple[str | None, str | None]:
    """Stage the project's files and commit them; returns the commit, or why there is none.

    Nix refuses a tree without a commit, and an update needs a clean one.
    """
    enclosing = _enclosing_repository(path)
    if enclosing is None:
        git.run("init", "-q", "--initial-branch=main", cwd=path)
    git.run("add", "--", *files, cwd=path)
    if enclosing is not None:
        hint = git.to_commit("git commit", cwd=path)
        return None, f"staged in the repository around it, {enclosing}; commit it there: {hint}"
    subject = f"New kernel: {path.name}"
    to_commit = git.to_commit(f"git commit -m {shlex.quote(subject)}", cwd=path)
    if not commit:
        return None, f"staged; commit it before the first update or Nix build: {to_commit}"
    done = git.run("commit", "-q", "-m", subject, cwd=path, check=False)
    if done.returncode:
        if " && " in to_commit:
            return (
                None,
                f"staged but not committed, since git does not know who you are; tell it: {to_commit}",
            )
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        return None, f"staged but not committed: {said[-1] if said else 'git refused'}"
    return git.text("rev-parse", "--short", "HEAD", cwd=path), None


def _enclosing_repository(path: Path) -> str | None:
    """The work tree that a folder is part of already; one that ignores the folder does not count."""
    found = git.run("rev-parse", "--show-toplevel", cwd=path, check=False)
    if found.returncode or not git.run("check-ignore", "-q", ".", cwd=path, check=False).returncode:
        return None
    return os.fsdecode(found.stdout).strip()
