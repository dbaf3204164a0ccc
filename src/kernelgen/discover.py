"""Finding the operators that existing sources define: C++ registrations and Python custom operators."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TypeGuard

_STRING = (
    r'(?:R"(?P<delimiter>[^()\\\s]{0,16})\((?P<raw>.*?)\)(?P=delimiter)"|"(?P<plain>(?:[^"\\\n]|\\.)*)")'
)
# `m.def(`, `ops->def(`, and the wrappers that may stand around the schema.
_DEF = re.compile(
    r"\b\w+\s*(?:\.|->)\s*def\s*\(\s*(?:TORCH_SELECTIVE_SCHEMA\s*\(|(?:torch::)?schema\s*\()?\s*"
)
_FUNCTION_ARGUMENT = re.compile(r"\s*,\s*(?:TORCH_FN\s*\()?\s*&?\s*(?:[A-Za-z_]\w*::)*([A-Za-z_]\w*)")
_TOKENS = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}

_CPP_SCALARS = {
    "int64_t": "int", "int": "int", "long": "int", "int32_t": "int", "size_t": "int", "c10::SymInt": "SymInt",
    "double": "float", "float": "float", "bool": "bool", "std::string": "str", "c10::string_view": "str",
    "std::string_view": "str", "at::Scalar": "Scalar", "c10::Scalar": "Scalar", "torch::Scalar": "Scalar",
    "at::ScalarType": "ScalarType", "c10::ScalarType": "ScalarType", "torch::ScalarType": "ScalarType",
    "torch::Dtype": "ScalarType", "at::IntArrayRef": "int[]", "c10::IntArrayRef": "int[]",
    "torch::IntArrayRef": "int[]", "at::TensorList": "Tensor[]", "torch::TensorList": "Tensor[]",
    "at::Tensor": "Tensor", "torch::Tensor": "Tensor", "Tensor": "Tensor", "torch::stable::Tensor": "Tensor",
}  # fmt: skip
_PYTHON_SCALARS = {
    "Tensor": "Tensor",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "dtype": "ScalarType",
}


@dataclass(frozen=True)
class Operator:
    """An operator found in a source.

    Attributes:
        schema: its function schema; None where the source does not say it.
        name: the operator.
        line: where it is defined, from 1.
        reason: why there is no schema, or how it was inferred; empty where the source has it.
    """

    schema: str | None
    name: str
    line: int
    reason: str = ""


def cpp_operators(text: str, others: tuple[str, ...] = ()) -> list[Operator]:
    """The operators that a C++ or CUDA source registers.

    Args:
        text: the source.
        others: sources that may hold the declarations of functions that are registered by pointer.

    Returns:
        Those with a schema string (split and raw literals too), and those registered by name and function,
        whose schema is read from the function's C++ signature where that is possible.
    """
    clean = _without_comments(text)
    found = []
    for match in _DEF.finditer(clean):
        literal, end = _literals(clean, match.end())
        if literal is None:
            continue
        line = clean.count("\n", 0, match.start()) + 1
        if "(" in literal:
            found.append(
                Operator(" ".join(literal.split()), literal.split("(")[0].strip().split("::")[-1], line)
            )
            continue
        function = _FUNCTION_ARGUMENT.match(clean, end)
        name = literal.split("::")[-1]
        if function is None:
            found.append(
                Operator(None, name, line, "registered without a schema and without a plain function")
            )
            continue
        texts = (clean, *map(_without_comments, others))
        found.append(_from_signature(name, function[1], line, texts))
    return found


def python_operators(text: str) -> list[Operator]:
    """The operators that a Python source defines with `custom_op`, `triton_op` or a `define`."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return [Operator(None, "?", error.lineno or 1, "the file is not Python")]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found += [
                _from_decorator(node, d)
                for d in node.decorator_list
                if _is_call_of(d, ("custom_op", "triton_op"))
            ]
        elif isinstance(node, ast.Call) and _is_call_of(node, ("define",)):
            found += _from_define(node)
    return sorted(found, key=lambda operator: operator.line)


def _without_comments(text: str) -> str:
    """Blank out comments, line for line; strings stay."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0][0] in '"R' else "\n" * match[0].count("\n") + " "

    return _TOKENS.sub(blank, text)


def _literals(text: str, at: int) -> tuple[str | None, int]:
    """The string literals that stand one after the other at a place, as one text, and where they end."""
    pattern = re.compile(rf"\s*{_STRING}", re.DOTALL)
    parts = []
    while match := pattern.match(text, at):
        plain = match["plain"]
        parts.append(
            match["raw"] if plain is None else re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), plain)
        )
        at = match.end()
    return ("".join(parts) if parts else None), at


def _from_signature(name: str, function: str, line: int, texts: tuple[str, ...]) -> Operator:
    """Read a schema from the C++ signature of a registered function."""
    before = r"(?m)^[ \t]*(?:(?:static|inline|extern)\s+)*([\w:<>,\s]+?)[\s&]+"
    pattern = re.compile(before + re.escape(function) + r"\s*\(([^;{}]*?)\)\s*[;{]")
    for text in texts:
        match = pattern.search(text)
        if match is None:
            continue
        returns = _cpp_returns(" ".join(match[1].split()))
        arguments = [_cpp_argument(part, returns == "()") for part in _split(match[2])]
        if returns is None or None in arguments:
            unknown = match[1] if returns is None else _split(match[2])[arguments.index(None)]
            return Operator(
                None, name, line, f"{function} has a type that no schema has: {' '.join(unknown.split())}"
            )
        schema = f"{name}({', '.join(a for a in arguments if a)}) -> {returns}"
        return Operator(schema, name, line, f"inferred from the C++ signature of {function}")
    return Operator(
        None, name, line, f"registered without a schema, and the signature of {function} was not found"
    )


def _split(arguments: str) -> list[str]:
    """Split at the commas that are not inside <> or ()."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(arguments):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(arguments[start:index])
            start = index + 1
    return [part for part in (*parts, arguments[start:]) if part.strip()]


def _cpp_type(text: str) -> str | None:
    bare = re.sub(r"\bconst\b|&", "", text).strip()
    bare = re.sub(r"\s+", " ", bare)
    if bare in _CPP_SCALARS:
        return _CPP_SCALARS[bare]
    if inner := re.fullmatch(r"(?:std|c10|at|torch)::optional\s*<(.*)>", bare):
        base = _cpp_type(inner[1])
        return f"{base}?" if base else None
    if inner := re.fullmatch(r"(?:std::vector|(?:c10|at|torch)::(?:ArrayRef|List))\s*<(.*)>", bare):
        base = _cpp_type(inner[1])
        return f"{base}[]" if base else None
    return None


def _cpp_argument(text: str, in_place: bool) -> str | None:
    """One argument; a Tensor by non-const reference to a function that returns nothing is written to."""
    declared = text.split("=")[0].strip()
    match = re.fullmatch(r"(.*[\s&>])(\w+)", declared, re.DOTALL)
    if match is None:
        return None
    kind = _cpp_type(match[1])
    written = in_place and kind == "Tensor" and "&" in match[1] and "const" not in match[1]
    return f"{kind}{'!' if written else ''} {match[2]}" if kind else None


def _cpp_returns(text: str) -> str | None:
    if text == "void":
        return "()"
    if inner := re.fullmatch(r"std::tuple\s*<(.*)>", text):
        parts = [_cpp_type(part) for part in _split(inner[1])]
        return f"({', '.join(part for part in parts if part)})" if all(parts) else None
    return _cpp_type(text)


def _is_call_of(node: ast.expr, names: tuple[str, ...]) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in names


def _operator_name(node: ast.expr | None) -> str | None:
    """The operator's own name in `"ns::name"` or `add_op_namespace_prefix("name")`."""
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.split("::")[-1]
    return None


def _from_decorator(function: ast.FunctionDef, decorator: ast.Call) -> Operator:
    keywords = {keyword.arg: keyword.value for keyword in decorator.keywords}
    name = _operator_name(decorator.args[0] if decorator.args else keywords.get("name"))
    line = decorator.lineno
    if name is None:
        return Operator(None, function.name, line, "its name is not a plain string")
    given = keywords.get("schema")
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        return Operator(f"{name}{given.value[given.value.find('(') :]}", name, line)
    mutated = _mutated(keywords.get("mutates_args"))
    if mutated is None:
        return Operator(None, name, line, "mutates_args is not a list of names")
    arguments = _python_arguments(function, mutated)
    returns = _python_returns(function.returns)
    if isinstance(arguments, Exception) or returns is None:
        return Operator(
            None, name, line, str(arguments) if returns is not None else "its return type has no schema"
        )
    return Operator(
        f"{name}({', '.join(arguments)}) -> {returns}", name, line, "inferred from its Python annotations"
    )


def _mutated(node: ast.expr | None) -> frozenset[str] | None:
    if node is None:
        return frozenset()
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return frozenset(value) if isinstance(value, (list, tuple, set, dict)) else None


def _python_arguments(function: ast.FunctionDef, mutated: frozenset[str]) -> list[str] | Exception:
    spec = function.args
    if spec.vararg or spec.kwarg or spec.posonlyargs:
        return ValueError("it takes arguments that no schema has")
    missing = len(spec.args) - len(spec.defaults)
    defaults: list[ast.expr | None] = [*([None] * missing), *spec.defaults]
    written = []
    for argument, default in zip([*spec.args, *spec.kwonlyargs], [*defaults, *spec.kw_defaults], strict=True):
        if argument in spec.kwonlyargs and "*" not in written:
            written.append("*")
        kind = _python_type(argument.annotation)
        if kind is None:
            return ValueError(f"the annotation of {argument.arg} has no schema")
        if argument.arg in mutated:
            kind = kind.replace("Tensor", "Tensor!", 1)
        text = "" if default is None else _python_default(default)
        if text is None:
            return ValueError(f"the default of {argument.arg} is not a constant")
        written.append(f"{kind} {argument.arg}{text}")
    return written


def _python_default(node: ast.expr) -> str | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    if isinstance(value, str):
        return f'="{value}"'
    return f"={list(value)}" if isinstance(value, (list, tuple)) else f"={value}"


def _python_type(node: ast.expr | None) -> str | None:
    """A schema's type for an annotation."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [node.left, node.right]
        rest = [side for side in sides if not (isinstance(side, ast.Constant) and side.value is None)]
        base = _python_type(rest[0]) if len(rest) == 1 else None
        return f"{base}?" if base else None
    if isinstance(node, ast.Subscript):
        outer = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        base = _python_type(node.slice)
        ending = {"Optional": "?", "List": "[]", "list": "[]", "Sequence": "[]"}.get(outer)
        return f"{base}{ending}" if base and ending else None
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return _PYTHON_SCALARS.get(name)


def _python_returns(node: ast.expr | None) -> str | None:
    if isinstance(node, ast.Constant) and node.value is None:
        return "()"
    if isinstance(node, ast.Subscript) and getattr(node.value, "attr", getattr(node.value, "id", "")) in (
        "tuple",
        "Tuple",
    ):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        kinds = [_python_type(part) for part in parts]
        return f"({', '.join(kind for kind in kinds if kind)})" if all(kinds) else None
    return _python_type(node)


def _from_define(node: ast.Call) -> list[Operator]:
    """`torch.library.define("ns::f", "(Tensor x) -> Tensor")`, and `lib.define("f(Tensor x) -> Tensor")`."""
    texts = [
        a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else None for a in node.args[:2]
    ]
    if not node.args:
        return []
    if texts[0] and "(" in texts[0]:
        return [
            Operator(texts[0].split("::")[-1], texts[0].split("(")[0].split("::")[-1].strip(), node.lineno)
        ]
    name = _operator_name(node.args[0])
    if name and len(texts) > 1 and texts[1] and texts[1].lstrip().startswith("("):
        return [Operator(f"{name}{texts[1].strip()}", name, node.lineno)]
    return []
