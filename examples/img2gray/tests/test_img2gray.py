"""`img2gray` against its definition."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any, Callable

import pytest
import torch
from torch.testing import assert_close

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [torch.uint8, *FLOATS]
SHAPES = [
    (3, 0, 5),
    (3, 5, 0),
    (0, 3, 4, 4),
    (2, 0, 3, 4, 4),
    (3, 1, 1),
    (3, 1, 17),
    (3, 255, 257),
    (65_537, 3, 1, 1),
    (5, 3, 28, 28),
    (2, 3, 225, 225),
    (2, 1, 2, 3, 7, 33),
    (3, 1_048_577, 1),
]
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def reference(image: torch.Tensor) -> torch.Tensor:
    """The definition: integers for uint8, else the float64 sum, rounded once."""
    if image.dtype == torch.uint8:
        red, green, blue = image.to(torch.int32).split(1, -3)
        luma: torch.Tensor = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    else:
        red, green, blue = image.to(torch.float64).split(1, -3)
        luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return luma.to(image.dtype)


def make_image(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """A random image, from 0 to 255 or to 1."""
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, dtype=dtype, device=device)
    return torch.rand(shape, dtype=torch.float64, device=device).to(dtype)


def check(result: torch.Tensor, image: torch.Tensor) -> None:
    """The result is the reference; float16, bfloat16 and float32 may be off by one unit."""
    expected = reference(image)
    assert result.shape == expected.shape
    assert result.dtype == image.dtype
    assert result.device == image.device
    assert result.is_contiguous()
    integers = INTEGERS[image.element_size()]
    # The integers of adjacent positive floats differ by one.
    units = (result.view(integers).to(torch.int64) - expected.view(integers).to(torch.int64)).abs()
    allowed = 1 if image.dtype in FLOATS[:3] else 0
    wrong = int((units > allowed).sum())
    assert wrong == 0, f"{wrong} of {units.numel()} pixels differ by up to {int(units.max())} units"


# --- Values ---------------------------------------------------------------------------------------


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(
    kernel: ModuleType, device: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    image = make_image(shape, dtype, device)
    check(kernel.img2gray(image), image)


def test_every_colour_is_pillows(kernel: ModuleType, device: str) -> None:
    pil = pytest.importorskip("PIL.Image")
    numpy = pytest.importorskip("numpy")
    side = torch.arange(256, dtype=torch.uint8)
    colours = torch.cartesian_prod(side, side, side).view(4096, 4096, 3)
    expected = torch.from_numpy(numpy.asarray(pil.fromarray(colours.numpy()).convert("L")).copy())
    interleaved = colours.to(device).permute(2, 0, 1)
    for image in (interleaved, interleaved.contiguous()):
        assert torch.equal(kernel.img2gray(image)[0].cpu(), expected)


@pytest.mark.kernels_ci
def test_gray_stays_gray(kernel: ModuleType, device: str) -> None:
    gray = torch.arange(256, dtype=torch.uint8, device=device).view(1, 1, 256)
    assert torch.equal(kernel.img2gray(gray.expand(3, 1, 256)), gray)


@pytest.mark.parametrize("dtype", FLOATS[:3], ids=str)
@pytest.mark.parametrize("scale", [1e-5, 0.1, 1.0, 255.0])
def test_a_million_colours_within_one_unit(
    kernel: ModuleType, device: str, dtype: torch.dtype, scale: float
) -> None:
    image = (torch.rand(3, 1024, 1024, dtype=torch.float64, device=device) * scale).to(dtype)
    check(kernel.img2gray(image), image)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_infinities_and_nan(kernel: ModuleType, device: str, dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    columns = [
        (inf, 0, 1),
        (1, inf, 1),
        (1, 1, inf),
        (-inf, 1, 1),
        (inf, -inf, 1),
        (nan, 1, 1),
        (1, 1, nan),
    ]
    image = torch.tensor(columns, dtype=dtype, device=device).T.reshape(3, 1, len(columns))
    image = image.repeat(1, 1, 8)  # enough for vector code
    assert_close(kernel.img2gray(image), reference(image), equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_largest_and_smallest(kernel: ModuleType, device: str, dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    values = torch.tensor(
        [info.max, info.smallest_normal, 3 * info.smallest_normal, 0], dtype=dtype
    )
    image = values.to(device).expand(3, 16, 4)
    assert_close(kernel.img2gray(image), reference(image), rtol=4 * info.eps, atol=info.tiny)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_device_gives_the_same_bits(kernel: ModuleType, dtype: torch.dtype) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    image = make_image((3, 1023, 1025), dtype, "cpu")
    if dtype != torch.uint8:
        image = image * 2 - 1  # cancellation shows every rounding
    assert torch.equal(kernel.img2gray(image.cuda()).cpu(), kernel.img2gray(image))


# --- Layouts --------------------------------------------------------------------------------------


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts(
    kernel: ModuleType,
    device: str,
    layout: Callable[[torch.Tensor], torch.Tensor],
    dtype: torch.dtype,
) -> None:
    image = layout(make_image((2, 3, 37, 53), dtype, device))
    check(kernel.img2gray(image), image)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views(kernel: ModuleType, device: str, dtype: torch.dtype) -> None:
    def image(*shape: int) -> torch.Tensor:
        return make_image(shape, dtype, device)

    for view in (
        image(19, 23, 3).permute(2, 0, 1),  # height, width, channels
        image(19, 23, 4)[..., :3].permute(2, 0, 1),  # of an image with alpha
        image(2, 19, 23, 3)[:, 1:-2, 3:-1].permute(0, 3, 1, 2),  # cropped
        image(2, 3, 50, 64)[..., 5:41, 7:39],
        image(2, 3, 50, 64)[:, :, ::3],
        image(2, 6, 20, 24)[:, ::2],
        image(4, 5, 3, 9, 9).transpose(0, 1),  # unevenly spaced images
        image(4, 5, 3, 9, 9)[:, ::2],
        image(3, 1, 40).expand(3, 40, 40),
        image(1, 3, 8, 8).expand(6, 3, 8, 8),
        image(3, 40, 1).expand(3, 40, 40),
    ):
        check(kernel.img2gray(view), view)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("interleaved", [False, True], ids=["planar", "interleaved"])
def test_every_offset_and_width(
    kernel: ModuleType, device: str, dtype: torch.dtype, interleaved: bool
) -> None:
    for offset in range(17):
        for width in (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 130):
            size = 3 * 3 * width
            memory = make_image((offset + size,), dtype, device)
            pixels = memory[offset : offset + size]
            image = (
                pixels.view(3, width, 3).permute(2, 0, 1)
                if interleaved
                else pixels.view(3, 3, width)
            )
            check(kernel.img2gray(image), image)


@pytest.mark.parametrize("seed", range(8))
def test_random_shapes_and_strides(kernel: ModuleType, device: str, seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(25):
        shape = [choose.randint(1, 4) for _ in range(choose.randint(0, 3))]
        shape += [3, choose.randint(1, 40), choose.randint(1, 200)]
        steps = [choose.choice([1, 1, 1, 2, 3]) for _ in shape]
        order = list(range(len(shape)))
        if choose.random() < 0.7:
            choose.shuffle(order)
        outer = [shape[d] * steps[d] + choose.randint(0, 3) for d in order]
        offset = choose.randint(0, 16)
        memory = make_image(
            (offset + int(torch.tensor(outer).prod()),), choose.choice(DTYPES), device
        )
        whole = memory[offset:].view(outer).permute([order.index(d) for d in range(len(shape))])
        image = whole[tuple(slice(0, n * step, step) for n, step in zip(shape, steps))]
        assert list(image.shape) == shape
        check(kernel.img2gray(image), image)


def test_threads_agree(kernel: ModuleType) -> None:
    threads = torch.get_num_threads()
    for dtype in DTYPES:
        image = make_image((3, 3, 517, 333), dtype, "cpu")[..., 1:]
        try:
            torch.set_num_threads(1)
            expected = kernel.img2gray(image)
            torch.set_num_threads(4)
            assert torch.equal(kernel.img2gray(image), expected)
        finally:
            torch.set_num_threads(threads)


@pytest.mark.parametrize("layout", ["planar", "interleaved", "transposed"])
def test_more_than_2_31_elements(kernel: ModuleType, layout: str) -> None:
    if not torch.cuda.is_available() or torch.cuda.mem_get_info()[0] < 16 << 30:
        pytest.skip("no CUDA device with 16 GiB free")
    height, width = 32_771, 65_537  # each channel alone has more than 2^31 pixels
    shape = {
        "planar": (3, height, width),
        "interleaved": (height, width, 3),
        "transposed": (3, width, height),
    }
    order = {"planar": (0, 1, 2), "interleaved": (2, 0, 1), "transposed": (0, 2, 1)}
    image = torch.empty(shape[layout], dtype=torch.uint8, device="cuda").random_(0, 256)
    image = image.permute(order[layout])
    gray = kernel.img2gray(image)
    for row in range(0, height, 4096):
        part = image[:, row : row + 4096]
        check(gray[:, row : row + 4096], part)


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.kernels_ci
@pytest.mark.parametrize(
    "shape", [(), (3,), (3, 4), (0, 4, 4), (1, 4, 4), (2, 4, 4), (4, 4, 4), (3, 4, 5, 6)], ids=str
)
def test_other_shapes_are_refused(kernel: ModuleType, device: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as error:
        kernel.img2gray(torch.zeros(shape, device=device))
    expected = (
        f"img2gray: image has shape {list(shape)}, and must have shape [..., 3, height, width]"
    )
    assert str(error.value).splitlines()[0] == expected
    with pytest.raises(ValueError) as error:
        kernel.img2gray(torch.zeros(shape, device="meta"))
    assert str(error.value).splitlines()[0] == expected


@pytest.mark.kernels_ci
@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.int16, "Short"), (torch.bool, "Bool"), (torch.complex64, "ComplexFloat")],
)
def test_other_dtypes_are_refused(
    kernel: ModuleType, device: str, dtype: torch.dtype, name: str
) -> None:
    with pytest.raises(TypeError) as error:
        kernel.img2gray(torch.zeros((3, 4, 4), dtype=dtype, device=device))
    assert str(error.value).splitlines()[0] == (
        f"img2gray: image has dtype {name}, "
        "and this kernel takes float16, bfloat16, float32, float64, uint8"
    )


# --- PyTorch --------------------------------------------------------------------------------------


@pytest.mark.kernels_ci
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opcheck(kernel: ModuleType, device: str, dtype: torch.dtype) -> None:
    image = make_image((2, 3, 8, 5), dtype, device)
    for view in (
        image,
        image.contiguous(memory_format=torch.channels_last),
        image.transpose(-1, -2),
    ):
        view = view.detach().requires_grad_(dtype != torch.uint8)
        torch.library.opcheck(kernel.ops.img2gray.default, (view,))


def test_compile(kernel: ModuleType, device: str) -> None:
    torch.compiler.reset()
    compiled: Any = torch.compile(kernel.img2gray, fullgraph=True, dynamic=True)
    image = make_image((2, 3, 8, 5), torch.float32, device)
    check(compiled(image), image)
    with torch.compiler.set_stance("fail_on_recompile"):
        image = make_image((4, 3, 6, 7), torch.float32, device)
        check(compiled(image), image)


def test_modes(kernel: ModuleType, device: str) -> None:
    image = make_image((2, 3, 8, 5), torch.float32, device)
    with torch.inference_mode():
        check(kernel.img2gray(image), image)
    with torch.autocast(device):
        check(kernel.img2gray(image), image)
    vmap: Any = torch.vmap
    assert torch.equal(vmap(kernel.img2gray)(image), kernel.img2gray(image))
    batch_last = vmap(kernel.img2gray, in_dims=3)(image.movedim(0, 3))
    assert torch.equal(batch_last, kernel.img2gray(image))


@pytest.mark.parametrize("channels_last", [False, True])
def test_gradient(kernel: ModuleType, device: str, channels_last: bool) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    image = make_image((2, 3, 4, 5), torch.float64, device).contiguous(memory_format=layout)
    image.requires_grad_()
    assert torch.autograd.gradcheck(kernel.img2gray, image)
    assert torch.autograd.gradgradcheck(kernel.img2gray, image)
    # With a gradient whose strides are zero.
    (gradient,) = torch.autograd.grad(kernel.img2gray(image).sum(), image)
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64, device=device)
    assert_close(gradient, weights.view(3, 1, 1).expand(2, 3, 4, 5), rtol=0, atol=0)


def test_side_stream(kernel: ModuleType) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    source = make_image((3, 512, 512), torch.float32, "cuda")
    image = torch.zeros_like(source)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        image.copy_(source)
        gray = kernel.img2gray(image)
    stream.synchronize()
    check(gray, source)


def test_cuda_graph(kernel: ModuleType) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    image = make_image((3, 64, 64), torch.float32, "cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gray = kernel.img2gray(image)
    image.copy_(make_image((3, 64, 64), torch.float32, "cuda"))
    graph.replay()
    torch.cuda.synchronize()
    check(gray, image)


def test_second_device(kernel: ModuleType) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("no second CUDA device")
    image = make_image((3, 64, 64), torch.float32, "cuda:1")
    check(kernel.img2gray(image), image)
