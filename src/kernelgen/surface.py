"""The public API of a built kernel: the names in `__all__` and the operator schemas in its extension.

Both are read, never run: a published build is somebody else's code, and may be for another machine. A
kernel's public API is its top-level `__all__`, and a version promises that it does not shrink
(https://huggingface.co/docs/kernels/kernel-requirements, "Versioning").
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# A schema lies in the extension as the C string that was given to `def`. The types are those of PyTorch's
# schema language; a text that merely looks alike has none of them right after the parenthesis.
_TYPE = (
    r"(?:Tensor|int|float|bool|str|complex|number|Scalar|ScalarType|SymInt|SymFloat|SymBool|Layout|Device"
    r"|MemoryFormat|Generator|Dimname|QScheme|Storage|Stream|Dict)"
)
_SCHEMA = re.compile(
    rb"(?<![\w:.])(?:\w+::)?([A-Za-z_]\w*(?:\.\w+)?\((?:\*, )?(?:"
    + _TYPE.encode()
    + rb"\b[^\x00]{0,4000}?)?\)\s*->\s*[^\x00]{1,400})\x00"
)


@dataclass(frozen=True)
class Surface:
    """What users of a kernel can rely on.

    Attributes:
        names: the public names, sorted; None when there is no `__all__` that can be read.
        schemas: the operators, as `name(arguments) -> returns`, sorted; None when no extension was looked at.
    """

    names: tuple[str, ...] | None
    schemas: tuple[str, ...] | None


@dataclass(frozen=True)
class Comparison:
    """What one surface lacks, and what it has in addition, compared with the published one."""

    removed: tuple[str, ...]
    added: tuple[str, ...]
    table: str  # both lists side by side

    @property
    def shrinks(self) -> bool:
        """Whether code that works with the published builds can break."""
        return bool(self.removed)


def public_names(source: str) -> tuple[str, ...] | None:
    """The names in a module's `__all__`, in order; None when it has none that can be read without running it.

    Lists and tuples of strings count, assigned, annotated or added with `+=`.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    names: list[str] | None = None
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            targets = [node.target]
        else:
            continue
        if not any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            continue
        if not isinstance(node.value, (ast.List, ast.Tuple)):
            return None
        found = [e.value for e in node.value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        names = [*(names or []), *found] if isinstance(node, ast.AugAssign) else found
    return tuple(names) if names is not None else None


def class_names(source: str) -> tuple[str, ...]:
    """Names of a module's top-level classes, in order."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ()
    return tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))


def schemas_in(binary: bytes) -> tuple[str, ...]:
    r"""The operator schemas that an extension registers, sorted; those inferred from C++ types are not seen.

    >>> schemas_in(b"...\0relu(Tensor! out, Tensor x) -> ()\0...")
    ('relu(Tensor! out, Tensor x) -> ()',)
    """
    found = {" ".join(match.decode("utf-8", "replace").split()) for match in _SCHEMA.findall(binary)}
    return tuple(sorted(found))


def merge(surfaces: Iterable[Surface]) -> Surface:
    """The surface of several builds of one kernel: all that any of them has."""
    collected = list(surfaces)
    names = [s.names for s in collected if s.names is not None]
    schemas = [s.schemas for s in collected if s.schemas is not None]
    return Surface(
        names=tuple(sorted({n for group in names for n in group})) if names else None,
        schemas=tuple(sorted({s for group in schemas for s in group})) if schemas else None,
    )


def compare(published: Surface, current: Surface, headings: tuple[str, str]) -> Comparison:
    """Hold two surfaces side by side; what either side could not read is left out.

    Args:
        published: what users have.
        current: what they would get.
        headings: titles of the two columns.
    """
    removed: list[str] = []
    added: list[str] = []
    rows: list[tuple[str, str, str]] = []
    if published.names is not None and current.names is not None:
        for name in sorted({*published.names, *current.names}):
            old, new = name in published.names, name in current.names
            rows.append((name if old else "", name if new else "", "removed" if not new else ""))
            removed += [name] if not new else []
            added += [name] if not old else []
    if published.schemas is not None and current.schemas is not None:
        for row in _schema_rows(published.schemas, current.schemas):
            rows.append(row)
            removed += [row[0]] if row[2] in ("removed", "changed") else []
            added += [row[1]] if row[1] and row[0] != row[1] else []
    return Comparison(tuple(removed), tuple(added), _side_by_side(rows, headings))


def _schema_rows(published: tuple[str, ...], current: tuple[str, ...]) -> list[tuple[str, str, str]]:
    old = {schema.split("(")[0]: schema for schema in published}
    new = {schema.split("(")[0]: schema for schema in current}
    rows = []
    for name in sorted({*old, *new}):
        before, after = old.get(name, ""), new.get(name, "")
        if not after:
            verdict = "removed"
        elif before and before != after:
            verdict = "extended" if is_extension(before, after) else "changed"
        else:
            verdict = ""
        rows.append((before, after, verdict))
    return rows


def is_extension(published: str, current: str) -> bool:
    """Whether every call that the published schema takes is also taken by the current one, to the same end.

    That is so when the old arguments come first, unchanged, every new one has a default, and the returns are
    equal.

    >>> is_extension("f(Tensor x) -> Tensor", "f(Tensor x, bool fast=False) -> Tensor")
    True
    >>> is_extension("f(Tensor x) -> Tensor", "f(Tensor x, bool fast) -> Tensor")
    False
    """
    old_arguments, old_returns = _split(published)
    arguments, returns = _split(current)
    extra = [a for a in arguments[len(old_arguments) :] if a != "*"]
    kept = arguments[: len(old_arguments)] == old_arguments
    return kept and returns == old_returns and all("=" in argument for argument in extra)


def _split(schema: str) -> tuple[list[str], str]:
    """The arguments and the returns of a schema, white space evened out."""
    left, _, returns = schema.rpartition("->")
    text = left[left.index("(") + 1 : left.rindex(")")]
    arguments, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            arguments.append(text[start:place])
            start = place + 1
    arguments.append(text[start:])
    return [" ".join(a.split()) for a in arguments if a.strip()], " ".join(returns.split())


def _side_by_side(rows: list[tuple[str, str, str]], headings: tuple[str, str]) -> str:
    table = [(*headings, ""), *((old or "-", new or "-", verdict) for old, new, verdict in rows)]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    lines = [f"{old:<{widths[0]}}  {new:<{widths[1]}}  {verdict}".rstrip() for old, new, verdict in table]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([lines[0], rule, *lines[1:]])
