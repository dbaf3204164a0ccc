"""Commands about builds: build, test, bench, variants, check, clean, doctor."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelgen import console
from kernelgen.cli._common import Arch, AsJson, DryRun, Python, Root, Word, load_project, one_folder
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from kernelgen.build import BuildOptions, BuiltVariant
    from kernelgen.project import Project

app = typer.Typer()


@app.command()
def build(
    folder: Word = None,
    project: Root = Path(),
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
    built = _build(load_project(one_folder(project, folder)), options)
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

    What kernelgen does not know goes on to pytest.

    \b
    kernelgen test -k compile -x
    """
    from kernelgen import run
    from kernelgen.build import BuildOptions

    loaded = load_project(project)
    _build(loaded, BuildOptions(python=python, archs=tuple(arch or ())))
    raise typer.Exit(run.run_tests(loaded, context.args, python=python))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    project: Root = Path(),
    python: Python = None,
    arch: Arch = None,
) -> None:
    """Build if anything changed, then run the project's benchmark; other arguments go on to it.

    \b
    kernelgen bench --iterations 50
    """
    from kernelgen import run
    from kernelgen.build import BuildOptions

    loaded = load_project(project)
    _build(loaded, BuildOptions(python=python, archs=tuple(arch or ())))
    raise typer.Exit(run.run_benchmark(loaded, context.args, python=python))


@app.command()
def check(
    folder: Word = None,
    project: Root = Path(),
    variant: Annotated[list[str] | None, typer.Option(help="Only this variant. Repeat for more.")] = None,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Also load and call the kernel.")] = True,
    python: Python = None,
    every: Annotated[bool, typer.Option("--all", help="Show what passed too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Judge declaration, sources, builds and how they run; exit 1 on an error.

    \b
    kernelgen check
    kernelgen check --no-run --json
    """
    from kernelgen import check as checks
    from kernelgen import finding

    with console.bar() as bar:
        found = checks.check(
            one_folder(project, folder),
            python=python,
            only=variant or (),
            run=run,
            tell=lambda what: bar.advance(0, None, what),
        )
    if as_json:
        typer.echo(json.dumps([one.as_json() for one in found], indent=2))
    else:
        shown = [one for one in found if every or one.verdict != "ok"]
        if shown:
            rows = [
                (one.code, one.subject, one.verdict, _said(one.where, one.message), one.way_out or "")
                for one in shown
            ]
            console.table(("rule", "judged", "verdict", "what", "what to do"), rows)
        passed = sum(one.verdict == "ok" for one in found)
        typer.echo(f"{passed} of {len(found)} judgements passed")
    raise typer.Exit(1 if finding.worst(found) == "error" else 0)


@app.command()
def variants(
    folder: Word = None, project: Root = Path(), python: Python = None, as_json: AsJson = False
) -> None:
    """Show which variants the project has, should have, and could build here, and why not.

    \b
    kernelgen variants
    kernelgen variants --json
    """
    from kernelgen import matrix

    rows = matrix.rows(load_project(one_folder(project, folder)), python=python)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    console.table(
        ("variant", "wanted", "built", "buildable here", "why"),
        [(row.name, _yes(row.wanted), _yes(row.built), str(row.buildable), row.why) for row in rows],
    )


def _yes(value: bool) -> str:
    return "yes" if value else "-"


@app.command()
def doctor(
    folder: Word = None, project: Root = Path(), python: Python = None, as_json: AsJson = False
) -> None:
    """Show what this machine has and lacks, each lack with the command that mends it.

    \b
    kernelgen doctor
    """
    from kernelgen import doctor as doctors

    rows = doctors.diagnose(_project_or_none(one_folder(project, folder)), python=python)
    if as_json:
        typer.echo(json.dumps([row.as_json() for row in rows], indent=2))
    else:
        console.table(
            ("subject", "verdict", "found", "mend"),
            [(r.subject, r.verdict, r.found, r.mend or "") for r in rows],
        )
    raise typer.Exit(1 if doctors.worst(rows) == "error" else 0)


def _project_or_none(folder: Path) -> Path | None:
    """The project to look at too; the machine alone, outside of all projects."""
    from kernelgen.project import find_root

    try:
        return find_root(folder)
    except KernelgenError:
        if folder != Path() or any((p / "build.toml").is_file() for p in Path.cwd().parents):
            raise
        return None


@app.command()
def clean(
    folder: Word = None,
    project: Root = Path(),
    release: Annotated[bool, typer.Option("--release", help="Leave what a release ships.")] = False,
    cache: Annotated[
        bool, typer.Option("--cache", help="Also the toolchains that all projects share.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Remove what is not source.

    \b
    kernelgen clean --dry-run
    kernelgen clean --release
    kernelgen clean --cache
    """
    from kernelgen import clean as cleaning

    done = cleaning.clean(one_folder(project, folder), release=release, cache=cache, dry_run=dry_run)
    out = console.make()
    for item in done.removed:
        out.print(f"{'would remove' if dry_run else 'removed'} {item.path} ({item.why})", markup=False)
    for kept in done.kept:
        out.print(f"kept {kept.path}: {kept.why}", markup=False)


def _build(project: Project, options: BuildOptions) -> list[BuiltVariant]:
    from kernelgen.build import build as build_project
    from kernelgen.build import up_to_date

    if done := up_to_date(project, options):
        return done  # without a bar, whose library takes longer to load than this answer to find
    with console.bar() as bar:
        return build_project(project, options, bar)


def _said(where: str | None, message: str) -> str:
    return f"{where}: {message}" if where else message
