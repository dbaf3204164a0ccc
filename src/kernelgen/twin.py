"""A second version of a built kernel, made without compiling: a copy under another unique id.

Two versions of a kernel may meet in one process, which goes wrong when a name is shared. To try it, every
mention of the id is replaced by one of the same length. Dynamic symbols are found by a hash of their names,
so the new id is chosen to hash alike: in h = 33 h + c, raising one letter by 1 and lowering the next by 33
changes nothing.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BINARY = (".so", ".pyd", ".dylib")
_TEXT = (".py", ".json")
_WORD = 8  # bytes that one instruction copies


def make(variant: Path, metadata: dict[str, Any], target: Path) -> str | None:
    """Copy a variant under another id.

    Args:
        variant: the variant's directory.
        metadata: its metadata.json.
        target: a directory that does not exist yet.

    Returns:
        The new id, or None when none can be made: the id has no unique part with two letters that can change
        alike, or a compiler has cut it up in another way, so that a copy would be neither.
    """
    full = str(metadata["id"])
    stem = f"_{str(metadata['name']).replace('-', '_')}_{metadata['backend']['type']}_"
    if not full.startswith(stem):
        return None
    libraries = {p: p.read_bytes() for p in variant.rglob("*") if p.is_file() and p.suffix in _BINARY}
    for at, other in _alike(full, len(stem)):
        changed = {p: _replaced(data, full, other, at) for p, data in libraries.items()}
        if not any(_has_rest(data, full, at) for data in changed.values()):
            # Python-only kernels put the id together when they are imported.
            old, new = (full, other) if libraries else (full[len(stem) :], other[len(stem) :])
            _write(variant, target, changed, old, new)
            return other
    return None


def _alike(full: str, start: int) -> Iterator[tuple[int, str]]:
    """Identifiers of the same length and hash, with the place of the two letters that differ.

    Those come first whose two letters share one of the eight-byte words that a compiler cuts a text into.
    """
    whole_words = len(full) // _WORD * _WORD
    places = range(start, len(full) - 1)
    for at in sorted(places, key=lambda i: (i % _WORD == _WORD - 1 or i >= whole_words, i)):
        for step in (1, -1):
            pair = chr(ord(full[at]) + step) + chr(ord(full[at + 1]) - 33 * step)
            if pair.isascii() and pair.isalnum():
                yield at, full[:at] + pair + full[at + 2 :]


def _replaced(data: bytes, full: str, other: str, at: int) -> bytes:
    """A library with the id replaced, in one piece and in the words that instructions copy it by."""
    data = data.replace(full.encode(), other.encode())
    for start in (at // _WORD * _WORD, len(full) - _WORD):
        if 0 <= start <= at and at + 2 <= start + _WORD <= len(full):
            piece = slice(start, start + _WORD)
            data = data.replace(full[piece].encode(), other[piece].encode())
    return data


def _has_rest(data: bytes, full: str, at: int) -> bool:
    """Whether four letters with one of the changed ones are still there: a piece that was not replaced."""
    windows = {full[i : i + 4] for i in range(max(0, at - 3), min(at + 1, len(full) - 4) + 1)}
    return any(window.encode() in data for window in windows)


def _write(variant: Path, target: Path, libraries: dict[Path, bytes], old: str, new: str) -> None:
    for path in sorted(variant.rglob("*")):
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        copy = target / str(path.relative_to(variant)).replace(old, new)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path in libraries:
            copy.write_bytes(libraries[path])
        elif path == variant / "metadata.json":
            table = json.loads(path.read_text("utf-8"))
            table.pop("digest", None)
            copy.write_text(json.dumps(table).replace(old, new), "utf-8")
        elif path.suffix in _TEXT:
            copy.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
        else:
            shutil.copyfile(path, copy)
