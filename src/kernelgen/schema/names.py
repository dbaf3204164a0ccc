"""Names that an operator, an overload or an argument cannot have, each with the reason.

An operator's name becomes a C++ function, a CUDA kernel, a Python function and the name of a file in the
generated project; an argument's name becomes a parameter in C++ and in Python. So a name must be free in all
of them.
"""

from __future__ import annotations

import re
import sys

_PYTHON = """
    False None True and as assert async await break class continue def del elif else except finally
    for from global if import in is lambda nonlocal not or pass raise return try while with yield
"""
# Words that PyTorch's schema reader (torch/csrc/jit/frontend/lexer.h) keeps beside the keywords of Python.
_SCHEMA = "Ellipsis NoneType"
# C++20 with its alternative operators, and what is on its way in.
_CPP = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    constinit continue contract_assert decltype default delete do double dynamic_cast else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new
    noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof union unsigned using virtual void
    volatile wchar_t while xor xor_eq
"""
_CUDA = "blockDim blockIdx dim3 gridDim threadIdx warpSize cudaError_t cudaStream_t"
# Macros of the C and C++ headers, of g++'s GNU dialect and of PyTorch that are not written in capitals alone.
_MACROS = """
    assert errno linux major makedev math_errhandling minor offsetof setjmp sigsetjmp stderr stdin
    stdout unix va_arg va_copy va_end va_start
"""
# Macros in capitals that are short enough to look like a name.
_CAPITALS = re.compile(r"[A-Z][A-Z0-9_]*[A-Z0-9]")
_CAPITALS_FREE = frozenset({"LU", "QR", "QK", "QKV"})
_CPP_NAMES = "at c10 int8_t int16_t int32_t int64_t size_t std uint8_t uint16_t uint32_t uint64_t"
_TYPES_OF_SCALAR_H = "BFloat16 Half"

# What a generated Python module calls by name: a parameter or a function of that name would hide it.
_PYTHON_USED = "Any Callable Sequence add_op_namespace_prefix bool ops torch"
_PYTHON_TYPES = "bool bytes dict float int list object str tuple type zip"

_FILES = {
    "layers": "the package's `layers` module",
    "ops": "the package's `ops` object",
    "scalar": "csrc/scalar.h",
    "torch_binding": "torch-ext/torch_binding.cpp",
    "registration": "the builder's registration.h",
    "kernels": "the `kernels` package",
    "nn": "`torch.nn` in the generated layers",
}
_NAMESPACE = {
    # torch.ops.<namespace>.name is the namespace's own name.
    "name": "an attribute of every `torch.ops` namespace",
}
# Attributes of torch._ops.OpOverloadPacket, where an overload is looked up.
_OVERLOADS = "default op op_overloads overloads"


def _words(text: str, reason: str) -> dict[str, str]:
    return dict.fromkeys(text.split(), reason)


_EVERYWHERE = {
    **_words(_CPP_NAMES, "a name of C++ that generated code uses"),
    **_words(_MACROS, "a macro of the C headers"),
    **_words(_CUDA, "a name of CUDA"),
    **_words(_SCHEMA, "a word of PyTorch's schema language"),
    **_words(_PYTHON_USED, "a name that the generated Python uses"),
    **_words(_CPP, "a keyword of C++"),
    **_words(_PYTHON, "a keyword of Python"),
}
_OPERATORS = {
    **_words("main", "the entry point of a program"),
    **_words(_TYPES_OF_SCALAR_H, "a type of csrc/scalar.h"),
    **_words(_PYTHON_TYPES, "a type of Python that generated code uses"),
    **{word: f"the name of {thing}" for word, thing in _FILES.items()},
    **_NAMESPACE,
}
# The package's name is also that of its C++ namespace.
_PACKAGES = {
    **_words("cpu cuda scalar", "a namespace within the generated C++"),
    **_words(
        "kernelgen kernels ninja numpy pytest tests torch triton",
        "the name of a package that is used beside it",
    ),
}


def _reserved_shape(name: str) -> str | None:
    if "__" in name:
        return "reserved in C++, because it has two underscores in a row"
    if re.match(r"_[A-Z]", name):
        return "reserved in C++, because it begins with an underscore and a capital"
    if name == "_":
        return "not a name that anyone could pass by keyword"
    if _CAPITALS.fullmatch(name) and name not in _CAPITALS_FREE:
        return "in capitals, as the macros of C headers are"
    return None


def why_not_kernel(name: str) -> str | None:
    """Say why a kernel's Python package cannot be called `name`, as the end of a sentence; None if it can."""
    if name in sys.stdlib_module_names:
        return "a module of Python's standard library"
    return _EVERYWHERE.get(name) or _PACKAGES.get(name) or _reserved_shape(name)


def why_not_argument(name: str) -> str | None:
    """Say why an argument or a return cannot be called `name`, as the end of a sentence; None if it can."""
    return _EVERYWHERE.get(name) or _reserved_shape(name)


def why_not_operator(name: str) -> str | None:
    """Say why an operator cannot be called `name`, as the end of a sentence; None if it can."""
    if name.startswith("_"):
        return "not public, because it begins with an underscore"
    return _EVERYWHERE.get(name) or _OPERATORS.get(name) or _reserved_shape(name)


def why_not_overload(name: str) -> str | None:
    """Say why an overload cannot be called `name`, as the end of a sentence; None if it can."""
    if name in _OVERLOADS.split():
        return "an attribute of every operator in `torch.ops`"
    if name.startswith("_"):
        return "private, because it begins with an underscore"
    return {
        **_words(_SCHEMA, "a word of PyTorch's schema language"),
        **_words(_PYTHON, "a keyword of Python"),
    }.get(name)
