"""Times `img2gray_backward`: `kernels benchmark .` once it is built."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class Img2GrayBackwardBenchmark(Benchmark):
    seed = 0

    def prepare(self, *shape: int) -> None:
        self.grad = torch.randn(shape, device=self.device)

    def run(self) -> None:
        self.out = self.kernel.img2gray_backward(self.grad)

    def reference(self) -> torch.Tensor:
        return torch.cat([0.299 * self.grad, 0.587 * self.grad, 0.114 * self.grad], dim=-3)

    def setup_small(self) -> None:
        self.prepare(1, 1, 64, 64)

    def benchmark_small(self) -> None:
        self.run()

    def verify_small(self) -> torch.Tensor:
        return self.reference()

    def setup_large(self) -> None:
        self.prepare(8, 1, 1080, 1920)

    def benchmark_large(self) -> None:
        self.run()

    def verify_large(self) -> torch.Tensor:
        return self.reference()
