"""`img2gray_backward(Tensor grad) -> Tensor`."""

from __future__ import annotations

from typing import Any

import torch

from ._ops import add_op_namespace_prefix, ops


def img2gray_backward(grad: torch.Tensor) -> torch.Tensor:
    """Spread gray's gradient over the channels of the image: the gradient of `img2gray`.

    Args:
        grad: `[..., 1, height, width]`, any strides, dtype float16, bfloat16, float32 or float64.

    Returns:
        The image's gradient: `[..., 3, height, width]`, contiguous, dtype and device of `grad`.
        Its channels are 0.299, 0.587 and 0.114 of `grad`, multiplied in float32 (float64 in
        float64) and rounded once.

    Raises:
        ValueError: `grad` does not have such a shape.
        TypeError: `grad` does not have such a dtype.
    """
    return ops.img2gray_backward(grad)


def _fake(grad: torch.Tensor) -> torch.Tensor:
    torch._check_value(
        grad.dim() >= 3 and grad.shape[-3] == 1,
        lambda: (
            f"img2gray_backward: grad has shape {list(grad.shape)}, "
            "and must have shape [..., 1, height, width]"
        ),
    )
    return grad.new_empty((*grad.shape[:-3], 3, *grad.shape[-2:]))


torch.library.register_fake(add_op_namespace_prefix("img2gray_backward"), _fake)


def _backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    # The operator is linear, and its transpose is the weighted sum that img2gray computes.
    return ops.img2gray(grad)


torch.library.register_autograd(add_op_namespace_prefix("img2gray_backward"), _backward)


def _vmap(info: Any, in_dims: tuple[int], grad: torch.Tensor) -> tuple[torch.Tensor, int]:
    return img2gray_backward(grad.movedim(in_dims[0], 0)), 0


torch.library.register_vmap(add_op_namespace_prefix("img2gray_backward"), _vmap)
