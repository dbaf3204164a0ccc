"""Operators of every kind, compiled: registered as declared, called with and without defaults, opchecked."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest
from drawn_schemas import schemas
from operator_sample import ALSO_FULL, BOTH, CUDA, FULL

from kernelgen import scaffold
from kernelgen.errors import KernelgenError
from kernelgen.schema import Type, parse, symbol, validate
from kernelgen.schema.grammar import BASES, RETURNED
from kernelgen.toolchain import probe_cuda

SAMPLES: dict[str, list[str]] = {
    "stable": list(BOTH),
    "full": [*FULL, *(text for text in BOTH if text.startswith(ALSO_FULL))],
}
# Calls every operator of a built project by the project's own tests, and prints what failed.
CALLS = """
import importlib.util, json, sys
from pathlib import Path
import torch
from kernels import get_local_kernel
from kernelgen.schema import parse, symbol

root, device = Path(sys.argv[1]), sys.argv[2]
kernel = get_local_kernel(root / "build")
failed, count = {}, 0

def attempt(what, function):
    try:
        function()
    except Exception as error:
        failed[what] = repr(error)[:400]

for text in json.loads(sys.argv[3]):
    schema = parse(text)
    name = symbol(schema)
    spec = importlib.util.spec_from_file_location(f"test_{name}", root / "tests" / f"test_{name}.py")
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)
    operator = getattr(getattr(kernel.ops, schema.name), schema.overload or "default")

    def is_registered():
        registered = str(operator._schema).split("::", 1)[1]
        assert registered == str(torch._C.parse_schema(text)), registered

    def takes_defaults():
        given = tests.arguments(device)
        given = {a.name: given[a.name] for a in schema.arguments if a.default is None}
        keywords = {a.name: given.pop(a.name) for a in schema.arguments if a.kwarg_only and a.name in given}
        operator(*given.values(), **keywords)
        getattr(kernel, name)(**given, **keywords)

    attempt(f"registered: {text}", is_registered)
    attempt(f"called: {text}", lambda: tests.check(getattr(kernel, name), tests.arguments(device)))
    attempt(f"defaults: {text}", takes_defaults)
    attempt(f"opcheck: {text}", lambda: tests.test_opcheck(kernel, device))
    if device == "cuda":
        attempt(f"captured: {text}", lambda: tests.test_stream_and_graph(kernel))
        if hasattr(tests, "test_compile"):  # torch.compile takes operators that return tensors only
            attempt(f"compiled: {text}", lambda: tests.test_compile(kernel, device))
    count += 1
print(json.dumps({"count": count, "failed": failed}))
"""
LOAD = """
import kernels, pathlib
print(*kernels.get_local_kernel(pathlib.Path("build")).__all__)
"""


def test_the_sample_has_every_kind() -> None:
    texts = [*BOTH, *FULL]
    schemas = [parse(text) for text in texts]
    assert len(texts) == len(set(texts)) >= 60
    arguments = [argument for schema in schemas for argument in schema.arguments]
    types = {argument.type for argument in arguments}
    returned = {one.type for schema in schemas for one in schema.returns}
    shapes = {(type_.list, type_.size is not None, type_.elem_optional, type_.optional) for type_ in types}
    assert {type_.base for type_ in types} == set(BASES)
    assert {type_.base for type_ in returned} == set(RETURNED)
    assert Type("Tensor", list=True) in returned
    assert Type("Tensor", optional=True) in returned
    assert len(shapes) >= 7
    assert {argument.alias[-1:] for argument in arguments} == {"", "!"}
    with_defaults = {argument.type.base for argument in arguments if argument.default}
    assert with_defaults == set(BASES)
    kinds = {type(argument.default.value) for argument in arguments if argument.default}
    assert kinds == {type(None), bool, int, float, complex, str, tuple}
    assert any(schema.overload for schema in schemas)
    assert any(one.name for schema in schemas for one in schema.returns)
    assert any(not schema.returns for schema in schemas)


class Built(NamedTuple):
    """A project with a sample of operators, and what was said while it was built."""

    root: Path
    texts: list[str]
    said: str


def made(folder: Path, texts: list[str], *options: str, **answers: Any) -> Built:
    root = scaffold.new(folder / "every-kind", {"ops": texts, **answers}, commit=False).path
    command = [sys.executable, "-m", "kernelgen", "build", *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(root, texts, done.stdout + done.stderr)


@pytest.fixture(scope="module", params=list(SAMPLES))
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sample of one ABI, built for the CPU."""
    folder = tmp_path_factory.mktemp(request.param)
    return made(folder, SAMPLES[request.param], "--backend", "cpu", abi=request.param, backends=["cpu"])


def failures(project: Built, device: str) -> dict[str, str]:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        CALLS,
        str(project.root),
        device,
        json.dumps(project.texts),
    ]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["count"] == len(project.texts)
    failed: dict[str, str] = result["failed"]
    return failed


@pytest.mark.slow
def test_every_operator_works(project: Built) -> None:
    assert failures(project, "cpu") == {}


@pytest.mark.slow
def test_compilers_are_silent(project: Built) -> None:
    assert "built" in project.said
    assert "warning" not in project.said


def drawn(count: int, day: int) -> list[str]:
    """Operators from the whole grammar that the stable ABI has, others every day."""
    found: list[str] = []

    @hypothesis.seed(day)
    @hypothesis.settings(
        max_examples=20 * count, phases=[hypothesis.Phase.generate], database=None, deadline=None
    )
    @hypothesis.given(schemas())
    def draw(text: str) -> None:
        schema = parse(re.sub(r"^op_\w+", "drawn", text))
        with contextlib.suppress(KernelgenError):
            validate([schema], kernel_name="drawn", backends=["cpu"], abi="stable")
            found.append(schema.text)

    draw()
    # The longest have the most in them, and hypothesis begins with the simplest.
    longest = sorted(set(found), key=len)[-count:]
    return [text.replace("drawn", f"drawn_{index}", 1) for index, text in enumerate(longest)]


@pytest.mark.slow
def test_a_rotating_few_compile_and_load(tmp_path: Path) -> None:
    texts = drawn(6, datetime.now(tz=timezone.utc).toordinal())
    print("\n".join(texts))
    project = made(tmp_path, texts, "--backend", "cpu", abi="stable", backends=["cpu"])
    assert "warning" not in project.said
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD], cwd=project.root, capture_output=True, text=True, check=False
    )
    assert loaded.returncode == 0, loaded.stderr
    assert set(loaded.stdout.split()) >= {symbol(parse(text)) for text in texts}


@pytest.fixture(scope="module")
def cuda_project(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A smaller sample of both backends, built by nvcc."""
    if probe_cuda() is None:
        pytest.skip("needs nvcc")
    folder = tmp_path_factory.mktemp("cuda")
    answers = {"abi": "stable", "autograd": True, "layers": True}
    return made(folder, list(CUDA), "--backend", "cuda", "--arch", "9.0", **answers)


@pytest.mark.slow
def test_nvcc_compiles_a_sample_and_is_silent(cuda_project: Built) -> None:
    assert "built" in cuda_project.said
    assert "warning" not in cuda_project.said


@pytest.mark.gpu
@pytest.mark.slow
def test_the_cuda_sample_works(request: pytest.FixtureRequest) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    cuda_project: Built = request.getfixturevalue("cuda_project")
    assert failures(cuda_project, "cuda") == {}
