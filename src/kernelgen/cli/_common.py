"""Options that commands share, and how they read what they are given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from kernelgen.project import Project

Root = Annotated[Path, typer.Option("--project", "-C", help="The project's folder.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the change; make none.")]
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
Data = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="An answer. Repeat for more.")]


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
    import yaml

    name, equals, value = item.partition("=")
    if not equals:
        raise KernelgenError(
            f"{item!r} is not NAME=VALUE", where="--data", way_out="for example --data version=2"
        )
    return name, yaml.safe_load(value)


def pairs(items: list[str] | None) -> dict[str, Any]:
    """Every `NAME=VALUE` of an option."""
    return dict(pair(item) for item in items or ())
