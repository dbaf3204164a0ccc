"""Which variants a build makes, and what each is compiled with: installed where it fits, else fetched."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kernelgen import graph, variants
from kernelgen.errors import KernelgenError
from kernelgen.toolchain import (
    Cuda,
    Installed,
    Toolchain,
    Torch,
    TvmFfi,
    cuda_homes,
    find_older_gcc,
    gpu_archs,
    machine,
    probe_cuda,
    probe_host,
    probe_icpx,
    probe_python,
    probe_rocm,
    read_cuda,
    read_torch,
    read_tvm_ffi,
    release,
    with_math_headers,
)
from kernelgen.variants import Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelgen.project import Project


@dataclass(frozen=True)
class BuildOptions:
    """What a person may say about a build."""

    variants: tuple[str, ...] = ()  # names; empty: what the interpreter's torch loads
    all: bool = False  # every wanted variant of this platform
    backends: tuple[str, ...] = ()  # only these
    archs: tuple[str, ...] = ()  # compute capabilities; empty: TORCH_CUDA_ARCH_LIST, GPUs, default list
    namespace: str | None = None  # fixed torch.ops namespace, for development
    python: Path | None = None
    cuda_home: Path | None = None
    jobs: int | None = None
    verbose: bool = False  # show every command and warning
    debug: bool = False
    keep_going: bool = False
    local_only: bool = False  # accept objects that other machines may not load
    offline: bool = False


class Progress(Protocol):
    """Who shows a build as it goes."""

    def advance(self, done: int, total: int | None, what: str) -> None:
        """`done` steps (or bytes) of `total` are done; `what` is the latest."""

    def note(self, text: str) -> None:
        """A line that the person should read."""


class Silent:
    """Shows nothing."""

    def advance(self, done: int, total: int | None, what: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Target:
    """A variant with what compiles it (None for Python alone)."""

    variant: Variant
    toolchain: Toolchain | None
    notes: tuple[str, ...] = ()


# -- what to build


def targets(project: Project, options: BuildOptions, progress: Progress | None = None) -> list[Target]:
    """The variants that options ask for, each with its toolchain.

    Raises:
        KernelgenError: one that was asked for cannot be built here, or none can.
    """
    graph.parse_archs(" ".join(options.archs), "--arch")  # a wrong one is said even where none is used
    finder = _Finder(project, options, progress or Silent())
    for backend in options.backends:
        if backend not in project.backends:
            known = ", ".join(project.backends)
            raise KernelgenError(f"this project has no backend {backend!r}", way_out=f"it has: {known}")
    if options.all or options.variants:
        return finder.named()
    return finder.current()


class _Finder:
    """Finds toolchains for variants, each part probed once."""

    def __init__(self, project: Project, options: BuildOptions, progress: Progress) -> None:
        self.project, self.options, self.progress = project, options, progress
        self._installed: Installed | None = None
        self._cudas: dict[tuple[int, int], Cuda] = {}

    @property
    def installed(self) -> Installed:
        if self._installed is None:
            self._installed = probe_python(self.options.python)
        return self._installed

    def backends(self) -> list[str]:
        wanted = self.options.backends or self.project.backends
        return [b for b in self.project.backends if b in wanted]

    # the current environment

    def current(self) -> list[Target]:
        compiled = [b for b in self.backends() if not self.project.is_noarch(b)]
        found = [Target(Variant("noarch", b), None) for b in self.backends() if b not in compiled]
        if self.project.framework.kind != "torch-noarch" and not self.options.backends:
            found = []  # a compiled project's Python-only backends are for --all and --backend
        reasons = []
        for backend in compiled:
            try:
                found.append(self._current(backend))
            except KernelgenError as error:  # noqa: PERF203  a handful of backends
                if backend in self.options.backends or backend == "cpu":
                    raise
                reasons.append(error)
        if not found and reasons:
            raise reasons[0]
        if not found:
            raise KernelgenError("there is nothing to build here", way_out="kernelgen build --all")
        for reason in reasons:
            self.progress.note(f"skipped: {reason.what}")
        return found

    def _current(self, backend: str) -> Target:
        refuse_foreign(backend)
        if self.project.framework.kind == "tvm-ffi":
            framework: Torch | TvmFfi = self._tvm()
            version, abi = release(framework.version), True
        else:
            framework = self._torch()
            version, abi = framework.release, framework.cxx11_abi
        tools, compute, notes = self._tools(backend, framework)
        variant = variants.for_backend(
            self.project,
            backend,
            framework=version,
            compute=compute,
            machine=machine(),
            cxx11_abi=abi,
        )
        return Target(variant, tools, notes)

    def _tools(
        self, backend: str, framework: Torch | TvmFfi
    ) -> tuple[Toolchain, tuple[int, int] | None, tuple[str, ...]]:
        """A backend's toolchain, the version of its compute platform, and what to say of it."""
        if backend in ("rocm", "xpu"):
            tools = self._other(backend, framework)
            return tools, (tools.rocm or tools.host).release, (_UNTRIED,)
        if backend == "cuda":
            cuda, notes = self._current_cuda(framework)
            return self._toolchain(framework, cuda), cuda.release, notes
        return self._toolchain(framework, None), None, ()

    def _other(self, backend: str, framework: Torch | TvmFfi) -> Toolchain:
        """The toolchain for AMD's or Intel's GPUs, which needs a torch that was built for them."""
        if not isinstance(framework, Torch) or not (framework.hip if backend == "rocm" else framework.xpu):
            raise KernelgenError(
                f"{backend} cannot be built here, because torch {framework.version} was not built for it",
                way_out="install torch from that backend's index of pytorch.org",
            )
        tools = self._toolchain(framework, None)
        if backend == "rocm":
            return replace(tools, rocm=probe_rocm())
        return replace(tools, host=probe_icpx() or tools.host)

    def _torch(self) -> Torch:
        if self.installed.torch is None:
            python = self.installed.python.executable
            raise KernelgenError(
                f"there is no torch in {python}",
                way_out="pip install torch there, or name another interpreter with --python",
            )
        return read_torch(self.installed.torch)

    def _tvm(self) -> TvmFfi:
        if self.installed.tvm_ffi is None:
            python = self.installed.python.executable
            raise KernelgenError(f"there is no tvm-ffi in {python}", way_out="pip install apache-tvm-ffi")
        return read_tvm_ffi(self.installed.tvm_ffi)

    def _current_cuda(self, framework: Torch | TvmFfi) -> tuple[Cuda, tuple[str, ...]]:
        cuda = probe_cuda(self.options.cuda_home, self.installed)
        if cuda is None:
            raise KernelgenError(
                "no CUDA compiler was found (--cuda-home, CUDA_HOME, PATH, /usr/local/cuda, pip, conda)",
                way_out="install a CUDA toolkit, or build a named variant: kernelgen build --variant NAME",
            )
        built_with = framework.cuda if isinstance(framework, Torch) else None
        if built_with is None or release(built_with) == cuda.release:
            return cuda, ()
        if release(built_with)[0] != cuda.release[0]:
            raise KernelgenError(
                f"torch was built with CUDA {built_with}, but nvcc in {cuda.home} is {cuda.version}",
                way_out=f"point --cuda-home at a CUDA {built_with} toolkit",
            )
        worse = cuda.release > release(built_with)
        loads = "it will not load with this torch" if worse else "it loads, as the older minor version"
        return cuda, (f"nvcc is {cuda.version} and torch's CUDA is {built_with}: {loads}",)

    # named variants

    def named(self) -> list[Target]:
        wanted = variants.wanted(self.project, f"{machine()}-linux")
        if self.options.all:
            names = [v for v in wanted if v.backend in self.backends()]
        else:
            names = [variants.check_name(n, wanted) for n in dict.fromkeys(self.options.variants)]
        found = []
        for variant in names:
            try:
                found.append(self.target(variant))
            except KernelgenError as error:  # noqa: PERF203  likewise
                if not self.options.all:
                    raise
                self.progress.note(f"skipped {variant.name}: {error.what}")
        if not found:
            raise KernelgenError(
                "none of the wanted variants can be built here", way_out="kernelgen variants"
            )
        return found

    def target(self, variant: Variant) -> Target:
        """The toolchain of a named variant: installed where it fits, else fetched."""
        self._check_asked(variant)
        if variant.kind == "noarch":
            return Target(variant, None)
        refuse_foreign(variant.backend)
        if (variant.machine, variant.system) != (machine(), "linux"):
            raise KernelgenError(f"{variant.name} cannot be built on {machine()} Linux")
        if variant.backend in ("rocm", "xpu"):
            here = self._current(variant.backend)
            if here.variant.name != variant.name:
                raise KernelgenError(
                    f"{variant.name} cannot be built here; this machine makes {here.variant.name}"
                )
            return here
        framework = self._framework(variant)
        cuda = self._cuda(variant.compute) if variant.backend == "cuda" and variant.compute else None
        return Target(variant, self._toolchain(framework, cuda))

    def _check_asked(self, variant: Variant) -> None:
        if variant.backend not in self.project.backends:
            known = ", ".join(self.project.backends)
            raise KernelgenError(f"{variant.name}: this project has no backend {variant.backend!r} ({known})")
        expected = variants.for_backend(
            self.project,
            variant.backend,
            framework=variant.version or (0, 0),
            compute=variant.compute,
            machine=variant.machine,
            system=variant.system,
            cxx11_abi=variant.cxx11_abi,
        )
        if expected.name != variant.name:
            raise KernelgenError(
                f"{variant.name} is not a variant of this project", way_out=f"it makes {expected.name}"
            )

    def _framework(self, variant: Variant) -> Torch | TvmFfi:
        from kernelgen import fetch

        version = variant.version or (0, 0)
        text = ".".join(map(str, version))
        if variant.kind == "tvm-ffi":
            installed = read_tvm_ffi(self.installed.tvm_ffi) if self.installed.tvm_ffi else None
            if installed and release(installed.version) == version:
                return installed
            return fetch.tvm_ffi(text, progress=self._bytes, offline=self.options.offline)
        here = read_torch(self.installed.torch) if self.installed.torch else None
        if here and here.cxx11_abi == variant.cxx11_abi:
            if variant.kind == "torch" and here.release == version:
                return here
            if variant.kind == "torch-stable-abi" and here.release >= version:
                return here
        return fetch.torch_headers(text, progress=self._bytes, offline=self.options.offline)

    def _cuda(self, version: tuple[int, int]) -> Cuda:
        if version in self._cudas:
            return self._cudas[version]
        here = probe_cuda(self.options.cuda_home, self.installed)
        found = here if here and here.release == version else None
        for home in cuda_homes() if found is None else ():
            other = read_cuda(home / "bin" / "nvcc")
            found = other if other.release == version else found
        if found is None:
            from kernelgen import fetch

            text = ".".join(map(str, version))
            found = fetch.cuda_toolkit(text, progress=self._bytes, offline=self.options.offline)
        self._cudas[version] = found
        return found

    def _bytes(self, what: str, done: int, total: int | None) -> None:
        self.progress.advance(done, total, f"fetching {what}")

    def _toolchain(self, framework: Torch | TvmFfi, cuda: Cuda | None) -> Toolchain:
        host = probe_host()
        older = None
        if cuda and cuda.max_gcc and host.kind == "gcc" and release(host.version)[0] > cuda.max_gcc:
            older = find_older_gcc(cuda.max_gcc)
            if older is None:
                raise KernelgenError(
                    f"nvcc {cuda.version} takes g++ up to {cuda.max_gcc}, and this one is {host.version}",
                    way_out=f"sudo apt install g++-{cuda.max_gcc}",
                )
        return Toolchain(
            host=host,
            python=self.installed.python,
            torch=framework if isinstance(framework, Torch) else None,
            tvm_ffi=framework if isinstance(framework, TvmFfi) else None,
            cuda=with_math_headers(cuda, self.installed) if cuda else None,
            cuda_host=older,
        )


_FOREIGN = {
    "rocm": ("hipcc", "a ROCm toolkit with hipcc, and a torch built for ROCm"),
    "xpu": ("icpx", "Intel's oneAPI compiler icpx, and a torch built for XPU"),
    "metal": ("", "macOS with Xcode"),
}
_UNTRIED = "kernelgen's builds for this backend follow kernel-builder's, and were never tried on its hardware"


def refuse_foreign(backend: str) -> None:
    """Say why a backend cannot be compiled here.

    Raises:
        KernelgenError: its compiler is not on this machine, or kernelgen does not drive it.
    """
    if backend in ("cpu", "cuda"):
        return
    if backend not in _FOREIGN:
        raise KernelgenError(f"{backend} kernels are Python only; this project lists a compiled one")
    if (backend == "rocm" and probe_rocm()) or (backend == "xpu" and probe_icpx()):
        return
    tool, needs = _FOREIGN[backend]
    because = f"{tool} was not found" if tool else "this is Linux"
    raise KernelgenError(
        f"{backend} cannot be built here, because {because}; it needs {needs}",
        way_out="kernel-builder build (Nix) makes this variant from the same project",
    )


def asked_archs(options: BuildOptions) -> tuple[str, ...]:
    """Capabilities to compile for: option, TORCH_CUDA_ARCH_LIST, the GPUs here; empty: the default list."""
    if options.archs:
        return graph.parse_archs(" ".join(options.archs), "--arch")
    if text := os.environ.get("TORCH_CUDA_ARCH_LIST", "").strip():
        return graph.parse_archs(text)
    return () if options.all or options.variants else gpu_archs()


def cutlass_includes(wanted: Sequence[str], installed: Installed) -> list[Path]:
    """CUTLASS's headers: CUTLASS_SRC_DIR, or the nvidia-cutlass package of the interpreter.

    Raises:
        KernelgenError: neither is there.
    """
    places = []
    if source := os.environ.get("CUTLASS_SRC_DIR"):
        places = [Path(source) / "include", Path(source) / "tools" / "util" / "include"]
    else:
        for site in installed.python.site_dirs:
            base = site / "cutlass_library" / "source"
            places += [base / "include", base / "tools" / "util" / "include"]
    found = [p for p in places if p.is_dir()]
    if not any((p / "cutlass" / "cutlass.h").is_file() for p in found):
        number = wanted[0].removeprefix("cutlass_").replace("_", ".")
        raise KernelgenError(
            f"this project depends on {wanted[0]}, whose headers are not here",
            way_out=f"pip install 'nvidia-cutlass=={number}.*', or set CUTLASS_SRC_DIR to a checkout of it",
        )
    return found
