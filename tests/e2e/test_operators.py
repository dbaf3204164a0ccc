"""Operators of every kind, compiled: registered as declared, called with and without defaults, opchecked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from operator_sample import ALSO_FULL, BOTH, CUDA, FULL

from kernelgen import scaffold
from kernelgen.build import BuildOptions, build
from kernelgen.project import Project
from kernelgen.schema import Type, parse
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
    count += 1
print(json.dumps({"count": count, "failed": failed}))
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


@pytest.fixture(scope="module", params=list(SAMPLES))
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the sample's operators, built for the CPU."""
    data = {"ops": SAMPLES[request.param], "abi": request.param, "backends": ["cpu"]}
    root = scaffold.new(tmp_path_factory.mktemp(request.param) / "every-kind", data, commit=False).path
    build(Project.load(root), BuildOptions(backends=("cpu",)))
    return root


def called(root: Path, texts: list[str], device: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-c", CALLS, str(root), device, json.dumps(texts)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
def test_every_operator_works(project: Path, request: pytest.FixtureRequest) -> None:
    texts = SAMPLES["stable" if "stable" in str(project) else "full"]
    result = called(project, texts, "cpu")
    assert result["failed"] == {}
    assert result["count"] == len(texts)


@pytest.mark.slow
def test_compilers_are_silent(project: Path) -> None:
    log = (project / ".kernelgen" / "build.log").read_text()
    assert "g++" in log
    assert re.findall(r".*warning.*", log) == []


@pytest.fixture(scope="module")
def cuda_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of both backends, built by nvcc."""
    if probe_cuda() is None:
        pytest.skip("needs nvcc")
    data = {"ops": list(CUDA), "abi": "stable", "backends": ["cpu", "cuda"], "autograd": True, "layers": True}
    root = scaffold.new(tmp_path_factory.mktemp("cuda") / "every-kind", data, commit=False).path
    build(Project.load(root), BuildOptions(backends=("cuda",), archs=("9.0",)))
    return root


@pytest.mark.slow
def test_nvcc_compiles_a_sample_and_is_silent(cuda_project: Path) -> None:
    log = (cuda_project / ".kernelgen" / "build.log").read_text()
    assert "nvcc" in log
    assert re.findall(r".*warning.*", log) == []


@pytest.mark.gpu
def test_the_cuda_sample_works(cuda_project: Path) -> None:
    assert called(cuda_project, list(CUDA), "cuda")["failed"] == {}
