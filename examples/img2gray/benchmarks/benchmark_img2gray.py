"""Times img2gray on one 1080p frame and on a batch: `kernels benchmark .` once it is built.

`compare.py` beside it is the full comparison, which `kernelgen bench` runs.
"""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class Img2grayBenchmark(Benchmark):
    seed = 0

    def prepare(self, batch: int) -> None:
        shape = (batch, 3, 1080, 1920)
        self.image = torch.randint(0, 256, shape, dtype=torch.uint8, device=self.device)

    def run(self) -> None:
        self.out = self.kernel.img2gray(self.image)

    def reference(self) -> torch.Tensor:
        r, g, b = self.image.to(torch.int32).unbind(1)
        return ((19595 * r + 38470 * g + 7471 * b + 32768) >> 16).to(torch.uint8).unsqueeze(1)

    def setup_frame(self) -> None:
        self.prepare(1)

    def benchmark_frame(self) -> None:
        self.run()

    def verify_frame(self) -> torch.Tensor:
        return self.reference()

    def setup_batch(self) -> None:
        self.prepare(8)

    def benchmark_batch(self) -> None:
        self.run()

    def verify_batch(self) -> torch.Tensor:
        return self.reference()
