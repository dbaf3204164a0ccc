"""A small pure-Python kernel project in git, and what a builder would make of it."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelgen.project import Project

if TYPE_CHECKING:
    from pathlib import Path

BUILD_TOML = """\
[general]
name = "scale-add"
version = {version}
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[general.hub]
repo-id = "acme/scale-add"

[torch-noarch]
"""

INIT = '''\
"""Scales and adds."""

from pathlib import Path

import torch

__all__ = ["scale", "add"]

_TABLE = (Path(__file__).parent / "table.bin").read_bytes()


def scale(x: torch.Tensor) -> torch.Tensor:
    return x * _TABLE[3]


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y
'''

CARD = """\
---
library_name: kernels
{% if license %}license: {{ license }}
{% endif %}---

# {{ repo_id }} {{ version }}
{% for function in functions %}
- `{{ function }}`
{% endfor %}
{% for variant in variants %}
- {{ variant.name }}: {{ variant.compute }}
{% endfor %}
"""


@dataclass(frozen=True)
class KernelProject:
    """The project's folder, with what one does in it."""

    root: Path

    @classmethod
    def create(cls, root: Path, *, table: bytes = bytes(range(256)) * 300) -> KernelProject:
        """Write the project and commit it; `table` is a file of the package large enough to be cut."""
        project = cls(root)
        project.write("build.toml", BUILD_TOML.format(version=1))
        project.write("torch-ext/scale_add/__init__.py", INIT)
        project.write("torch-ext/scale_add/table.bin", table)
        project.write("CARD.md", CARD)
        project.write("benchmarks/benchmark.py", "# times it\n")
        project.write(".gitignore", "/build/\n")
        project.git("init", "-q", "-b", "main")
        project.commit()
        return project

    def write(self, name: str, content: str | bytes) -> None:
        """Write one file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def git(self, *args: str) -> str:
        """Run git with an identity of its own."""
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@localhost"]
        command = ["git", *identity, *args]
        return subprocess.run(
            command, cwd=self.root, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, message: str = "change") -> str:
        """Commit all that is not ignored."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def load(self) -> Project:
        """The project as kernelgen sees it."""
        return Project.load(self.root)

    def build(self, *variants: str, dirty: bool = False, extension: bytes | None = None) -> Project:
        """Make `build/<variant>/`, torch-cpu by default, as a builder would, and load the project.

        Args:
            variants: names of the variants.
            dirty: say that the sources were not committed.
            extension: content of a file that stands for a compiled extension.
        """
        project = self.load()
        for name in variants or ("torch-cpu",):
            folder = self.root / "build" / name
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(project.package_dir, folder, ignore=shutil.ignore_patterns("__pycache__"))
            sources = b"".join(p.read_bytes() for p in sorted(folder.rglob("*.py")))
            identity = hashlib.sha256(sources).hexdigest()[:8]
            (folder / "_ops.py").write_text("# binds no namespace: there are no operators\n")
            if extension is not None:
                (folder / f"_scale_add_cpu_{identity}.abi3.so").write_bytes(extension)
            files = sorted(p for p in folder.rglob("*") if p.is_file())
            digest = {p.relative_to(folder).as_posix(): _sha256(p) for p in files}
            metadata = {
                "name": project.name,
                "id": f"_{project.python_name}_cpu_{identity}",
                "version": project.version,
                "license": project.license,
                "python-depends": [],
                "kernel-depends": [],
                "backend": {"type": "cpu"},
                "digest": {"algorithm": "sha256", "files": digest},
                "provenance": {
                    "kernel-builder": {"version": "test"},
                    "kernel": {"commit": self.git("rev-parse", "HEAD"), "dirty": dirty},
                },
            }
            (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")
        return project


def _sha256(path: Path) -> str:
    return base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
