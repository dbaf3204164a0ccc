"""Cleaning: source survives everything, scratch and builds go, and what is nobody's is left and named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgen import clean, release
from kernelgen.errors import KernelgenError
from kernelgen.project import Project

if TYPE_CHECKING:
    from pathlib import Path

BUILD_TOML = """[general]
name = "my-kernel"
version = 2
license = "MIT"
edition = 5
backends = ["cpu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.my_kernel]
backend = "cpu"
depends = ["torch"]
src = ["csrc/k.cpp"]
"""
SOURCES = {
    "build.toml": BUILD_TOML,
    ".gitignore": "build/\n.kernelgen/\n__pycache__/\nresult\n*.egg-info/\nsetup.py\n_cmake_build/\n",
    "csrc/k.cpp": "int k;\n",
    "torch-ext/torch_binding.cpp": "\n",
    "torch-ext/my_kernel/__init__.py": "",
    "tests/test_k.py": "",
    "CARD.md": "",
}
CPU = "torch213-cxx11-cpu-x86_64-linux"


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


def variant(root: Path, name: str, *, version: int = 2, kernel: str = "my-kernel") -> Path:
    folder = root / "build" / name
    metadata = {
        "name": kernel,
        "id": "_my_kernel_cpu_1a2b3c4",
        "version": version,
        "backend": {"type": "cpu"},
    }
    files: dict[str, str | bytes] = {
        "metadata.json": json.dumps(metadata),
        "__init__.py": "",
        "_my_kernel_cpu_1a2b3c4.abi3.so": b"\x7fELF",
        "layers/__init__.py": "",
        "__pycache__/__init__.cpython-311.pyc": b"x",
        "layers/old.pyc": b"x",
    }
    write(folder, files)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A committed project, as written by hand."""
    root = tmp_path / "my-kernel"
    write(root, dict(SOURCES))
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


def tree(root: Path) -> set[str]:
    found = (p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_symlink() or not p.is_dir())
    return {name for name in found if not name.startswith(".git/")}


def gone(result: clean.Cleaned) -> set[str]:
    return {item.path for item in result.removed}


def test_everything_that_is_not_source_goes(project: Path) -> None:
    variant(project, CPU)
    write(
        project,
        {
            ".kernelgen/build.ninja": "rule\n",
            "tests/__pycache__/test_k.cpython-311.pyc": b"x",
            "build/.torch213-cxx11-cpu-x86_64-linux.tmp/_k.so": b"x",
            "my_kernel.egg-info/PKG-INFO": "",
            "setup.py": "class build_kernel: ...\n",
            "_cmake_build/CMakeCache.txt": "",
        },
    )
    (project / "result").symlink_to("/nix/store/abc-my-kernel")
    result = clean.clean(project)
    assert tree(project) == set(SOURCES)
    assert not (project / "build").exists()
    assert result.kept == ()
    assert gone(result) == {
        f"build/{CPU}",
        "build/.torch213-cxx11-cpu-x86_64-linux.tmp",
        ".kernelgen",
        "tests/__pycache__",
        "result",
        "my_kernel.egg-info",
        "setup.py",
        "_cmake_build",
    }
    assert clean.clean(project).removed == ()


def test_release_leaves_exactly_what_is_shipped(project: Path) -> None:
    good = variant(project, CPU)
    variant(project, "torch212-cxx11-cpu-x86_64-linux", version=1)
    variant(project, "torch213-cxx11-cu130-x86_64-linux", kernel="another")
    variant(project, "my-variant")
    write(project, {".kernelgen/log": ""})
    clean.clean(project, release=True)
    kept = {p for p in (project / "build").rglob("*") if p.is_file()}
    loaded = Project.load(project)
    assert kept == set(clean.release_files(loaded))
    assert kept == {p for name, p in release.collect(loaded).files.items() if name.startswith("build/")}
    assert sorted(p.relative_to(good).as_posix() for p in kept) == [
        "__init__.py",
        "_my_kernel_cpu_1a2b3c4.abi3.so",
        "layers/__init__.py",
        "metadata.json",
    ]
    assert not (project / ".kernelgen").exists()
    assert clean.clean(project, release=True).removed == ()


def test_release_says_why_a_variant_goes(project: Path) -> None:
    variant(project, "torch212-cxx11-cpu-x86_64-linux", version=1)
    (item,) = clean.clean(project, release=True, dry_run=True).removed
    assert item.why == "a variant that is not released: of version 1, not 2"


def test_dry_run_removes_nothing_and_tells_the_same(project: Path) -> None:
    variant(project, CPU)
    write(project, {".kernelgen/log": "x" * 1000})
    before = tree(project)
    planned = clean.clean(project, dry_run=True)
    assert tree(project) == before
    done = clean.clean(project)
    assert planned.removed == done.removed
    assert planned.freed == done.freed > 1000
    assert json.loads(json.dumps(planned.as_json()))["dry_run"] is True


def test_work_that_is_not_committed_survives(project: Path) -> None:
    variant(project, CPU)
    write(project, {"csrc/new.cu": "// an evening's work\n", "notes.txt": "x", "csrc/k.cpp": "int edited;\n"})
    clean.clean(project)
    assert tree(project) == {*SOURCES, "csrc/new.cu", "notes.txt"}
    assert (project / "csrc/k.cpp").read_text() == "int edited;\n"


def test_what_is_in_git_survives_even_where_scratch_lives(project: Path) -> None:
    folder = variant(project, CPU)
    write(
        project,
        {".kernelgen/mine.txt": "x", "setup.py": "build_kernel = 1\n", "tests/__pycache__/a.pyc": b"x"},
    )
    git(
        project,
        "add",
        "-f",
        f"build/{CPU}/__init__.py",
        ".kernelgen/mine.txt",
        "setup.py",
        "tests/__pycache__",
    )
    result = clean.clean(project)
    assert (folder / "__init__.py").exists()
    assert (project / ".kernelgen/mine.txt").exists()
    assert (project / "setup.py").exists()
    assert {k.path for k in result.kept} == {f"build/{CPU}", ".kernelgen", "tests/__pycache__"}
    assert all("is in git" in k.why for k in result.kept)


def test_names_alone_prove_nothing(project: Path) -> None:
    strangers: dict[str, str | bytes] = {
        "build/thesis/chapter1.tex": "\\section{One}",
        "build/notes.md": "mine",
        "tests/__pycache__/data.json": "{}",
        "setup.py": "from setuptools import setup\n",
        "_cmake_build/readme": "mine",
    }
    write(project, strangers)
    result = clean.clean(project)
    assert result.removed == ()
    assert set(strangers) <= tree(project)
    assert {k.path for k in result.kept} == {
        "build/thesis", "build/notes.md", "tests/__pycache__", "setup.py", "_cmake_build",
    }  # fmt: skip


def test_links_are_not_followed(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    variant(elsewhere, CPU)
    (project / "build").symlink_to(elsewhere / "build")
    (project / ".kernelgen").symlink_to(elsewhere)
    (project / "result").symlink_to(elsewhere)
    before = tree(elsewhere)
    result = clean.clean(project)
    assert result.removed == ()
    assert tree(elsewhere) == before
    assert {k.path for k in result.kept} == {"build", ".kernelgen", "result"}


def test_a_linked_variant_is_left(project: Path, tmp_path: Path) -> None:
    target = variant(tmp_path / "other", CPU)
    (project / "build").mkdir()
    (project / "build" / CPU).symlink_to(target)
    result = clean.clean(project)
    assert (target / "metadata.json").exists()
    assert [k.path for k in result.kept] == [f"build/{CPU}"]


def test_environments_and_other_repositories_are_not_entered(project: Path) -> None:
    write(project, {".venv/lib/__pycache__/a.pyc": b"x", "third_party/lib/__pycache__/a.pyc": b"x"})
    git(project, "init", "-q", "third_party/lib")
    assert clean.clean(project).removed == ()


def test_outside_git_generated_names_stay_and_builds_go(tmp_path: Path) -> None:
    root = tmp_path / "my-kernel"
    write(root, {**SOURCES, "setup.py": "build_kernel = 1\n", ".kernelgen/log": ""})
    variant(root, CPU)
    result = clean.clean(root)
    assert gone(result) == {f"build/{CPU}", ".kernelgen"}
    assert tree(root) == {*SOURCES, "setup.py"}


def test_what_the_peer_generates_goes(project: Path) -> None:
    generated: dict[str, str | bytes] = {
        "CMakeLists.txt": "include(${CMAKE_CURRENT_LIST_DIR}/cmake/kernel.cmake)\n",
        "cmake/kernel.cmake": "#\n",
        "cmake/utils.cmake": "#\n",
        "metadata-cpu.json": '{"id": "_my_kernel_cpu_1"}',
        "torch-ext/registration.h": "#define REGISTER_EXTENSION(NAME)\n",
        "torch-ext/my_kernel/_ops.py": "def add_op_namespace_prefix(n): ...\n",
        "pyproject.toml": "markers = ['kernels_ci']\n",
    }
    write(project, generated)
    write(project, {"cmake/mine.cmake": "# by hand\n"})
    with (project / ".gitignore").open("a") as file:
        file.write("CMakeLists.txt\ncmake/\nmetadata-*.json\nregistration.h\n_ops.py\npyproject.toml\n")
    assert gone(clean.clean(project)) == set(generated)
    assert tree(project) == {*SOURCES, "cmake/mine.cmake"}


def test_generated_files_that_git_does_not_ignore_are_source(project: Path) -> None:
    write(project, {"CMakeLists.txt": "include(cmake/kernel.cmake)\n"})
    assert clean.clean(project).removed == ()
    assert (project / "CMakeLists.txt").exists()


def test_a_project_in_a_larger_repository(tmp_path: Path) -> None:
    root = tmp_path / "kernels/my-kernel"
    write(root, dict(SOURCES))
    write(tmp_path, {"build/precious.txt": "x", "kernels/other/.kernelgen/log": "x"})
    git(tmp_path, "init", "-q", ".")
    git(tmp_path, "add", "-A")
    variant(root, CPU)
    assert gone(clean.clean(root)) == {f"build/{CPU}"}
    assert (tmp_path / "build/precious.txt").exists()
    assert (tmp_path / "kernels/other/.kernelgen/log").exists()


def test_odd_names(tmp_path: Path) -> None:
    root = tmp_path / "a b'c$d#é"
    write(root, dict(SOURCES))
    git(tmp_path, "init", "-q", str(root))
    write(root, {"csrc/größe $1.h": "x", "csrc/ü/__pycache__/a.pyc": b"x"})
    variant(root, CPU)
    assert gone(clean.clean(root)) == {f"build/{CPU}", "csrc/ü/__pycache__"}
    assert tree(root) == {*SOURCES, "csrc/größe $1.h"}


def test_a_folder_without_a_project_is_refused(tmp_path: Path) -> None:
    variant(tmp_path, CPU)
    with pytest.raises(KernelgenError, match=r"there is no build\.toml here"):
        clean.clean(tmp_path)
    assert (tmp_path / "build" / CPU).exists()


def test_release_needs_a_build_toml_that_says_which_version(project: Path) -> None:
    variant(project, CPU)
    (project / "build.toml").write_text("[general]\n")
    with pytest.raises(KernelgenError):
        clean.clean(project, release=True)
    assert (project / "build" / CPU).exists()
    clean.clean(project)
    assert not (project / "build").exists()


def test_a_running_build_is_not_cleaned_away(project: Path) -> None:
    write(project, {".kernelgen/lock": "4711", ".kernelgen/log": ""})
    held = (
        "import fcntl, sys; f = open('.kernelgen/lock', 'r+'); fcntl.flock(f, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=project
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(KernelgenError, match=r"a build of this project is running \(process 4711\)"):
            clean.clean(project)
        assert (project / ".kernelgen/log").exists()
        other.kill()
    assert gone(clean.clean(project)) == {".kernelgen"}


def test_the_cache_goes_only_when_asked(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNELGEN_CACHE", str(tmp_path / "cache"))
    write(tmp_path, {"cache/toolchains/torch-1/x.h": "x" * 5000, "cache/other": "x"})
    clean.clean(project)
    assert (tmp_path / "cache/toolchains/torch-1").exists()
    planned = clean.clean(project, cache=True, dry_run=True)
    assert (tmp_path / "cache/toolchains/torch-1").exists()
    assert clean.clean(project, cache=True).removed == planned.removed
    assert tree(tmp_path / "cache") == {"other", "locks/torch.lock", "locks/cuda.lock", "locks/tvm-ffi.lock"}
    assert planned.freed == 5000


def test_the_cache_can_be_cleaned_from_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNELGEN_CACHE", str(tmp_path / "cache"))
    write(tmp_path, {"cache/toolchains/torch-1/x.h": "x", "here/build/notes": "mine"})
    result = clean.clean(tmp_path / "here", cache=True)
    assert gone(result) == {str(tmp_path / "cache/toolchains/torch-1")}
    assert (tmp_path / "here/build/notes").exists()


def test_bytecode_of_a_real_interpreter_goes(project: Path) -> None:
    subprocess.run([sys.executable, "-m", "compileall", "-q", "torch-ext", "tests"], cwd=project, check=True)
    assert gone(clean.clean(project)) == {"torch-ext/my_kernel/__pycache__", "tests/__pycache__"}


NAMES = [
    "build",
    CPU,
    ".kernelgen",
    "__pycache__",
    "result",
    "setup.py",
    "a.pyc",
    "metadata.json",
    "x",
    "cmake",
]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    paths=st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join), max_size=6),
    tracked=st.booleans(),
    release=st.booleans(),
)
def test_source_survives_wherever_it_lies(
    paths: list[str], tracked: bool, release: bool, tmp_path: Path
) -> None:
    root = tmp_path / "p"
    shutil.rmtree(root, ignore_errors=True)
    write(root, {**SOURCES, ".gitignore": "build/\n" if not tracked else ""})
    git(tmp_path, "init", "-q", str(root))
    for path in paths:
        if not (root / path).exists() and not any(p.is_file() for p in (root / path).parents):
            write(root, {path: "content"})
    if tracked:
        git(root, "add", "-f", "-A")
    before = {name for name in tree(root) if name not in SOURCES}
    clean.clean(root, release=release)
    after = tree(root)
    assert set(SOURCES) <= after
    if tracked:
        assert before <= after
