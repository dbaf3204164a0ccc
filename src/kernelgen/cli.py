"""The command line: arguments in, words out. Work is done elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelgen import __version__
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from rich.console import Console

    from kernelgen.update import Report

app = typer.Typer(
    name="kernelgen",
    help="Declare a GPU kernel; own a production-ready project in the Hugging Face kernel-builder format.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def main() -> None:
    """Run the command line; a KernelgenError becomes what / where / way out and exit status 1."""
    try:
        app()
    except KernelgenError as error:
        _show(error)
        sys.exit(1)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def _show(error: KernelgenError) -> None:
    from rich.text import Text

    console = _console(stderr=True)
    console.print(Text("error: ", style="bold red") + Text(error.what))
    if error.where:
        console.print(Text("   at: ", style="dim") + Text(error.where))
    if error.detail:
        console.print(Text(error.detail))
    if error.way_out:
        console.print(Text("  fix: ", style="bold green") + Text(error.way_out))


def _version(value: bool) -> None:
    if value:
        typer.echo(f"kernelgen {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


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
    data: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any other answer.")] = None,
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

    answers: dict[str, Any] = dict(_pair(item) for item in data or ())
    given = {
        "kernel_name": name,
        "repo_id": repo_id,
        "description": description,
        "license": license,
        "backends": _commas(backends),
        "abi": abi,
        "dtypes": _commas(dtypes),
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
    console = _console()
    count = len(made.answers["ops"])
    operators = "one operator" if count == 1 else f"{count} operators"
    backend_names = " and ".join(made.answers["backends"])
    console.print(f"Made [bold]{path}[/bold]: {operators} for {backend_names}, {made.answers['abi']} ABI.")
    console.print(f"First commit {made.commit}." if made.commit else f"Note: {made.note}.")
    console.print(f"\nNext:\n  cd {path}\n  kernelgen build\n  kernelgen test")


operators = typer.Typer(no_args_is_help=True, help="The operators of a project: add, list, remove.")
app.add_typer(operators, name="op")

Root = Annotated[Path, typer.Option("--project", "-C", help="The project's folder.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the change; make none.")]


@operators.command("add")
def op_add(
    schemas: Annotated[list[str], typer.Argument(metavar="SCHEMA...", help='"my_op(Tensor x) -> Tensor"')],
    project: Root = Path(),
    dry_run: DryRun = False,
) -> None:
    """Declare operators and merge what follows from them; nothing of yours is touched."""
    from kernelgen import scaffold

    _report(scaffold.add_operators(project, schemas, dry_run=dry_run), dry_run=dry_run)


@operators.command("list")
def op_list(
    project: Root = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Print the declared operators."""
    from kernelgen import update

    ops = update.read_answers(project).get("ops", [])
    typer.echo(json.dumps(ops, indent=2) if as_json else "\n".join(ops))


@operators.command("remove")
def op_remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME...")],
    project: Root = Path(),
    drop: Annotated[bool, typer.Option("--drop", help="Let files that you edited go too.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Take operators out of the declaration, with the files that are theirs."""
    from kernelgen import scaffold

    _report(scaffold.remove_operators(project, names, drop=drop, dry_run=dry_run), dry_run=dry_run)


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
    data: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Change an answer.")] = None,
    template: Annotated[str | None, typer.Option(help="Another Copier template.")] = None,
) -> None:
    """Carry the project to a newer template; your edits survive.

    \b
    kernelgen update --dry-run
    kernelgen update --data abi=stable
    """
    from kernelgen import template as templates
    from kernelgen import update as updates

    if not template:
        templates.materialise()
    if check:
        status = updates.check(project)
        typer.echo(
            f"{status.current} -> {status.newest}" if status.available else f"{status.current} is the newest"
        )
        raise typer.Exit(1 if status.available else 0)
    if abort:
        for path in updates.abort(project):
            typer.echo(f"restored {path}")
        return
    changes = dict(_pair(item) for item in data or ())
    report = updates.update(project, dry_run=dry_run, to_version=to, drop=drop, data=changes, source=template)
    _report(report, dry_run=dry_run)


@app.command()
def rename(
    name: Annotated[str, typer.Argument(help="The new kernel name.")],
    project: Root = Path(),
    dry_run: DryRun = False,
) -> None:
    """Give the project another kernel name: files move, edits come along."""
    from kernelgen import update as updates

    _report(updates.rename(project, name, dry_run=dry_run), dry_run=dry_run)


def _report(report: Report, *, dry_run: bool) -> None:
    """What an update did, file by file; conflicts end the command with exit status 1."""
    console = _console()
    if dry_run:
        typer.echo(report.diff, nl=False)
    if report.is_empty:
        console.print("Nothing to do.")
        return
    step = "" if report.current == report.target else f" {report.current} -> {report.target}"
    console.print(f"{'Would update' if dry_run else 'Updated'}{step}")
    for word, paths in (("add", report.added), ("change", report.changed), ("remove", report.removed)):
        for path in paths:
            console.print(f"  {word:7} {path}", markup=False)
    for old, new_path in report.moved:
        console.print(f"  move    {old} -> {new_path}", markup=False)
    for kept in report.kept:
        console.print(f"  keep    {kept.path}: {kept.reason}", markup=False)
    for name, value in report.new_answers.items():
        console.print(f"  new question {name}: answered {value!r}", markup=False)
    for conflict in report.conflicts:
        console.print(f"  [bold red]conflict[/bold red] {conflict.path}")
        for place in conflict.places:
            console.print(f"    line {place.line}", markup=False)
    if report.conflicts:
        console.print("Decide each, then `git add` the files; or `kernelgen update --abort`.", markup=False)
        raise typer.Exit(1)
    if not dry_run:
        console.print("Staged. Look at it (git diff --cached), then commit it.", markup=False)


def _commas(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _pair(item: str) -> tuple[str, Any]:
    """`NAME=VALUE`, the value read as YAML, as Copier reads it."""
    import yaml

    name, equals, value = item.partition("=")
    if not equals:
        raise KernelgenError(
            f"{item!r} is not NAME=VALUE", where="--data", way_out="for example --data version=2"
        )
    return name, yaml.safe_load(value)
