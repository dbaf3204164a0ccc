"""`img2gray_backward` against its definition."""

from __future__ import annotations

from types import ModuleType
from typing import Callable

import pytest
import torch

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [
    (1, 0, 5),
    (0, 1, 4, 4),
    (1, 1, 1),
    (1, 255, 257),
    (5, 1, 28, 28),
    (3, 1, 5, 7),
    (2, 3, 1, 6, 16),
]


def reference(grad: torch.Tensor) -> torch.Tensor:
    """The definition: products in float32 (float64 in float64), rounded once."""
    wide = grad.to(torch.float64 if grad.dtype == torch.float64 else torch.float32)
    return torch.cat([0.299 * wide, 0.587 * wide, 0.114 * wide], dim=-3).to(grad.dtype)


def make_grad(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, device=device).to(dtype)


def check(result: torch.Tensor, grad: torch.Tensor) -> None:
    """The result is dense, and has the bits of the reference."""
    assert result.is_contiguous()
    assert torch.equal(result, reference(grad))


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(
    kernel: ModuleType, device: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    grad = make_grad(shape, dtype, device)
    check(kernel.img2gray_backward(grad), grad)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts(
    kernel: ModuleType,
    device: str,
    layout: Callable[[torch.Tensor], torch.Tensor],
    dtype: torch.dtype,
) -> None:
    grad = layout(make_grad((3, 1, 37, 53), dtype, device))
    check(kernel.img2gray_backward(grad), grad)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views(kernel: ModuleType, device: str, dtype: torch.dtype) -> None:
    for view in (
        make_grad((1, 1, 1, 1), dtype, device).expand(4, 1, 40, 50),  # what sum().backward() gives
        make_grad((3, 1, 30, 64), dtype, device)[..., 5:25, 7:39],
        make_grad((4, 5, 1, 9, 9), dtype, device).transpose(0, 1),
        make_grad((300, 1, 30, 30), dtype, device)[::2],
    ):
        check(kernel.img2gray_backward(view), view)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_offset_and_width(kernel: ModuleType, device: str, dtype: torch.dtype) -> None:
    for offset in range(17):
        for width in (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 130):
            memory = make_grad((offset + 2 * 3 * width,), dtype, device)
            grad = memory[offset : offset + 2 * 3 * width].view(2, 1, 3, width)
            check(kernel.img2gray_backward(grad), grad)


@pytest.mark.kernels_ci
def test_other_arguments_are_refused(kernel: ModuleType, device: str) -> None:
    with pytest.raises(ValueError) as wrong_shape:
        kernel.img2gray_backward(torch.zeros((3, 4, 5), device=device))
    assert str(wrong_shape.value).splitlines()[0] == (
        "img2gray_backward: grad has shape [3, 4, 5], and must have shape [..., 1, height, width]"
    )
    with pytest.raises(TypeError) as wrong_dtype:
        kernel.img2gray_backward(torch.zeros((1, 4, 5), dtype=torch.uint8, device=device))
    assert str(wrong_dtype.value).splitlines()[0] == (
        "img2gray_backward: grad has dtype Byte, and must have a floating-point one"
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opcheck(kernel: ModuleType, device: str, dtype: torch.dtype) -> None:
    grad = make_grad((2, 1, 8, 5), dtype, device).requires_grad_()
    torch.library.opcheck(kernel.ops.img2gray_backward.default, (grad,))


def test_compile(kernel: ModuleType, device: str) -> None:
    def gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        (result,) = torch.autograd.grad(function(image).square().sum(), image)
        return result

    torch.compiler.reset()
    image = torch.rand((2, 3, 8, 5), device=device, requires_grad=True)
    expected = reference(2 * kernel.img2gray(image.detach()))
    assert torch.equal(gradient(kernel.img2gray), expected)
    assert torch.equal(gradient(torch.compile(kernel.img2gray, fullgraph=True)), expected)


def test_gradient(kernel: ModuleType, device: str) -> None:
    grad = make_grad((2, 1, 3, 4), torch.float64, device).requires_grad_()
    assert torch.autograd.gradcheck(kernel.img2gray_backward, grad)
    assert torch.autograd.gradgradcheck(kernel.img2gray_backward, grad)


def test_more_than_2_31_elements(kernel: ModuleType) -> None:
    if not torch.cuda.is_available() or torch.cuda.mem_get_info()[0] < 32 << 30:
        pytest.skip("no CUDA device with 32 GiB free")
    grad = torch.randn((1, 30_000, 30_001), dtype=torch.float16, device="cuda")
    result = kernel.img2gray_backward(grad)
    for row in range(0, 30_000, 2048):
        part = grad[:, row : row + 2048]
        assert torch.equal(result[:, row : row + 2048], reference(part))
