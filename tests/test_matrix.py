"""What a project has, wants and can build here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernelgen import matrix, toolchain
from kernelgen.project import Project
from kernelgen.toolchain import machine

BUILD_TOML = """[general]
name = "my-kernel"
version = 1
license = "MIT"
edition = 5
backends = ["cpu", "cuda", "rocm"]

[torch]
src = ["torch-ext/b.cpp"]

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["k.cpp"]

[kernel.cuda]
backend = "cuda"
depends = ["torch"]
src = ["k.cu"]

[kernel.rocm]
backend = "rocm"
depends = ["torch"]
src = ["k.cu"]
"""
pytestmark = pytest.mark.skipif(
    machine() != "x86_64" or not shutil.which("g++"), reason="names of x86_64, g++"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project for three backends, a torch 2.13, CUDA 12.6 and an empty cache."""
    root = tmp_path / "p"
    for name in ("torch-ext/b.cpp", "torch-ext/my_kernel/__init__.py", "k.cpp", "k.cu"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "build.toml").write_text(BUILD_TOML)
    monkeypatch.setenv("KERNELGEN_CACHE", str(tmp_path / "cache"))
    torch = toolchain.Torch("2.13.0+cpu", (), None)
    monkeypatch.setattr(toolchain, "read_torch", lambda _folder: torch)
    home = Path("/usr/lib/cuda")
    cuda = toolchain.Cuda("12.6", home, home / "bin/nvcc", (), None)
    monkeypatch.setattr(toolchain, "probe_cuda", lambda _home, _installed: cuda)
    monkeypatch.setattr(toolchain, "cuda_homes", list)
    monkeypatch.setenv("PATH", f"{Path(shutil.which('g++') or '').parent}")
    return Project.load(root)


def test_wanted_built_buildable_and_why_not(project: Project) -> None:
    for name in ("torch213-cxx11-cpu-x86_64-linux", "torch211-cxx11-cpu-x86_64-linux", "thesis"):
        (project.root / "build" / name).mkdir(parents=True)
    found = {row.name: row for row in matrix.rows(project)}
    own = found["torch213-cxx11-cpu-x86_64-linux"]
    assert (own.wanted, own.built, own.buildable, own.why) == (True, True, "yes", "torch 2.13.0+cpu")
    older = found["torch212-cxx11-cpu-x86_64-linux"]
    assert (older.wanted, older.built, older.buildable) == (True, False, "fetch")
    assert older.why == "torch 2.12 to be fetched"
    assert found["torch213-cxx11-cu126-x86_64-linux"].why == "torch 2.13.0+cpu, CUDA 12.6 in /usr/lib/cuda"
    assert found["torch213-cxx11-cu130-x86_64-linux"].buildable == "fetch"
    rocm = found["torch213-cxx11-rocm71-x86_64-linux"]
    assert rocm.buildable == "no"
    assert "hipcc was not found" in rocm.why
    beyond = found["torch211-cxx11-cpu-x86_64-linux"]
    assert (beyond.wanted, beyond.built) == (False, True)
    assert found["thesis"].why == "not a variant's name"
    assert [row.wanted for row in found.values()] == sorted((r.wanted for r in found.values()), reverse=True)
    assert json.loads(json.dumps([row.as_json() for row in found.values()]))[0]["wanted"] is True


def test_a_cuda_12_that_is_not_installed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "probe_cuda", lambda _home, _installed: None)
    found = {row.name: row for row in matrix.rows(project)}
    row = found["torch213-cxx11-cu126-x86_64-linux"]
    assert row.buildable == "no"
    assert "--cuda-home" in row.why


def test_what_the_cache_has_needs_no_fetching(project: Project, tmp_path: Path) -> None:
    entry = tmp_path / "cache/toolchains/torch-2.12.1-abc"
    entry.mkdir(parents=True)
    manifest = {"kind": "torch", "version": "2.12.1", "machine": machine(), "size": 1, "files": {}}
    (entry / "manifest.json").write_text(json.dumps(manifest))
    found = {row.name: row for row in matrix.rows(project)}
    assert found["torch212-cxx11-cpu-x86_64-linux"].why == "torch 2.12 from the cache"


def test_without_a_compiler_only_python_is_built(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = {row.name: row for row in matrix.rows(project)}
    assert "no C++ compiler" in found["torch213-cxx11-cpu-x86_64-linux"].why
