"""`img2gray(Tensor image) -> Tensor`."""

from __future__ import annotations

from typing import Any

import torch

from ._ops import add_op_namespace_prefix, ops
from .img2gray_backward import img2gray_backward


def img2gray(image: torch.Tensor) -> torch.Tensor:
    """Convert RGB images to gray: their luma after ITU-R BT.601.

    uint8 images are computed in integers, `(19595 R + 38470 G + 7471 B + 32768) >> 16`, which are
    the bits of Pillow's `convert("L")`. Floating-point images are the sum 0.299 R + 0.587 G +
    0.114 B: float16 and bfloat16 computed in float32, float64 in float64, and float32 with a
    correction that keeps it within one unit in the last place where no channel is negative.
    Nothing is fused, and every device gives the same bits.

    Args:
        image: `[..., 3, height, width]`, any strides, dtype float16, bfloat16, float32, float64
            or uint8. Planar and channels-last images are read at the speed of memory.

    Returns:
        The gray images: `[..., 1, height, width]`, contiguous, dtype and device of `image`.

    Raises:
        ValueError: `image` does not have such a shape.
        TypeError: `image` does not have such a dtype.
    """
    return ops.img2gray(image)


def _fake(image: torch.Tensor) -> torch.Tensor:
    torch._check_value(
        image.dim() >= 3 and image.shape[-3] == 3,
        lambda: (
            f"img2gray: image has shape {list(image.shape)}, "
            "and must have shape [..., 3, height, width]"
        ),
    )
    return image.new_empty((*image.shape[:-3], 1, *image.shape[-2:]))


torch.library.register_fake(add_op_namespace_prefix("img2gray"), _fake)


def _backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    return img2gray_backward(grad)


torch.library.register_autograd(add_op_namespace_prefix("img2gray"), _backward)


def _vmap(info: Any, in_dims: tuple[int], image: torch.Tensor) -> tuple[torch.Tensor, int]:
    return img2gray(image.movedim(in_dims[0], 0)), 0


torch.library.register_vmap(add_op_namespace_prefix("img2gray"), _vmap)
