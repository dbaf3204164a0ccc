"""What this machine can compile with: an interpreter's torch, CUDA, and a host compiler.

The types are frozen and hold nothing but facts, so that a toolchain may come from the machine (the probes in
this file) or from an unpacked wheel. No probe imports torch: its facts are read from the files it ships.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError


@dataclass(frozen=True)
class Python:
    """The interpreter that will load the kernel."""

    executable: Path
    version: str  # "3.11.7"
    include_dir: Path | None  # holds Python.h; None when the headers are not installed
    site_dirs: tuple[Path, ...]  # sys.path entries that may hold torch, in import order
    free_threaded: bool = False


@dataclass(frozen=True)
class Torch:
    """A torch to compile against; its libraries may be absent (then stubs are linked)."""

    version: str  # as torch.__version__: "2.13.0+cpu"
    include_dirs: tuple[Path, ...]  # <torch>/include and <torch>/include/torch/csrc/api/include
    lib_dir: Path | None  # holds libtorch_cpu.so and libc10.so; None: link stubs
    cuda: str | None = None  # CUDA it was built with ("13.0"); None for a build without
    hip: str | None = None
    xpu: str | None = None
    cxx11_abi: bool = True  # every torch from 2.7 on; read from TorchConfig.cmake before

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version, which name the variant: (2, 13)."""
        return release(self.version)

    @property
    def has_cuda_libraries(self) -> bool:
        """Whether libtorch_cuda and libc10_cuda can be linked as they are."""
        return self.lib_dir is not None and (self.lib_dir / "libtorch_cuda.so").exists()

    @property
    def has_cuda_macros(self) -> bool:
        """Whether the header that CMake generates for c10/cuda was shipped with this torch."""
        macros = Path("c10/cuda/impl/cuda_cmake_macros.h")
        return any((d / macros).exists() for d in self.include_dirs)


@dataclass(frozen=True)
class Cuda:
    """A CUDA toolkit: compiler, headers and, where it has one, the runtime library."""

    version: str  # of nvcc: "13.0"
    home: Path
    nvcc: Path
    include_dirs: tuple[Path, ...]  # hold cuda_runtime.h and cuda/std
    lib_dir: Path | None  # holds libcudart.so; None: link a stub
    full_version: str = ""  # "13.0.48", part of the build's identity
    flags: tuple[str, ...] = ()  # nvcc needs these when its parts lie in unusual places

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version: (13, 0)."""
        return release(self.version)


@dataclass(frozen=True)
class HostCompiler:
    """The C++ compiler, and the one that nvcc accepts where they differ."""

    cxx: Path
    kind: str  # "gcc" or "clang"
    version: str  # "12.2.0"
    target: str = ""  # "x86_64-linux-gnu"


@dataclass(frozen=True)
class TvmFfi:
    """apache-tvm-ffi as installed: headers and library."""

    version: str
    include_dirs: tuple[Path, ...]
    lib_dir: Path


@dataclass(frozen=True)
class Toolchain:
    """All that one variant is compiled with."""

    host: HostCompiler
    python: Python
    torch: Torch | None = None
    cuda: Cuda | None = None
    tvm_ffi: TvmFfi | None = None
    machine: str = ""  # "x86_64" or "aarch64"
    system: str = "linux"


def release(version: str) -> tuple[int, int]:
    """The first two numbers of a version; a missing minor is 0.

    >>> release("2.13.0a0+git1234"), release("13")
    ((2, 13), (13, 0))
    """
    numbers = re.findall(r"\d+", version.split("+")[0])
    if not numbers:
        raise KernelgenError(f"not a version: {version!r}")
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0
