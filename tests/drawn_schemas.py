"""A hypothesis strategy that draws schemas from the whole grammar that `kernelgen.schema.parse` takes."""

from __future__ import annotations

from hypothesis import strategies as st

from kernelgen.schema import Type, names
from kernelgen.schema.grammar import BASES, RETURNED, SCALAR_TYPES

NAME = st.from_regex(r"[a-z][a-z0-9]{0,5}(_[a-z0-9]{1,4})?", fullmatch=True)
ARGUMENT_NAME = NAME.filter(lambda name: names.why_not_argument(name) is None)
TYPES = st.builds(
    lambda base, list_, size, elem_optional, optional: Type(
        base,
        list=list_,
        size=size if list_ and not elem_optional else None,
        elem_optional=list_ and elem_optional,
        optional=optional,
    ),
    st.sampled_from(BASES),
    st.booleans(),
    st.none() | st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)
ARGUMENT_TYPES = TYPES.filter(
    lambda type_: (
        not (type_.base == "SymInt" and type_.elem_optional)
        and not (type_.list and type_.base in ("Layout", "MemoryFormat", "ScalarType"))
        and not (type_.base == "Generator" and not (type_.elem_optional if type_.list else type_.optional))
    )
)
RETURN_TYPES = TYPES.filter(
    lambda type_: (
        type_.size is None
        and type_.base in RETURNED
        and not (type_.base == "Scalar" and type_.list and not type_.elem_optional)
    )
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
TEXTS = st.text(st.sampled_from("abz ,()[]=*?!.'\"\\\n\t#~|->"), max_size=8)


@st.composite
def defaults(draw: st.DrawFn, type_: Type) -> str | None:
    """A default's text, or None for no default."""
    if type_.optional and draw(st.booleans()):
        return "None"
    if draw(st.booleans()) or type_.base in ("Tensor", "Generator"):
        return None
    if type_.list:
        if (
            type_.optional
            or type_.elem_optional
            or type_.base not in ("int", "SymInt", "float", "bool", "complex")
        ):
            return None
        one = Type(type_.base)
        if type_.size is not None and draw(st.booleans()):
            return draw(values(one))
        length = draw(st.integers(0, 4)) if type_.size is None else type_.size
        return f"[{', '.join(draw(values(one)) for _ in range(length))}]"
    return draw(values(type_))


def values(type_: Type) -> st.SearchStrategy[str]:
    floats = FLOATS.map(repr)
    integers = st.integers(-(2**63), 2**63 - 1).map(str)
    imaginary = FLOATS.map(lambda value: f"{value!r}j")
    booleans = st.sampled_from(["True", "False"])
    return {
        "int": integers,
        "SymInt": integers,
        "float": floats if type_.optional else floats | st.integers(-(10**6), 10**6).map(str),
        "bool": booleans,
        "complex": imaginary,
        "Scalar": integers | floats | booleans | imaginary,
        "str": TEXTS.map(quoted),
        "Device": st.sampled_from(['"cpu"', "'cuda:3'"]),
        "ScalarType": st.sampled_from(sorted(SCALAR_TYPES)),
        "Layout": st.sampled_from(["strided", "1"]),
        "MemoryFormat": st.sampled_from(["contiguous_format", "3"]),
    }[type_.base]


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"'{escaped}'"


@st.composite
def schemas(draw: st.DrawFn) -> str:
    """A schema that `parse` takes, with blanks where they may be."""
    argument_names = draw(st.lists(ARGUMENT_NAME, min_size=1, max_size=7, unique=True))
    tensor = draw(st.integers(0, len(argument_names) - 1))
    star = draw(st.integers(0, len(argument_names) - 1) | st.none())
    parts = []
    seen_default = mutable = False
    for index, name in enumerate(argument_names):
        if index == star:
            parts.append("*")
        type_ = Type("Tensor") if index == tensor else draw(ARGUMENT_TYPES)
        alias = ""
        if type_.base == "Tensor" and draw(st.integers(0, 4)) == 0:
            alias = draw(st.sampled_from(["!", f"({'abcdefgh'[index]}!)"]))
        spelled = type_.base + alias + str(type_)[len(type_.base) :]
        default = draw(defaults(type_))
        if default is None and seen_default and (star is None or index < star):
            continue
        seen_default = seen_default or default is not None
        mutable = mutable or "!" in alias
        parts.append(f"{spelled} {name}" + (f"={default}" if default is not None else ""))
    if not any(part.startswith("Tensor") for part in parts):
        parts.insert(0, "Tensor first")
    if parts[-1] == "*":
        parts.pop()
    blank = draw(st.sampled_from(["", " ", "  "]))
    returned = draw(st.lists(RETURN_TYPES.map(str), min_size=0 if mutable else 1, max_size=3))
    if draw(st.booleans()):
        returned = [f"{type_} r{index}" for index, type_ in enumerate(returned)]
    returns = returned[0] if len(returned) == 1 and draw(st.booleans()) else f"({f',{blank}'.join(returned)})"
    overload = draw(st.sampled_from(["", ".out", ".int", ".a_b"]))
    return f"op_{draw(NAME)}{overload}{blank}({f',{blank}'.join(parts)}){blank}->{blank}{returns}"
