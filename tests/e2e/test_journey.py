"""From nothing to a kernel that runs, by the command line, as a person would go."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ONE = ["my_op(Tensor x) -> Tensor"]
THREE = [
    "scaled_copy(Tensor x, Tensor? bias=None, *, float scale=1.0, int[2] pad=[0, 1]) -> Tensor",
    "zero_(Tensor(a!) x) -> ()",
    "twice(Tensor x, str mode='same') -> (Tensor, Tensor)",
]


def kernelgen(*arguments: str, cwd: Path, succeeds: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kernelgen", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == succeeds, done.stdout + done.stderr
    return done.stdout + done.stderr


def options(operators: list[str]) -> list[str]:
    return [part for schema in operators for part in ("--op", schema)]


@pytest.fixture(scope="module", params=[("full", ONE), ("full", THREE), ("stable", ONE), ("stable", THREE)])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as generated and built, in a path with a space and a letter beyond ASCII."""
    abi, operators = request.param
    folder = tmp_path_factory.mktemp("mein Käfer")
    kernelgen(
        "new", "my-kernel", "--abi", abi, "--repo-id", "acme/my-kernel", *options(operators), cwd=folder
    )
    said = kernelgen("build", "--arch", "9.0", cwd=folder / "my-kernel")
    assert "warning" not in said
    return folder / "my-kernel"


def variants(project: Path) -> list[str]:
    return sorted(path.name for path in (project / "build").iterdir())


def test_its_own_tests_pass(project: Path) -> None:
    said = kernelgen("test", "--arch", "9.0", cwd=project)
    assert int(re.search(r"(\d+) passed", said)[1]) >= 34  # type: ignore[index]
    assert "failed" not in said


def test_nothing_is_compiled_twice(project: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (project / "build").rglob("*")}
    said = kernelgen("build", "--arch", "9.0", cwd=project)
    assert [line.split()[:3] for line in said.splitlines()] == [["up", "to", "date"]] * len(variants(project))
    assert {path: path.stat().st_mtime_ns for path in (project / "build").rglob("*")} == before


def test_building_leaves_the_source_tree_clean(project: Path) -> None:
    status = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, check=True)
    assert status.stdout == b""


def test_example_and_benchmark_run_as_generated(project: Path) -> None:
    environment = {**os.environ, "LOCAL_KERNELS": "acme/my-kernel=build"}
    subprocess.run([sys.executable, "example.py"], cwd=project, env=environment, check=True)
    kernelgen(
        "bench", "--arch", "9.0", "--iterations", "2", "--warmup", "1", "--output", "result.json", cwd=project
    )
    results = json.loads((project / "result.json").read_text())["results"]
    (project / "result.json").unlink()
    assert {result["verified"] for result in results} == {True}


def test_the_loader_gives_right_values(project: Path) -> None:
    program = (
        "from pathlib import Path; import torch, kernels\n"
        "kernel = kernels.get_local_kernel(Path('.'))\n"
        "function = getattr(kernel, 'my_op', None) or kernel.scaled_copy\n"
        "x = torch.arange(12.0).view(3, 4).t()\n"
        "assert torch.equal(function(x), x)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=project, check=True)


def test_the_cuda_object_has_the_architectures_asked_for(project: Path, cuobjdump: Path) -> None:
    cuda = next((path for path in (project / "build").iterdir() if "-cu" in path.name), None)
    if cuda is None:
        pytest.skip("no nvcc: nothing was built for CUDA")
    (extension,) = cuda.glob("*.abi3.so")
    elf = subprocess.run(
        [cuobjdump, "--list-elf", extension], capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"sm_(\d+)", elf)) == {"90"}
    assert json.loads((cuda / "metadata.json").read_text())["backend"]["archs"] == ["9.0"]


def test_a_namespace_for_development_is_not_publishable(tmp_path: Path) -> None:
    kernelgen("new", "img2gray", "--backends", "cpu", "--abi", "stable", cwd=tmp_path)
    project = tmp_path / "img2gray"
    said = kernelgen("build", "--namespace", "img2gray", cwd=project)
    assert "not publish" in said
    program = (
        "from pathlib import Path; import torch, kernels\n"
        "kernels.get_local_kernel(Path('.'))\n"
        "assert torch.equal(torch.ops.img2gray.img2gray(torch.ones(3)), torch.ones(3))\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=project, check=True)


def test_bad_input_is_one_clear_error(tmp_path: Path) -> None:
    """Each: what is wrong, where, the way out, no traceback, nothing written."""
    kernelgen("new", "my-kernel", "--defaults", cwd=tmp_path)
    project = tmp_path / "my-kernel"
    said = kernelgen("new", "my-kernel", "--defaults", cwd=tmp_path, succeeds=False)
    assert said.startswith("error: the folder is not empty\n")
    text = (project / "build.toml").read_text()
    (project / "build.toml").write_text(text.replace("backends =", "backend ="))
    said = kernelgen("build", cwd=project, succeeds=False)
    assert "error: " in said
    assert "backends" in said
    assert "build.toml:8" in said
    (project / "build.toml").write_text(text)
    environment = {**os.environ, "PATH": "/nonexistent", "CXX": ""}
    done = subprocess.run(
        [sys.executable, "-m", "kernelgen", "build"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "g++" in done.stderr
    assert "Traceback" not in said + done.stderr
    assert not (project / "build").exists()


def test_bare_copier_update_keeps_edits_in_five_files(tmp_path: Path, repository: Path) -> None:
    """From template version A to B by Copier alone, where B changes the same files."""
    from kernelgen import template

    source = tmp_path / "template"
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    files = template.read_tree(repository)
    template.commit_version(source, files, "v1.0.0", None, 0)
    changed = []
    for file in files:
        data = file.data
        if file.path.endswith("build.toml.jinja"):
            data = data.replace(b"edition = 5\n", b"edition = 5\n# From B.\n")
        elif file.path.endswith("torch_binding.h.jinja"):
            data = data.replace(b"#pragma once\n", b"#pragma once\n\n// From B.\n")
        elif file.path.endswith("flake.nix"):
            data = data.replace(b"  outputs =", b"  # From B.\n  outputs =")
        changed.append(template.TemplateFile(file.path, file.mode, data))
    template.commit_version(source, changed, "v1.1.0", "refs/tags/v1.0.0^0", 1)
    subprocess.run(["git", "checkout", "-q", "v1.1.0"], cwd=source, check=True)

    from copier import run_copy, run_update

    project = tmp_path / "my-kernel"
    run_copy(
        str(source), project, data={"kernel_name": "my-kernel"}, vcs_ref="v1.0.0", defaults=True, quiet=True
    )
    subprocess.run("git init -q && git add -A && git commit -qm one", shell=True, cwd=project, check=True)  # noqa: S602
    mine = {
        "csrc/my_kernel.cu": ("constexpr int kThreads = 256;", "constexpr int kThreads = 512;  // mine"),
        "build.toml": ("below this line.\n]", 'below this line.\n  "csrc/mine.h",\n]'),
        "torch-ext/torch_binding.h": ("}  // namespace", "void mine();\n\n}  // namespace"),
        "tests/test_my_kernel.py": ("(255,)", "(255,), (77,)"),
        "flake.nix": ("ps: [ ]", "ps: [ ps.numpy ]"),
    }
    for name, (old, new) in mine.items():
        text = (project / name).read_text()
        assert old in text
        (project / name).write_text(text.replace(old, new, 1))
    subprocess.run(["git", "commit", "-qam", "two"], cwd=project, check=True)
    run_update(project, defaults=True, overwrite=True, quiet=True, conflict="inline", context_lines=1)
    for name, (_, new) in mine.items():
        assert new in (project / name).read_text(), name
    for name in ("build.toml", "torch-ext/torch_binding.h", "flake.nix"):
        assert "From B." in (project / name).read_text(), name
        assert "<<<<<<<" not in (project / name).read_text(), name
    assert "_commit: v1.1.0" in (project / ".copier-answers.yml").read_text()
