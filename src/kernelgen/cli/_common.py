"""Options that commands share, and how they read what they are given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from kernelgen.project import Project

# Every command that works on a project takes -C. Those whose other arguments are all options take the folder
# as a word too. -C is what the documents show.
Root = Annotated[Path, typer.Option("--project", "-C", metavar="FOLDER", help="The project's folder.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the change; make none.")]
Word = Annotated[Path | None, typer.Argument(metavar="FOLDER", help="The same as -C.")]
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
Data = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="An answer. Repeat for more.")]


def one_folder(project: Path, word: Path | None) -> Path:
    """The folder that -C and the word name together."""
    if word is not None and project != Path() and project.resolve() != word.resolve():
        raise KernelgenError(f"-C says {str(project)!r}, and {str(word)!r} is given too", way_out="give one")
    return project if word is None else word


def generated(project: Path) -> Path:
    """The folder of a project that follows a template; one that only lost its build.toml can be mended."""
    from kernelgen.project import find_root
    from kernelgen.update import ANSWERS

    return project if (project / ANSWERS).is_file() else find_root(project)


def load_project(path: Path) -> Project:
    """A project, without unresolved conflicts of an update."""
    from kernelgen import update as updates
    from kernelgen.project import Project

    project = Project.load(path)
    updates.refuse_conflict_marks(project.root)
    return project


def commas(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def pair(item: str) -> tuple[str, Any]:
    """`NAME=VALUE`, the value read as YAML, as Copier reads it."""
    from kernelgen import yamltext

    name, equals, value = item.partition("=")
    if not equals:
        raise KernelgenError(
            f"{item!r} is not NAME=VALUE", where="--data", way_out="for example --data version=2"
        )
    complaint = f"the value of {name} is not YAML: {value!r}"
    way_out = f"put it in quotes if it is text: --data '{name}=\"{value}\"'"
    return name, yamltext.parse(value, complaint, where="--data", way_out=way_out)


def pairs(items: list[str] | None) -> dict[str, Any]:
    """Every `NAME=VALUE` of an option."""
    return dict(pair(item) for item in items or ())
