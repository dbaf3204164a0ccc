"""What a kernel's users can rely on, read from its files."""

from __future__ import annotations

import doctest

import pytest

from kernelgen import surface
from kernelgen.surface import Surface, compare, is_extension, public_names, schemas_in


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('__all__ = ["a", "b"]', ("a", "b")),
        ('__all__: list[str] = ["a"]\n__all__ += ["b"]', ("a", "b")),
        ('__all__ = ("a",)\n', ("a",)),
        ("__all__ = []", ()),
        ("x = 1", None),
        ("__all__ = names()", None),
        ("__all__ = [", None),
    ],
)
def test_public_names(source: str, names: tuple[str, ...] | None) -> None:
    assert public_names(source) == names


def test_schemas_are_found_in_a_binary() -> None:
    binary = b"\x7fELF\0aten::empty\0" + b"\0".join(
        [
            b"add_one(Tensor! out, Tensor input) -> ()",
            b"ns::pair(Tensor(a!) x, Tensor? m=None, *, int[2] k=1) -> (Tensor(a!), Tensor)",
            b"over.load(Tensor[] xs) -> Tensor[]",
            b"nothing() -> int",
            b"expected f(x) -> y but found z",
            b"std::function<void (int)> -> call",
            b"",
        ]
    )
    assert schemas_in(binary) == (
        "add_one(Tensor! out, Tensor input) -> ()",
        "nothing() -> int",
        "over.load(Tensor[] xs) -> Tensor[]",
        "pair(Tensor(a!) x, Tensor? m=None, *, int[2] k=1) -> (Tensor(a!), Tensor)",
    )


@pytest.mark.parametrize(
    ("before", "after", "fits"),
    [
        ("f(Tensor x) -> Tensor", "f(Tensor x) -> Tensor", True),
        ("f(Tensor x) -> Tensor", "f(Tensor x, int[] k=[1, 2]) -> Tensor", True),
        ("f(Tensor x) -> Tensor", "f(Tensor x, *, int k=1) -> Tensor", True),
        ("f(Tensor x) -> Tensor", "f(Tensor y) -> Tensor", False),
        ("f(Tensor x) -> Tensor", "f(Tensor x, int k) -> Tensor", False),
        ("f(Tensor x, int k=1) -> Tensor", "f(Tensor x, int k=2) -> Tensor", False),
        ("f(Tensor x, int k=1) -> Tensor", "f(Tensor x) -> Tensor", False),
        ("f(Tensor x) -> Tensor", "f(Tensor x) -> (Tensor, Tensor)", False),
    ],
)
def test_extensions(before: str, after: str, fits: bool) -> None:
    assert is_extension(before, after) is fits


def test_both_lists_stand_side_by_side() -> None:
    old = Surface(("add", "scale"), ("add(Tensor x) -> Tensor", "scale(Tensor x) -> Tensor"))
    new = Surface(("add", "shift"), ("add(Tensor x, int k=1) -> Tensor", "scale(Tensor y) -> Tensor"))
    found = compare(old, new, ("published (v1)", "this release"))
    assert found.removed == ("scale", "scale(Tensor x) -> Tensor")
    assert found.added == ("shift", "add(Tensor x, int k=1) -> Tensor", "scale(Tensor y) -> Tensor")
    assert found.table.splitlines() == [
        "published (v1)             this release",
        "-------------------------  --------------------------------",
        "add                        add",
        "scale                      -                                 removed",
        "-                          shift",
        "add(Tensor x) -> Tensor    add(Tensor x, int k=1) -> Tensor  extended",
        "scale(Tensor x) -> Tensor  scale(Tensor y) -> Tensor         changed",
    ]


def test_what_cannot_be_read_is_not_compared() -> None:
    assert not compare(Surface(("a",), None), Surface(None, ()), ("old", "new")).shrinks


def test_examples() -> None:
    assert doctest.testmod(surface).failed == 0
