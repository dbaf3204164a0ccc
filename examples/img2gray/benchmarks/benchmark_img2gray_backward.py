"""Times the operator: `kernelgen bench`, or `kernels benchmark .` once it is built."""

from __future__ import annotations

from typing import Any

import torch
from kernels.benchmark import Benchmark
from torch.testing import make_tensor

SIZES = {"small": (64, 64), "large": (4096, 4096)}


class Img2grayBackwardBenchmark(Benchmark):
    seed = 0

    def prepare(self, size: str) -> None:
        dtype, device, shape = torch.float32, self.device, SIZES[size]
        self.arguments: dict[str, Any] = {
            "grad": make_tensor(shape, dtype=dtype, device=device),
        }

    def run(self) -> None:
        result = self.kernel.img2gray_backward(**self.arguments)
        self.out = result

    def setup_small(self) -> None:
        self.prepare("small")

    def benchmark_small(self) -> None:
        self.run()

    def verify_small(self) -> torch.Tensor:
        source: torch.Tensor = self.arguments["grad"]
        return source.clone()

    def setup_large(self) -> None:
        self.prepare("large")

    def benchmark_large(self) -> None:
        self.run()

    def verify_large(self) -> torch.Tensor:
        source: torch.Tensor = self.arguments["grad"]
        return source.clone()
