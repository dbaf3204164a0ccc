"""The command line: arguments in, words out. Work is done elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelgen import __version__
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from rich.console import Console

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
    path: Annotated[Path, typer.Argument(help="Folder to make; its name is the kernel's, unless --name says another.")],
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
    kernelgen new norm --op "rms_norm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor" --autograd --abi stable
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


def _commas(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _pair(item: str) -> tuple[str, Any]:
    """`NAME=VALUE`, the value read as YAML, as Copier reads it."""
    import yaml

    name, equals, value = item.partition("=")
    if not equals:
        raise KernelgenError(f"{item!r} is not NAME=VALUE", where="--data", way_out="for example --data version=2")
    return name, yaml.safe_load(value)
