"""Operators as PyTorch function schemas: what may be declared, and what each language calls it.

`parse` reads one schema and refuses what a custom operator cannot have, `validate` judges the operators of a
project together, and the rest says how the generated C++ and Python spell an operator's types. Nothing here
imports torch; the tests hold every answer against torch, torchgen and compilers.
"""

from __future__ import annotations

from kernelgen.schema.declaration import registered, symbol, validate
from kernelgen.schema.grammar import Argument, Default, Return, Schema, Type, parse
from kernelgen.schema.signatures import (
    cpp_argument_type,
    cpp_return_type,
    python_default,
    python_return_type,
    python_type,
)

__all__ = [
    "Argument",
    "Default",
    "Return",
    "Schema",
    "Type",
    "cpp_argument_type",
    "cpp_return_type",
    "parse",
    "python_default",
    "python_return_type",
    "python_type",
    "registered",
    "symbol",
    "validate",
]
