"""Times `img2gray`: `kernels benchmark .` once it is built. compare.py tells more."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class Img2GrayBenchmark(Benchmark):
    seed = 0

    def prepare(self, *shape: int, channels_last: bool = False) -> None:
        self.image = torch.randint(0, 256, shape, dtype=torch.uint8, device=self.device)
        if channels_last:
            self.image = self.image.contiguous(memory_format=torch.channels_last)

    def run(self) -> None:
        self.out = self.kernel.img2gray(self.image)

    def reference(self) -> torch.Tensor:
        red, green, blue = self.image.to(torch.int32).split(1, dim=-3)
        gray: torch.Tensor = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
        return gray.to(torch.uint8)

    def setup_small(self) -> None:
        self.prepare(1, 3, 64, 64)

    def benchmark_small(self) -> None:
        self.run()

    def verify_small(self) -> torch.Tensor:
        return self.reference()

    def setup_planar(self) -> None:
        self.prepare(8, 3, 1080, 1920)

    def benchmark_planar(self) -> None:
        self.run()

    def verify_planar(self) -> torch.Tensor:
        return self.reference()

    def setup_channels_last(self) -> None:
        self.prepare(8, 3, 1080, 1920, channels_last=True)

    def benchmark_channels_last(self) -> None:
        self.run()

    def verify_channels_last(self) -> torch.Tensor:
        return self.reference()
