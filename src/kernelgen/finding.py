"""What a judge has to say: one rule, one subject, a verdict and the way out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Verdict = Literal["ok", "note", "warn", "error"]

RULES = {
    "KG101": "build.toml",
    "KG102": "kernel-builder reads build.toml",
    "KG103": "sources are in git",
    "KG104": "managed files",
    "KG105": "conflict marks",
    "KG106": "variants",
    "KG201": "operator names",
    "KG202": "public API",
    "KG203": "imports of itself",
    "KG204": "imports",
    "KG205": "Python 3.9",
    "KG206": "layers",
    "KG301": "variant's name",
    "KG302": "layout",
    "KG303": "metadata",
    "KG304": "digest",
    "KG305": "ABI",
    "KG306": "dynamic dependencies",
    "KG307": "search path",
    "KG308": "stack and relocations",
    "KG309": "symbols",
    "KG310": "GPU architectures",
    "KG401": "loads",
    "KG402": "public names",
    "KG403": "operator schemas",
    "KG404": "fake tensors",
    "KG405": "opcheck",
    "KG406": "two versions in one process",
    "KG407": "layers, by the loader",
}


@dataclass(frozen=True)
class Finding:
    """One judgement. RULES says what the codes stand for."""

    code: str  # "KG201"
    subject: str  # what was judged: "operator names", "build/torch213-cxx11-cpu-x86_64-linux"
    verdict: Verdict  # ok; note: know this; warn: works, but; error: refused by us, by Nix, or by the loader
    message: str
    way_out: str | None = None
    where: str | None = None  # "torch-ext/relu/op.py:12"

    def as_json(self) -> dict[str, Any]:
        """Plain values, for --json."""
        return asdict(self)


def passed(code: str, message: str, subject: str | None = None) -> Finding:
    """The finding of a rule that found nothing to say."""
    return Finding(code, subject or RULES[code], "ok", message)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The gravest verdict of all; ok for none."""
    order: tuple[Verdict, ...] = ("ok", "note", "warn", "error")
    return max((f.verdict for f in findings), key=order.index, default="ok")
