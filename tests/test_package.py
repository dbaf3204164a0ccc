"""What is written: metadata, digest, shipped files, the exchange of directories, the judging of symbols."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernelgen import elf, package
from kernelgen.graph import Plan
from kernelgen.project import KernelDepend, Project
from kernelgen.toolchain import probe_host, probe_python
from kernelgen.variants import Variant

TWICE = Path(__file__).parent / "projects" / "twice"
GPU = Variant("torch", "cuda", (2, 13), (13, 0))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    shutil.copytree(TWICE, tmp_path / "p")
    return Project.load(tmp_path / "p")


def test_metadata_is_what_the_loader_reads(project: Project, tmp_path: Path) -> None:
    Metadata = package.kernels_rust().Metadata  # noqa: N806

    full = replace(
        project,
        upstream="https://example.com/a",
        python_depends={"general": ("einops",), "cuda": ("nvidia-cutlass-dsl",)},
        kernel_depends={"cuda": (KernelDepend("a/b", 1), KernelDepend("c/d", None, "main"))},
    )
    plan = Plan(GPU, archs=("9.0", "10.0", "7.5"), stem="_twice_op_cuda_")
    table = package.metadata(full, plan, "_twice_op_cuda_0", {"kernel-builder": {"version": "kernelgen-0"}})
    assert list(table) == [
        "name",
        "id",
        "version",
        "kernels-minver",
        "license",
        "upstream",
        "python-depends",
        "kernel-depends",
        "backend",
        "provenance",
    ]
    assert table["kernels-minver"] == "0.17.0"
    assert table["backend"] == {"type": "cuda", "archs": ["10.0", "7.5", "9.0"]}
    assert table["kernel-depends"] == [
        {"repo-id": "a/b", "version": 1},
        {"repo-id": "c/d", "revision": "main"},
    ]
    path = tmp_path / "metadata.json"
    path.write_text(package._json(table))
    read = Metadata.read_from_file(path)
    assert (str(read.name), read.id, read.backend.archs) == (
        "twice-op",
        "_twice_op_cuda_0",
        ["10.0", "7.5", "9.0"],
    )


def test_plain_metadata_has_no_optional_keys(project: Project) -> None:
    table = package.metadata(project, Plan(Variant("noarch", "cpu")), "x", {})
    assert list(table) == [
        "name",
        "id",
        "version",
        "kernels-minver",
        "license",
        "python-depends",
        "kernel-depends",
        "backend",
    ]
    assert table["kernels-minver"] == "0.14.0"


def test_shipped_files(project: Project) -> None:
    folder = project.package_dir
    for name in ("data.json", "_ops.pyi", "_ops.py", "__pycache__/x.pyc", "sub/deep.py", "note.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    assert [n for n, _ in package.shipped_files(project)] == ["__init__.py", "sub/deep.py"]
    wider = replace(project, framework=replace(project.framework, pyext=("py", "json")))
    assert [n for n, _ in package.shipped_files(wider)] == ["__init__.py", "data.json", "sub/deep.py"]
    noarch = replace(project, framework=replace(project.framework, kind="torch-noarch"))
    assert [n for n, _ in package.shipped_files(noarch)] == [
        "__init__.py",
        "_ops.pyi",
        "data.json",
        "note.txt",
        "sub/deep.py",
    ]


def write(project: Project, tmp_path: Path, namespace: str | None = None) -> Path:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    variant = Variant("noarch", "cpu")
    stem = "_twice_op_cpu_"
    full = package.noarch_id(project, stem)
    plan = Plan(variant, stem=stem)
    return package.write_variant(project, plan, full, None, scratch, provenance={}, namespace=namespace)


def test_digest_is_upstreams(project: Project, tmp_path: Path) -> None:
    rust = package.kernels_rust()

    folder = write(project, tmp_path)
    said = rust.Metadata.read_from_file(folder / "metadata.json").digest
    assert said is not None
    assert sorted(said.files) == ["__init__.py", "_ops.py"]
    said.validate(rust.Digest.hash_variant(rust.DigestAlgorithm.SHA256, folder))
    assert package.unpublishable(folder) is None


def test_a_fixed_namespace_is_not_publishable(project: Project, tmp_path: Path) -> None:
    folder = write(project, tmp_path, "demo")
    assert '_NAMESPACE = "demo"' in (folder / "_ops.py").read_text()
    assert "fixed namespace 'demo'" in (package.unpublishable(folder) or "")
    assert package.unpublishable(tmp_path) == "its metadata.json or _ops.py is missing or incomplete"


def test_one_byte_makes_another_id(project: Project) -> None:
    first = package.noarch_id(project, "_x_")
    init = project.package_dir / "__init__.py"
    init.write_text(init.read_text() + "\n")
    assert package.noarch_id(project, "_x_") != first
    assert len(first) == len("_x_") + 12


def test_exchange_replaces_a_whole_directory(tmp_path: Path) -> None:
    target = tmp_path / "build" / "v"
    for name in ("one", "two"):
        new = tmp_path / "stage"
        new.mkdir()
        (new / name).touch()
        package.exchange(new, target)
        assert [p.name for p in target.iterdir()] == [name]
        shutil.rmtree(new, ignore_errors=True)


def test_exchange_without_the_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where names cannot be exchanged, a failure in the middle gives the old directory back."""
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    new, target = tmp_path / "stage" / "new", tmp_path / "build" / "v"
    for folder in (new, target):
        folder.mkdir(parents=True)
        (folder / folder.name).touch()
    rename = Path.rename

    def fails(path: Path, to: Path) -> Path:
        if path == new:
            raise OSError("no space left")
        return rename(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fails)
        with pytest.raises(OSError, match="no space left"):
            package.exchange(new, target)
    assert [p.name for p in target.iterdir()] == ["v"]
    assert [p.name for p in new.iterdir()] == ["new"]
    package.exchange(new, target)
    assert [p.name for p in target.iterdir()] == ["new"]


def test_provenance(project: Project) -> None:
    def run(*args: str) -> None:
        subprocess.run(["git", *args], cwd=project.root, check=True, capture_output=True)

    assert "kernel" not in package.provenance(project, [])
    run("init", "-q")
    run("add", "-A")
    run("commit", "-qm", "x")
    clean = package.provenance(project, ["build.toml"])
    assert (len(clean["kernel"]["commit"]), clean["kernel"]["dirty"]) == (40, False)
    (project.root / "notes.txt").touch()  # untracked, and no input
    assert package.provenance(project, ["build.toml"])["kernel"]["dirty"] is False
    (project.root / "new").mkdir()
    (project.root / "new" / "k.cu").touch()
    assert package.provenance(project, ["new/k.cu"])["kernel"]["dirty"] is True
    (project.root / "CARD.md").write_text("edited")
    assert package.provenance(project, ["build.toml"])["kernel"]["dirty"] is True


def compiled(tmp_path: Path, text: str, *flags: str) -> Path:
    (tmp_path / "x.cpp").write_text(text)
    out = tmp_path / "x.so"
    package.run([str(probe_host().cxx), "-shared", "-fPIC", "-O2", "x.cpp", *flags, "-o", str(out)], tmp_path)
    return out


NEW = '#include <pthread.h>\nextern "C" int f(pthread_t t) { return pthread_join(t, nullptr); }\n'


def test_symbols_that_are_too_new_are_found_stripped_or_not(tmp_path: Path) -> None:
    out = compiled(tmp_path, NEW)
    found = {v.symbol: v.needs for v in package.judge(out)}
    assert found == {"pthread_join": "GLIBC_2.34"}
    package.run(["strip", "-s", str(out)], tmp_path)
    assert package.judge(out) == ()  # kernel-abi-check does not see them any more
    assert {v.symbol: v.needs for v in package.dynamic_violations(out)} == found


def test_compatibility_objects_remove_them(tmp_path: Path) -> None:
    archive = package.compat_archive(probe_host())
    text = NEW + (
        "#include <cmath>\n#include <charconv>\n#include <sstream>\n"
        "#include <filesystem>\n#include <memory>\n"
        "#include <cstdlib>\n#include <condition_variable>\n"
        "double g(double x, const char* s) { std::ostringstream o;"
        " o << std::pow(x, 0.3) << std::exp(x) << std::log(x) << std::fmod(x, 3.3) << std::hypot(x, 2.2)"
        " << strtol(s, nullptr, 10); return o.str().size(); }\n"
        "bool h(const char* p) { return std::filesystem::exists(p); }\n"
        "std::to_chars_result i(char* b, double d) { return std::to_chars(b, b + 32, d); }\n"
        "void j(std::condition_variable& c, std::unique_lock<std::mutex>& l) { c.wait(l); }\n"
        "std::shared_ptr<int> k(std::shared_ptr<int> p) { return p; }\n"
    )
    script = tmp_path / "map"
    script.write_text("{ global: f; local: *; };")
    flags = (f"-Wl,--version-script={script}", "-std=gnu++20", str(archive))
    out = compiled(tmp_path, text.replace("double g", "__attribute__((used)) double g"), *flags)
    assert package.judge(out) == ()
    assert package.dynamic_violations(out) == ()


def test_python_and_torch_stable_abi(tmp_path: Path) -> None:
    out = compiled(
        tmp_path,
        "namespace at { void f(); }\nnamespace c10 { struct T { int g(int) const; }; }\n"
        'namespace torch::stable { void ok(); }\nextern "C" void PyUnicode_AsUTF8AndSize();\n'
        'extern "C" void _PyLong_New(); int h(c10::T& t) { at::f(); torch::stable::ok(); _PyLong_New();'
        " PyUnicode_AsUTF8AndSize(); return t.g(1); }\n",
    )
    found = {v.symbol: v.limit for v in package.judge(out, "2.11")}
    assert found == {
        "_ZN2at1fEv": "torch 2.11",
        "_ZNK3c101T1gEi": "torch 2.11",
        "_PyLong_New": "Python 3.9",
        "PyUnicode_AsUTF8AndSize": "Python 3.9",
    }


def test_kernels_rust_comes_without_torch() -> None:
    code = "import sys; from kernelgen.package import kernels_rust as k; k(); import kernelgen.build; assert 'torch' not in sys.modules; from kernels import Metadata; assert Metadata is k().Metadata"  # noqa: E501
    subprocess.run([sys.executable, "-c", code], check=True)


def test_stubs_have_their_sonames() -> None:
    folder = package.stubs(probe_host(), ("torch_cuda.so", "cudart.so.13"))
    text = subprocess.run(
        ["readelf", "-d", str(folder / "libcudart.so")], check=True, capture_output=True, text=True
    ).stdout
    assert "[libcudart.so.13]" in text
    assert (folder / "libtorch_cuda.so").exists()


def test_translation_to_hip(tmp_path: Path) -> None:
    """By torch's own translator, which any torch has; the names are those that the graph expects."""
    script = tmp_path / "hipify.py"
    script.write_text(package.resource("hipify.py.txt"))
    mirror = tmp_path / "src" / "my_cuda"
    mirror.mkdir(parents=True)
    (mirror / "k.h").symlink_to(TWICE / "csrc" / "twice.h")
    (mirror / "k.cu").write_text('#include "k.h"\nvoid f(cudaStream_t s) { cudaStreamSynchronize(s); }\n')
    command = [sys.executable, str(script), str(tmp_path / "src"), str(tmp_path / "hip"), "my_cuda/k.cu"]
    subprocess.run(command, check=True, capture_output=True)
    made = (tmp_path / "hip" / "my_hip" / "k.hip").read_text()
    assert "hipStreamSynchronize(s)" in made
    header = re.findall(r'#include "(\S*k\S*\.h)"', made)[0]
    assert (tmp_path / "hip" / "my_hip" / header).exists()
    assert (mirror / "k.h").is_symlink()


@pytest.mark.parametrize("headers", [True, False])
def test_an_extension_is_made_with_and_without_pythons_headers(tmp_path: Path, headers: bool) -> None:
    include = probe_python().python.include_dir
    if headers and include is None:
        pytest.skip("Python's headers are not installed")
    (tmp_path / "registration.h").write_text(package.resource("registration.h"))
    text = '#include "registration.h"\nREGISTER_EXTENSION(NAME)\n'
    flags = ["-DNAME=empty_one", "-DPy_LIMITED_API=3", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
    out = compiled(tmp_path, text, *flags, *([f"-isystem{include}"] if headers else []))
    out = out.rename(tmp_path / "empty_one.abi3.so")
    command = [sys.executable, "-c", "import empty_one; print(empty_one.__name__)"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "empty_one\n"
    assert [n for n in elf.read(out).undefined if "Py" in n] == ["PyModule_Create2"]
