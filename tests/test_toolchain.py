"""Probes, on trees made to look like other machines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernelgen import toolchain
from kernelgen.errors import KernelgenError
from kernelgen.toolchain import (
    arch_order,
    probe_cuda,
    probe_host,
    probe_python,
    read_cuda,
    read_torch,
    release,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELGEN_CACHE", str(tmp_path / "cache"))
    for name in ("CUDA_HOME", "CUDA_PATH", "CXX", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)


def make_torch(root: Path, version: str, cuda: str | None = None, config: str = "") -> Path:
    folder = root / "torch"
    (folder / "include" / "c10").mkdir(parents=True)
    (folder / "version.py").write_text(
        f"__version__ = {version!r}\ncuda: Optional[str] = {cuda!r}\nhip = None\n"
    )
    (folder / "share/cmake/Torch").mkdir(parents=True)
    (folder / "share/cmake/Torch/TorchConfig.cmake").write_text(config)
    return folder


def make_cuda(home: Path, version: str = "13.0.88", gcc: int = 15) -> Path:
    """A toolkit whose nvcc answers as NVIDIA's does."""
    (home / "bin").mkdir(parents=True)
    (home / "include" / "crt").mkdir(parents=True)
    (home / "include" / "cuda_runtime.h").touch()
    (home / "include" / "crt" / "host_config.h").write_text(f"#if __GNUC__ > {gcc}\n#error\n#endif\n")
    (home / "lib64").mkdir()
    (home / "lib64" / "libcudart.so").touch()
    nvcc = home / "bin" / "nvcc"
    nvcc.write_text(
        f'#!/bin/sh\ncase "$1" in --version) echo "Cuda compilation tools, V{version}";;'
        f" --dryrun) echo '#$ TOP={home}/bin/..' >&2;; --help) echo --frandom-seed;; esac\n"
    )
    nvcc.chmod(0o755)
    return nvcc


def test_release() -> None:
    assert [release(v) for v in ("2.9.0", "2.10.1+cu126", "2.13.0a0+git12", "13")] == [
        (2, 9),
        (2, 10),
        (2, 13),
        (13, 0),
    ]
    with pytest.raises(KernelgenError):
        release("nightly")


def test_architectures_go_by_number() -> None:
    cuda = ["7.5", "8.0", "9.0", "9.0+PTX", "9.0a", "10.0", "12.0", "12.0+PTX", "12.0f", "12.1"]
    rocm = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100"]
    for right in (cuda, rocm):
        assert sorted(sorted(right), key=arch_order) == right


def test_torch_is_read_and_not_imported(tmp_path: Path) -> None:
    torch = read_torch(make_torch(tmp_path, "2.10.1+cu126", "12.6"))
    assert (torch.version, torch.release, torch.cuda, torch.cxx11_abi) == (
        "2.10.1+cu126",
        (2, 10),
        "12.6",
        True,
    )
    assert torch.lib_dir is None
    assert not torch.has_cuda_macros
    old = read_torch(make_torch(tmp_path / "old", "2.5.1", None, '"-D_GLIBCXX_USE_CXX11_ABI=0"'))
    assert (old.cuda, old.cxx11_abi) == (None, False)
    with pytest.raises(KernelgenError, match="not a torch package"):
        read_torch(tmp_path / "nothing")


def test_this_interpreter_and_its_torch() -> None:
    installed = probe_python()
    assert installed.python.executable == Path(sys.executable)
    assert installed.torch is not None
    assert read_torch(installed.torch).version == _version(installed.torch)
    assert probe_python(sys.executable) == installed


def _version(folder: Path) -> str:
    scope: dict[str, str] = {}
    exec((folder / "version.py").read_text(), scope)  # noqa: S102
    return scope["__version__"]


def test_other_interpreters(tmp_path: Path) -> None:
    with pytest.raises(KernelgenError, match="no interpreter"):
        probe_python(tmp_path / "python")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(KernelgenError, match="does not run as a Python"):
        probe_python(broken)


def test_host_compiler_is_probed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "g++-99"
    fake.write_text(
        f'#!/bin/sh\necho x >> "{tmp_path}/calls"\n'
        'case "$1" in -dumpm*) echo x86_64-linux-gnu;; -d*) echo 99.1.0;;'
        " *) echo 'g++ (GCC) 99.1.0';; esac\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    assert (probe_host().version, probe_host().kind) == ("99.1.0", "gcc")
    assert (tmp_path / "calls").read_text().count("x") == 4
    os.utime(fake, (1, 1))
    probe_host()
    assert (tmp_path / "calls").read_text().count("x") == 8
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(KernelgenError, match="'no-such-compiler' was not found"):
        probe_host()


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelgenError, match=r"no C\+\+ compiler was found"):
        probe_host()


def test_cuda_through_a_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "toolkit 13"
    nvcc = make_cuda(home)
    wrapper = tmp_path / "bin" / "nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec "{nvcc}" "$@"\n')
    wrapper.chmod(0o755)
    cuda = read_cuda(wrapper)
    assert (cuda.home, cuda.nvcc, cuda.version, cuda.full_version) == (home, nvcc, "13.0", "13.0.88")
    assert (cuda.max_gcc, cuda.lib_dir, cuda.random_seed) == (15, home / "lib64", True)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    assert probe_cuda() == cuda


def test_cuda_order_and_bad_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    make_cuda(first, "12.8.1")
    make_cuda(second, "13.1.0")
    monkeypatch.setenv("CUDA_PATH", str(first))
    found = probe_cuda()
    assert found
    assert found.version == "12.8"
    monkeypatch.setenv("CUDA_HOME", str(second))
    found = probe_cuda()
    assert found
    assert found.version == "13.1"
    found = probe_cuda(first)
    assert found
    assert found.version == "12.8"
    bad = {f"{first}:{second}": "not a list", f"{tmp_path}/c": "does not exist", f"{tmp_path}": "has no bin"}
    for value, said in bad.items():
        monkeypatch.setenv("CUDA_HOME", value)
        with pytest.raises(KernelgenError, match=said):
            probe_cuda()


@pytest.mark.parametrize("place", ["nvidia/cu13", "nvidia/cuda_nvcc"])
def test_cuda_from_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    make_cuda(tmp_path / "site" / place)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(toolchain, "cuda_homes", list)
    monkeypatch.setattr(toolchain, "SYSTEM_NVCC", tmp_path / "none")
    python = toolchain.Python(Path(sys.executable), "3.11.0", None, (tmp_path / "site",))
    found = probe_cuda(None, toolchain.Installed(python, None, None))
    assert found
    assert found.home == tmp_path / "site" / place


def test_conda_keeps_headers_under_targets(tmp_path: Path) -> None:
    nvcc = make_cuda(tmp_path / "env")
    target = tmp_path / "env" / "targets" / f"{toolchain.machine()}-linux"
    target.mkdir(parents=True)
    (tmp_path / "env" / "include").rename(target / "include")
    found = read_cuda(nvcc)
    assert found.include_dirs == (target / "include",)
    assert found.flags == (f"-I{target / 'include'}",)


def test_atomic_write_leaves_no_trace_on_failure(tmp_path: Path) -> None:
    toolchain.write_atomically(tmp_path / "a" / "b", "text")
    assert (tmp_path / "a" / "b").read_text() == "text"
    with pytest.raises(TypeError):
        toolchain.write_atomically(tmp_path / "a" / "b", 3)  # type: ignore[arg-type]
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_compilers_for_amd_and_intel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("ROCM_HOME", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert toolchain.probe_icpx() is None
    program(tmp_path / "bin" / "icpx", "Intel(R) oneAPI DPC++/C++ Compiler 2025.3.0 (2025.3.0.20251010)")
    found = toolchain.probe_icpx()
    assert found is not None
    assert found.release == (2025, 3)
    hipcc = program(tmp_path / "rocm" / "bin" / "hipcc", "HIP version: 7.1.25424-abc")
    monkeypatch.setenv("ROCM_HOME", str(tmp_path / "rocm"))
    assert toolchain.probe_rocm() == toolchain.Rocm("7.1", tmp_path / "rocm", hipcc)


@pytest.mark.parametrize("says", ["", "not JSON", "[]", '{"version": "3.11.0"}'])
def test_a_program_that_is_no_interpreter(tmp_path: Path, says: str) -> None:
    path = program(tmp_path / "true", says)
    with pytest.raises(KernelgenError) as caught:
        probe_python(path)
    assert caught.value.what == f"{path} does not run as a Python interpreter"
    assert caught.value.where == "--python"
    assert caught.value.detail == (says or None)


def test_an_interpreter_that_prints_at_its_start(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\necho hello\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    assert probe_python(path).python.version == probe_python().python.version


@pytest.mark.parametrize("text", ["", "__version__ = git()\n", "\xff"])
def test_a_torch_without_a_version(tmp_path: Path, text: str) -> None:
    folder = make_torch(tmp_path, "2.10.1")
    (folder / "version.py").write_bytes(text.encode("latin-1"))
    with pytest.raises(KernelgenError, match="is not a torch package") as caught:
        read_torch(folder)
    assert caught.value.way_out == "reinstall torch"


def test_what_a_program_says_need_not_be_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "cc"
    path.write_bytes(b"#!/bin/sh\necho '\xe9 g++ 12.2.0'\n")
    path.chmod(0o755)
    done = toolchain._run([path])
    assert done is not None
    assert done.stdout == "\ufffd g++ 12.2.0\n"


def test_the_cache_is_one_place_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELGEN_CACHE", "cache")
    assert toolchain.user_cache() == tmp_path / "cache"
    monkeypatch.setenv("KERNELGEN_CACHE", "~/cache")
    assert toolchain.user_cache() == tmp_path / "home" / "cache"
