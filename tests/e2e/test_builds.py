"""Builds of a small project by real compilers: what it makes, twice, killed, in parallel and elsewhere."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelgen import package
from kernelgen.build import BuildOptions, Silent, build
from kernelgen.errors import KernelgenError
from kernelgen.project import Project
from kernelgen.toolchain import probe_cuda

pytestmark = pytest.mark.slow

TWICE = Path(__file__).parent.parent / "projects" / "twice"
CPU, CUDA = BuildOptions(backends=("cpu",)), BuildOptions(backends=("cuda",), archs=("9.0", "12.0"))
needs_nvcc = pytest.mark.skipif(probe_cuda() is None, reason="needs nvcc")

RUN = """
import sys
from kernelgen.build import BuildOptions, build
from kernelgen.project import Project
for b in build(Project.load(sys.argv[1]), BuildOptions(backends=("cpu",))):
    print(b.id)
"""
LOAD = """
import sys, pathlib, torch, kernels
for path in sys.argv[1:]:
    k = kernels.get_local_kernel(pathlib.Path(path))
    print(k.__name__, k.twice(torch.arange(4.0)).tolist())
"""


class Steps(Silent):
    def __init__(self) -> None:
        self.steps: list[str] = []

    def advance(self, done: int, total: int | None, what: str) -> None:  # noqa: ARG002
        self.steps.append(what)


def copy(folder: Path) -> Project:
    shutil.copytree(TWICE, folder)
    return Project.load(folder)


def load(*roots: Path) -> list[str]:
    command = [sys.executable, "-c", LOAD, *map(str, roots)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with its CPU variant built."""
    project = copy(tmp_path_factory.mktemp("cpu") / "p")
    build(project, CPU)
    return project


def library(project: Project, part: str) -> Path:
    (found,) = (project.root / "build").glob(f"*{part}*/*.so")
    return found


def test_it_loads_and_is_right(cpu: Project) -> None:
    (line,) = load(cpu.root)
    assert line.endswith("[0.0, 2.0, 4.0, 6.0]")
    path = library(cpu, "cpu")
    assert (
        line.split()[0]
        == json.loads((path.parent / "metadata.json").read_text())["id"]
        == path.name.split(".")[0]
    )
    assert (cpu.root / ".kernelgen" / "compile_commands.json").exists()


def test_nothing_changed_compiles_nothing(cpu: Project) -> None:
    steps = Steps()
    (built,) = build(cpu, CPU, steps)
    assert (built.fresh, steps.steps) == (True, [])
    probe = "import sys; sys.argv = ['', sys.argv[1]]\n" + RUN + "\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", probe, str(cpu.root)], check=True)


def test_nothing_but_the_results_is_written(cpu: Project) -> None:
    assert {p.name for p in cpu.root.iterdir()} == {*(p.name for p in TWICE.iterdir()), ".kernelgen", "build"}
    for path in TWICE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert (cpu.root / path.relative_to(TWICE)).read_bytes() == path.read_bytes()


def check_library(path: Path) -> None:
    dump = subprocess.run(
        ["readelf", "-Wd", "--dyn-syms", str(path)], check=True, capture_output=True, text=True
    ).stdout
    assert "RPATH" not in dump
    assert "RUNPATH" not in dump
    assert " UNIQUE " not in dump
    exported = [line.split()[-1] for line in dump.splitlines() if " GLOBAL " in line and " UND " not in line]
    assert exported == [f"PyInit_{path.name.split('.')[0]}"]
    assert package.dynamic_violations(path) == ()
    content = path.read_bytes()
    assert b".kernelgen" not in content
    assert str(Path.home()).encode() not in content
    assert str(Path(sys.prefix)).encode() not in content


def test_symbols_of_a_cpu_library(cpu: Project) -> None:
    check_library(library(cpu, "cpu"))


def test_an_edit_compiles_one_file_and_has_an_id_of_its_own(tmp_path: Path) -> None:
    project = copy(tmp_path / "p")
    first = build(project, CPU)[0].id
    shutil.copytree(project.root / "build", tmp_path / "old" / "build")
    source = project.root / "csrc" / "twice.cpp"
    source.write_text(source.read_text().replace("2 * in[i]", "2 * in[i] + 1"))
    steps = Steps()
    second = build(project, CPU, steps)[0].id
    assert steps.steps == ["compiling csrc/twice.cpp"]
    assert first != second
    lines = load(tmp_path / "old", project.root)  # both in one process
    assert [line.split(maxsplit=1)[1] for line in lines] == ["[0.0, 2.0, 4.0, 6.0]", "[1.0, 3.0, 5.0, 7.0]"]
    source.write_text(source.read_text() + "// a comment\n")
    assert build(project, CPU)[0].id not in (first, second)


def test_two_directories_give_the_same_bytes(cpu: Project, tmp_path: Path) -> None:
    other = copy(tmp_path / "a b$c'd&e;f#ünï")
    build(other, CPU)
    first, second = (
        json.loads((library(p, "cpu").parent / "metadata.json").read_text()) for p in (cpu, other)
    )
    assert first == second
    assert library(cpu, "cpu").read_bytes() == library(other, "cpu").read_bytes()


@needs_nvcc
def test_cuda_on_a_machine_without_a_gpu(tmp_path: Path) -> None:
    """Two architectures, portable symbols, and the same bytes in two directories."""
    projects = [copy(tmp_path / name) for name in ("one", "two words")]
    for project in projects:
        (built,) = build(project, CUDA)
        assert built.archs == ("9.0", "12.0")
    first, second = (library(p, "cu") for p in projects)
    assert first.read_bytes() == second.read_bytes()
    check_library(first)
    needed = subprocess.run(["readelf", "-Wd", str(first)], check=True, capture_output=True, text=True).stdout
    for name in ("libtorch_cuda.so", "libc10_cuda.so", "libcudart.so."):
        assert f"[{name}" in needed
    cuda = probe_cuda()
    tool = cuda and cuda.home / "bin" / "cuobjdump"
    if tool and tool.exists():
        listing = subprocess.run(
            [str(tool), "--list-elf", str(first)], check=True, capture_output=True, text=True
        ).stdout
        assert "sm_90" in listing
        assert "sm_120" in listing


def test_files_that_are_not_listed_are_not_seen(tmp_path: Path) -> None:
    project = copy(tmp_path / "p")
    (project.root / "csrc" / "hidden.h").write_text("#define HIDDEN 1\n")
    source = project.root / "csrc" / "twice.cpp"
    source.write_text('#include "hidden.h"\n' + source.read_text())
    with pytest.raises(KernelgenError) as caught:
        build(project, CPU)
    assert caught.value.where == "csrc/twice.cpp:1"
    assert "hidden.h: No such file" in (caught.value.detail or "")
    assert not (project.root / "build").exists()


def test_a_failed_build_keeps_the_old_variant(tmp_path: Path) -> None:
    project = copy(tmp_path / "p")
    build(project, CPU)
    before = library(project, "cpu").read_bytes()
    source = project.root / "csrc" / "twice.cpp"
    source.write_text(source.read_text().replace("2 * in[i]", "oops"))
    with pytest.raises(KernelgenError) as caught:
        build(project, CPU)
    assert caught.value.where == "csrc/twice.cpp:13"
    assert "oops" in (caught.value.detail or "")
    assert library(project, "cpu").read_bytes() == before


def test_a_symbol_that_is_too_new_is_refused(tmp_path: Path) -> None:
    project = copy(tmp_path / "p")
    source = project.root / "csrc" / "twice.cpp"
    header = "#include <unistd.h>\n"
    source.write_text(
        header + source.read_text().replace("if (n < 0) {", "if (n < 0) {\n    close_range(3, 4, 0);")
    )
    with pytest.raises(KernelgenError, match=r"close_range: GLIBC_2.34 \(manylinux_2_28\)") as caught:
        build(project, CPU)
    assert "--local-only" in (caught.value.way_out or "")
    (built,) = build(project, BuildOptions(backends=("cpu",), local_only=True))
    assert built.notes == ("local only: 1 symbol too new for other machines",)


def test_a_fixed_namespace(tmp_path: Path) -> None:
    project = copy(tmp_path / "p")
    (built,) = build(project, BuildOptions(backends=("cpu",), namespace="demo"))
    assert built.id.startswith("_twice_op_cpu_")
    code = LOAD + "\nassert torch.ops.demo.twice is not None"
    subprocess.run([sys.executable, "-c", code, str(project.root)], check=True, capture_output=True)
    assert "fixed namespace" in (package.unpublishable(built.path) or "")


def start(project: Project) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUN, str(project.root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_two_builds_at_once(tmp_path: Path) -> None:
    project = copy(tmp_path / "p")
    both = [start(project) for _ in range(2)]
    outs = [p.communicate() for p in both]
    assert [p.returncode for p in both] == [0, 0], outs
    assert outs[0][0] == outs[1][0]
    assert load(project.root)[0].endswith("[0.0, 2.0, 4.0, 6.0]")


def wait_for_lock(root: Path) -> None:
    """Until no process that a killed build left holds the project."""
    lock = root / ".kernelgen" / "lock"
    if lock.exists():
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Old or new, never half: ten kills (KERNELGEN_KILLS asks for more), spread over a build's length."""
    project = copy(tmp_path / "p")
    source = project.root / "csrc" / "twice.cpp"
    text = source.read_text()
    started = time.monotonic()
    build(project, CPU)
    whole = time.monotonic() - started
    rng = random.Random(7)  # noqa: S311
    allowed = {json.loads((library(project, "cpu").parent / "metadata.json").read_text())["id"]}
    for number in range(int(os.environ.get("KERNELGEN_KILLS", "10"))):
        source.write_text(text + f"// edit {number}\n")
        process = start(project)
        time.sleep(rng.uniform(0, min(whole, 2.0)))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        wait_for_lock(project.root)
        (path,) = (project.root / "build").iterdir()
        digest = json.loads((path / "metadata.json").read_text())
        rust = package.kernels_rust()
        rust.Metadata.read_from_file(path / "metadata.json").digest.validate(
            rust.Digest.hash_variant(rust.DigestAlgorithm.SHA256, path)
        )
        allowed.add(digest["id"])
    (built,) = build(project, CPU)
    assert load(project.root)[0].split()[0] == built.id
    assert not list((project.root / ".kernelgen").glob("stage/*"))


def test_interrupted_builds_leave_no_compiler(tmp_path: Path) -> None:
    project = copy(tmp_path / "p")
    process = start(project)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    process.communicate()
    lock = project.root / ".kernelgen" / "lock"
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while any process of that build lives
    build(project, CPU)


def test_a_missing_definition_is_said_at_the_build(tmp_path: Path) -> None:
    project = copy(tmp_path / "p")
    for name in ("torch-ext/torch_binding.cpp", "csrc/twice.h"):
        path = project.root / name
        path.write_text(path.read_text().replace("twice_cpu(", "thrice_cpu("))
    with pytest.raises(
        KernelgenError, match=r"thrice_cpu\(float const\*, float\*, long\) is used, but no source"
    ):
        build(project, CPU)
