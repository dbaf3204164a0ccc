"""Twice a tensor."""

from __future__ import annotations

import torch

from ._ops import ops


def twice(x: torch.Tensor) -> torch.Tensor:
    """2 * x, for contiguous float32."""
    out = torch.empty_like(x)
    ops.twice(out, x)
    return out


__all__ = ["twice"]
