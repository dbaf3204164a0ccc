"""The card: as kernel-builder would fill it, and more."""

from __future__ import annotations

import doctest
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hub.project import KernelProject

from kernelgen import card, release
from kernelgen.card import VariantRow, describe_variant, render
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from pathlib import Path

    from kernelgen.project import Project

RESULTS = {
    "machineInfo": {
        "gpu": "NVIDIA H200",
        "cpu": "x",
        "pytorchVersion": "2.13.0",
        "backend": "cuda",
        "os": "Linux",
    },
    "results": [{"workload": "large", "timingResults": {"mean_ms": 0.25, "min_ms": 0.125}}],
}


@pytest.fixture
def kernel(tmp_path: Path) -> KernelProject:
    return KernelProject.create(tmp_path / "scale-add", table=b"\0\1\2\3")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Project:
    from kernelgen import scaffold
    from kernelgen.project import Project

    path = tmp_path_factory.mktemp("card") / "my-kernel"
    ops = ["pair(Tensor x, Tensor? y=None) -> (Tensor, Tensor)", "zero_(Tensor(a!) x) -> ()"]
    scaffold.new(path, {"repo_id": "acme/my-kernel", "ops": ops, "layers": True, "license": "MIT"})
    return Project.load(path)


def by_kernel_builder(project: Project) -> str:
    """The card as kernel-builder fills it: its template engine, its settings, its eight variables."""
    minijinja = pytest.importorskip("minijinja")
    known = card.context(project, None)
    names = ("repo_id", "version", "functions", "layers", "has_benchmark", "upstream", "source", "license")
    environment = minijinja.Environment(trim_blocks=True)
    text = environment.render_str((project.root / "CARD.md").read_text(), **{n: known[n] for n in names})
    return str(text)


def test_the_generated_card_is_whole_under_kernel_builder_too(generated: Project) -> None:
    theirs = by_kernel_builder(generated)
    ours = render(generated)
    assert "{{" not in theirs
    assert "{%" not in theirs
    for text in (theirs, ours):
        assert text.startswith("---\nlibrary_name: kernels\nlicense: mit\n---\n\n# my-kernel\n")
        assert 'get_kernel("acme/my-kernel", version=1, trust_remote_code=True)' in text
        assert "## Functions\n\n- `pair`\n- `zero_`\n" in text
        assert '"acme/my-kernel" = 1\n' in text
        assert "\n\n\n" not in text
    # What is left of ours without the lines that kernel-builder cannot know is theirs.
    assert [line for line in ours.splitlines() if line not in theirs.splitlines()] == [
        "dtypes: `float16`, `bfloat16`, `float32`, `float64`."
    ]


def test_the_project_s_own_card_keeps_its_placeholders(generated: Project) -> None:
    text = (generated.root / "CARD.md").read_text()
    assert "{{ repo_id }}" in text
    assert "{% if functions %}" in text
    assert "{=" not in text


def test_tables_of_variants_schemas_and_benchmarks(generated: Project, tmp_path: Path) -> None:
    shipped = []
    for name in ("torch213-cxx11-cu130-x86_64-linux", "torch-stable-abi211-cpu-aarch64-linux"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "_my.abi3.so").write_bytes(b"\0pair(Tensor x, Tensor? y=None) -> (Tensor, Tensor)\0")
        shipped.append(release.BuiltVariant(name, folder, {}))
    results = generated.root / "benchmarks" / "results.json"
    results.write_text(json.dumps(RESULTS))
    try:
        text = render(generated, release.Release(generated, tuple(shipped), {}))
    finally:
        results.unlink()
    assert "| `pair(Tensor x, Tensor? y=None) -> (Tensor, Tensor)` |" in text
    assert "| `torch213-cxx11-cu130-x86_64-linux` | 2.13 | CUDA 13.0 | x86_64 Linux |" in text
    assert "| `torch-stable-abi211-cpu-aarch64-linux` | 2.11 or later | CPU | aarch64 Linux |" in text
    assert "| large | 0.2500 | 0.1250 | NVIDIA H200 | 2.13.0 |" in text
    assert "\n\n\n" not in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1


@pytest.mark.parametrize(
    "template",
    [
        "{% if functions %}\n{{ functions[0] }}\n{% endif %}\nend\n",
        "  {% for f in functions %}\n- {{ f }}\n  {% endfor %}\nend\n",
        "{{ unknown }}|{% for x in unknown %}x{% endfor %}|{{ license }}|{{ version }}\n\n",
        "{% if source %}{{ source }}{% else %}none{% endif %} {{ repo_id | upper }}",
    ],
)
def test_the_engine_agrees_with_kernel_builder_s(kernel: KernelProject, template: str) -> None:
    kernel.write("CARD.md", template)
    project = kernel.load()
    assert render(project) == by_kernel_builder(project).rstrip("\n") + "\n"


def test_layers_are_listed_when_they_are_exported(kernel: KernelProject) -> None:
    kernel.write("torch-ext/scale_add/layers.py", "class Scale: ...\nclass Add: ...\n")
    assert card.context(kernel.load(), None)["layers"] is None
    kernel.write("torch-ext/scale_add/__init__.py", '__all__ = ["scale", "layers"]\n')
    known = card.context(kernel.load(), None)
    assert (known["functions"], known["layers"]) == (["scale"], ["Scale", "Add"])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("# {{ repo_id", "the card is not a valid template"),
        ("{{ functions.nothing.more }}", "the card cannot be filled"),
        ("---\na: [\n---\n", "the card's front matter is not YAML"),
        ("---\n- a\n---\n", "the card's front matter is not a table"),
    ],
)
def test_broken_cards(kernel: KernelProject, text: str, what: str) -> None:
    kernel.write("CARD.md", text)
    with pytest.raises(KernelgenError) as caught:
        render(kernel.load())
    assert caught.value.what.startswith(what)
    assert "CARD.md" in str(caught.value.where)


def test_a_missing_card_and_a_missing_repository(kernel: KernelProject) -> None:
    project = kernel.load()
    with pytest.raises(KernelgenError, match="repository's name"):
        render(replace(project, repo_id=None))
    (kernel.root / "CARD.md").unlink()
    with pytest.raises(KernelgenError, match=r"there is no CARD\.md"):
        render(project)


@pytest.mark.parametrize("content", ["{", "{}", '{"machineInfo": {}, "results": [{}]}', "[1]"])
def test_broken_results(kernel: KernelProject, content: str) -> None:
    kernel.write("benchmarks/results.json", content)
    with pytest.raises(KernelgenError, match="benchmark results cannot be read"):
        render(kernel.load())


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("torch-cuda", ("any", "CUDA", "any")),
        ("torch212-metal-aarch64-darwin", ("2.12", "Metal", "aarch64 macOS")),
        ("tvm-ffi01-cu132-x86_64-linux", ("any, through tvm-ffi 0.1", "CUDA 13.2", "x86_64 Linux")),
        ("torch213-cxx11-rocm72-x86_64-linux", ("2.13", "ROCm 7.2", "x86_64 Linux")),
    ],
)
def test_variants_in_words(name: str, row: tuple[Any, ...]) -> None:
    assert describe_variant(name) == VariantRow(name, *row)


def test_examples() -> None:
    assert doctest.testmod(card).failed == 0
