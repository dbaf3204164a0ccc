"""What a build decides before it compiles: targets, jobs, errors, what is stale."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernelgen import build as builder
from kernelgen import targets as targeting
from kernelgen.build import BuildOptions, Silent, compile_error, is_stale, torch_free
from kernelgen.errors import KernelgenError
from kernelgen.project import Project
from kernelgen.targets import asked_archs, cutlass_includes, targets
from kernelgen.toolchain import Cuda, Installed, Python, probe_host, probe_python, read_torch

TWICE = Path(__file__).parent / "projects" / "twice"


class Notes(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    shutil.copytree(TWICE, tmp_path / "p")
    return Project.load(tmp_path / "p")


def noarch(project: Project, backends: str = '["cpu", "cuda"]') -> Project:
    general = 'name = "twice-op"\nversion = 1\nedition = 5\nlicense = "MIT"'
    text = f"[general]\n{general}\nbackends = {backends}\n[torch-noarch]\n"
    (project.root / "build.toml").write_text(text)
    return Project.load(project.root)


def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targeting, "probe_cuda", lambda *_: None)


def test_without_nvcc_the_cpu_variant_is_built_and_the_other_named(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_cuda(monkeypatch)
    notes = Notes()
    found = targets(project, BuildOptions(), notes)
    assert [t.variant.name.split("-")[3] for t in found] == ["cpu"]
    assert len(notes.notes) == 1
    assert notes.notes[0].startswith("skipped: no CUDA compiler was found")
    with pytest.raises(KernelgenError, match="no CUDA compiler"):
        targets(project, BuildOptions(backends=("cuda",)))


def test_no_compiler_writes_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    before = sorted(project.root.rglob("*"))
    with pytest.raises(KernelgenError, match=r"no C\+\+ compiler"):
        builder.build(project)
    assert sorted(project.root.rglob("*")) == before


def test_no_torch(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Installed(Python(Path(sys.executable), "3.11.0", None, ()), None, None)
    monkeypatch.setattr(targeting, "probe_python", lambda _: bare)
    with pytest.raises(KernelgenError, match="there is no torch in"):
        targets(project, BuildOptions())


def test_cuda_of_another_major_version_is_refused_and_of_another_minor_said(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = probe_python()
    assert installed.torch
    torch = read_torch(installed.torch)
    cuda = Cuda("13.0", Path("/c"), Path("/c/bin/nvcc"), (), None)
    monkeypatch.setattr(targeting, "probe_cuda", lambda *_: cuda)
    monkeypatch.setattr(targeting, "read_torch", lambda _: replace(torch, cuda="12.6"))
    with pytest.raises(KernelgenError, match=r"torch was built with CUDA 12.6, but nvcc in /c is 13.0"):
        targets(project, BuildOptions(backends=("cuda",)))
    monkeypatch.setattr(targeting, "read_torch", lambda _: replace(torch, cuda="13.2"))
    (found,) = targets(project, BuildOptions(backends=("cuda",)))
    assert found.notes == ("nvcc is 13.0 and torch's CUDA is 13.2: it loads, as the older minor version",)


def test_host_compiler_too_new_for_nvcc(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    host = probe_host()
    monkeypatch.setattr(targeting, "probe_host", lambda: replace(host, version="99.1.0"))
    monkeypatch.setattr(
        targeting,
        "probe_cuda",
        lambda *_: Cuda("13.0", Path("/c"), Path("/c/n"), (), None, max_gcc=15),
    )
    monkeypatch.setattr(targeting, "find_older_gcc", lambda _: None)
    with pytest.raises(KernelgenError, match=r"takes g\+\+ up to 15, and this one is 99.1.0"):
        targets(project, BuildOptions(backends=("cuda",)))
    monkeypatch.setattr(targeting, "find_older_gcc", lambda _: host)
    (found,) = targets(project, BuildOptions(backends=("cuda",)))
    assert found.toolchain
    assert found.toolchain.cuda_host == host


def test_named_variants(project: Project) -> None:
    name = "torch-stable-abi211-cpu-x86_64-linux"
    (found,) = targets(project, BuildOptions(variants=(name,)))
    assert found.variant.name == name
    with pytest.raises(KernelgenError, match="is not a variant name") as caught:
        targets(project, BuildOptions(variants=("torch-stable-abi211-cpu-x86_64-linx",)))
    assert caught.value.way_out == f"did you mean {name}?"
    with pytest.raises(KernelgenError, match="is not a variant of this project"):
        targets(project, BuildOptions(variants=("torch213-cxx11-cpu-x86_64-linux",)))
    with pytest.raises(KernelgenError, match="has no backend 'rocm'"):
        targets(project, BuildOptions(variants=("torch213-cxx11-rocm71-x86_64-linux",)))
    with pytest.raises(KernelgenError, match="cannot be built on"):
        targets(project, BuildOptions(variants=("torch-stable-abi211-cpu-aarch64-darwin",)))


@pytest.mark.parametrize("backend", ["rocm", "xpu", "metal"])
def test_other_backends_say_why_not(backend: str) -> None:
    with pytest.raises(KernelgenError, match=f"{backend} cannot be built here, because"):
        builder.refuse_foreign(backend)


def test_architectures_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targeting, "gpu_archs", lambda: ("8.6",))
    assert asked_archs(BuildOptions()) == ("8.6",)
    assert asked_archs(BuildOptions(all=True)) == ()
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
    assert asked_archs(BuildOptions()) == ("8.0", "9.0+PTX")
    assert asked_archs(BuildOptions(archs=("9.0a",))) == ("9.0a",)


@pytest.mark.parametrize("options", [BuildOptions(), BuildOptions(all=True), BuildOptions(backends=("cpu",))])
def test_an_architecture_that_is_none_is_refused_whatever_is_built(
    project: Project, monkeypatch: pytest.MonkeyPatch, options: BuildOptions
) -> None:
    no_cuda(monkeypatch)
    project = noarch(project)
    builder.build(project, options)
    options = replace(options, archs=("9.0", "nonsense"))
    for _ in range(2):
        with pytest.raises(KernelgenError, match="'nonsense' is not a compute capability") as caught:
            builder.build(project, options)
        assert caught.value.where == "--arch"
        assert is_stale(project, options)


def test_torch_free_sources(project: Project) -> None:
    files = project.listed_files()
    assert torch_free(project.root, files) == {"csrc/twice.cpp", "csrc/twice.cu", "csrc/twice.h"}
    (project.root / "csrc" / "twice.h").write_text("#include <ATen/ATen.h>\n")
    assert torch_free(project.root, files) == set()


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("csrc/twice.cpp:7:3: error: 'x' was not declared in this scope", "csrc/twice.cpp:7"),
        ('csrc/a b.cu(12): error: identifier "x" is undefined', "csrc/a b.cu:12"),
        ("csrc/twice.cpp:1:10: fatal error: missing.h: No such file or directory", "csrc/twice.cpp:1"),
    ],
)
def test_the_first_error_is_found(line: str, place: str, tmp_path: Path) -> None:
    error = compile_error(
        f"In file included from x:\nFAILED: [code=1] ../obj/x.o\n{line}\n    7 | x\n", tmp_path
    )
    assert error.where == place
    assert (error.detail or "").startswith(line)
    assert "build.log" in (error.way_out or "")


def test_a_killed_compiler_is_said(tmp_path: Path) -> None:
    error = compile_error("g++: fatal error: Killed signal terminated program cc1plus\n", tmp_path)
    assert "want of memory" in error.what


def test_cutlass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Installed(Python(Path(sys.executable), "3.11.0", None, (tmp_path,)), None, None)
    monkeypatch.delenv("CUTLASS_SRC_DIR", raising=False)
    with pytest.raises(KernelgenError, match="depends on cutlass_3_6, whose headers are not here"):
        cutlass_includes(["cutlass_3_6"], bare)
    header = tmp_path / "cutlass_library/source/include/cutlass/cutlass.h"
    header.parent.mkdir(parents=True)
    header.touch()
    assert cutlass_includes(["cutlass_3_6"], bare) == [tmp_path / "cutlass_library/source/include"]


@pytest.mark.parametrize("value", ["0", "abc", "-1", "1.5"])
def test_bad_job_counts(value: str) -> None:
    with pytest.raises(KernelgenError, match="MAX_JOBS must be a whole number above 0"):
        builder._positive("MAX_JOBS", value)


# -- noarch builds, which need no compiler


def test_noarch(project: Project) -> None:
    project = noarch(project)
    built = builder.build(project)
    assert [b.name for b in built] == ["torch-cpu", "torch-cuda"]
    cpu = built[0].path
    assert sorted(p.name for p in cpu.iterdir()) == ["__init__.py", "_ops.py", "metadata.json"]
    assert json.loads((cpu / "metadata.json").read_text())["id"] == built[0].id
    assert f"_{built[0].id.removeprefix('_twice_op_cpu_')}" in (cpu / "_ops.py").read_text()
    assert [b.fresh for b in builder.build(project)] == [True, True]


def test_noarch_loads_and_finds_its_backend(project: Project) -> None:
    project = noarch(project, '["cpu"]')
    init = project.package_dir / "__init__.py"
    init.write_text("from ._ops import add_op_namespace_prefix\nname = add_op_namespace_prefix('f')\n")
    (built,) = builder.build(project)
    code = "import sys, kernels, pathlib; print(kernels.get_local_kernel(pathlib.Path(sys.argv[1])).name)"
    out = subprocess.run(
        [sys.executable, "-c", code, str(project.root)], check=True, capture_output=True, text=True
    )
    assert out.stdout == f"{built.id}::f\n"


def test_what_makes_a_build_stale(project: Project) -> None:
    project = noarch(project)
    assert is_stale(project)
    builder.build(project)
    assert not is_stale(project)
    assert is_stale(project, BuildOptions(namespace="demo"))
    assert not is_stale(project, BuildOptions(jobs=7, verbose=True))
    (project.package_dir / "more.py").touch()
    assert is_stale(project)
    builder.build(project)
    assert not is_stale(project)
    (project.root / "build" / "torch-cpu" / "more.py").unlink()
    assert is_stale(project)
    builder.build(project)
    assert (project.root / "build" / "torch-cpu" / "more.py").exists()
    shutil.rmtree(project.root / "build")
    assert is_stale(project)


def test_a_commit_changes_the_provenance_only(project: Project) -> None:
    project = noarch(project)
    first = builder.build(project)[0]
    for args in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run(["git", *args], cwd=project.root, check=True)
    second = builder.build(project)[0]
    assert (second.fresh, second.id) == (False, first.id)
    assert json.loads((second.path / "metadata.json").read_text())["provenance"]["kernel"]["dirty"] is False


def test_builds_lie_in_two_folders_only(project: Project) -> None:
    project = noarch(project)
    before = {p.name for p in project.root.iterdir()}
    builder.build(project)
    assert {p.name for p in project.root.iterdir()} - before == {".kernelgen", "build"}
    assert not list((project.root / ".kernelgen").glob("stage/*"))


def test_a_project_that_cannot_be_written(project: Project) -> None:
    project = noarch(project)
    (project.root / ".kernelgen").write_text("in the way")
    with pytest.raises(KernelgenError, match="cannot write in the project"):
        builder.build(project)


def test_processors_follow_the_affinity() -> None:
    assert 1 <= builder.cpus() <= len(os.sched_getaffinity(0))


# -- the mirror


def prepare(project: Project) -> Path:
    """Bring the project's mirror up to date, as a build does before it compiles."""
    with (project.root / "lock").open("w") as lock:
        builder._Run(project, BuildOptions(), Silent(), [], lock)._prepare([])
    return project.root / ".kernelgen" / "src"


def test_a_source_that_becomes_a_folder_is_not_written_through_its_old_link(project: Project) -> None:
    toml, source = project.root / "build.toml", project.root / "csrc" / "twice.cpp"
    text = source.read_text()
    prepare(project)
    source.unlink()
    source.mkdir()
    (source / "twice.cpp").write_text(text)
    toml.write_text(toml.read_text().replace('"csrc/twice.cpp"', '"csrc/twice.cpp/twice.cpp"'))
    mirror = prepare(Project.load(project.root))
    assert not (source / "twice.cpp").is_symlink()
    assert (source / "twice.cpp").read_text() == text
    assert not (mirror / "csrc" / "twice.cpp").is_symlink()
    assert (mirror / "csrc/twice.cpp/twice.cpp").readlink() == source / "twice.cpp"


def test_a_generated_file_that_is_not_text_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "build.ninja"
    path.write_bytes(b"\xff\xfe")
    builder._write_if_changed(path, "é\n")
    assert path.read_text("utf-8") == "é\n"
    os.utime(path, (1, 1))
    builder._write_if_changed(path, "é\n")
    assert path.stat().st_mtime == 1


# -- what this machine has


def test_page_cache_is_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_CGROUP", tmp_path)
    mib = 1 << 20
    (tmp_path / "memory.max").write_text(f"{64 * mib}\n")
    (tmp_path / "memory.current").write_text(f"{60 * mib}\n")
    assert builder.free_memory_gib() == 4 / 1024  # without memory.stat, all that is used counts
    (tmp_path / "memory.stat").write_text(f"anon {4 * mib}\nfile 1\ninactive_file {44 * mib}\n")
    assert builder.free_memory_gib() == 48 / 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert builder.free_memory_gib() != 48 / 1024


def toolkit(home: Path) -> Path:
    """A compiler of each kind, all of one size and time."""
    for name in ("nvcc", "hipcc", "clang++", "icpx"):
        tool = home / "bin" / name
        tool.parent.mkdir(parents=True, exist_ok=True)
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
        os.utime(tool, (1, 1))
    return home


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH", "--cuda-home", ""])
def test_a_switched_toolkit_makes_a_build_stale(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    link = tmp_path / "toolkit"
    link.symlink_to(toolkit(tmp_path / "one"))
    project = noarch(project)
    for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH", "CXX"):
        monkeypatch.delenv(name, raising=False)
    options = BuildOptions(cuda_home=link if variable == "--cuda-home" else None)
    if variable and variable != "--cuda-home":
        monkeypatch.setenv(variable, str(link))
    elif not variable:  # the only compiler on PATH is clang++
        (tmp_path / "path").mkdir()
        (tmp_path / "path" / "clang++").symlink_to(link / "bin" / "clang++")
        monkeypatch.setenv("PATH", str(tmp_path / "path"))
    builder.build(project, options)
    assert not is_stale(project, options)
    link.unlink()
    link.symlink_to(toolkit(tmp_path / "two"))
    assert is_stale(project, options)


def test_every_module_of_kernelgen_is_an_input(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project = noarch(project)
    read: set[str] = set()
    state = builder._state

    def reading(path: Path) -> list[int]:
        read.add(path.name)
        return state(path)

    monkeypatch.setattr(builder, "_state", reading)
    builder.input_states(project, BuildOptions())
    assert {"targets.py", "elf.py", "fetch.py", "wheel.py", "graph.py", "targets.toml"} <= read
