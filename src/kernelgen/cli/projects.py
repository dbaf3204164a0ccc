"""Commands that write projects: new, op, update, rename, adopt, migrate."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelgen import console
from kernelgen.cli._common import AsJson, Data, DryRun, Root, Word, commas, generated, one_folder, pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelgen.merge import Conflict
    from kernelgen.update import Report

app = typer.Typer()
operators = typer.Typer(no_args_is_help=True, help="The operators of a project: add, list, remove.")
app.add_typer(operators, name="op")


@app.command()
def new(
    path: Annotated[
        Path, typer.Argument(help="Folder to make; its name is the kernel's, unless --name says another.")
    ],
    op: Annotated[
        list[str] | None,
        typer.Option(help='An operator, as a function schema: "my_op(Tensor x) -> Tensor". Repeat for more.'),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Kernel name.")] = None,
    repo_id: Annotated[str | None, typer.Option(help="Repository on the Hub, as owner/name.")] = None,
    description: Annotated[str | None, typer.Option(help="What it computes, in one line.")] = None,
    license: Annotated[str | None, typer.Option(help="SPDX licence identifier.")] = None,  # noqa: A002
    backends: Annotated[str | None, typer.Option(help="Backends: cpu, cuda or cpu,cuda.")] = None,
    abi: Annotated[str | None, typer.Option(help="torch ABI of the binding: full or stable.")] = None,
    dtypes: Annotated[str | None, typer.Option(help="dtypes the operators take: float16,float32,...")] = None,
    autograd: Annotated[
        bool | None, typer.Option("--autograd/--no-autograd", help="Declare backward operators too.")
    ] = None,
    layers: Annotated[
        bool | None, typer.Option("--layers/--no-layers", help="Write a torch.nn.Module for each operator.")
    ] = None,
    defaults: Annotated[bool, typer.Option("--defaults", help="Ask nothing; take the defaults.")] = False,
    data: Data = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write into a folder that has files.")
    ] = False,
    commit: Annotated[bool, typer.Option("--commit/--no-commit", help="Make the first commit.")] = True,
    template: Annotated[
        str | None, typer.Option(help="Another Copier template (also KERNELGEN_TEMPLATE).")
    ] = None,
) -> None:
    """Scaffold a kernel project.

    \b
    kernelgen new my-kernel --op "my_op(Tensor x) -> Tensor"
    kernelgen new norm --op "rms_norm(Tensor x, Tensor w, float eps=1e-6) -> Tensor" --autograd
    """
    from kernelgen import scaffold

    answers = pairs(data)
    given = {
        "kernel_name": name,
        "repo_id": repo_id,
        "description": description,
        "license": license,
        "backends": commas(backends),
        "abi": abi,
        "dtypes": commas(dtypes),
        "ops": op,
        "autograd": autograd,
        "layers": layers,
    }
    answers |= {key: value for key, value in given.items() if value is not None}
    made = scaffold.new(
        path,
        answers,
        ask=not defaults and not op and sys.stdin.isatty(),
        overwrite=overwrite,
        commit=commit,
        template_source=template,
    )
    out = console.make()
    count = len(made.answers["ops"])
    operators = "one operator" if count == 1 else f"{count} operators"
    backend_names = " and ".join(made.answers["backends"])
    out.print(f"Made {path}: {operators} for {backend_names}, {made.answers['abi']} ABI.", markup=False)
    out.print(f"First commit {made.commit}." if made.commit else f"Note: {made.note}", markup=False)
    out.print(f"\nNext:\n  cd {shlex.quote(str(path))}\n  kernelgen build\n  kernelgen test", markup=False)


@operators.command("add")
def op_add(
    schemas: Annotated[list[str], typer.Argument(metavar="SCHEMA...", help='"my_op(Tensor x) -> Tensor"')],
    project: Root = Path(),
    dry_run: DryRun = False,
) -> None:
    """Declare operators and merge what follows from them; nothing of yours is touched.

    \b
    kernelgen op add "other(Tensor x, float eps=1e-6) -> Tensor"
    """
    from kernelgen import scaffold

    _report(scaffold.add_operators(generated(project), schemas, dry_run=dry_run), dry_run=dry_run)


@operators.command("list")
def op_list(
    project: Root = Path(),
    as_json: AsJson = False,
) -> None:
    """Print the declared operators.

    \b
    kernelgen op list --json
    """
    from kernelgen import update

    ops = update.read_answers(generated(project)).get("ops", [])
    typer.echo(json.dumps(ops, indent=2) if as_json else "\n".join(ops))


@operators.command("remove")
def op_remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    project: Root = Path(),
    drop: Annotated[bool, typer.Option("--drop", help="Let files that you edited go too.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Take operators out of the declaration, with the files that are theirs.

    \b
    kernelgen op remove other --dry-run
    """
    from kernelgen import scaffold

    root = generated(project)
    _report(scaffold.remove_operators(root, names, drop=drop, dry_run=dry_run), dry_run=dry_run)


@app.command()
def update(
    project: Root = Path(),
    check: Annotated[
        bool, typer.Option("--check", help="Say whether there is an update; exit 1 if so.")
    ] = False,
    dry_run: DryRun = False,
    abort: Annotated[bool, typer.Option("--abort", help="Undo the last update, if not committed.")] = False,
    to: Annotated[str | None, typer.Option(help="Version of the template; by default the newest.")] = None,
    drop: Annotated[
        bool, typer.Option("--drop", help="Let changed answers remove files that you edited.")
    ] = False,
    data: Data = None,
    template: Annotated[str | None, typer.Option(help="Another Copier template.")] = None,
) -> None:
    """Carry the project to a newer template; your edits survive.

    \b
    kernelgen update --dry-run
    kernelgen update --data abi=stable
    """
    from kernelgen import scaffold
    from kernelgen import template as templates
    from kernelgen import update as updates

    root = generated(project)
    if not template:
        templates.materialise()
    if check:
        status = updates.check(root)
        typer.echo(
            f"{status.current} -> {status.newest}" if status.available else f"{status.current} is the newest"
        )
        raise typer.Exit(1 if status.available else 0)
    if abort:
        for path in updates.abort(root):
            typer.echo(f"restored {path}")
        return
    changes = pairs(data)
    if changes and not template:
        scaffold.check_changes(changes, updates.read_answers(root))
    report = updates.update(root, dry_run=dry_run, to_version=to, drop=drop, data=changes, source=template)
    _report(report, dry_run=dry_run)


@app.command()
def rename(
    name: Annotated[str, typer.Argument(help="The new kernel name.")],
    project: Root = Path(),
    dry_run: DryRun = False,
) -> None:
    """Give the project another kernel name: files move, edits come along.

    \b
    kernelgen rename better-name
    """
    from kernelgen import scaffold
    from kernelgen import update as updates

    root = generated(project)
    scaffold.check_kernel_name(name)
    _report(updates.rename(root, name, dry_run=dry_run), dry_run=dry_run)


@app.command()
def adopt(
    folder: Word = None,
    project: Root = Path(),
    data: Data = None,
    take: Annotated[
        list[str] | None,
        typer.Option(help="Files of the template to take, as in .gitignore. Repeat for more."),
    ] = None,
    branch: Annotated[str | None, typer.Option(help="Make this branch first, and change it alone.")] = None,
    dry_run: DryRun = False,
    template: Annotated[str | None, typer.Option(help="Another Copier template.")] = None,
) -> None:
    """Give a hand-written or kernel-builder project its answers, so that updates work from then on.

    \b
    kernelgen adopt --dry-run
    kernelgen adopt --data license=MIT --take .github/ --take .clang-format
    """
    from kernelgen import adopt as adoption
    from kernelgen.project import refuse_license

    given = pairs(data)
    if given.get("license") is not None:
        refuse_license(str(given["license"]), "--data license")
    done = adoption.adopt(
        one_folder(project, folder),
        data=given,
        take=take or (),
        branch=branch,
        dry_run=dry_run,
        source=template,
    )
    out = console.make()
    if dry_run:
        typer.echo(done.diff, nl=False)
    for name, value in done.examination.answers.items():
        out.print(f"  {name}: {value}  ({done.examination.origins.get(name, 'given')})", markup=False)
    for note in done.examination.notes:
        out.print(f"  note: {note}", markup=False)
    for word, paths in (("add", done.added), ("merge", done.merged)):
        for path in paths:
            out.print(f"  {word:7} {path}", markup=False)
    if done.not_taken or done.different:
        out.print(
            f"The template has {len(done.not_taken)} files that the project lacks, and {len(done.different)} "
            "that differ; --take brings them.",
            markup=False,
        )
    out.print(f"{'Would follow' if dry_run else 'Follows'} template {done.version}.", markup=False)
    _show_conflicts(done.conflicts)


@app.command()
def migrate(
    folder: Word = None,
    project: Root = Path(),
    license_id: Annotated[
        str | None, typer.Option("--license", help="SPDX licence, where build.toml has none.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Bring an old kernel-builder project to today's format: build.toml, flake, sources; comments stay.

    \b
    kernelgen migrate --dry-run
    kernelgen migrate --license MIT
    """
    from kernelgen import migrate as migration

    done = migration.migrate(one_folder(project, folder), license_id=license_id, dry_run=dry_run)
    out = console.make()
    for sentence in done.done:
        out.print(f"  {sentence}", markup=False)
    for note in done.notes:
        out.print(f"  left to you: {note}", markup=False)
    if not done.files:
        out.print("Nothing to do.")


def _report(report: Report, *, dry_run: bool) -> None:
    """What an update did, file by file; conflicts end the command with exit status 1."""
    out = console.make()
    if dry_run:
        typer.echo(report.diff, nl=False)
    if report.is_empty:
        out.print("Nothing to do.")
        return
    step = "" if report.current == report.target else f" {report.current} -> {report.target}"
    out.print(f"{'Would update' if dry_run else 'Updated'}{step}")
    for word, paths in (("add", report.added), ("change", report.changed), ("remove", report.removed)):
        for path in paths:
            out.print(f"  {word:7} {path}", markup=False)
    for old, new_path in report.moved:
        out.print(f"  move    {old} -> {new_path}", markup=False)
    for kept in report.kept:
        out.print(f"  keep    {kept.path}: {kept.reason}", markup=False)
    for name, value in report.new_answers.items():
        out.print(f"  new question {name}: answered {value!r}", markup=False)
    _show_conflicts(report.conflicts)
    if not dry_run:
        out.print("Staged. Look at it (git diff --cached), then commit it.", markup=False)


def _show_conflicts(conflicts: Sequence[Conflict]) -> None:
    """Each conflict with its file, line and both sides; any ends the command with exit status 1."""
    out = console.make()
    for conflict in conflicts:
        out.print(f"  conflict {conflict.path}{': ' * bool(conflict.reason)}{conflict.reason}", markup=False)
        for place in conflict.places:
            out.print(f"    line {place.line}", markup=False)
            for side, text in (("yours", place.ours), ("template", place.theirs)):
                for line in text.splitlines() or [""]:
                    out.print(f"      {side:8} | {line}", markup=False)
    if conflicts:
        out.print("Decide each, then `git add` the files; or `kernelgen update --abort`.", markup=False)
        raise typer.Exit(1)
