"""One operator: the values of a function schema, and the reader that makes them from text.

The language is that of torch/csrc/jit/frontend/function_schema_parser, less what no custom operator can do
with it. Where PyTorch's reader takes something and means something else by it (`int y=0x10` is 0, `tensor x`
declares a type variable, `complex y=1.5` is 1.5j), this one refuses and says what to write.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelgen.errors import KernelgenError
from kernelgen.schema import names

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

BASES = (
    "Tensor",
    "int",
    "SymInt",
    "float",
    "bool",
    "str",
    "complex",
    "Scalar",
    "ScalarType",
    "Layout",
    "MemoryFormat",
    "Device",
    "Generator",
)
# Results that torch.compile and opcheck can follow. A ScalarType would reach Python as a bare number.
RETURNED = ("Tensor", "int", "SymInt", "float", "bool", "Scalar")
# ScalarType's names and numbers (c10/core/ScalarType.h), those that PyTorch's schema reader knows.
SCALAR_TYPES = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "complex32": 8,
    "complex64": 9,
    "complex128": 10,
    "bool": 11,
    "bfloat16": 15,
    "float8_e5m2": 23,
    "float8_e4m3fn": 24,
    "float8_e5m2fnuz": 25,
    "float8_e4m3fnuz": 26,
    "uint16": 27,
    "uint32": 28,
    "uint64": 29,
}
_SCALAR_TYPE_ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "cfloat": "complex64",
    "complex": "complex64",
    "cdouble": "complex128",
}
# c10/core/MemoryFormat.h and c10/core/Layout.h. PyTorch's schema reader knows the first of each by name.
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
LAYOUTS = (
    "strided",
    "sparse_coo",
    "sparse_csr",
    "_mkldnn",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "jagged",
)
# at::Device's words for its type (c10/core/Device.cpp).
_DEVICE = re.compile(
    r"(cpu|cuda|ipu|xpu|mkldnn|opengl|opencl|ideep|hip|ve|fpga|maia|xla|lazy|vulkan|mps|meta|hpu|mtia|privateuseone)"
    r"(:(0|[1-9][0-9]{0,2}))?"
)
_INT64 = range(-(2**63), 2**63)

_SUGGESTIONS = {
    "tensor": "Tensor",
    "Tensors": "Tensor[]",
    "TensorList": "Tensor[]",
    "double": "float",
    "half": "float",
    "float32": "float",
    "float64": "float",
    "Float": "float",
    "long": "int",
    "int64": "int",
    "int64_t": "int",
    "int32": "int",
    "size_t": "int",
    "Int": "int",
    "DeviceIndex": "int",
    "symint": "SymInt",
    "SymBool": "bool",
    "SymFloat": "float",
    "string": "str",
    "String": "str",
    "Bool": "bool",
    "boolean": "bool",
    "number": "Scalar",
    "Number": "Scalar",
    "scalar": "Scalar",
    "dtype": "ScalarType",
    "device": "Device",
    "layout": "Layout",
    "memory_format": "MemoryFormat",
    "generator": "Generator",
    "IntArrayRef": "int[]",
}
_NO_TYPES = {
    "Any": "name the type that the kernel takes",
    "AnyEnumType": "pass an int",
    "AnyClassType": "pass the object's tensors and numbers one by one",
    "Await": "pass the value itself",
    "Dict": "pass two lists, str[] keys and Tensor[] values",
    "Future": "pass the value itself",
    "RRef": "pass the value itself",
    "Union": "declare an overload for each type, such as f.int(...) and f.float(...)",
    "NoneType": "write () where nothing is returned, and Tensor? for what may be None",
    "None": "write () where nothing is returned, and Tensor? for what may be None",
    "void": "write () where nothing is returned",
    "Stream": "take none: a kernel runs on the stream that PyTorch has current",
    "Storage": "pass the Tensor",
    "QScheme": "pass the quantization's scales and zero points as tensors",
    "Dimname": "pass the dimension as an int",
    "__torch__": "pass the object's tensors and numbers one by one",
    "List": "write the element's type and [], such as int[]",
    "Optional": "write the type and ?, such as int?",
    "Tuple": "write one argument for each part",
}


@dataclass(frozen=True)
class Type:
    """The type of an argument or a return.

    Attributes:
        base: one of `BASES`.
        elem_optional: a list's elements may be None: the first `?` of `Tensor?[]?`.
        list: it is a list.
        size: the length that a single value is spread to: 2 in `int[2]`; None where the list has none.
        optional: it may be None: the last `?` of `Tensor?[]?`, or the one of `Tensor?`.
    """

    base: str
    elem_optional: bool = False
    list: bool = False
    size: int | None = None
    optional: bool = False

    def __str__(self) -> str:
        brackets = f"[{'' if self.size is None else self.size}]" if self.list else ""
        return self.base + "?" * self.elem_optional + brackets + "?" * self.optional


@dataclass(frozen=True)
class Default:
    """The default of an argument.

    Attributes:
        canonical: the text that PyTorch prints for it where PyTorch can read that text again; else the
            shortest text that it reads as the same value (`1.j`, `"cpu"`).
        text: as it was written.
        value: None, bool, int, float, complex, str, or a tuple of them. A ScalarType, Layout or MemoryFormat
            is its number.
    """

    canonical: str
    text: str = field(compare=False)
    value: Any = field(compare=False, hash=False)


@dataclass(frozen=True)
class Argument:
    """An argument of an operator.

    Attributes:
        name: its name, the same in C++ and in Python.
        type: its type.
        default: its default, or None where it must be given.
        kwarg_only: it stands behind `*`.
        alias: what stands between the parentheses of `Tensor(a!)`, here "a!"; "!" for `Tensor!`; else "".
    """

    name: str
    type: Type
    default: Default | None = None
    kwarg_only: bool = False
    alias: str = ""

    @property
    def mutable(self) -> bool:
        """Whether the operator writes to it."""
        return self.alias.endswith("!")

    def __str__(self) -> str:
        default = f"={self.default.canonical}" if self.default else ""
        return f"{_aliased(self.type, self.alias)} {self.name}{default}"

    @property
    def text(self) -> str:
        """As `str`, with the default as it was written."""
        default = f"={self.default.text}" if self.default else ""
        return f"{_aliased(self.type, self.alias)} {self.name}{default}"


@dataclass(frozen=True)
class Return:
    """A return of an operator: its type, its name or "", and its alias ("" for all that `parse` takes)."""

    type: Type
    name: str = ""
    alias: str = ""

    def __str__(self) -> str:
        return _aliased(self.type, self.alias) + (f" {self.name}" if self.name else "")


@dataclass(frozen=True)
class Schema:
    """An operator: `name.overload(arguments) -> returns`; `str` gives PyTorch's canonical text."""

    name: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[Return, ...]

    def __str__(self) -> str:
        return self._print({argument.name: str(argument) for argument in self.arguments})

    @property
    def text(self) -> str:
        """As `str`, with its defaults as they were written.

        `str` has PyTorch's text for them, where `1e-5` is `1.0000000000000001e-05` and `float16` is `5`.
        """
        return self._print({argument.name: argument.text for argument in self.arguments})

    def _print(self, arguments: dict[str, str]) -> str:
        parts: list[str] = []
        for argument in self.arguments:
            if argument.kwarg_only and "*" not in parts:
                parts.append("*")
            parts.append(arguments[argument.name])
        returns = ", ".join(map(str, self.returns))
        if len(self.returns) != 1:
            returns = f"({returns})"
        return f"{self.qualified_name}({', '.join(parts)}) -> {returns}"

    @property
    def qualified_name(self) -> str:
        """`name`, or `name.overload`."""
        return f"{self.name}.{self.overload}" if self.overload else self.name

    def to_json(self) -> dict[str, Any]:
        """Give plain values, the same that the template's own reader makes of the same text.

        Returns:
            {"schema", "name", "overload", "arguments", "returns"}. An argument is {"name", "type", "base",
            "optional", "list", "size", "elem_optional", "default", "kwarg_only", "alias", "mutable"} and a
            return is {"name", "type", "base", "optional", "list"}, where "type" is `str` of the type without
            its alias, and "default" the text as it was written or None.
        """
        return {
            "schema": self.text,
            "name": self.name,
            "overload": self.overload,
            "arguments": [
                {
                    "name": argument.name,
                    "type": str(argument.type),
                    "base": argument.type.base,
                    "optional": argument.type.optional,
                    "list": argument.type.list,
                    "size": argument.type.size,
                    "elem_optional": argument.type.elem_optional,
                    "default": argument.default.text if argument.default else None,
                    "kwarg_only": argument.kwarg_only,
                    "alias": argument.alias,
                    "mutable": argument.mutable,
                }
                for argument in self.arguments
            ],
            "returns": [
                {
                    "name": returned.name,
                    "type": str(returned.type),
                    "base": returned.type.base,
                    "optional": returned.type.optional,
                    "list": returned.type.list,
                }
                for returned in self.returns
            ],
        }


def parse(text: str) -> Schema:
    """Read an operator's function schema.

    Args:
        text: such as "scale(Tensor x, float factor=2.0) -> Tensor". Blanks at its ends do not count.

    Raises:
        KernelgenError: the text is no schema, or no custom operator can have this one. `detail` is the text
            with a caret under the place, `way_out` what to write instead.
    """
    return _Reader(text.strip(" \t\r\n")).schema()


def _aliased(type_: Type, alias: str) -> str:
    mark = "!" if alias == "!" else f"({alias})" if alias else ""
    return type_.base + mark + str(type_)[len(type_.base) :]


_TOKEN = re.compile(
    r"""(?P<blank>[ \t]+)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?j?)
    |(?P<string>"(\\.|[^"\\])*"|'(\\.|[^'\\])*')
    |(?P<mark>->|\.\.\.|[()\[\],.*?!|=:+-])""",
    re.VERBOSE | re.ASCII,
)
_KINDS = {"word": "a name", "number": "a number", "string": "a text in quotes"}
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t"}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int


class _Reader:
    """Reads one schema from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._split()
        self.index = 0

    # --- Tokens ---

    def _split(self) -> list[_Token]:
        tokens = []
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                self._refuse_character(position)
            if match.lastgroup != "blank":
                tokens.append(_Token(str(match.lastgroup), match[0], position))
            position = match.end()
        return [*tokens, _Token("end", "", len(self.text))]

    def _refuse_character(self, position: int) -> NoReturn:
        character = self.text[position]
        if character in "\r\n":
            self.fail(position, "A schema is one line, and this one goes on", "join the lines")
        if character in "'\"":
            self.fail(position, "The text that begins here has no end", f"close it with {character}")
        if not character.isascii() and character.isalpha():
            self.fail(position, f"{character!r} is not an ASCII letter", "write names in a-z, A-Z, 0-9 and _")
        shown = character if character.isprintable() else f"character {ord(character):#06x}"
        self.fail(position, f"{shown!r} has no meaning in a schema", "take it out")

    @property
    def now(self) -> _Token:
        return self.tokens[self.index]

    def next(self) -> _Token:
        token = self.now
        self.index = min(self.index + 1, len(self.tokens) - 1)
        return token

    def skip(self, mark: str) -> bool:
        """Step over `mark` if it comes next."""
        if self.now.kind == "mark" and self.now.text == mark:
            self.index += 1
            return True
        return False

    def expect(self, mark: str, way_out: str) -> None:
        if not self.skip(mark):
            self.fail(self.now.start, f"Expected {mark!r} and found {self.found()}", way_out)

    def found(self) -> str:
        return repr(self.now.text) if self.now.text else "the end"

    def fail(self, position: int, what: str, way_out: str) -> NoReturn:
        """Refuse the schema, pointing at `position`."""
        line = re.sub(r"[^\x20-\x7e\x80-\U0010ffff]", " ", self.text)
        raise KernelgenError(
            f"{what}.", detail=f"{line}\n{' ' * position}^", way_out=f"{_sentence(way_out)}."
        )

    # --- The schema ---

    def schema(self) -> Schema:
        if not self.text:
            self.fail(0, "The schema is empty", 'write one such as "scale(Tensor x, float factor) -> Tensor"')
        name, overload = self._qualified_name()
        self.expect("(", f'put the arguments in parentheses: "{name}(Tensor x) -> Tensor"')
        arguments, places = self._arguments()
        if self.now.kind == "end":
            self.fail(
                self.now.start, "Nothing says what is returned", 'add "-> Tensor", or "-> ()" for nothing'
            )
        self.expect("->", 'write "->" and what is returned behind the arguments')
        place = self.now.start
        returns = self._returns()
        self._end()
        self._check_arguments(arguments, places)
        self._check_dispatch(arguments, returns, place)
        return Schema(name, overload, tuple(arguments), tuple(returns))

    def _end(self) -> None:
        if self.now.kind == "end":
            return
        if self.now.text == ",":
            self.fail(self.now.start, "Several returns need parentheses", 'write "-> (Tensor, Tensor)"')
        self.fail(self.now.start, f"The schema goes on with {self.found()}", "end it behind what is returned")

    def _qualified_name(self) -> tuple[str, str]:
        start = self.now
        name = self._name("an operator's name", 'write "my_op(Tensor x) -> Tensor"')
        if self.now.text == ":":
            self.fail(
                start.start,
                "The schema names a namespace",
                f"leave {name}:: out: each build has a namespace of its own",
            )
        if self.now.text == "-":
            self.fail(self.now.start, "A name has no dashes", "use an underscore")
        self._refuse_name(start, "operator", names.why_not_operator)
        if not self.skip("."):
            return name, ""
        start = self.now
        overload = self._name(
            "an overload's name", f'write "{name}.out(...)", or "{name}(...)" without the dot'
        )
        self._refuse_name(start, "overload", names.why_not_overload)
        if self.now.text == ".":
            self.fail(self.now.start, "An operator has one overload name", f'write "{name}.{overload}(...)"')
        return name, overload

    def _name(self, what: str, way_out: str) -> str:
        if self.now.kind == "number" and self.now.text[0].isdigit():
            self.fail(
                self.now.start, f"A name does not begin with a digit, as {self.now.text!r} does", way_out
            )
        if self.now.kind != "word":
            self.fail(self.now.start, f"Expected {what} and found {self.found()}", way_out)
        return self.next().text

    def _refuse_name(self, token: _Token, what: str, why_not: Callable[[str], str | None]) -> None:
        reason = why_not(token.text)
        if reason:
            article = "A" if what == "return" else "An"
            self.fail(
                token.start,
                f"{article} {what} cannot be called {token.text!r}: it is {reason}",
                _another(token.text, why_not),
            )

    # --- Arguments and returns ---

    def _arguments(self) -> tuple[list[Argument], list[int]]:
        arguments: list[Argument] = []
        places: list[int] = []
        star: int | None = None
        while not self.skip(")"):
            if arguments or star is not None:
                self._comma()
            place = self.now.start
            if self.skip("*"):
                if star is not None:
                    self.fail(place, "'*' stands twice", "keep the first: all behind it are keyword-only")
                star = place
                if self.now.text == ")":
                    self.fail(
                        place,
                        "No argument stands behind '*'",
                        "take '*' out, or put keyword-only arguments behind it",
                    )
                continue
            if self.now.text == ")":
                self.fail(place, "An argument is missing behind the comma", "take the comma out")
            arguments.append(self._argument(star is not None))
            places.append(place)
        return arguments, places

    def _comma(self) -> None:
        if self.now.kind == "end" or self.now.text == "->":
            self.fail(self.now.start, "The arguments have no end", "close them with ')'")
        if self.now.text == "=":
            self.fail(self.now.start, "The default has no argument", "write one default")
        self.expect(",", "separate arguments with commas")

    def _argument(self, kwarg_only: bool) -> Argument:
        place = self.now.start
        type_, alias = self._type("an argument's type")
        if self.now.text in (",", ")", "="):
            self.fail(
                self.now.start,
                f"The argument of type {_aliased(type_, alias)} has no name",
                f'write "{type_} x"',
            )
        self._check_argument_type(type_, place)
        token = self.now
        name = self._name("an argument's name", f'write "{type_} x"')
        self._refuse_name(token, "argument", names.why_not_argument)
        default = None
        if self.skip("="):
            default = self._default(type_)
        return Argument(name, type_, default, kwarg_only, alias)

    def _check_argument_type(self, type_: Type, place: int) -> None:
        # at::Generator is registered as `Generator?`, and std::optional<int64_t> in a list as `int?`.
        if type_.base == "Generator" and not (type_.elem_optional if type_.list else type_.optional):
            self.fail(
                place,
                f"PyTorch has no type in C++ for {type_}",
                f"write Generator?{'[]' if type_.list else ''}",
            )
        if type_.base == "SymInt" and type_.elem_optional:
            self.fail(place, f"PyTorch has no type in C++ for {type_}", "write int?[]")
        if type_.list and type_.base in ("ScalarType", "Layout", "MemoryFormat"):
            self.fail(
                place,
                f"A list of {type_.base} is no type that opcheck can read",
                "write one argument for each, or int[]",
            )

    def _returns(self) -> list[Return]:
        if not self.skip("("):
            return [self._return()]
        returns: list[Return] = []
        while not self.skip(")"):
            if returns:
                if self.now.kind == "end":
                    self.fail(self.now.start, "The returns have no end", "close them with ')'")
                self.expect(",", "separate returns with commas")
            place = self.now.start
            returns.append(self._return())
            if returns[-1].name and returns[-1].name in [returned.name for returned in returns[:-1]]:
                self.fail(place, f"Two returns are called {returns[-1].name!r}", "rename one")
        return returns

    def _return(self) -> Return:
        place = self.now.start
        type_, alias = self._type("a return's type")
        if alias:
            self.fail(
                place,
                f"The return {_aliased(type_, alias)} is an argument again, and a custom operator cannot "
                "return what it was given",
                f"declare a new {type_}; or mark the argument (a!), which is written to, and return ()",
            )
        if type_.size is not None:
            self.fail(place, "A list that is returned has no fixed length", f"write {type_.base}[]")
        if type_.base not in RETURNED:
            self.fail(
                place,
                f"A {type_.base} is no return that torch.compile and opcheck know",
                "return a Tensor, or one of " + ", ".join(RETURNED[1:]),
            )
        if type_.base == "Scalar" and type_.list and not type_.elem_optional:
            self.fail(
                place,
                f"PyTorch has no type in C++ for a {type_} that is returned",
                "return float[], or a Tensor",
            )
        if self.now.kind != "word":
            return Return(type_)
        token = self.next()
        self._refuse_name(token, "return", names.why_not_argument)
        return Return(type_, token.text)

    # --- Types ---

    def _type(self, what: str) -> tuple[Type, str]:
        place = self.now.start
        if self.skip("..."):
            self.fail(
                place,
                "A custom operator has a fixed number of arguments and returns",
                "write Tensor[] for any number",
            )
        if self.now.text == "(":
            self.fail(
                place, "A tuple is no type of a custom operator", "write one argument or return for each part"
            )
        base = self._base(what)
        alias = self._alias(base)
        optional, list_, size = self.skip("?"), False, None
        elem_optional = False
        if self.now.text == "(":
            self.fail(self.now.start, "The alias stands behind '?'", f'write "{base}(a!)?"')
        if self.skip("["):
            list_, elem_optional, optional = True, optional, False
            size = self._size(base)
            if self.now.text == "[":
                self.fail(
                    self.now.start,
                    "A list of lists is no type that a kernel takes",
                    f"pass one {base}[] and the lengths as int[]",
                )
            if self.now.text == "(":
                self.fail(self.now.start, "The alias stands behind the brackets", f'write "{base}(a!)[]"')
            optional = self.skip("?")
        if self.now.text == "?":
            self.fail(self.now.start, "'?' stands twice", "keep one")
        if self.now.text == "!":
            self.fail(self.now.start, "'!' stands behind the type", f'write "{base}(a!)"')
        if size is not None and elem_optional:
            self.fail(place, "A list with a length has no elements that may be None", f"write {base}?[]")
        return Type(base, elem_optional, list_, size, optional), alias

    def _base(self, what: str) -> str:
        token = self.now
        name = self._name(what, f"write one of {', '.join(BASES)}")
        if name in BASES:
            return name
        if (
            self.now.text in (",", ")", "=")
            and name.lower() == name
            and name not in {*_SUGGESTIONS, *_NO_TYPES}
        ):
            self.fail(token.start, f"{name!r} has no type", f'write "Tensor {name}"')
        if name in _SUGGESTIONS:
            self.fail(token.start, f"{name!r} is no type", f"write {_SUGGESTIONS[name]}")
        if name in _NO_TYPES:
            self.fail(token.start, f"{name!r} is no type that a kernel takes or gives", _NO_TYPES[name])
        close = difflib.get_close_matches(name, BASES, n=1, cutoff=0.7)
        if close:
            self.fail(token.start, f"{name!r} is no type", f"write {close[0]}")
        variable = (
            " (PyTorch would read it as a variable that stands for any type)" if name[0].islower() else ""
        )
        return self.fail(token.start, f"{name!r} is no type{variable}", f"write one of {', '.join(BASES)}")

    def _alias(self, base: str) -> str:
        place = self.now.start
        if self.skip("!"):
            alias = "!"
        elif self.skip("("):
            alias = self._alias_set()
        else:
            return ""
        if base != "Tensor":
            self.fail(
                place,
                f"Only a Tensor has an alias, and this is {'a' if base[0] not in 'aeiou' else 'an'} {base}",
                "take the mark out",
            )
        return alias

    def _alias_set(self) -> str:
        if self.now.text in ("*", "!", ")"):
            self.fail(
                self.now.start,
                f"Expected an alias's name and found {self.found()}",
                'write "(a!)" for what the operator writes to',
            )
        name = self._name("an alias's name", 'write "(a!)" for what the operator writes to')
        write = "!" if self.skip("!") else ""
        if self.now.text in ("|", "->"):
            self.fail(
                self.now.start,
                "An argument of a custom operator is one alias and stays it",
                f'write "({name}!)" if it is written to, else nothing',
            )
        self.expect(")", f'write "({name}!)" for what the operator writes to')
        return name + write

    def _size(self, base: str) -> int | None:
        place = self.now.start
        if self.skip("]"):
            return None
        if self.now.kind != "number" or not self.now.text.isdigit():
            self.fail(
                place, f"Expected a length or ']' and found {self.found()}", f"write {base}[] or {base}[2]"
            )
        size = int(self.next().text)
        if size == 0 or size > 2**31:
            self.fail(
                place, f"A list's length is 1 or more, and this is {size}", f"write {base}[] or {base}[2]"
            )
        self.expect("]", f"write {base}[{size}]")
        return size

    # --- Defaults ---

    def _default(self, type_: Type) -> Default:
        start = self.now.start
        if self.now.text in (",", ")"):
            self.fail(start, "The default is missing", "write a value behind '=', or take '=' out")
        if self.now.text == "None":
            if not type_.optional:
                self.fail(
                    start, f"{type_} cannot be None", f"write {type_}? for an argument that may be None"
                )
            self.next()
            value: Any = None
        elif type_.base == "Tensor" or type_.base == "Generator":
            self.fail(
                start,
                f"A {type_.base} has no default but None",
                f"take the default out, or write {type_.base}?=None",
            )
        elif type_.list:
            value = self._list(type_)
        else:
            value = self._value(type_)
        end = self.tokens[self.index - 1]
        text = self.text[start : end.start + len(end.text)]
        return Default(_canonical(type_, value), text, value)

    def _list(self, type_: Type) -> tuple[Any, ...]:
        place = self.now.start
        if type_.optional:
            self.fail(
                place,
                f"{type_} has no default but None, as PyTorch reads it",
                "write =None, and choose the value in the kernel",
            )
        if type_.elem_optional or type_.base not in ("int", "SymInt", "float", "bool", "complex"):
            self.fail(place, f"{type_} can have no default", "take the default out")
        if not self.skip("["):
            if type_.size is None:
                self.fail(place, f"The default of {type_} is a list", "write it in brackets, such as [1, 2]")
            return (self._value(type_),) * type_.size
        values: list[Any] = []
        while not self.skip("]"):
            if values:
                self.expect(",", "separate the list's values with commas, and close it with ']'")
            values.append(self._value(type_))
        # A length of 1 only says that one value may stand for a list, as PyTorch's own schemas use it.
        exact = type_.size is not None and (type_.size > 1 or type_.base == "bool")
        if exact and (values or type_.base == "bool") and len(values) != type_.size:
            self.fail(
                place,
                f"{type_} has {type_.size} values, and its default has {len(values)}",
                "write one value for each, or one without brackets",
            )
        return tuple(values)

    def _value(self, type_: Type) -> Any:
        readers = {
            "int": self._int,
            "SymInt": self._int,
            "float": self._float,
            "bool": self._bool,
            "str": self._string,
            "complex": self._complex,
            "Scalar": self._scalar,
            "Device": self._device,
        }
        named = {
            "ScalarType": {
                **SCALAR_TYPES,
                **{name: SCALAR_TYPES[of] for name, of in _SCALAR_TYPE_ALIASES.items()},
            },
            "MemoryFormat": {"contiguous_format": 0},
            "Layout": {"strided": 0},
        }
        if type_.base in named:
            return self._named(type_.base, named[type_.base])
        return readers[type_.base](type_)

    def _number(self, type_: Type, example: str) -> tuple[str, int]:
        """Read a number with its sign; also give its place."""
        place = self.now.start
        if self.now.text == "+":
            self.fail(place, "A number has no '+'", "take it out")
        sign = "-" if self.skip("-") else ""
        if self.now.kind != "number":
            self.fail(
                place,
                f"The default of {type_} is a number, and this is {self.found()}",
                f"write it such as {example}",
            )
        token = self.next()
        after = self.now
        if after.kind in ("word", "number") and after.start == token.start + len(token.text):
            self.fail(
                place, f"{token.text + after.text!r} is no decimal number", f"write it such as {example}"
            )
        return sign + token.text, place

    def _int(self, type_: Type) -> int:
        text, place = self._number(type_, "2")
        if not text.lstrip("-").isdigit():
            self.fail(
                place,
                f"The default of {type_} is a whole number, and this is {text}",
                "write a whole number, or make it a float",
            )
        if int(text) not in _INT64:
            self.fail(
                place, f"{text} does not fit into 64 bits", "write a number between -2**63 and 2**63 - 1"
            )
        return int(text)

    def _float(self, type_: Type) -> float:
        text, place = self._number(type_, "0.5")
        if text.endswith("j"):
            self.fail(place, f"The default of {type_} is real, and this is {text}", "write it such as 0.5")
        if type_.optional and text.lstrip("-").isdigit():
            # PyTorch keeps an int here, which the kernel then cannot read.
            self.fail(place, f"The default of {type_} has a decimal point", f"write {int(text)}.0")
        return self._real(text, place)

    def _real(self, text: str, place: int) -> float:
        value = float(text)
        if abs(value) == float("inf") or (
            abs(value) < 2.0**-1022 and re.search("[1-9]", re.split("[eE]", text)[0])
        ):
            self.fail(place, f"{text} is out of a double's range", "write a number between 1e-307 and 1e308")
        return value

    def _bool(self, type_: Type) -> bool:
        if self.now.text not in ("True", "False"):
            self.fail(
                self.now.start,
                f"The default of {type_} is True or False, and this is {self.found()}",
                "write True or False",
            )
        return self.next().text == "True"

    def _complex(self, type_: Type) -> complex:
        text, place = self._number(type_, "1.5j")
        if not text.endswith("j"):
            self.fail(
                place,
                f"{text} would be read as {text}j, because a complex default has no real part",
                f"write {text}j if that is meant, else take the default out",
            )
        self._no_sum()
        return complex(0, self._real(text[:-1], place))

    def _no_sum(self) -> None:
        if self.now.text in ("+", "-"):
            self.fail(
                self.now.start, "A default is one number", "a complex default is imaginary, such as 1.5j"
            )

    def _scalar(self, type_: Type) -> bool | int | float | complex:
        if self.now.text in ("True", "False"):
            return self._bool(type_)
        text, place = self._number(type_, "0.5")
        self._no_sum()
        if text.endswith("j"):
            return complex(0, self._real(text[:-1], place))
        if text.lstrip("-").isdigit():
            self.index -= 1 + text.startswith("-")
            return self._int(type_)
        return self._real(text, place)

    def _string(self, type_: Type) -> str:
        token = self.now
        if token.kind != "string":
            self.fail(
                token.start,
                f"The default of {type_} is a text in quotes, and this is {self.found()}",
                f'write "{token.text}"',
            )
        self.next()
        characters = []
        body = token.text[1:-1]
        position = 0
        while position < len(body):
            place = token.start + 1 + position
            character = body[position]
            if not " " <= character <= "~":
                self.fail(
                    place,
                    f"{character!r} is not a printable ASCII character",
                    "keep to ASCII: PyTorch cannot print another",
                )
            if character == "\\":
                position += 1
                if body[position] not in _ESCAPES:
                    self.fail(
                        place, f"PyTorch does not read \\{body[position]}", r"write \\, \', \", \n or \t"
                    )
                character = _ESCAPES[body[position]]
            characters.append(character)
            position += 1
        return "".join(characters)

    def _device(self, type_: Type) -> str:
        token = self.now
        value = self._string(type_)
        if not _DEVICE.fullmatch(value):
            self.fail(token.start, f"{value!r} is no device", 'write "cpu", "cuda" or "cuda:0"')
        return value

    def _named(self, base: str, known: dict[str, int]) -> int:
        token = self.next()
        if token.text in known:
            return known[token.text]
        count = {"ScalarType": 64, "MemoryFormat": len(MEMORY_FORMATS), "Layout": len(LAYOUTS)}[base]
        if token.text.isdigit() and int(token.text) < count:
            return int(token.text)
        others = {"MemoryFormat": MEMORY_FORMATS, "Layout": LAYOUTS}.get(base, ())
        if token.text in others:
            self.fail(
                token.start,
                f"PyTorch does not know {token.text!r} by name here",
                f"write its number, {others.index(token.text)}",
            )
        return self.fail(token.start, f"{token.text!r} is no {base}", f"write one of {', '.join(known)}")

    # --- The whole ---

    def _check_arguments(self, arguments: list[Argument], places: list[int]) -> None:
        seen: set[str] = set()
        aliases: set[str] = set()
        default: str | None = None
        for argument, place in zip(arguments, places, strict=True):
            if argument.name in seen:
                self.fail(place, f"Two arguments are called {argument.name!r}", "rename one")
            seen.add(argument.name)
            if argument.alias and not argument.mutable:
                self.fail(
                    place,
                    f"The alias ({argument.alias}) says that a return is this argument again",
                    f"write {argument.type}, or ({argument.alias}!) if it is written to",
                )
            if argument.mutable and argument.alias != "!":
                if argument.alias in aliases:
                    self.fail(
                        place,
                        f"Two arguments are the alias {argument.alias[:-1]!r}",
                        f"give each its letter, here ({_free(aliases)}!)",
                    )
                aliases.add(argument.alias)
            if argument.kwarg_only:
                continue
            if default and not argument.default:
                self.fail(
                    place,
                    f"{argument.name!r} has no default and stands behind {default!r}, which has one",
                    f"give {argument.name!r} a default, or move it to the front or behind '*'",
                )
            default = argument.name if argument.default else default

    def _check_dispatch(self, arguments: list[Argument], returns: list[Return], place: int) -> None:
        if not any(argument.type.base == "Tensor" for argument in arguments):
            self.fail(
                self.text.index("(") + 1,
                "No argument is a Tensor, and the dispatcher picks a device by the arguments",
                "add a Tensor argument; its device, dtype and shape are there for the taking",
            )
        if not returns and not any(argument.mutable for argument in arguments):
            self.fail(
                place,
                "The operator returns nothing and writes to nothing, so PyTorch may leave its calls out",
                'return a Tensor, or mark what is written to, such as "Tensor(a!) out"',
            )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _another(name: str, why_not: Callable[[str], str | None]) -> str:
    plain = re.sub("__+", "_", name.strip("_")).lower()
    free = [other for other in (plain, plain + "_") if other.isidentifier() and not why_not(other)]
    return f"call it {free[0]}" if free else "choose another name"


def _free(aliases: set[str]) -> str:
    return next(letter for letter in "abcdefghijklmnopqrstuvwxyz" if f"{letter}!" not in aliases)


def _canonical(type_: Type, value: Any) -> str:
    """Print a default as PyTorch does, where PyTorch reads that again."""
    if isinstance(value, tuple):
        # A list of one int all over is printed as that int, if there is a length to spread it to.
        if type_.base == "int" and type_.size is not None and len(value) > 1 and len(set(value)) == 1:
            return str(value[0])
        return f"[{', '.join(_canonical(Type(type_.base), item) for item in value)}]"
    if isinstance(value, float):
        return _canonical_float(value)
    if isinstance(value, complex):
        return _canonical_float(value.imag) + "j"
    if isinstance(value, str):
        escaped = re.sub(r"""[\\'"]""", lambda match: "\\" + match[0], value)
        return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'
    return str(value)


def _canonical_float(value: float) -> str:
    if value == 0:
        return "0."
    text = f"{value:.17g}"
    return text if re.search("[.e]", text) else text + "."
