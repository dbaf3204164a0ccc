"""What the template renders: right, formatted, and accepted by the tools that read it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

OPERATORS = {
    "one": ["my_op(Tensor x) -> Tensor"],
    "three": [
        "scaled_copy(Tensor x, Tensor? bias=None, *, float scale=1.0, int n=3) -> Tensor",
        "zero_(Tensor(a!) x) -> ()",
        "split_in_two(Tensor x, int[2] sizes=[1, 2]) -> (Tensor, Tensor)",
    ],
    "many": [
        "update(Tensor(a!) out, Tensor input) -> ()",
        "gather_all(Tensor[] xs, bool flag) -> Tensor[]",
        "size_of(Tensor? x) -> int",
        "first_given.of(Tensor?[] ys, float f=0.5) -> (Tensor, float)",
        'with_text.first(Tensor x, Tensor y, *, str mode="a \\"b\\"") -> Tensor',
        "a_name_that_is_long_enough_to_wrap(Tensor first_argument, Tensor second_argument, float eps=1e-5)"
        " -> (Tensor, Tensor)",
        "three_outputs_of_a_long_name_that_wraps(Tensor x) -> (Tensor, Tensor, Tensor)",
        "six(Tensor x) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
        "f10(Tensor x) -> Tensor",
        "f2(Tensor x) -> Tensor",
        "locals_of_ours(Tensor count, Tensor i, Tensor zero, Tensor guard, Tensor stream) -> Tensor",
    ],
}
ANSWERS: dict[str, dict[str, Any]] = {
    "full": {},
    "stable": {"abi": "stable"},
    "cpu": {"backends": ["cpu"], "license": "MIT"},
    "cuda": {"backends": ["cuda"], "license": "BSD-3-Clause"},
    "autograd": {"autograd": True, "layers": True},
    "integers": {"dtypes": ["uint8", "int64", "bool"], "abi": "stable", "license": "MPL-2.0"},
}


@pytest.fixture(
    scope="module", params=[(o, a) for o in OPERATORS for a in ANSWERS], ids=lambda p: f"{p[1]}-{p[0]}"
)
def project(
    request: pytest.FixtureRequest, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A project rendered by bare Copier, from the files of this checkout and not from git."""
    import copier

    operators, answers = request.param
    source = tmp_path_factory.mktemp("template")
    shutil.copy(repository / "copier.yml", source)
    for part in ("includes", "template"):
        shutil.copytree(repository / part, source / part)
    target = tmp_path_factory.mktemp("project") / "my-kernel"
    data = {"kernel_name": "my-kernel", "ops": OPERATORS[operators], **ANSWERS[answers]}
    copier.run_copy(str(source), target, data=data, defaults=True, quiet=True)
    return target


def sources(project: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in project.rglob("*") if path.is_file() and path.suffix in suffixes)


def run(tool: str, *arguments: str, cwd: Path) -> str:
    """What a tool of this environment prints; it must succeed."""
    command = [str(Path(sys.executable).parent / tool), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_cpp_is_formatted(project: Path) -> None:
    files = [str(path) for path in sources(project, ".h", ".cpp", ".cu")]
    assert run("clang-format", "--dry-run", "-Werror", *files, cwd=project) == ""


def test_python_is_formatted_and_linted(project: Path) -> None:
    assert run("ruff", "format", "--no-cache", "--diff", "-q", ".", cwd=project) == ""
    assert run("ruff", "check", "--no-cache", "-q", ".", cwd=project) == ""


def test_python_is_typed(project: Path, repository: Path) -> None:
    cache = repository / ".mypy_cache" / "generated"
    packages = [str(path) for path in (project / "torch-ext").iterdir() if path.is_dir()]
    found = run("mypy", f"--cache-dir={cache}", *packages, "tests", "benchmarks", "example.py", cwd=project)
    assert found.startswith("Success")


def test_no_scars(project: Path) -> None:
    """No template mark, blank run, trailing space or missing last newline in any text file."""
    for path in sources(project, ".h", ".cpp", ".cu", ".py", ".pyi", ".toml", ".md", ".ini", ".nix", ".yml"):
        text = path.read_text()
        blanks = "\n\n\n\n" if path.suffix in (".py", ".pyi") else "\n\n\n"
        for scar in ("{=", "=}", "#=}", "%=}", " \n", "\t", blanks, "\r"):
            assert scar not in text, f"{scar!r} in {path.relative_to(project)}"
        assert text.endswith("\n"), path
        assert not text.endswith("\n\n"), path
        assert not text.startswith("\n"), path


def test_no_unused_helper(project: Path) -> None:
    """What operator.h offers is what the operators call."""
    header = (project / "torch-ext/operator.h").read_text()
    callers = "".join(path.read_text() for path in (project / "torch-ext").glob("*.cpp"))
    defined = set(re.findall(r"^inline \S+ (\w+)\(", header, re.M))
    # A CPU source that writes nothing reads no stream either.
    assert defined - {"current_stream"} == {n for n in ("check_device", "check_like") if f"::{n}(" in callers}


def test_every_tensor_is_laid_out(project: Path) -> None:
    for path in (project / "tests").glob("test_*.py"):
        text = path.read_text()
        tensors = re.findall(r'"(\w+)": make_tensor', text)
        body = text.partition("def test_layouts(")[2].partition("\ndef ")[0]
        laid_out = re.findall(r'"(\w+)"', body.partition(" = layout(")[0]) if tensors else []
        assert laid_out == tensors, path.name


def test_build_toml_is_accepted(project: Path) -> None:
    from kernels._rust import Build

    names = [str(backend).lower() for backend in Build.open(project).general.backends]
    answers = (project / ".copier-answers.yml").read_text()
    assert names == re.findall(r"^- (cpu|cuda)$", answers, re.MULTILINE)


def test_build_toml_lists_every_source(project: Path) -> None:
    from kernelgen.project import Project

    listed = set(Project.load(project).listed_files())
    on_disk = {
        str(path.relative_to(project)) for path in sources(project, ".h", ".cpp", ".cu") if path.is_file()
    }
    assert listed == on_disk


def test_the_template_agrees_with_the_parser(project: Path) -> None:
    """Both readers of schemas: the declared one is what torch_binding.cpp registers."""
    from kernelgen import schema

    binding = (project / "torch-ext" / "torch_binding.cpp").read_text()
    registered = [json.loads(text) for text in re.findall(r'ops\.def\(\s*("(?:[^"\\]|\\.)*")\);', binding)]
    import yaml

    answers = yaml.safe_load((project / ".copier-answers.yml").read_text())
    declared = [str(schema.parse(text)) for text in answers["ops"]]
    assert [str(schema.parse(text)) for text in registered][: len(declared)] == declared
