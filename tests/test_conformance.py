"""Every schema in PyTorch's registry: taken, with torchgen's C++ types, or refused for a reason.

The counts are kept in docs/operators.md, beside the reasons.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelgen.errors import KernelgenError
from kernelgen.schema import Argument, Schema, Type, cpp_argument_type, cpp_return_type, parse, python_type
from kernelgen.schema.grammar import BASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchgen.api.types import CType  # type: ignore[import-untyped]

torch = pytest.importorskip("torch")

DOCUMENT = Path(__file__).parent.parent / "docs" / "operators.md"
TAKEN = "taken"
NAME = "only its name, which is private or taken"
NAMES = r"An? (operator|argument|return|overload) cannot be called"
# What a refusal is about, as docs/operators.md names it, and how its message begins.
REASONS = {
    "a return is an argument again": r"The return .* is an argument again",
    "no argument is a Tensor": r"No argument is a Tensor",
    "a type that no kernel takes": r"'\w+' is no type",
    NAME: NAMES,
    "any number of arguments or returns": r"A custom operator has a fixed number",
    "an alias that is several, changes or is only read": r"The alias \(|An argument of a|Expected an al",
    "an alias of what is no Tensor, or of a list itself": r"Only a Tensor has|The alias stands behind",
    "nothing is returned and nothing is written to": r"The operator returns nothing",
    "a return that torch.compile and opcheck do not know": r"A \w+ (that is returned|is no return)",
    "a list of lists, or a tuple": r"A list of lists|A tuple",
    "a Generator that cannot be None": r"PyTorch has no type in C\+\+ for Generator",
    "two arguments have one name or one alias": r"Two arguments are",
    "a default that PyTorch reads as another value": r"The default of float\? has a decimal point",
    "a default that PyTorch prints and cannot read": r"PyTorch does not read",
}


@cache
def registry() -> tuple[str, ...]:
    """All schemas that `import torch` registers, without their namespaces; other tests register more."""
    program = "import torch; print(*torch._C._jit_get_all_schemas(), sep='\\n')"
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    return tuple(re.sub(r"^\w+::", "", text) for text in sorted(set(printed.splitlines())))


def refusal(text: str) -> str | None:
    """What `parse` says against a schema, or None."""
    try:
        parse(text)
    except KernelgenError as error:
        return error.what
    return None


@cache
def verdict(text: str) -> str:
    """`TAKEN`, `NAME` where that alone is in the way, or the reason of a refusal."""
    what = refusal(text)
    if what is None:
        return TAKEN
    if re.match(NAMES, what) and text != renamed(text):
        other = verdict(renamed(text))
        return NAME if other == TAKEN else other
    reasons = [reason for reason, pattern in REASONS.items() if re.match(pattern, what)]
    assert len(reasons) == 1, (text, what)
    return reasons[0]


def renamed(text: str) -> str:
    """The same schema with an operator's name, an overload's and arguments' that are free."""
    name, _, rest = text.partition("(")
    rest = re.sub(r" (from|new|[A-Z]{2,}(?:_[A-Z]+)?)\b(?=[,=)])", r" x_\1", rest)
    return f"operator_{'.overload' if '.' in name else ''}({rest}"


@cache
def verdicts() -> Counter[str]:
    return Counter(verdict(text) for text in registry())


def table() -> str:
    """The counts, as they stand in the document."""
    counts = verdicts()
    rows = [("taken", counts[TAKEN]), *sorted(((r, counts[r]) for r in REASONS), key=lambda row: -row[1])]
    lines = ["| schemas in PyTorch's registry | count |", "| --- | ---: |"]
    lines += [
        f"| {'**taken**' if reason == TAKEN else f'refused: {reason}'} | {count} |" for reason, count in rows
    ]
    lines.append(f"| all | {sum(counts.values())} |")
    return "\n".join(lines)


TYPES = """
    Tensor Tensor(a!) Tensor? Tensor(a!)? Tensor[] Tensor?[] Tensor[]? Tensor?[]? int int? int[]
    int[2] int[]? int?[] SymInt SymInt[] float float[] bool bool[] bool[2] str str[] Scalar Scalar[]
    complex complex[] ScalarType Layout MemoryFormat Device Device[] Generator?
"""


def types() -> str:
    """The spellings of argument types, as they stand in the document."""
    lines = ["| schema | C++, full ABI | C++, stable ABI | Python |", "| --- | --- | --- | --- |"]
    for type_ in TYPES.split():
        argument = parse(f"f(Tensor first, {type_} x) -> Tensor").arguments[1]
        spelled = [cpp(argument, "full"), cpp(argument, "stable"), f"`{python_type(argument)}`"]
        lines.append(f"| `{type_}` | " + " | ".join(cell.replace("|", "\\|") for cell in spelled) + " |")
    return "\n".join(lines)


def cpp(argument: Argument, abi: str) -> str:
    try:
        return f"`{cpp_argument_type(argument, abi)}`"
    except KernelgenError:
        return "none"


def test_the_types_in_the_document_are_those_of_the_code() -> None:
    print(types())
    assert types() in DOCUMENT.read_text()


def test_every_schema_is_taken_or_refused_for_a_documented_reason() -> None:
    counts = verdicts()
    assert counts[TAKEN] > 1000
    document = DOCUMENT.read_text()
    for reason in counts.keys() - {TAKEN}:
        assert f"refused: {reason} |" in document


def test_the_counts_in_the_document_are_those_of_this_torch() -> None:
    print(table())
    document = DOCUMENT.read_text()
    version = re.search(r"torch (\d+\.\d+)", document)
    assert version is not None
    if not torch.__version__.startswith(version[1] + "."):
        pytest.skip(f"the counts are those of torch {version[1]}")
    assert table() in document


def test_what_is_taken_prints_as_pytorch_prints_it() -> None:
    for text in registry():
        if verdict(text) == TAKEN:
            assert str(parse(text)) == text


# --- torchgen ---


def torchgen_types(schema: Schema) -> tuple[list[str], str]:
    """The C++ types of the arguments and of the return that torchgen derives; "" where it has none."""
    from torchgen import local  # type: ignore[import-untyped]
    from torchgen.api import native  # type: ignore[import-untyped]
    from torchgen.model import FunctionSchema  # type: ignore[import-untyped]

    def of(text: str, read: Callable[[FunctionSchema], CType]) -> str:
        try:
            return spelled(read(FunctionSchema.parse(text)).cpp_type())
        except (AssertionError, RuntimeError):
            return ""

    def argument_type(function: FunctionSchema) -> CType:
        return native.argument_type(function.arguments.flat_all[1], binds="x", symint=False).type

    def return_type(function: FunctionSchema) -> CType:
        return native.returns_type(function.returns, symint=False)

    with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
        arguments = [
            of(f"f(Tensor first, {bare(argument)}) -> Tensor", argument_type) for argument in schema.arguments
        ]
        return arguments, of(f"f(Tensor first) -> {str(schema).split(' -> ')[1]}", return_type)


def bare(argument: Argument) -> str:
    return str(Argument("x", argument.type, None, False, argument.alias))


def spelled(text: str) -> str:
    """torchgen's text as ours: no leading ::, one blank behind commas."""
    text = text.replace("::std::", "std::").replace("c10::string_view", "std::string_view").replace(" &", "&")
    return re.sub(r",(?=\S)", ", ", text)


# Where torchgen's type does not work in a custom operator: signatures.py says why.
OURS = {
    "std::optional<at::Tensor>&": "const std::optional<at::Tensor>&",
    "std::optional<const c10::List<std::optional<at::Tensor>>&>": (
        "const std::optional<c10::List<std::optional<at::Tensor>>>&"
    ),
    "at::ArrayRef<const std::optional<at::Scalar>&>": "at::ArrayRef<std::optional<at::Scalar>>",
    "at::ArrayRef<std::string_view>": "const c10::List<std::string>&",
    "at::ArrayRef<std::optional<std::string_view>>": "const c10::List<std::optional<std::string>>&",
}
OURS |= {
    "std::optional<at::ArrayRef<const std::optional<at::Scalar>&>>": (
        "std::optional<at::ArrayRef<std::optional<at::Scalar>>>"
    ),
    "std::optional<at::ArrayRef<std::string_view>>": "const std::optional<c10::List<std::string>>&",
    "std::optional<at::ArrayRef<std::optional<std::string_view>>>": (
        "const std::optional<c10::List<std::optional<std::string>>>&"
    ),
}
# Where torchgen has no type.
ALONE = re.compile(r"complex|bool(\[\]|\?\[\])|Tensor\(a!\)(\?|\[2\]|\[\]\?)|\[\]\?|Scalar\?")


def test_all_registry_types_are_torchgens() -> None:
    compared = Counter[str]()
    for text in registry():
        if verdict(text) not in (TAKEN, NAME):
            continue
        schema = parse(text if verdict(text) == TAKEN else renamed(text))
        arguments, returned = torchgen_types(schema)
        for argument, theirs in zip(schema.arguments, arguments, strict=True):
            mine = cpp_argument_type(argument, "full")
            if not theirs:
                assert ALONE.search(str(argument)), (text, str(argument), mine)
                compared["none in torchgen"] += 1
            elif theirs in OURS:
                assert mine == OURS[theirs], (text, str(argument))
                compared["ours"] += 1
            else:
                assert mine == theirs, (text, str(argument))
                compared["equal"] += 1
        mine = cpp_return_type(schema, "full")
        if not returned:
            assert re.search(r"-> .*(complex|bool\[\]|\[\]\?|Scalar\?)", str(schema)), (text, mine)
        else:
            assert mine == returned.replace("std::string_view", "std::string"), text
    print(dict(compared))
    assert compared["equal"] > 5000
    assert compared["ours"] < compared["equal"] / 100


def shape(base: str, marks: str) -> Type:
    """The type that is written as `base` and the marks behind it."""
    inner, bracket, outer = marks.partition("[")
    size, _, optional = outer.partition("]")
    if not bracket:
        return Type(base, optional=inner == "?")
    return Type(base, inner == "?", True, int(size) if size else None, optional == "?")


@pytest.mark.parametrize("base", BASES)
def test_every_type_is_torchgens(base: str) -> None:
    for marks in ("", "?", "[]", "[2]", "?[]", "[]?", "?[]?", "[2]?"):
        type_ = shape(base, marks)
        for alias in ("", "a!") if base == "Tensor" else ("",):
            argument = Argument("x", type_, None, False, alias)
            (theirs,), _ = torchgen_types(Schema("f", "", (argument,), ()))
            if theirs:
                assert cpp_argument_type(argument, "full") == OURS.get(theirs, theirs)
            else:
                assert ALONE.search(str(argument)), str(argument)
