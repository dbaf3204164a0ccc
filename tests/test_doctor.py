"""The doctor, on this machine as it is and on machines made of scripts that say what a real tool says."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from kernelgen import doctor, toolchain
from kernelgen.toolchain import Cuda, HostCompiler, Torch


def row(rows: list[doctor.Row], subject: str) -> doctor.Row:
    (found,) = [r for r in rows if r.subject == subject]
    return found


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH with a shell's basics and nothing else, and an own cache."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "cat", "dirname", "env", "mkdir", "rm"):
        (tools / name).symlink_to(shutil.which(name) or "/bin/true")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("KERNELGEN_CACHE", str(tmp_path / "cache"))
    for name in ("CXX", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    return tools


def torch(cuda: str | None, version: str = "2.13.0") -> Torch:
    return Torch(version=version, include_dirs=(), lib_dir=None, cuda=cuda)


def cuda(version: str, max_gcc: int | None = 15) -> Cuda:
    home = Path("/nowhere")
    return Cuda(version, home, home / "bin/nvcc", (), None, full_version=f"{version}.0", max_gcc=max_gcc)


@pytest.mark.slow
def test_this_machine() -> None:
    rows = doctor.diagnose()
    subjects = [r.subject for r in rows]
    assert subjects[0] == "python"
    assert row(rows, "python").found.startswith(".".join(map(str, sys.version_info[:3])))
    assert row(rows, "python").verdict == "ok"
    assert {"torch", "ninja", "git", "nix", "GPU", "disk here", "memory", "kernels loader"} <= set(subjects)
    assert json.loads(json.dumps([r.as_json() for r in rows]))[0]["subject"] == "python"
    if row(rows, "torch").verdict == "ok":
        assert row(rows, "loader and torch").verdict == "ok"
        assert "the loader takes torch2" in row(rows, "loader and torch").found
    if shutil.which("g++") and shutil.which("nvcc"):
        assert row(rows, "nvcc and C++ compiler").found.startswith("an empty kernel compiles")


@pytest.mark.parametrize(
    ("toolkit", "built_with", "verdict", "said"),
    [
        ("13.0", "13.0", "ok", "both 13.0"),
        ("13.0", "12.6", "error", "nvcc is 13.0, torch 2.13.0 was built with 12.6"),
        ("12.8", "13.0", "error", "does not load"),
        ("13.2", "13.0", "warn", "cu132, newer than torch's"),
        ("12.6", "12.8", "warn", "minor version compatibility"),
        ("13.0", None, "ok", "without CUDA"),
    ],
)
def test_another_major_version_is_an_error_and_another_minor_a_warning(
    toolkit: str, built_with: str | None, verdict: str, said: str
) -> None:
    judged = doctor.compare_cuda(cuda(toolkit), torch(built_with))
    assert judged.verdict == verdict
    assert said in judged.found


def test_a_mismatch_with_cuda_13_is_mended_by_fetching_its_toolkit() -> None:
    judged = doctor.compare_cuda(cuda("12.8"), torch("13.0"))
    assert judged.mend is not None
    assert judged.mend.startswith("kernelgen build --variant torch213-cxx11-cu130-")


def test_a_machine_with_nothing(bare_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kernelgen.toolchain._nvcc_candidates", lambda _installed: iter(()))
    script(bare_path / "apt-get", "exit 0")
    rows = doctor.diagnose(tmp_path)
    assert row(rows, "C++ compiler").verdict == "error"
    assert row(rows, "C++ compiler").mend == "sudo apt-get install -y g++"
    assert (row(rows, "git").verdict, row(rows, "git").mend) == ("error", "sudo apt-get install -y git")
    assert row(rows, "CUDA toolkit").verdict == "warn"
    assert "nvidia-cuda-nvcc==13." in (row(rows, "CUDA toolkit").mend or "")
    assert row(rows, "nix").verdict == "ok"
    assert row(rows, "ninja").verdict == "ok"  # a dependency of ours
    assert doctor.worst(rows) == "error"
    assert not any(r.subject == "nvcc and C++ compiler" for r in rows)


def test_a_cpu_project_is_not_told_to_get_cuda(
    bare_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kernelgen.toolchain._nvcc_candidates", lambda _installed: iter(()))
    root = tmp_path / "project"
    package = root / "torch-ext/my_kernel"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (root / "k.cpp").write_text("")
    (root / "torch-ext/b.cpp").write_text("")
    (root / "build.toml").write_text(
        '[general]\nname = "my-kernel"\nversion = 1\nlicense = "MIT"\nedition = 5\nbackends = ["cpu"]\n'
        '[torch]\nsrc = ["torch-ext/b.cpp"]\n'
        '[kernel.k]\nbackend = "cpu"\ndepends = ["torch"]\nsrc = ["k.cpp"]\n'
    )
    rows = doctor.diagnose(root)
    assert (row(rows, "CUDA toolkit").verdict, row(rows, "CUDA toolkit").mend) == ("ok", None)
    assert row(rows, "GPU").verdict == "ok"


def test_a_host_compiler_that_is_too_new(bare_path: Path) -> None:
    script(bare_path / "apt-get", "exit 0")
    host = HostCompiler(Path("/usr/bin/g++"), "gcc", "99.1.0")
    judged = doctor._pair_row(cuda("13.0", max_gcc=15), host)
    assert judged.verdict == "error"
    assert judged.found == "nvcc 13.0 takes g++ up to 15, /usr/bin/g++ is 99.1.0"
    assert judged.mend == "sudo apt-get install -y g++-15"


def test_an_older_compiler_beside_a_too_new_one_is_used(bare_path: Path, tmp_path: Path) -> None:
    said = (
        'case "$1" in -dumpfullversion) echo 14.2.0;; '
        '-dumpmachine) echo x86_64-linux-gnu;; *) echo "g++ 14.2";; esac'
    )
    script(bare_path / "g++-14", said)
    nvcc = script(tmp_path / "cuda/bin/nvcc", "exit 0")
    toolkit = Cuda("13.0", nvcc.parent.parent, nvcc, (), None, max_gcc=15)
    judged = doctor._pair_row(toolkit, HostCompiler(Path("/usr/bin/g++"), "gcc", "99.1.0"))
    assert judged.verdict == "ok"
    assert judged.found.endswith("g++-14 is used for .cu files")


def test_a_pair_that_fails_shows_the_compilers_first_error(bare_path: Path, tmp_path: Path) -> None:
    nvcc = script(
        tmp_path / "cuda/bin/nvcc", "echo 'note: hello' >&2; echo 'x.h:3: error: no cicc' >&2; exit 1"
    )
    toolkit = Cuda("13.0", nvcc.parent.parent, nvcc, (), None, max_gcc=15)
    judged = doctor._pair_row(toolkit, HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0"))
    assert (judged.verdict, judged.found) == (
        "error",
        "an empty kernel does not compile: x.h:3: error: no cicc",
    )
    assert "pip install nvidia-cuda-nvcc==13.0.*" in (judged.mend or "").replace("'", "")


def smi(tools: Path, gpus: str, runs: str) -> None:
    table = f"| NVIDIA-SMI 580.1   Driver Version: 580.1   CUDA Version: {runs} |"
    script(tools / "nvidia-smi", f'case "$1" in --query*) cat <<E\n{gpus}\nE\n;; *) echo "{table}";; esac')


def test_driver_and_gpus(bare_path: Path) -> None:
    smi(bare_path, "NVIDIA H200, 9.0, 580.95\nNVIDIA H200, 9.0, 580.95", "13.0")
    rows = list(doctor._gpu_rows(torch("13.0"), wants=True))
    assert row(rows, "driver").found == "580.95, runs CUDA up to 13.0"
    assert row(rows, "driver").verdict == "ok"
    assert row(rows, "GPU").found == "2: NVIDIA H200 (compute capability 9.0)"


@pytest.mark.parametrize(("runs", "verdict"), [("12.8", "error"), ("13.0", "warn"), ("13.2", "ok")])
def test_a_driver_older_than_torchs_cuda(bare_path: Path, runs: str, verdict: str) -> None:
    smi(bare_path, "NVIDIA A10, 8.6, 550.1", runs)
    assert row(list(doctor._gpu_rows(torch("13.2"), wants=True)), "driver").verdict == verdict


def test_a_driver_that_is_not_loaded(bare_path: Path) -> None:
    script(bare_path / "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    rows = list(doctor._gpu_rows(None, wants=True))
    assert row(rows, "driver").found == "nvidia-smi finds no driver"
    assert row(rows, "GPU").verdict == "warn"


def test_git_identity(bare_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    git = "/usr/bin/git" if Path("/usr/bin/git").exists() else "git"
    (bare_path / "git").symlink_to(git)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    missing = row(list(doctor._git_rows(tmp_path)), "git identity")
    assert missing.verdict == "warn"
    assert missing.mend == (
        'git config --global user.name "Your Name" && git config --global user.email you@example.org'
    )
    (tmp_path / "gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.org\n")
    assert row(list(doctor._git_rows(tmp_path)), "git identity").found == "Ada <ada@example.org>"


@pytest.mark.parametrize(
    ("config", "verdict", "mend"),
    [
        ("experimental-features = flakes nix-command\nsandbox = true", "ok", None),
        (
            "experimental-features = nix-command\nsandbox = true",
            "warn",
            "experimental-features = flakes nix-command",
        ),
        ("experimental-features = flakes nix-command\nsandbox = relaxed", "warn", "sandbox = true"),
    ],
)
def test_nix(bare_path: Path, config: str, verdict: str, mend: str | None) -> None:
    old = (
        'case "$*" in *show-config*) cat <<E\n%s\nE\n;; *config*) exit 1;; *) echo "nix (Nix) 2.18.1";; esac'
    )
    script(bare_path / "nix", old % config)
    judged = doctor._nix_row()
    assert judged.verdict == verdict
    assert "nix (Nix) 2.18.1" in judged.found
    assert (mend is None) == (judged.mend is None)
    assert (mend or "") in (judged.mend or "")


def test_an_interpreter_without_torch(bare_path: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if not base.exists():
        pytest.skip("no plain interpreter beside the environment")
    script(python, f'exec {base} -S -E "$@"')
    rows = doctor.diagnose(tmp_path, python=python)
    assert row(rows, "torch").verdict == "error"
    assert row(rows, "torch").mend == f"{python} -m pip install torch"
    assert row(rows, "kernels loader").verdict == "warn"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/usr/local/cuda/bin/nvcc").exists(), reason="needs a toolkit to lay out anew")
@pytest.mark.parametrize("layout", ["system", "pip", "conda"])
def test_every_layout_of_a_toolkit_is_found(
    layout: str, bare_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = Path("/usr/local/cuda").resolve()
    for name in ("g++", "gcc", "as", "ld", "cpp"):
        if found := shutil.which(name, path=os.defpath):
            (bare_path / name).symlink_to(found)
    home = tmp_path / {"system": "cuda-13.0", "pip": "site/nvidia/cu13", "conda": "conda"}[layout]
    (home / "bin").mkdir(parents=True)
    for tool in (real / "bin").iterdir():
        if tool.is_file():
            shutil.copy2(tool, home / "bin" / tool.name)
        else:
            (home / "bin" / tool.name).symlink_to(tool)
    (home / "nvvm").symlink_to(real / "nvvm")
    if layout == "conda":
        (home / "targets/x86_64-linux").mkdir(parents=True)
        (home / "targets/x86_64-linux/include").symlink_to(real / "include")
        (home / "targets/x86_64-linux/lib").symlink_to(real / "lib64")
        monkeypatch.setenv("CONDA_PREFIX", str(home))
    else:
        (home / "include").symlink_to(real / "include")
        (home / ("lib64" if layout == "system" else "lib")).symlink_to(real / "lib64")
    if layout == "system":
        monkeypatch.setenv("CUDA_HOME", str(home))
    else:  # the machine's own would be found first
        monkeypatch.setattr("kernelgen.toolchain.cuda_homes", list)
        candidates = toolchain._nvcc_candidates
        own = Path("/usr/local/cuda/bin/nvcc")
        monkeypatch.setattr(
            "kernelgen.toolchain._nvcc_candidates", lambda i: (c for c in candidates(i) if c != own)
        )
    if layout == "pip":
        monkeypatch.syspath_prepend(tmp_path / "site")
    rows = doctor.diagnose(tmp_path)
    assert str(home) in row(rows, "CUDA toolkit").found
    assert row(rows, "nvcc and C++ compiler").found.startswith("an empty kernel compiles")
