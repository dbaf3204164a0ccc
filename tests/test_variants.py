"""Names of variants: ours are those that the loader parses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelgen.errors import KernelgenError
from kernelgen.project import Project
from kernelgen.variants import Variant, built, for_backend, parse, wanted

TWICE = Path(__file__).parent / "projects" / "twice"

NAMES = {
    "torch210-cxx11-cu130-x86_64-linux": Variant("torch", "cuda", (2, 10), (13, 0)),
    "torch29-cxx11-cpu-aarch64-linux": Variant("torch", "cpu", (2, 9), None, "aarch64"),
    "torch213-cxx11-rocm71-x86_64-linux": Variant("torch", "rocm", (2, 13), (7, 1)),
    "torch213-cxx11-xpu20260-x86_64-linux": Variant("torch", "xpu", (2, 13), (2026, 0)),
    "torch213-metal-aarch64-darwin": Variant("torch", "metal", (2, 13), None, "aarch64", "darwin"),
    "torch27-cxx98-cu118-x86_64-linux": Variant("torch", "cuda", (2, 7), (11, 8), cxx11_abi=False),
    "torch213-cu130-x86_64-windows": Variant("torch", "cuda", (2, 13), (13, 0), "x86_64", "windows"),
    "torch-stable-abi211-cu130-x86_64-linux": Variant("torch-stable-abi", "cuda", (2, 11), (13, 0)),
    "tvm-ffi01-cpu-x86_64-linux": Variant("tvm-ffi", "cpu", (0, 1)),
    "torch-cuda": Variant("noarch", "cuda"),
    "torch-npu": Variant("noarch", "cann"),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_both_ways(name: str) -> None:
    assert NAMES[name].name == name
    assert parse(name) == NAMES[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_loader_parses_them(name: str) -> None:
    try:
        from kernels._internals.variants import parse_variant
    except ModuleNotFoundError:  # before kernels 0.19
        from kernels.variants import parse_variant

    assert parse_variant(name).variant_str == name


@pytest.mark.parametrize(
    "name",
    [
        "torch213-cxx11-cuda-x86_64-linux",
        "torch2.13",
        "torch213-cxx11-cu1-x86_64-linux",
        "torch213-cxx11-rocm7-x86_64-linux",
        "torch213-cxx11-xpu2-x86_64-linux",
        "torch-stable-abi211-cxx11-cpu-x86_64-linux",
        "benchmarks",
    ],
)
def test_others_are_refused(name: str) -> None:
    with pytest.raises(KernelgenError, match="not a variant name"):
        parse(name)


def test_a_project_names_its_variants(tmp_path: Path) -> None:
    project = Project.load(TWICE)
    stable = for_backend(project, "cuda", framework=(2, 13), compute=(13, 0))
    assert stable.name == "torch-stable-abi211-cu130-x86_64-linux"
    assert [v.name for v in wanted(project)] == [
        "torch-stable-abi211-cpu-x86_64-linux",
        "torch-stable-abi211-cu126-x86_64-linux",
        "torch-stable-abi211-cu130-x86_64-linux",
        "torch-stable-abi211-cu132-x86_64-linux",
    ]
    assert [v.name for v in wanted(project, "aarch64-darwin")] == ["torch-stable-abi211-cpu-aarch64-darwin"]


def test_built_directories(tmp_path: Path) -> None:
    good = tmp_path / "build" / "torch-cpu"
    for folder in (good, tmp_path / "build" / "torch-what", tmp_path / "build" / "benchmarks"):
        folder.mkdir(parents=True)
    (good / "metadata.json").write_text(json.dumps({"id": "_x_cpu_1"}))
    found = built(tmp_path)
    assert [(b.name, b.id, b.variant is None) for b in found] == [
        ("torch-cpu", "_x_cpu_1", False),
        ("torch-what", None, True),
    ]
