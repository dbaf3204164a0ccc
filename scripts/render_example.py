"""Bring examples/img2gray up to the template: its managed files are rendered anew, its owned files stay.

python scripts/render_example.py            rewrite
python scripts/render_example.py --check    print what would change; exit 1 if anything would
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgen import __version__, template, update

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "img2gray"


def expected() -> Iterator[tuple[Path, bytes]]:
    """Every managed file of the example, and what the template of this checkout writes there."""
    source = template.source()
    rendered = update.render(source.path_or_url, source.ref, update.read_answers(EXAMPLE))
    for path, file in sorted(rendered.files.items()):
        if path == update.ANSWERS:
            # The example belongs to a release, not to the working state of one.
            lines = file.data.decode().splitlines(keepends=True)
            fixed = [f"_commit: v{__version__}\n" if line.startswith("_commit:") else line for line in lines]
            yield EXAMPLE / path, "".join(fixed).encode()
        elif path == "build.toml":
            yield EXAMPLE / path, with_own_sources(file.data.decode(), (EXAMPLE / path).read_text()).encode()
        elif not rendered.owned(path):
            yield EXAMPLE / path, file.data


def with_own_sources(rendered: str, existing: str) -> str:
    """A rendered build.toml with the sources that the existing one lists below each anchor."""
    anchor = re.compile(r"(  # Your own sources go below this line\.\n)((?:  .*\n)*)")
    own = iter(match[2] for match in anchor.finditer(existing))
    return anchor.sub(lambda match: match[1] + next(own, ""), rendered)


def main() -> int:
    """Rewrite, or with --check compare."""
    stale = [(path, data) for path, data in expected() if not path.exists() or path.read_bytes() != data]
    for path, data in stale:
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
