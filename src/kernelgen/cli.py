"""The command line: arguments in, words out. Work is done elsewhere."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelgen import __version__, console
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from kernelgen.build import BuildOptions, BuiltVariant
    from kernelgen.project import Project
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
        console.show_error(error)
        sys.exit(1)


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
    out = console.make()
    count = len(made.answers["ops"])
    operators = "one operator" if count == 1 else f"{count} operators"
    backend_names = " and ".join(made.answers["backends"])
    out.print(f"Made [bold]{path}[/bold]: {operators} for {backend_names}, {made.answers['abi']} ABI.")
    out.print(f"First commit {made.commit}." if made.commit else f"Note: {made.note}.")
    out.print(f"\nNext:\n  cd {path}\n  kernelgen build\n  kernelgen test")


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


Folder = Annotated[Path, typer.Argument(help="The project.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Python = Annotated[
    Path | None, typer.Option(help="Interpreter whose torch is built for and that loads the kernel.")
]
Arch = Annotated[
    list[str] | None,
    typer.Option(
        help="CUDA architecture, 9.0 or 12.0+PTX. Repeat for more; by default this machine's GPUs, else all."
    ),
]


@app.command()
def build(
    project: Folder = Path(),
    variant: Annotated[list[str] | None, typer.Option(help="A variant by name. Repeat for more.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every variant that the project should have.")] = False,
    backend: Annotated[list[str] | None, typer.Option(help="Only this backend. Repeat for more.")] = None,
    arch: Arch = None,
    namespace: Annotated[
        str | None,
        typer.Option(help="Fixed torch.ops namespace, for development; such a build is not publishable."),
    ] = None,
    python: Python = None,
    cuda_home: Annotated[Path | None, typer.Option(help="CUDA toolkit.")] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Compilers at once (MAX_JOBS).")
    ] = None,
    keep_going: Annotated[bool, typer.Option("--keep-going", "-k", help="Go on after a failure.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show commands and warnings.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="With debug information, not optimised.")] = False,
    local_only: Annotated[
        bool, typer.Option("--local-only", help="Accept objects that other machines may not load.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Download nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compile into build/<variant>/, in the Hub's layout. Nothing is compiled that is up to date.

    \b
    kernelgen build
    kernelgen build --backend cuda --arch 9.0 --arch 12.0+PTX
    kernelgen build --variant torch213-cxx11-cu130-x86_64-linux
    """
    from kernelgen.build import BuildOptions

    options = BuildOptions(
        variants=tuple(variant or ()),
        all=every,
        backends=tuple(backend or ()),
        archs=tuple(arch or ()),
        namespace=namespace,
        python=python,
        cuda_home=cuda_home,
        jobs=jobs,
        verbose=verbose,
        debug=debug,
        keep_going=keep_going,
        local_only=local_only,
        offline=offline,
    )
    built = _build(_load(project), options)
    if as_json:
        typer.echo(json.dumps([asdict(one) | {"path": str(one.path)} for one in built], indent=2))
        return
    out = console.make()
    for one in built:
        archs = f" ({', '.join(one.archs)})" if one.archs else ""
        out.print(f"{'up to date' if one.fresh else 'built':10} build/{one.name}{archs}", markup=False)
        for note in one.notes:
            out.print(f"           {note}", markup=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def test(
    context: typer.Context,
    project: Root = Path(),
    python: Python = None,
    arch: Arch = None,
) -> None:
    """Build if anything changed, then run the project's tests through the kernels loader, offline.

    What kernelgen does not know goes on to pytest: kernelgen test -k compile -x
    """
    from kernelgen import run
    from kernelgen.build import BuildOptions

    loaded = _load(project)
    _build(loaded, BuildOptions(python=python, archs=tuple(arch or ())))
    raise typer.Exit(run.run_tests(loaded, context.args, python=python))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    project: Root = Path(),
    python: Python = None,
    arch: Arch = None,
) -> None:
    """Build if anything changed, then run the project's benchmark; other arguments go on to it."""
    from kernelgen import run
    from kernelgen.build import BuildOptions

    loaded = _load(project)
    _build(loaded, BuildOptions(python=python, archs=tuple(arch or ())))
    raise typer.Exit(run.run_benchmark(loaded, context.args, python=python))


@app.command()
def doctor(project: Folder = Path(), python: Python = None, as_json: AsJson = False) -> None:
    """Show what this machine has and lacks, each lack with the command that mends it."""
    from kernelgen import doctor as doctors

    root = project if (project / "build.toml").is_file() else None
    rows = doctors.diagnose(root, python=python)
    if as_json:
        typer.echo(json.dumps([row.as_json() for row in rows], indent=2))
    else:
        console.table(
            ("subject", "verdict", "found", "mend"),
            [(r.subject, r.verdict, r.found, r.mend or "") for r in rows],
        )
    raise typer.Exit(1 if doctors.worst(rows) == "error" else 0)


@app.command()
def clean(
    project: Folder = Path(),
    release: Annotated[bool, typer.Option("--release", help="Leave what a release ships.")] = False,
    cache: Annotated[
        bool, typer.Option("--cache", help="Also the toolchains that all projects share.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Remove what is not source."""
    from kernelgen import clean as cleaning

    done = cleaning.clean(project.resolve(), release=release, cache=cache, dry_run=dry_run)
    out = console.make()
    for item in done.removed:
        out.print(f"{'would remove' if dry_run else 'removed'} {item.path} ({item.why})", markup=False)
    for kept in done.kept:
        out.print(f"kept {kept.path}: {kept.why}", markup=False)


def _load(path: Path) -> Project:
    """A project, without unresolved conflicts of an update."""
    from kernelgen import update as updates
    from kernelgen.project import Project

    project = Project.load(path)
    updates.refuse_conflict_marks(project.root)
    return project


def _build(project: Project, options: BuildOptions) -> list[BuiltVariant]:
    from kernelgen.build import build as build_project

    with console.bar() as bar:
        return build_project(project, options, bar)


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
    for conflict in report.conflicts:
        out.print(f"  [bold red]conflict[/bold red] {conflict.path}")
        for place in conflict.places:
            out.print(f"    line {place.line}", markup=False)
    if report.conflicts:
        out.print("Decide each, then `git add` the files; or `kernelgen update --abort`.", markup=False)
        raise typer.Exit(1)
    if not dry_run:
        out.print("Staged. Look at it (git diff --cached), then commit it.", markup=False)


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
