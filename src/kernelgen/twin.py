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


def make(variant: Path, metadata: dict[str, Any], target: Path) -> str | None:
    """Copy a variant under another id.

    Args:
        variant: the variant's directory.
        metadata: its metadata.json.
        target: a directory that does not exist yet.

    Returns:
        The new id, or None when none can be made: the id has no unique part with two letters that can change
        alike, or a compiler has cut it up into immediates, so that a copy would be neither.
    """
    full = str(metadata["id"])
    stem = f"_{str(metadata['name']).replace('-', '_')}_{metadata['backend']['type']}_"
    if not full.startswith(stem):
        return None
    libraries = {p: p.read_bytes() for p in variant.rglob("*") if p.is_file() and p.suffix in _BINARY}
    for at, other in _alike(full, len(stem)):
        changed = {p: data.replace(full.encode(), other.encode()) for p, data in libraries.items()}
        if not any(_has_rest(data, full, at) for data in changed.values()):
            # Python-only kernels put the id together when they are imported.
            old, new = (full, other) if libraries else (full[len(stem) :], other[len(stem) :])
            _write(variant, target, changed, old, new)
            return other
    return None


def _alike(full: str, start: int) -> Iterator[tuple[int, str]]:
    """Identifiers of the same length and hash, with the place of the two letters that differ."""
    for at in range(start, len(full) - 1):
        for step in (1, -1):
            pair = chr(ord(full[at]) + step) + chr(ord(full[at + 1]) - 33 * step)
            if pair.isascii() and pair.isalnum():
                yield at, full[:at] + pair + full[at + 2 :]


def _has_rest(data: bytes, full: str, at: int) -> bool:
    """Whether four letters around the changed ones are still there: a piece of the id in an instruction."""
    windows = {full[i : i + 4] for i in range(max(0, at - 2), min(at + 1, len(full) - 4) + 1)}
    return any(window.encode() in data for window in windows if len(window) == 4)


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
