"""What a judge has to say: one rule, one subject, a verdict and the way out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Verdict = Literal["ok", "note", "warn", "error"]


@dataclass(frozen=True)
class Finding:
    """One judgement. The codes and what they stand for are listed in `check.RULES`."""

    code: str  # "KG201"
    subject: str  # what was judged: "operator names", "build/torch213-cxx11-cpu-x86_64-linux"
    verdict: Verdict  # ok; note: know this; warn: works, but; error: refused by us, by Nix, or by the loader
    message: str
    way_out: str | None = None
    where: str | None = None  # "torch-ext/relu/op.py:12"

    def as_json(self) -> dict[str, Any]:
        """Plain values, for --json."""
        return asdict(self)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The gravest verdict of all; ok for none."""
    order: tuple[Verdict, ...] = ("ok", "note", "warn", "error")
    return max((f.verdict for f in findings), key=order.index, default="ok")
