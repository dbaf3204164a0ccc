"""The operators of one project together: what clashes between them, and with the files that are generated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelgen.errors import KernelgenError
from kernelgen.schema import names
from kernelgen.schema.grammar import Argument, Return, Schema, Type
from kernelgen.schema.signatures import cpp_argument_type, cpp_return_type

if TYPE_CHECKING:
    from collections.abc import Sequence

BACKENDS = ("cpu", "cuda")
ABIS = ("full", "stable")


def symbol(schema: Schema) -> str:
    """Name an operator in files and functions: `f`, or `f_out` for the overload `f.out`."""
    return f"{schema.name}_{schema.overload}" if schema.overload else schema.name


def validate(
    schemas: Sequence[Schema],
    *,
    kernel_name: str,
    backends: Sequence[str],
    abi: str,
    autograd: bool = False,
    layers: bool = False,
) -> None:
    """Refuse operators that cannot live in one project.

    Args:
        schemas: the project's operators, as `parse` gave them.
        kernel_name: the project's name, dashes and all.
        backends: of cpu, cuda. What either cannot have is refused for both, so that one can come later.
        abi: "full" or "stable".
        autograd: a backward operator is generated for each operator that can have one.
        layers: a torch.nn.Module is generated for each operator.

    Raises:
        KernelgenError: the kernel's name is taken, a backend or ABI is unknown, two operators need the same
            name, or the ABI has no type that one uses.
    """
    _check_kernel(kernel_name, backends, abi)
    if not schemas:
        raise KernelgenError(
            "No operator is declared.",
            where="ops",
            way_out='Declare one, such as "my_op(Tensor x) -> Tensor".',
        )
    taken: dict[str, str] = {}
    for schema in schemas:
        for name, owner in _names(schema, autograd):
            other = taken.get(name.lower())
            if other is not None:
                _refuse_clash(schema, name, owner, other)
            taken[name.lower()] = owner
        _check_arguments(schema, autograd=autograd and has_backward(schema), layers=layers)
        _check_abi(schema, abi)


def _check_kernel(kernel_name: str, backends: Sequence[str], abi: str) -> None:
    name = kernel_name.replace("-", "_")
    reason = names.why_not_kernel(name)
    if reason:
        raise KernelgenError(
            f"A kernel cannot be called {kernel_name!r}: {name!r} is {reason}.",
            where="kernel_name",
            way_out=f"Choose another name, such as {kernel_name.strip('-')}-kernel.",
        )
    for backend in backends:
        if backend not in BACKENDS:
            raise KernelgenError(
                f"{backend!r} is no backend.", where="backends", way_out=f"Choose of {', '.join(BACKENDS)}."
            )
    if abi not in ABIS:
        raise KernelgenError(f"{abi!r} is no ABI.", where="abi", way_out=f"Choose {' or '.join(ABIS)}.")


def _names(schema: Schema, autograd: bool) -> list[tuple[str, str]]:
    found = [(symbol(schema), schema.qualified_name)]
    if autograd and has_backward(schema):
        found.append((symbol(backward(schema)), f"the backward operator of {schema.qualified_name}"))
    return found


def has_backward(schema: Schema) -> bool:
    """Whether `autograd` generates a backward operator: one Tensor comes out, and nothing is written to."""
    return (
        [str(returned.type) for returned in schema.returns] == ["Tensor"]
        and not any(argument.mutable for argument in schema.arguments)
        and any(str(argument.type) == "Tensor" for argument in schema.arguments)
    )


def registered(schemas: Sequence[Schema], *, autograd: bool) -> list[Schema]:
    """All operators that a project registers: the declared, then a backward one for each that has it."""
    derived = [backward(schema) for schema in schemas if has_backward(schema)] if autograd else []
    return [*schemas, *derived]


def backward(schema: Schema) -> Schema:
    """The operator that computes the gradient of `schema`: its arguments after the gradient of its output.

    It returns a gradient for each argument that is a plain Tensor.
    """
    tensor = Type("Tensor")
    tensors = [argument for argument in schema.arguments if argument.type == tensor]
    return Schema(
        name=f"{schema.name}_backward",
        overload=schema.overload,
        arguments=(Argument("grad", tensor), *schema.arguments),
        returns=(Return(tensor),) * len(tensors),
    )


def _refuse_clash(schema: Schema, name: str, owner: str, other: str) -> None:
    if owner == other:
        raise KernelgenError(
            f"The operator {owner} is declared twice.",
            detail=schema.text,
            way_out=f'Take one out, or make it an overload, "{schema.name}.other(...)".',
        )
    raise KernelgenError(
        f"{owner} and {other} both need files and functions called {name}.",
        detail=schema.text,
        way_out="Rename one of them.",
    )


def _check_arguments(schema: Schema, *, autograd: bool, layers: bool) -> None:
    """Refuse names of arguments that the code around this operator has for something else."""
    arguments = [argument.name for argument in schema.arguments]
    for name in arguments:
        reason = None
        if name.endswith("_") and name[:-1] in arguments:
            reason = f"{name[:-1]!r} may need that name in C++"
        elif name.startswith("dense_") and name.removeprefix("dense_") in arguments:
            reason = f"that is what C++ calls the dense copy of {name.removeprefix('dense_')!r}"
        elif autograd and name in ("ctx", "grad", "inputs", "keyword_only_inputs", "output"):
            reason = "the generated gradient has an argument of that name"
        elif layers and name == "self":
            reason = "a layer's method has an argument of that name"
        elif layers and name == symbol(schema):
            reason = "the generated layer calls the operator by that name"
        if reason:
            raise KernelgenError(
                f"An argument of {schema.qualified_name} cannot be called {name!r}: {reason}.",
                detail=schema.text,
                way_out="Choose another name for it.",
            )


def _check_abi(schema: Schema, abi: str) -> None:
    try:
        for argument in schema.arguments:
            cpp_argument_type(argument, abi)
        cpp_return_type(schema, abi)
    except KernelgenError as error:
        raise KernelgenError(error.what, detail=schema.text, way_out=error.way_out) from None
