"""The graph is pure: flags, objects and ninja text from made-up toolchains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgen import graph
from kernelgen.errors import KernelgenError
from kernelgen.graph import (
    PLACEHOLDER,
    Settings,
    component_archs,
    gencode,
    intersect,
    ninja_text,
    parse_archs,
    plan,
)
from kernelgen.project import Component, Project
from kernelgen.toolchain import Cuda, HostCompiler, Python, Rocm, Toolchain, Torch
from kernelgen.variants import Variant

HOST = HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0", "x86_64-linux-gnu")
PYTHON = Python(Path("/usr/bin/python3"), "3.11.7", Path("/usr/include/python3.11"), ())
TORCH = Torch("2.13.0+cpu", (Path("/t/include"), Path("/t/include/api")), Path("/t/lib"))
CUDA = Cuda(
    "13.0", Path("/cuda"), Path("/cuda/bin/nvcc"), (Path("/cuda/include"),), Path("/cuda/lib64"), "13.0.88"
)
TOOLS = Toolchain(HOST, PYTHON, TORCH, CUDA, machine="x86_64")
CPU = Variant("torch", "cpu", (2, 13))
GPU = Variant("torch", "cuda", (2, 13), (13, 0))
STABLE = Variant("torch-stable-abi", "cpu", (2, 11))


@pytest.fixture
def project() -> Project:
    loaded = Project.load(Path(__file__).parent / "projects" / "twice")
    return replace(loaded, framework=replace(loaded.framework, stable_abi={}))


def test_a_cpu_variant(project: Project) -> None:
    made = plan(project, CPU, TOOLS, Settings(torch_free=frozenset({"csrc/twice.cpp"})))
    assert [u.source for u in made.units] == ["csrc/twice.cpp", "torch-ext/torch_binding.cpp"]
    kernel, binding = made.units
    assert f"-DTORCH_EXTENSION_NAME=_twice_op_cpu_{PLACEHOLDER}" in kernel.flags
    for flag in (
        "-std=gnu++20",
        "-O3",
        "-DNDEBUG",
        "-fPIC",
        "-fvisibility=hidden",
        "-fno-gnu-unique",
        "-Wall",
        "-Wextra",
        "-Icsrc",
        "-DCPU_KERNEL",
        "-DPy_LIMITED_API=3",
    ):
        assert flag in kernel.flags
    assert "../ext/torch-2.13.0+cpu/include" in binding.flags
    assert not any("torch-2.13" in f for f in kernel.flags)
    assert (kernel.heavy, binding.heavy) == (False, True)
    assert made.links["torch-2.13.0+cpu/include"] == "/t/include"
    assert made.link[-5:] == ("-Wl,--no-as-needed", "-lc10", "-ltorch_cpu", "-ltorch", "-Wl,--as-needed")
    assert made.stem == "_twice_op_cpu_"


def test_a_cuda_variant(project: Project) -> None:
    made = plan(
        project,
        GPU,
        TOOLS,
        Settings(archs=("9.0", "12.0+PTX"), torch_free=frozenset({"csrc/twice.cu"}), cpus=8),
    )
    unit = next(u for u in made.units if u.rule == "nvcc")
    assert unit.source == "csrc/twice.cu"
    for flag in (
        "-std=c++20",
        "-DCUDA_KERNEL",
        "-DUSE_CUDA=1",
        "--expt-relaxed-constexpr",
        "-DENABLE_FP8",
        "--frandom-seed=csrc/twice.cu",
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_120,code=compute_120",
    ):
        assert flag in unit.flags
    assert "-fno-gnu-unique" in next(f for f in unit.flags if f.startswith("-Xcompiler")).split("=", 1)[
        1
    ].split(",")
    assert unit.speed == ("--threads=2",)
    assert made.archs == ("9.0", "12.0+PTX")
    assert made.libraries == (
        "c10.so",
        "torch_cpu.so",
        "torch.so",
        "torch_cuda.so",
        "c10_cuda.so",
        "cudart.so.13",
    )
    binding = next(u for u in made.units if "binding" in u.source)
    assert "../include/cuda" in binding.flags  # this torch lacks the header that CMake makes


def test_stable_abi(project: Project) -> None:
    made = plan(project, STABLE, TOOLS, Settings())
    assert "-DTORCH_TARGET_VERSION=0x20b000000000000" in made.units[0].flags
    old = replace(TOOLS, torch=replace(TORCH, version="2.10.0"))
    with pytest.raises(KernelgenError, match=r"needs torch 2\.11 or newer"):
        plan(project, STABLE, old, Settings())


def test_older_torch_is_cxx17(project: Project) -> None:
    old = replace(TOOLS, torch=replace(TORCH, version="2.11.0", cxx11_abi=False))
    flags = plan(project, replace(CPU, version=(2, 11)), old, Settings()).units[0].flags
    assert "-std=gnu++17" in flags
    assert "-D_GLIBCXX_USE_CXX11_ABI=0" in flags


def test_bounds(project: Project) -> None:
    bounded = replace(project, framework=replace(project.framework, maxver="2.12"))
    with pytest.raises(KernelgenError, match=r"torch 2.13 is above this project's maxver 2.12"):
        plan(bounded, CPU, TOOLS, Settings())
    with pytest.raises(KernelgenError, match=r"CUDA 13.0 is below this project's minver 13.1"):
        plan(replace(project, cuda_minver="13.1"), GPU, TOOLS, Settings())


def test_namespace_and_debug(project: Project) -> None:
    made = plan(project, CPU, TOOLS, Settings(namespace="demo", debug=True))
    assert "-DKERNELGEN_NAMESPACE=demo" in made.units[0].flags
    assert "-O0" in made.units[0].flags
    assert "-DNDEBUG" not in made.units[0].flags
    assert made.stem == "_twice_op_cpu_"


def test_cuda_minver_drops_a_component(project: Project) -> None:
    kept = tuple(replace(c, cuda_minver="13.1") if c.backend == "cuda" else c for c in project.components)
    made = plan(replace(project, components=kept), GPU, TOOLS, Settings())
    assert [u.source for u in made.units] == ["torch-ext/torch_binding.cpp"]


def test_objects_are_shared_where_flags_are_equal(project: Project) -> None:
    free = Settings(torch_free=frozenset({"csrc/twice.cu", "csrc/twice.cpp"}))
    other = replace(TOOLS, torch=replace(TORCH, version="2.12.0+cpu"))
    plans = [plan(project, GPU, TOOLS, free), plan(project, replace(GPU, version=(2, 12)), other, free)]
    first, second = ({u.source: u.object for u in p.units} for p in plans)
    assert first["csrc/twice.cu"] == second["csrc/twice.cu"]
    assert first["torch-ext/torch_binding.cpp"] != second["torch-ext/torch_binding.cpp"]
    text = ninja_text(plans)
    assert text.count("csrc/twice.cu.o: ") == 1
    assert text.count("torch_binding.cpp.o: ") == 2


def test_same_base_names_have_own_objects(project: Project) -> None:
    objects = [u.object for u in plan(project, GPU, TOOLS, Settings()).units]
    assert len(set(objects)) == len(objects)
    assert {o.rsplit("/", 1)[1] for o in objects} == {"twice.cpp.o", "twice.cu.o", "torch_binding.cpp.o"}


def test_no_line_names_this_machine(project: Project) -> None:
    """Everything outside the project is reached by links, so no quoting and no path in the objects."""
    for unit in plan(project, GPU, TOOLS, Settings()).units:
        assert not any("/t/" in f or "/usr/include" in f for f in unit.flags)


def test_ninja_text(project: Project) -> None:
    made = plan(project, GPU, TOOLS, Settings(archs=("9.0",)))
    text = ninja_text([made], launcher="/usr/bin/ccache", memory_gib=7.0)
    assert (
        "command = LD_PRELOAD=../ext/libstable_paths.so /usr/bin/ccache /cuda/bin/nvcc $flags $speed" in text
    )
    assert "pool heavy_nvcc\n  depth = 2\n" in text
    assert "pool = heavy_cxx" in text
    assert "pool" not in ninja_text([made], jobs=4, memory_gib=7.0)
    assert "$in" in text
    commands = graph.compile_commands([made], Path("/p"))
    assert commands[0]["directory"] == "/p"
    assert ".kernelgen/ext/torch-2.13.0+cpu/include" in commands[-1]["arguments"]


def test_awkward_names_are_escaped(project: Project) -> None:
    odd = replace(project.components[0], src=("csrc/a b$c:d'e.cpp",))
    text = ninja_text([plan(replace(project, components=(odd,)), CPU, TOOLS, Settings())])
    assert "csrc/a$ b$$c$:d'e.cpp" in text


# -- architectures


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (["8.0", "9.0a"], ["7.5", "8.0", "8.6", "9.0", "10.0+PTX"], ("8.0", "9.0a")),
        (["7.5", "8.0"], ["8.6", "9.0"], ("8.0",)),
        (["8.0+PTX"], ["7.5", "9.0", "12.0"], ("8.0+PTX",)),
        (["10.0f"], ["9.0", "10.0"], ("10.0f",)),
        (["5.0", "7.5", "8.0", "9.0"], ["7.0", "7.5", "8.0", "9.0"], ("7.5", "8.0", "9.0")),
        (["99.0"], ["9.0"], ()),
    ],
)
def test_intersection(source: list[str], target: list[str], expected: tuple[str, ...]) -> None:
    assert intersect(source, target) == expected


CAPABILITIES = st.lists(
    st.sampled_from(["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"]), min_size=1, unique=True
)


@given(CAPABILITIES, CAPABILITIES)
def test_intersection_is_of_the_source_and_runs_on_the_target(source: list[str], target: list[str]) -> None:
    found = intersect(source, target)
    assert set(found) <= set(source)
    for arch in found:
        assert any(t.split(".")[0] == arch.split(".")[0] and float(t) >= float(arch) for t in target)


def test_component_archs() -> None:
    plain = Component("k", "cuda", ("k.cu",))
    assert component_archs(plain, ("9.0",), "13.0") == ("9.0",)
    assert component_archs(plain, (), "13.0")[-1] == "12.1+PTX"
    assert component_archs(plain, (), "12.6")[-1] == "9.0+PTX"
    hopper = replace(plain, archs=("9.0a",))
    assert component_archs(hopper, ("8.0",), "13.0") == ("9.0a",)  # as kernel-builder: its whole list
    with pytest.raises(KernelgenError, match=r"no capability that CUDA 13\.0 is built for") as caught:
        component_archs(replace(plain, archs=("99.0",)), (), "13.0")
    assert "99.0" in (caught.value.detail or "")


def test_arch_lists() -> None:
    assert parse_archs("8.0;9.0a 12.0+PTX") == ("8.0", "9.0a", "12.0+PTX")
    assert gencode(("9.0a",)) == ["-gencode=arch=compute_90a,code=sm_90a"]
    with pytest.raises(KernelgenError, match="'Hopper' is not a compute capability"):
        parse_archs("Hopper")


# -- AMD and Intel, whose compilers are not here: the command lines are kernel-builder's


def other(project: Project, backend: str, sources: tuple[str, ...], **keys: Any) -> Project:
    component = Component("k", backend, sources, **keys)
    return replace(project, backends=(backend,), components=(component,))


def test_rocm(project: Project) -> None:
    tools = replace(TOOLS, cuda=None, rocm=Rocm("7.1", Path("/opt/rocm"), Path("/opt/rocm/bin/hipcc")))
    mine = other(project, "rocm", ("my_cuda/twice.cu",), archs=("gfx942", "gfx940"), gpu_flags=("-DX",))
    made = plan(mine, Variant("torch", "rocm", (2, 13), (7, 1)), tools, Settings())
    unit = next(u for u in made.units if u.rule == "hip")
    for flag in (
        "--offload-arch=gfx942",
        "-DUSE_ROCM=1",
        "-DROCM_KERNEL",
        "-DENABLE_FP8",
        "-DX",
        "-std=c++20",
    ):
        assert flag in unit.flags
    assert "--offload-arch=gfx940" not in unit.flags
    assert made.archs == ("gfx942",)
    assert made.libraries[-3:] == ("torch_hip.so", "c10_hip.so", "amdhip64.so.7")
    text = ninja_text([made])
    assert "command = /usr/bin/python3 ../hipify.py . ../hip my_cuda/twice.cu" in text
    assert "build ../hip/my_hip/twice.hip: hipify0 my_cuda/twice.cu" in text
    assert f"build {unit.object}: hip0 ../hip/my_hip/twice.hip" in text
    with pytest.raises(KernelgenError, match="no architecture that ROCm kernels are built for"):
        plan(other(project, "rocm", ("csrc/twice.cu",), archs=("gfx1",)), made.variant, tools, Settings())


def test_xpu(project: Project) -> None:
    icpx = HostCompiler(Path("/opt/intel/icpx"), "clang", "2025.3.0")
    mine = other(project, "xpu", ("csrc/twice.cpp",), gpu_flags=("-DX",))
    variant = Variant("torch", "xpu", (2, 12), icpx.release)
    assert variant.name == "torch212-cxx11-xpu20253-x86_64-linux"
    made = plan(mine, variant, replace(TOOLS, host=icpx, cuda=None), Settings())
    kernel, binding = made.units
    for flag in ("-fsycl", "-fsycl-targets=spir64_gen,spir64", "-DX", "-DUSE_XPU", "-DXPU_KERNEL"):
        assert flag in kernel.flags
    assert "-fsycl" not in binding.flags
    assert "-fsycl" in made.link
    assert made.libraries[-2:] == ("torch_xpu.so", "c10_xpu.so")
    assert "command = /opt/intel/icpx " in ninja_text([made])


def test_a_compiler_with_a_static_library_only_takes_the_systems_shared_one(project: Project) -> None:
    trimmed = replace(TOOLS, host=replace(TOOLS.host, shared_stdcxx=False))
    assert plan(project, CPU, trimmed, Settings()).link[-1] == "-l:libstdc++.so.6"
    assert "-l:libstdc++.so.6" not in plan(project, CPU, TOOLS, Settings()).link
