"""How C++ and Python spell the types of an operator's arguments and returns.

The full ABI has what torchgen derives for a native function (torchgen.api.native, SymInt as int64_t: a kernel
runs on numbers). It differs where that does not work in a custom operator, each case tried with torch 2.13:

- `str[]` would be at::ArrayRef<std::string_view>, which registers and then reads strings that are freed;
- `Tensor(a!)?` and `Tensor?[]?` would be references that no registration takes;
- `bool[]`, `complex` and lists that are returned and may be None have no type in torchgen;
- a returned `str` would be a view of a string that the kernel no longer holds.

The stable ABI has what torch/csrc/stable/stableivalue_conversions.h boxes for version 2.11, by value or by
const reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelgen.errors import KernelgenError
from kernelgen.schema.grammar import LAYOUTS, MEMORY_FORMATS, SCALAR_TYPES

if TYPE_CHECKING:
    from kernelgen.schema.grammar import Argument, Schema, Type

_FULL = {
    "Tensor": "at::Tensor",
    "int": "int64_t",
    "SymInt": "int64_t",
    "float": "double",
    "bool": "bool",
    "str": "std::string_view",
    "complex": "c10::complex<double>",
    "Scalar": "at::Scalar",
    "ScalarType": "at::ScalarType",
    "Layout": "at::Layout",
    "MemoryFormat": "at::MemoryFormat",
    "Device": "at::Device",
    "Generator": "at::Generator",
}
# What torch/csrc/stable/stableivalue_conversions.h boxes at version 2.11.
_STABLE = {
    "Tensor": "torch::stable::Tensor",
    "int": "int64_t",
    "SymInt": "int64_t",
    "float": "double",
    "bool": "bool",
    "str": "std::string",
    "ScalarType": "torch::headeronly::ScalarType",
    "Layout": "torch::headeronly::Layout",
    "MemoryFormat": "torch::headeronly::MemoryFormat",
    "Device": "torch::stable::Device",
}
_NOT_STABLE = {
    "Scalar": "the stable ABI of PyTorch has no Scalar",
    "complex": "the stable ABI of PyTorch has no complex number",
    "Generator": "the stable ABI of PyTorch has no Generator before 2.13",
}
_PYTHON = {
    "Tensor": "torch.Tensor",
    "int": "int",
    "SymInt": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "complex": "complex",
    "Scalar": "float",
    "ScalarType": "torch.dtype",
    "Layout": "torch.layout",
    "MemoryFormat": "torch.memory_format",
    "Device": "torch.device",
    "Generator": "torch.Generator",
}


def cpp_argument_type(argument: Argument, abi: str) -> str:
    """Spell an argument's type in C++.

    Args:
        argument: an argument of a parsed schema.
        abi: "full" or "stable".

    Raises:
        KernelgenError: the stable ABI has no such type.
    """
    type_ = argument.type
    value = _value(type_, abi)
    if argument.mutable and not type_.list and not type_.optional:
        return f"{value}&"
    if abi == "stable":
        return _stable_argument(type_, value)
    if not type_.list:
        whole = _optional(value, type_.optional)
        return f"const {whole}&" if type_.base in ("Tensor", "Scalar") else whole
    if type_.optional and type_.base in ("int", "SymInt") and not type_.elem_optional:
        return "at::OptionalIntArrayRef"
    list_ = _full_list(type_, value)
    owning = list_.startswith("c10::List")
    whole = _optional(list_, type_.optional)
    return f"const {whole}&" if owning else whole


def cpp_return_type(schema: Schema, abi: str) -> str:
    """Spell the return type of an operator's C++ function: void, one type, or a std::tuple of them.

    Raises:
        KernelgenError: the stable ABI has no such type.
    """
    types = [_returned(returned.type, abi) for returned in schema.returns]
    if not types:
        return "void"
    return types[0] if len(types) == 1 else f"std::tuple<{', '.join(types)}>"


def python_type(argument: Argument) -> str:
    """Spell an argument's type in Python; needs `torch` and collections.abc's `Sequence`."""
    type_ = argument.type
    value = _PYTHON[type_.base]
    if type_.list:
        element = f"{value} | None" if type_.elem_optional else value
        # PyTorch spreads one number to a list of a fixed length, but not for SymInt.
        one = f"{value} | " if type_.size and type_.base in ("int", "float") else ""
        value = f"{one}Sequence[{element}]"
    return f"{value} | None" if type_.optional else value


def python_default(argument: Argument) -> str | None:
    """Spell an argument's default in Python; None where it has none."""
    if argument.default is None:
        return None
    value = argument.default.value
    if value is None:
        return "None"
    tables = {
        "ScalarType": {number: name for name, number in SCALAR_TYPES.items()},
        "MemoryFormat": dict(enumerate(MEMORY_FORMATS)),
        "Layout": dict(enumerate(LAYOUTS)),
    }
    if argument.type.base in tables:
        return f"torch.{tables[argument.type.base][value]}"
    if argument.type.base == "Device":
        return f'torch.device("{value}")'
    if isinstance(value, str):
        return _python_string(value)
    return repr(value)


def python_return_type(schema: Schema) -> str:
    """Spell what an operator's Python function returns."""
    types = []
    for returned in schema.returns:
        value = _PYTHON[returned.type.base]
        if returned.type.list:
            value = f"list[{value} | None]" if returned.type.elem_optional else f"list[{value}]"
        types.append(f"{value} | None" if returned.type.optional else value)
    if not types:
        return "None"
    return types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]"


def _python_string(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _optional(value: str, optional: bool = True) -> str:
    return f"std::optional<{value}>" if optional else value


def _value(type_: Type, abi: str) -> str:
    if abi == "full":
        return _FULL[type_.base]
    if type_.base in _NOT_STABLE:
        raise KernelgenError(
            f"{type_} cannot be used with the stable ABI: {_NOT_STABLE[type_.base]}.",
            way_out="Use --abi full, or another type.",
        )
    return _STABLE[type_.base]


def _full_list(type_: Type, value: str) -> str:
    if type_.base == "str":
        return f"c10::List<{_optional('std::string', type_.elem_optional)}>"
    if type_.elem_optional:
        return (
            f"c10::List<{_optional(value)}>"
            if type_.base == "Tensor"
            else f"at::ArrayRef<{_optional(value)}>"
        )
    if type_.base == "bool":
        return f"std::array<bool, {type_.size}>" if type_.size else "c10::List<bool>"
    named = {"Tensor": "at::TensorList", "int": "at::IntArrayRef", "SymInt": "at::IntArrayRef"}
    return named.get(type_.base, f"at::ArrayRef<{value}>")


def _stable_argument(type_: Type, value: str) -> str:
    element = _optional(value, type_.elem_optional)
    whole = _optional(f"std::vector<{element}>" if type_.list else value, type_.optional)
    return f"const {whole}&" if type_.list or type_.base in ("Tensor", "str") else whole


def _returned(type_: Type, abi: str) -> str:
    value = _value(type_, abi)
    list_ = "std::vector"
    if abi == "full":
        # Here PyTorch insists on SymInt, and has no std::vector<bool>.
        value = {"str": "std::string", "SymInt": "c10::SymInt"}.get(type_.base, value)
        list_ = "c10::List" if type_.base == "bool" and not type_.elem_optional else list_
    elif str(type_).startswith("bool[]"):
        raise KernelgenError(
            f"{type_} cannot be returned with the stable ABI, which cannot box std::vector<bool>.",
            way_out="Use --abi full, or return int[].",
        )
    element = _optional(value, type_.elem_optional)
    return _optional(f"{list_}<{element}>" if type_.list else element, type_.optional)
