"""The template reads schemas and spells types as the package does, for operators of every kind."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from operator_sample import BOTH, FULL

from kernelgen.schema import (
    Schema,
    cpp_argument_type,
    cpp_return_type,
    parse,
    python_default,
    python_return_type,
    python_type,
    symbol,
)


@pytest.fixture(scope="module", params=["full", "stable"])
def rendered(
    request: pytest.FixtureRequest, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[Schema], Path]:
    """The ABI, the operators, and a project that Copier made of them; operators.json is what it read."""
    import copier

    source = tmp_path_factory.mktemp("template")
    shutil.copy(repository / "copier.yml", source)
    for part in ("includes", "template"):
        shutil.copytree(repository / part, source / part)
    (source / "template" / "operators.json.jinja").write_text("{= operators | to_json =}")
    target = tmp_path_factory.mktemp("project") / "every-kind"
    texts = [*BOTH, *FULL] if request.param == "full" else [*BOTH]
    data = {"kernel_name": "every-kind", "ops": texts, "abi": request.param, "backends": ["cpu", "cuda"]}
    copier.run_copy(str(source), target, data=data, defaults=True, quiet=True)
    return request.param, [parse(text) for text in texts], target


def test_both_readers_read_the_same(rendered: tuple[str, list[Schema], Path]) -> None:
    _, schemas, project = rendered
    read: list[dict[str, Any]] = json.loads((project / "operators.json").read_text())
    assert len(read) == len(schemas)
    for theirs, schema in zip(read, schemas, strict=True):
        mine = schema.to_json()
        assert theirs["symbol"] == symbol(schema)
        assert {key: theirs[key] for key in ("schema", "name", "overload", "returns")} == {
            key: mine[key] for key in ("schema", "name", "overload", "returns")
        }
        arguments = [
            {key: argument[key] for key in argument if key != "symbol"} for argument in theirs["arguments"]
        ]
        assert arguments == mine["arguments"]


def test_cpp_is_spelled_the_same(rendered: tuple[str, list[Schema], Path]) -> None:
    abi, schemas, project = rendered
    text = " ".join((project / "torch-ext" / "torch_binding.h").read_text().split()).replace("( ", "(")
    for schema in schemas:
        for backend in ("cpu", "cuda"):
            arguments = [
                re.escape(cpp_argument_type(argument, abi)) + r" \w+" for argument in schema.arguments
            ]
            returned = re.escape(cpp_return_type(schema, abi))
            if len(cpp_return_type(schema, abi)) > 100:
                alias = rf"using {symbol(schema)}_result = {returned};".replace("std::tuple<", "std::tuple< ")
                assert len(re.findall(alias, text)) == 1, alias
                returned = f"{symbol(schema)}_result"
            declaration = rf"[;{{}}/LE] {returned} {symbol(schema)}_{backend}\({', '.join(arguments)}\);"
            assert len(re.findall(declaration, text)) == 1, declaration


def test_python_is_spelled_the_same(rendered: tuple[str, list[Schema], Path]) -> None:
    _, schemas, project = rendered
    for schema in schemas:
        module = ast.parse((project / "torch-ext" / "every_kind" / f"{symbol(schema)}.py").read_text())
        (function,) = [
            node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == symbol(schema)
        ]
        assert same(function.returns, python_return_type(schema))
        parameters = [*function.args.args, *function.args.kwonlyargs]
        missing: list[ast.expr | None] = [None] * (len(function.args.args) - len(function.args.defaults))
        defaults = [*missing, *function.args.defaults, *function.args.kw_defaults]
        for argument, parameter, default in zip(schema.arguments, parameters, defaults, strict=True):
            assert parameter.arg == argument.name
            assert same(parameter.annotation, python_type(argument)), (schema.text, argument.name)
            expected = python_default(argument)
            assert (default is None) == (expected is None)
            if default is not None and expected is not None:
                assert value(default) == value(expected), (schema.text, argument.name)


def same(node: ast.expr | None, text: str) -> bool:
    return node is not None and ast.unparse(node) == ast.unparse(ast.parse(text, mode="eval"))


def value(source: ast.expr | str) -> Any:
    """A default's value; one number stands for a list of it."""
    import torch

    text = source if isinstance(source, str) else ast.unparse(source)
    found = eval(text, {"torch": torch})  # noqa: S307 - our own text
    return found[0] if isinstance(found, tuple) and len(set(found)) == 1 else found
