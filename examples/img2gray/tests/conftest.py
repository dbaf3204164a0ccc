"""What the tests share: the kernel as its users load it, the devices, and layouts of a tensor."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Callable

import kernels
import pytest
import torch

REPO_ID = "kernelgen/img2gray"
VERSION = 1
BUILD = Path(__file__).parent.parent / "build"

# Load what was built here; the Nix builder and `kernelgen test` name their own build.
os.environ.setdefault("LOCAL_KERNELS", f"{REPO_ID}={BUILD}")


@pytest.fixture(scope="session")
def kernel() -> ModuleType:
    """The kernel, loaded as its users load it."""
    folder = Path(os.environ["LOCAL_KERNELS"].split("=", 1)[1])
    if not any(folder.glob("*/metadata.json")):
        pytest.exit(f"nothing is built in {folder}: run `kernelgen build` first", returncode=4)
    module: ModuleType = kernels.get_kernel(REPO_ID, version=VERSION)
    return module


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """Each device that the kernel serves."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return str(request.param)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def _every_other(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.repeat_interleave(2, dim=-1)[..., ::2]


def _offset(tensor: torch.Tensor) -> torch.Tensor:
    padded = torch.cat([tensor.new_zeros(1), tensor.reshape(-1)])
    return padded[1:].view(tensor.shape)


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:1].expand_as(tensor)


@pytest.fixture(params=[_transposed, _channels_last, _every_other, _offset, _expanded])
def layout(request: pytest.FixtureRequest) -> Callable[[torch.Tensor], torch.Tensor]:
    """Turns a dense tensor of four dimensions into one with other strides or another offset."""
    function: Callable[[torch.Tensor], torch.Tensor] = request.param
    return function
