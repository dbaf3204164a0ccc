"""Function schemas: what is read, what is refused and how that is said, and the names that are free.

torch judges the reader: what it takes, PyTorch's own reader takes and prints the same.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from drawn_schemas import schemas
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgen.errors import KernelgenError
from kernelgen.schema import (
    Argument,
    Return,
    Schema,
    Type,
    cpp_argument_type,
    cpp_return_type,
    names,
    parse,
    python_default,
    python_return_type,
    python_type,
    registered,
    validate,
)

torch = pytest.importorskip("torch")


# --- What is read ---


def test_every_part_is_read() -> None:
    schema = parse(
        "  pool.out( Tensor x,Tensor?[]? extra, SymInt[2]  kernel=3 ,*, str mode='a, b)', Tensor(a!) out)->"
        "(Tensor values, int[] sizes)\n"
    )
    assert schema.name == "pool"
    assert schema.overload == "out"
    assert schema.qualified_name == "pool.out"
    x, extra, kernel, mode, out = schema.arguments
    assert x == Argument("x", Type("Tensor"))
    assert extra == Argument("extra", Type("Tensor", elem_optional=True, list=True, optional=True))
    assert kernel.type == Type("SymInt", list=True, size=2)
    assert kernel.default is not None
    assert (kernel.default.canonical, kernel.default.text, kernel.default.value) == ("[3, 3]", "3", (3, 3))
    assert mode.kwarg_only
    assert mode.default is not None
    assert mode.default.value == "a, b)"
    assert (out.alias, out.mutable, out.kwarg_only, out.default) == ("a!", True, True, None)
    assert schema.returns == (Return(Type("Tensor"), "values"), Return(Type("int", list=True), "sizes"))
    assert str(schema) == (
        'pool.out(Tensor x, Tensor?[]? extra, SymInt[2] kernel=[3, 3], *, str mode="a, b)", Tensor(a!) out)'
        " -> (Tensor values, int[] sizes)"
    )
    assert schema.text == (
        "pool.out(Tensor x, Tensor?[]? extra, SymInt[2] kernel=3, *, str mode='a, b)', Tensor(a!) out)"
        " -> (Tensor values, int[] sizes)"
    )


def test_plain_values_for_the_template() -> None:
    assert parse("f.a(Tensor(a!)? x, *, float eps=1e-5) -> (Tensor y, int)").to_json() == {
        "schema": "f.a(Tensor(a!)? x, *, float eps=1e-5) -> (Tensor y, int)",
        "name": "f",
        "overload": "a",
        "arguments": [
            {
                "name": "x",
                "type": "Tensor?",
                "base": "Tensor",
                "optional": True,
                "list": False,
                "size": None,
                "elem_optional": False,
                "default": None,
                "kwarg_only": False,
                "alias": "a!",
                "mutable": True,
            },
            {
                "name": "eps",
                "type": "float",
                "base": "float",
                "optional": False,
                "list": False,
                "size": None,
                "elem_optional": False,
                "default": "1e-5",
                "kwarg_only": True,
                "alias": "",
                "mutable": False,
            },
        ],
        "returns": [
            {"name": "y", "type": "Tensor", "base": "Tensor", "optional": False, "list": False},
            {"name": "", "type": "int", "base": "int", "optional": False, "list": False},
        ],
    }


@pytest.mark.parametrize(
    ("argument", "default", "python"),
    [
        ("int n=-3", "-3", "-3"),
        ("int? n=None", "None", "None"),
        ("SymInt n=9223372036854775807", "9223372036854775807", "9223372036854775807"),
        ("int[2] k=1", "1", "(1, 1)"),
        ("int[2] k=[1, 2]", "[1, 2]", "(1, 2)"),
        ("int[2] k=[]", "[]", "()"),
        ("int[1] k=[-2, -1]", "[-2, -1]", "(-2, -1)"),
        ("int[] k=[7]", "[7]", "(7,)"),
        ("SymInt[3] k=0", "[0, 0, 0]", "(0, 0, 0)"),
        ("float e=1e-5", "1.0000000000000001e-05", "1e-05"),
        ("float e=2", "2.", "2.0"),
        ("float e=.5", "0.5", "0.5"),
        ("float e=1e300", "1.0000000000000001e+300", "1e+300"),
        ("float? e=2.0", "2.", "2.0"),
        ("float[2] e=0.5", "[0.5, 0.5]", "(0.5, 0.5)"),
        ("bool b=True", "True", "True"),
        ("bool[2] b=[True, False]", "[True, False]", "(True, False)"),
        ("str s='sum'", '"sum"', '"sum"'),
        (r"""str s='\n\\"\''""", r'''"\n\\\"\'"''', r'''"\n\\\"'"'''),
        ('str? s=""', '""', '""'),
        ("complex c=-1.5j", "-1.5j", "-1.5j"),
        ("Scalar s=1", "1", "1"),
        ("Scalar s=1.0", "1.", "1.0"),
        ("Scalar s=True", "True", "True"),
        ("Scalar s=-2j", "-2.j", "-2j"),
        ("ScalarType t=float16", "5", "torch.float16"),
        ("ScalarType t=long", "4", "torch.int64"),
        ("ScalarType? t=15", "15", "torch.bfloat16"),
        ("Layout l=strided", "0", "torch.strided"),
        ("MemoryFormat m=contiguous_format", "0", "torch.contiguous_format"),
        ("MemoryFormat m=2", "2", "torch.channels_last"),
        ('Device d="cuda:1"', '"cuda:1"', 'torch.device("cuda:1")'),
        ("Generator? g=None", "None", "None"),
        ("Tensor? t=None", "None", "None"),
        ("Tensor[]? t=None", "None", "None"),
        ("str[]? t=None", "None", "None"),
    ],
)
def test_defaults(argument: str, default: str, python: str) -> None:
    read = parse(f"f(Tensor x, {argument}) -> Tensor").arguments[1]
    assert read.default is not None
    assert read.default.canonical == default
    assert read.default.text == argument.partition("=")[2]
    assert python_default(read) == python
    # PyTorch's reader makes the same value of it.
    theirs = torch._C.parse_schema(f"f(Tensor x, {argument}) -> Tensor").arguments[1].default_value
    value = list(read.default.value) if isinstance(read.default.value, tuple) else read.default.value
    assert str(theirs) == str(value)


# --- What is refused ---

MALFORMED = [
    # One fault each: the schema, the text below which the caret stands, what, and the way out.
    ("", "", "The schema is empty.", 'Write one such as "scale(Tensor x, float factor) -> Tensor".'),
    (
        "f",
        "END",
        "Expected '(' and found the end.",
        'Put the arguments in parentheses: "f(Tensor x) -> Tensor".',
    ),
    ("f Tensor x -> Tensor", "Tensor x", "Expected '(' and found 'Tensor'.", None),
    ("f(Tensor x -> Tensor", "->", "The arguments have no end.", "Close them with ')'."),
    ("f(Tensor x)", "END", "Nothing says what is returned.", 'Add "-> Tensor", or "-> ()" for nothing.'),
    ("f(Tensor x) Tensor", "Tensor|2", "Expected '->' and found 'Tensor'.", None),
    ("f(Tensor x) -> ", "END", "Expected a return's type and found the end.", None),
    (
        "f(Tensor x) -> Tensor, Tensor",
        ",",
        "Several returns need parentheses.",
        'Write "-> (Tensor, Tensor)".',
    ),
    ("f(Tensor x) -> (Tensor", "END", "The returns have no end.", "Close them with ')'."),
    ("f(Tensor x) -> Tensor y z", "z", "The schema goes on with 'z'.", "End it behind what is returned."),
    (
        "f(Tensor x Tensor y) -> Tensor",
        "Tensor y",
        "Expected ',' and found 'Tensor'.",
        "Separate arguments with commas.",
    ),
    ("f(Tensor x, ) -> Tensor", ") ->", "An argument is missing behind the comma.", "Take the comma out."),
    ("f(Tensor, int n) -> Tensor", ",", "The argument of type Tensor has no name.", 'Write "Tensor x".'),
    ("f(x) -> Tensor", "x", "'x' has no type.", 'Write "Tensor x".'),
    ("f(Tensor x, Tensr y) -> Tensor", "Tensr", "'Tensr' is no type.", "Write Tensor."),
    ("f(tensor x) -> tensor", "tensor", "'tensor' is no type.", "Write Tensor."),
    ("f(Tensor x, double y) -> Tensor", "double", "'double' is no type.", "Write float."),
    (
        "f(Tensor x, List[int] y) -> Tensor",
        "List",
        "'List' is no type that a kernel takes or gives.",
        "Write the element's type and [], such as int[].",
    ),
    (
        "f(Tensor x, Dict(str, Tensor) y) -> Tensor",
        "Dict",
        "'Dict' is no type that a kernel takes or gives.",
        "Pass two lists, str[] keys and Tensor[] values.",
    ),
    (
        "f(Tensor x) -> None",
        "None",
        "'None' is no type that a kernel takes or gives.",
        "Write () where nothing is returned, and Tensor? for what may be None.",
    ),
    (
        "f(Tensor x, t y) -> Tensor",
        "t y",
        "'t' is no type (PyTorch would read it as a variable that stands for any type).",
        None,
    ),
    (
        "f(Tensor x, int[][] y) -> Tensor",
        "[] y",
        "A list of lists is no type that a kernel takes.",
        "Pass one int[] and the lengths as int[].",
    ),
    (
        "f(Tensor x, (int, int) y) -> Tensor",
        "(int",
        "A tuple is no type of a custom operator.",
        "Write one argument or return for each part.",
    ),
    (
        "f(Tensor x, int[0] y) -> Tensor",
        "0",
        "A list's length is 1 or more, and this is 0.",
        "Write int[] or int[2].",
    ),
    (
        "f(Tensor x, int[n] y) -> Tensor",
        "n]",
        "Expected a length or ']' and found 'n'.",
        "Write int[] or int[2].",
    ),
    ("f(Tensor?? x) -> Tensor", "? x", "'?' stands twice.", "Keep one."),
    ("f(Tensor?(a!) x) -> Tensor", "(a!)", "The alias stands behind '?'.", 'Write "Tensor(a!)?".'),
    ("f(Tensor[](a!) x) -> Tensor", "(a!)", "The alias stands behind the brackets.", 'Write "Tensor(a!)[]".'),
    (
        "f(Tensor x, int(a!) n) -> Tensor",
        "(a!)",
        "Only a Tensor has an alias, and this is an int.",
        "Take the mark out.",
    ),
    (
        "f(Tensor(a|b) x) -> Tensor",
        "|",
        "An argument of a custom operator is one alias and stays it.",
        'Write "(a!)" if it is written to, else nothing.',
    ),
    (
        "f(Tensor() x) -> Tensor",
        ") x",
        "Expected an alias's name and found ')'.",
        'Write "(a!)" for what the operator writes to.',
    ),
    (
        "f(Tensor(a!) x, Tensor(a!) y) -> ()",
        "Tensor(a!) y",
        "Two arguments are the alias 'a'.",
        "Give each its letter, here (b!).",
    ),
    ("f(Tensor x, Tensor x) -> Tensor", "Tensor x|2", "Two arguments are called 'x'.", "Rename one."),
    ("f(Tensor x) -> (Tensor y, Tensor y)", "Tensor y|2", "Two returns are called 'y'.", "Rename one."),
    (
        "f(Tensor x, ...) -> Tensor",
        "...",
        "A custom operator has a fixed number of arguments and returns.",
        "Write Tensor[] for any number.",
    ),
    (
        "f(Tensor x, *, *, int n) -> Tensor",
        "*, int",
        "'*' stands twice.",
        "Keep the first: all behind it are keyword-only.",
    ),
    (
        "f(Tensor x, *) -> Tensor",
        "*",
        "No argument stands behind '*'.",
        "Take '*' out, or put keyword-only arguments behind it.",
    ),
    (
        "f(Tensor x, int n=1, int m) -> Tensor",
        "int m",
        "'m' has no default and stands behind 'n', which has one.",
        "Give 'm' a default, or move it to the front or behind '*'.",
    ),
    (
        "f(Tensor x, int n=) -> Tensor",
        ") ->",
        "The default is missing.",
        "Write a value behind '=', or take '=' out.",
    ),
    (
        "f(Tensor x, int n=1.5) -> Tensor",
        "1.5",
        "The default of int is a whole number, and this is 1.5.",
        "Write a whole number, or make it a float.",
    ),
    ("f(Tensor x, int n=0x10) -> Tensor", "0x10", "'0x10' is no decimal number.", "Write it such as 2."),
    (
        "f(Tensor x, int n=99999999999999999999) -> Tensor",
        "999",
        "99999999999999999999 does not fit into 64 bits.",
        "Write a number between -2**63 and 2**63 - 1.",
    ),
    (
        "f(Tensor x, float e=1e999) -> Tensor",
        "1e999",
        "1e999 is out of a double's range.",
        "Write a number between 1e-307 and 1e308.",
    ),
    ("f(Tensor x, float e=+1.0) -> Tensor", "+", "A number has no '+'.", "Take it out."),
    ("f(Tensor x, float? e=1) -> Tensor", "1)", "The default of float? has a decimal point.", "Write 1.0."),
    (
        "f(Tensor x, int n=None) -> Tensor",
        "None",
        "int cannot be None.",
        "Write int? for an argument that may be None.",
    ),
    (
        "f(Tensor x, Tensor y=1) -> Tensor",
        "1",
        "A Tensor has no default but None.",
        "Take the default out, or write Tensor?=None.",
    ),
    (
        "f(Tensor x, bool b=true) -> Tensor",
        "true",
        "The default of bool is True or False, and this is 'true'.",
        "Write True or False.",
    ),
    (
        "f(Tensor x, str s=sum) -> Tensor",
        "sum",
        "The default of str is a text in quotes, and this is 'sum'.",
        'Write "sum".',
    ),
    (
        "f(Tensor x, str s='sum) -> Tensor",
        "'sum",
        "The text that begins here has no end.",
        "Close it with '.",
    ),
    (
        "f(Tensor x, str s='\\x41') -> Tensor",
        "\\x",
        "PyTorch does not read \\x.",
        r"""Write \\, \', \", \n or \t.""",
    ),
    (
        "f(Tensor x, str s='größe') -> Tensor",
        "ö",
        "'ö' is not a printable ASCII character.",
        "Keep to ASCII: PyTorch cannot print another.",
    ),
    (
        "f(Tensor x, complex c=1.5) -> Tensor",
        "1.5",
        "1.5 would be read as 1.5j, because a complex default has no real part.",
        "Write 1.5j if that is meant, else take the default out.",
    ),
    (
        "f(Tensor x, Scalar c=1+2j) -> Tensor",
        "+",
        "A default is one number.",
        "A complex default is imaginary, such as 1.5j.",
    ),
    (
        "f(Tensor x, int[] k=1) -> Tensor",
        "1",
        "The default of int[] is a list.",
        "Write it in brackets, such as [1, 2].",
    ),
    (
        "f(Tensor x, int[3] k=[1, 2]) -> Tensor",
        "[1",
        "int[3] has 3 values, and its default has 2.",
        "Write one value for each, or one without brackets.",
    ),
    (
        "f(Tensor x, int[2]? k=1) -> Tensor",
        "1",
        "int[2]? has no default but None, as PyTorch reads it.",
        "Write =None, and choose the value in the kernel.",
    ),
    ("f(Tensor x, str[] k=[]) -> Tensor", "[])", "str[] can have no default.", "Take the default out."),
    (
        "f(Tensor x, MemoryFormat m=channels_last) -> Tensor",
        "channels_last",
        "PyTorch does not know 'channels_last' by name here.",
        "Write its number, 2.",
    ),
    ("f(Tensor x, Layout l=dense) -> Tensor", "dense", "'dense' is no Layout.", "Write one of strided."),
    (
        "f(Tensor x, Device d='gpu') -> Tensor",
        "'gpu'",
        "'gpu' is no device.",
        'Write "cpu", "cuda" or "cuda:0".',
    ),
    (
        "f(int n) -> Tensor",
        "int n",
        "No argument is a Tensor, and the dispatcher picks a device by the arguments.",
        "Add a Tensor argument; its device, dtype and shape are there for the taking.",
    ),
    (
        "f(Tensor x) -> ()",
        "()",
        "The operator returns nothing and writes to nothing, so PyTorch may leave its calls out.",
        'Return a Tensor, or mark what is written to, such as "Tensor(a!) out".',
    ),
    (
        "f(Tensor(a!) x) -> Tensor(a!)",
        "Tensor(a!)|2",
        "The return Tensor(a!) is an argument again, and a custom operator cannot return what it was given.",
        "Declare a new Tensor; or mark the argument (a!), which is written to, and return ().",
    ),
    (
        "f(Tensor x) -> (Tensor, ScalarType)",
        "ScalarType",
        "A ScalarType is no return that torch.compile and opcheck know.",
        "Return a Tensor, or one of int, SymInt, float, bool, Scalar.",
    ),
    (
        "f(Tensor x, Layout[] layouts) -> Tensor",
        "Layout",
        "A list of Layout is no type that opcheck can read.",
        "Write one argument for each, or int[].",
    ),
    (
        "f(Tensor(a) x) -> Tensor",
        "Tensor(a)",
        "The alias (a) says that a return is this argument again.",
        "Write Tensor, or (a!) if it is written to.",
    ),
    (
        "f(Tensor x, Generator g) -> Tensor",
        "Generator",
        "PyTorch has no type in C++ for Generator.",
        "Write Generator?.",
    ),
    (
        "f(Tensor x, SymInt?[] k) -> Tensor",
        "SymInt",
        "PyTorch has no type in C++ for SymInt?[].",
        "Write int?[].",
    ),
    ("f(Tensor x) -> int[2]", "int[2]", "A list that is returned has no fixed length.", "Write int[]."),
    (
        "aten::f(Tensor x) -> Tensor",
        "aten",
        "The schema names a namespace.",
        "Leave aten:: out: each build has a namespace of its own.",
    ),
    ("my-op(Tensor x) -> Tensor", "-op", "A name has no dashes.", "Use an underscore."),
    (
        "2f(Tensor x) -> Tensor",
        "2f",
        "A name does not begin with a digit, as '2' does.",
        'Write "my_op(Tensor x) -> Tensor".',
    ),
    ("f.a.b(Tensor x) -> Tensor", ".b", "An operator has one overload name.", 'Write "f.a(...)".'),
    (
        "f.default(Tensor x) -> Tensor",
        "default",
        "An overload cannot be called 'default': it is an attribute of every operator in `torch.ops`.",
        "Call it default_.",
    ),
    (
        "class(Tensor x) -> Tensor",
        "class",
        "An operator cannot be called 'class': it is a keyword of Python.",
        "Call it class_.",
    ),
    (
        "_f(Tensor x) -> Tensor",
        "_f",
        "An operator cannot be called '_f': it is not public, because it begins with an underscore.",
        "Call it f.",
    ),
    (
        "math(Tensor x) -> Tensor",
        "math",
        "An operator cannot be called 'math': it is the name of a header of the compiler, PyTorch or CUDA.",
        "Call it math_.",
    ),
    (
        "f(Tensor x, int lambda) -> Tensor",
        "lambda",
        "An argument cannot be called 'lambda': it is a keyword of Python.",
        "Call it lambda_.",
    ),
    (
        "f(Tensor x, int register) -> Tensor",
        "register",
        "An argument cannot be called 'register': it is a keyword of C++.",
        "Call it register_.",
    ),
    (
        "f(Tensor x, int threadIdx) -> Tensor",
        "threadIdx",
        "An argument cannot be called 'threadIdx': it is a name of CUDA.",
        "Call it threadidx.",
    ),
    (
        "f(Tensor x, int a__b) -> Tensor",
        "a__b",
        "An argument cannot be called 'a__b': it is reserved in C++ for its two underscores in a row.",
        None,
    ),
    ("f(Tensor größe) -> Tensor", "ö", "'ö' is not an ASCII letter.", "Write names in a-z, A-Z, 0-9 and _."),
    ("f(Tensor x); -> Tensor", ";", "';' has no meaning in a schema.", "Take it out."),
    (
        "f(Tensor x,\n int n) -> Tensor",
        "\n",
        "A schema is one line, and this one goes on.",
        "Join the lines.",
    ),
]


@pytest.mark.parametrize(("text", "place", "what", "way_out"), MALFORMED, ids=[case[0] for case in MALFORMED])
def test_malformed(text: str, place: str, what: str, way_out: str | None) -> None:
    with pytest.raises(KernelgenError) as refused:
        parse(text)
    assert refused.value.what == what
    if way_out is not None:
        assert refused.value.way_out == way_out
    shown, caret = (refused.value.detail or "").split("\n")
    assert shown == text.strip().replace("\n", " ")
    assert caret.strip(" ") == "^"
    assert len(caret) - 1 == column(text.strip(), place)


def column(text: str, place: str) -> int:
    """Where `place` stands in `text`; "x|2" is its second time, "END" the end."""
    if place == "END":
        return len(text)
    place, _, which = place.partition("|2") if place.endswith("|2") else (place, "", "")
    first = text.index(place)
    return text.index(place, first + 1) if (text.count(place) > 1 and "|2" in which) or _ else first


# --- Property: what is drawn from the grammar is read, printed and read again, and PyTorch agrees ---


@settings(max_examples=300, deadline=None)
@given(schemas())
def test_what_is_printed_reads_as_the_same(text: str) -> None:
    schema = parse(text)
    assert parse(str(schema)) == schema
    assert str(parse(str(schema))) == str(schema)
    assert parse(schema.text) == schema
    assert parse(schema.text).text == schema.text


@settings(max_examples=300, deadline=None)
@given(schemas())
def test_pytorch_agrees(text: str) -> None:
    schema = parse(text)
    theirs = torch._C.parse_schema(text)
    assert str(torch._C.parse_schema(str(schema))) == str(theirs)
    assert str(torch._C.parse_schema(schema.text)) == str(theirs)
    assert pytorch_text(schema) == str(theirs)
    assert theirs.is_mutable == any(argument.mutable for argument in schema.arguments)
    for mine, other in zip(schema.arguments, theirs.arguments, strict=True):
        assert (mine.name, mine.kwarg_only, mine.default is not None) == (
            other.name,
            other.kwarg_only,
            other.has_default_value(),
        )


def pytorch_text(schema: Schema) -> str:
    """What PyTorch prints, also where it cannot read that again: devices, complex numbers, `Tensor!`."""
    count = 0
    shown = {}
    for argument in schema.arguments:
        text = str(argument)
        if argument.alias == "!":
            text = text.replace("!", f"(${count}! -> )", 1)
            count += 1
        if argument.alias and argument.type.elem_optional:
            text = re.sub(r"^Tensor(\(.*?\))\?", r"Tensor?\1", text)
        if argument.default and argument.type.base == "Device":
            text = text.replace('"', "")
        if argument.default and argument.type.base in ("complex", "Scalar"):
            head, equals, default = text.partition("=")
            text = (
                head
                + equals
                + re.sub(r"(-?)([\d.e+-]+)j", lambda match: f"0.{match[1] or '+'}{match[2]}j", default)
            )
        if (
            argument.type == Type("int", list=True)
            and argument.default
            and len(set(argument.default.value)) == 1 < len(argument.default.value)
        ):
            text = text.partition("=")[0] + f"={argument.default.value[0]}"
        shown[argument.name] = text
    return schema._print(shown)


SPOILT = schemas().flatmap(
    lambda text: st.integers(0, len(text) - 1).map(lambda at: text[:at] + text[at + 1 :])
)


def refusal(text: str) -> KernelgenError | None:
    try:
        parse(text)
    except KernelgenError as error:
        return error
    return None


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("fx Tensorint(a!)[]?*,.=->1\"'\\é\n"), max_size=40) | SPOILT)
def test_anything_is_read_or_refused(text: str) -> None:
    error = refusal(text)
    if error is None:
        torch._C.parse_schema(str(parse(text)))
        return
    shown, caret = (error.detail or "").split("\n")
    assert len(caret) <= len(shown) + 1
    assert error.what.endswith(".")
    assert (error.way_out or "").endswith(".")


# --- Names ---

INCLUDES = """
#include <torch/library.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <cmath>
#include <cstring>
"""


def preprocess(flag: str, tmp_path: Path) -> str:
    """Run g++'s preprocessor over what a binding includes."""
    source = tmp_path / "names.cpp"
    source.write_text(INCLUDES)
    include = Path(torch.__file__).parent / "include"
    command = [
        "g++",
        "-std=gnu++20",
        flag,
        "-E",
        f"-I{include}",
        f"-I{include}/torch/csrc/api/include",
        str(source),
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_no_name_is_a_macro(tmp_path: Path) -> None:
    macros = re.findall(r"^#define ([A-Za-z]\w*)", preprocess("-dM", tmp_path), re.MULTILINE)
    assert len(macros) > 1000
    assert [name for name in macros if not names.why_not_argument(name)] == []
    assert [name for name in macros if not names.why_not_operator(name)] == []


@pytest.mark.slow
def test_no_name_is_a_header(tmp_path: Path) -> None:
    found = set()
    for path in preprocess("-M", tmp_path).split():
        if re.search(r"/(include|include/c\+\+/\d+|include/x86_64-linux-gnu)/[A-Za-z]\w*\.h$", path):
            found.add(Path(path).stem)
    assert "math" in found or "stdlib" in found
    assert sorted(name for name in found if not names.why_not_operator(name)) == []


def test_words_of_torchscript_are_refused() -> None:
    lexer = Path(torch.__file__).parent / "include" / "torch" / "csrc" / "jit" / "frontend" / "lexer.h"
    words = re.findall(r'_\(TK_\w+, "[^"]*", "([A-Za-z]\w*)"\)', lexer.read_text())
    assert "class" in words
    for word in words:
        assert names.why_not_argument(word), word
        assert names.why_not_operator(word), word
        assert names.why_not_overload(word), word
    with pytest.raises(RuntimeError):
        torch._C.parse_schema("f(Tensor class) -> Tensor")


def test_attributes_of_torch_ops_are_refused() -> None:
    namespace = vars(torch.ops.aten)
    packets = torch._ops.OpOverloadPacket
    own = {
        name
        for name, value in namespace.items()
        if not isinstance(value, packets) and not name.startswith("_")
    }
    assert own == {"name"}
    assert all(names.why_not_operator(name) for name in own)
    attributes = {*dir(packets), *vars(torch.ops.aten.detach)} - set(torch.ops.aten.detach.overloads())
    assert [name for name in sorted(attributes) if not names.why_not_overload(name)] == []


def test_ordinary_names_are_free() -> None:
    ordinary = (
        "x self input other weight bias eps dim out A B M N K LU QKV std at mean max min sum type id key"
    )
    assert [name for name in ordinary.split() if names.why_not_argument(name)] == []
    operators = "scale relu_ add softmax abs max min sum std norm rms_norm flash_attention img2gray topk sort"
    assert [name for name in operators.split() if names.why_not_operator(name)] == []


# --- Operators together ---


def check(
    *texts: str,
    kernel_name: str = "my-kernel",
    abi: str = "full",
    autograd: bool = False,
    layers: bool = False,
) -> None:
    validate(
        [parse(text) for text in texts],
        kernel_name=kernel_name,
        backends=["cpu", "cuda"],
        abi=abi,
        autograd=autograd,
        layers=layers,
    )


def test_operators_that_go_together() -> None:
    check("f(Tensor self, Tensor grad) -> Tensor", "mul(Tensor x, float mul) -> Tensor")
    check("f(Tensor x) -> Tensor", "f.out(Tensor x, *, Tensor(a!) out) -> ()", "f_cpu(Tensor x) -> Tensor")
    check(
        "my_kernel(Tensor x) -> Tensor",
        "f(Tensor(a!) x) -> Tensor",
        "f_backward(Tensor x) -> Tensor",
        autograd=True,
    )


@pytest.mark.parametrize(
    ("texts", "options", "what"),
    [
        (["f(Tensor x) -> Tensor", "f(Tensor y) -> Tensor"], {}, "The operator f is declared twice."),
        (
            ["f.a(Tensor x) -> Tensor", "f_a(Tensor y) -> Tensor"],
            {},
            "f_a and f.a both need files and functions called f_a.",
        ),
        (
            ["f(Tensor x) -> Tensor", "F(Tensor y) -> Tensor"],
            {},
            "F and f both need files and functions called F.",
        ),
        (
            ["f_backward(Tensor x) -> Tensor", "f(Tensor y) -> Tensor"],
            {"autograd": True},
            "the backward operator of f and f_backward both need files and functions called f_backward.",
        ),
        ([], {}, "No operator is declared."),
        (
            ["f(Tensor x, Tensor x_) -> Tensor"],
            {},
            "An argument of f cannot be called 'x_': 'x' may need that name in C++.",
        ),
        (
            ["f(Tensor x, Tensor grad) -> Tensor"],
            {"autograd": True},
            "An argument of f cannot be called 'grad': the generated gradient has an argument of that name.",
        ),
        (
            ["f(Tensor self) -> Tensor"],
            {"layers": True},
            "An argument of f cannot be called 'self': a layer's method has an argument of that name.",
        ),
        (
            ["mul(Tensor x, float mul) -> Tensor"],
            {"layers": True},
            "An argument of mul cannot be called 'mul': the generated layer calls the operator by that name.",
        ),
        (
            ["f(Tensor x) -> Tensor"],
            {"kernel_name": "class"},
            "A kernel cannot be called 'class': 'class' is a keyword of Python.",
        ),
        (
            ["f(Tensor x) -> Tensor"],
            {"kernel_name": "torch"},
            "A kernel cannot be called 'torch': 'torch' is a name that the generated Python uses.",
        ),
        (
            ["f(Tensor x) -> Tensor"],
            {"kernel_name": "json"},
            "A kernel cannot be called 'json': 'json' is a module of Python's standard library.",
        ),
        (
            ["f(Tensor x) -> Tensor"],
            {"kernel_name": "a--b"},
            "A kernel cannot be called 'a--b': 'a__b' is reserved in C++ for its two underscores in a row.",
        ),
        (
            ["f(Tensor x) -> Tensor"],
            {"kernel_name": "cuda"},
            "A kernel cannot be called 'cuda': 'cuda' is a namespace within the generated C++.",
        ),
        (["f(Tensor x) -> Tensor"], {"abi": "new"}, "'new' is no ABI."),
        (
            ["f(Tensor x, Scalar s) -> Tensor"],
            {"abi": "stable"},
            "Scalar cannot be used with the stable ABI: the stable ABI of PyTorch has no Scalar.",
        ),
        (
            ["f(Tensor x, complex[] c) -> Tensor"],
            {"abi": "stable"},
            "complex[] cannot be used with the stable ABI: the stable ABI of PyTorch has no complex number.",
        ),
    ],
)
def test_operators_that_clash(texts: list[str], options: dict[str, Any], what: str) -> None:
    with pytest.raises(KernelgenError) as refused:
        check(*texts, **options)
    assert refused.value.what == what
    assert refused.value.way_out


# --- C++ and Python ---


@pytest.mark.parametrize(
    ("argument", "full", "stable"),
    [
        ("Tensor x", "const at::Tensor&", "const torch::stable::Tensor&"),
        ("Tensor(a!) x", "at::Tensor&", None),
        ("Tensor? x", "const std::optional<at::Tensor>&", "const std::optional<torch::stable::Tensor>&"),
        ("int n", "int64_t", "int64_t"),
        ("SymInt[2] n", "at::IntArrayRef", None),
        ("str s", "std::string_view", None),
    ],
)
def test_cpp_argument_types(argument: str, full: str, stable: str | None) -> None:
    read = parse(f"f(Tensor first, {argument}) -> Tensor").arguments[1]
    assert cpp_argument_type(read, "full") == full
    if stable:
        assert cpp_argument_type(read, "stable") == stable


def test_python_types() -> None:
    schema = parse(
        "f(Tensor x, int[2]? k, Tensor?[] y, Scalar s, ScalarType? t, bool[] b, *, str m)"
        " -> (Tensor, int[], bool?)"
    )
    assert [python_type(argument) for argument in schema.arguments] == [
        "torch.Tensor",
        "int | Sequence[int] | None",
        "Sequence[torch.Tensor | None]",
        "float",
        "torch.dtype | None",
        "Sequence[bool]",
        "str",
    ]
    assert python_return_type(schema) == "tuple[torch.Tensor, list[int], bool | None]"
    assert python_return_type(parse("f(Tensor(a!) x) -> ()")) == "None"
    assert cpp_return_type(parse("f(Tensor(a!) x) -> ()"), "full") == "void"


def test_autograd_registers_a_backward_operator() -> None:
    schemas = [
        parse("lin(Tensor x, int k, Tensor w, *, float eps=1e-05) -> Tensor"),
        parse("f.out(Tensor x) -> Tensor"),
        parse("zero_(Tensor(a!) x) -> ()"),
        parse("two(Tensor x) -> (Tensor, Tensor)"),
    ]
    found = [str(one) for one in registered(schemas, autograd=True)]
    assert found[:4] == [str(one) for one in schemas]
    eps = "1.0000000000000001e-05"
    assert found[4:] == [
        f"lin_backward(Tensor grad, Tensor x, int k, Tensor w, *, float eps={eps}) -> (Tensor, Tensor)",
        "f_backward.out(Tensor grad, Tensor x) -> Tensor",
    ]
    assert registered(schemas, autograd=False) == schemas
