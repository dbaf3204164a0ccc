"""YAML that a person or a template wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from pathlib import Path


def parse(text: str | bytes, complaint: str, *, where: str, way_out: str | None = None) -> Any:
    """The plain value that YAML text stands for; bytes are UTF-8.

    Raises:
        KernelgenError: the complaint: it is not YAML, or a value in it is none.
    """
    import yaml

    try:
        return yaml.safe_load(text.decode() if isinstance(text, bytes) else text)
    except (yaml.YAMLError, ValueError) as error:  # the day 2024-13-45 is a ValueError
        raise KernelgenError(complaint, where=where, detail=str(error), way_out=way_out) from error


def answers(path: Path) -> Any:
    """What a project's answers file holds.

    Raises:
        FileNotFoundError: there is none.
        KernelgenError: it is not YAML.
    """
    way_out = f"take it back from git: git checkout HEAD -- {path.name}"
    return parse(path.read_bytes(), "the answers file is not YAML", where=str(path), way_out=way_out)
