"""The command line: arguments in, words out. Work is done elsewhere."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kernelgen import __version__, console
from kernelgen.cli import builds, projects, publishing
from kernelgen.errors import KernelgenError

app = typer.Typer(
    name="kernelgen",
    help="Declare a GPU kernel; own a production-ready project in the Hugging Face kernel-builder format.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
for part in (projects.app, builds.app, publishing.app):
    app.add_typer(part)


def main() -> None:
    """Run the command line; a KernelgenError becomes what / where / way out and exit status 1."""
    try:
        app()
    except KernelgenError as error:
        console.show_error(error)
        sys.exit(1)
    except OSError as error:  # a full disk, a folder that may not be written to
        console.show_error(KernelgenError(error.strerror or str(error), where=error.filename))
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
