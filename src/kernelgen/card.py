"""The card: CARD.md of a project, its placeholders filled, becomes the kernel's page on the Hub.

kernel-builder fills the same file under Nix with eight variables: `repo_id`, `version`, `functions`,
`layers`, `has_benchmark`, `upstream`, `source` and `license`. They mean the same here, with two differences
that only add: `__all__` may be a tuple, and any `benchmarks/benchmark*.py` counts as a benchmark. kernelgen
knows more and offers `schemas`, `dtypes`, `variants` and `benchmarks` too; a card asks for those inside
`{% if ... %}`, so that it is whole without them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelgen import surface, yamltext
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kernelgen.project import Project
    from kernelgen.release import BuiltVariant, Release

CARD = "CARD.md"
RESULTS = "results*.json"
_BACKENDS = {"cpu": "CPU", "cuda": "CUDA", "metal": "Metal", "rocm": "ROCm", "xpu": "XPU", "tpu": "TPU"}
_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "windows": "Windows"}


@dataclass(frozen=True)
class VariantRow:
    """A built variant in words a reader of the card understands."""

    name: str
    torch: str
    compute: str
    platform: str


@dataclass(frozen=True)
class BenchmarkRow:
    """One timed workload; times in milliseconds."""

    workload: str
    mean_ms: float
    min_ms: float
    device: str
    torch: str


def render(project: Project, release: Release | None = None, *, repo_id: str | None = None) -> str:
    """Fill the card.

    Args:
        project: the kernel; its CARD.md is the template.
        release: what is built, for the tables of variants and schemas; without it these are left out.
        repo_id: the repository, when it is another than build.toml's.

    Returns:
        Markdown that ends with one newline.

    Raises:
        KernelgenError: there is no CARD.md, no repository is known, or the card is not a valid template or
            has broken front matter.
    """
    import jinja2
    from jinja2.sandbox import SandboxedEnvironment

    path = project.root / CARD
    if not path.is_file():
        raise KernelgenError("there is no CARD.md", where=str(path), way_out="run: kernelgen update")
    environment = SandboxedEnvironment(trim_blocks=True, autoescape=False)  # Markdown, not HTML
    try:
        text = environment.from_string(path.read_text("utf-8")).render(
            context(project, release, repo_id=repo_id)
        )
    except jinja2.TemplateSyntaxError as error:
        raise KernelgenError(
            f"the card is not a valid template: {error.message}", where=f"{path}:{error.lineno}"
        ) from None
    except (jinja2.TemplateError, TypeError) as error:
        raise KernelgenError(f"the card cannot be filled: {error}", where=str(path)) from None
    _check_front_matter(text, path)
    return text.rstrip("\n") + "\n"


def context(project: Project, release: Release | None, *, repo_id: str | None = None) -> dict[str, Any]:
    """The variables that a card can use."""
    repo_id = repo_id or project.repo_id
    if not repo_id:
        raise KernelgenError(
            "the card needs the repository's name",
            where=f"{project.root / 'build.toml'}",
            way_out='set repo-id = "owner/name" in [general.hub]',
        )
    init = project.package_dir / "__init__.py"
    names = surface.public_names(init.read_text("utf-8")) if init.is_file() else None
    functions = [name for name in names or () if name != "layers"]
    return {
        "repo_id": repo_id,
        "version": project.version,
        "functions": functions or None,
        "layers": _layers(project.package_dir) if names and "layers" in names else None,
        "has_benchmark": any((project.root / "benchmarks").glob("benchmark*.py")),
        "upstream": project.upstream,
        "source": project.source,
        "license": project.license.lower(),
        "schemas": list(release.surface().schemas or ()) if release else [],
        "dtypes": _dtypes(project),
        "variants": variant_rows(release.variants) if release else [],
        "benchmarks": benchmark_rows(project.root / "benchmarks"),
    }


def _layers(package: Path) -> list[str] | None:
    for path in (package / "layers" / "__init__.py", package / "layers.py"):
        if path.is_file():
            return list(surface.class_names(path.read_text("utf-8"))) or None
    return None


def _dtypes(project: Project) -> list[str]:
    declared = project.answers.get("dtypes")
    return [str(dtype) for dtype in declared] if isinstance(declared, list) else []


def variant_rows(variants: Sequence[BuiltVariant]) -> list[VariantRow]:
    """Describe built variants, in the order given."""
    return [describe_variant(variant.name) for variant in variants]


def describe_variant(name: str) -> VariantRow:
    """Say what a variant's name means.

    Raises:
        KernelgenError: no loader would take this name.

    >>> describe_variant("torch-stable-abi211-cpu-aarch64-linux").torch
    '2.11 or later'
    """
    from kernelgen import variants

    variant = variants.parse(name)
    backend = _BACKENDS.get(variant.backend, variant.backend)
    if variant.kind == "noarch":
        return VariantRow(name, "any", backend, "any")
    version = _dotted(variant.version)
    torch = {"torch": version, "torch-stable-abi": f"{version} or later"}.get(
        variant.kind, f"any, through tvm-ffi {version}"
    )
    compute = f"{backend} {_dotted(variant.compute)}".strip()
    return VariantRow(name, torch, compute, f"{variant.machine} {_SYSTEMS[variant.system]}")


def _dotted(version: tuple[int, int] | None) -> str:
    return ".".join(map(str, version)) if version else ""


def benchmark_rows(folder: Path) -> list[BenchmarkRow]:
    """Read stored results, `benchmarks/results*.json`, as `kernels benchmark --output FILE` writes them.

    Raises:
        KernelgenError: a file is not JSON, or not of that form.
    """
    return [row for path in sorted(folder.glob(RESULTS)) for row in _stored_results(path)]


def _stored_results(path: Path) -> list[BenchmarkRow]:
    try:
        stored = json.loads(path.read_text("utf-8"))
        machine = stored["machineInfo"]
        gpu = machine.get("gpu")
        return [
            BenchmarkRow(
                workload=str(result["workload"]),
                mean_ms=float(result["timingResults"]["mean_ms"]),
                min_ms=float(result["timingResults"]["min_ms"]),
                device=str(gpu if gpu not in (None, "", "N/A") else machine["cpu"]),
                torch=str(machine["pytorchVersion"]),
            )
            for result in stored["results"]
        ]
    except (UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        raise KernelgenError(
            f"the benchmark results cannot be read: {error!r}",
            where=str(path),
            way_out=f"write them with: kernels benchmark . --output benchmarks/{path.name}",
        ) from None


def _check_front_matter(text: str, path: Path) -> None:
    """Refuse what the Hub would refuse, before anything is uploaded."""
    match = re.match(r"---\n(.*?)^---$", text, re.DOTALL | re.MULTILINE)
    if match is None:
        return
    value = yamltext.parse(
        match[1],
        "the card's front matter is not YAML",
        where=str(path),
        way_out="mend what stands between its first two lines of ---",
    )
    if value is not None and not isinstance(value, dict):
        raise KernelgenError("the card's front matter is not a table", where=str(path))
