"""Which variants a project has, should have, and could build on this machine, and why not the others.

Nothing is built, fetched or looked up in an index: a row says what a build would take from where.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from kernelgen import fetch, toolchain, variants
from kernelgen.errors import KernelgenError
from kernelgen.targets import refuse_foreign
from kernelgen.toolchain import release

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kernelgen.project import Project
    from kernelgen.toolchain import Installed
    from kernelgen.variants import Variant

Buildable = Literal["yes", "fetch", "no"]


@dataclass(frozen=True)
class Row:
    """One variant."""

    name: str
    wanted: bool  # by the Hub's list, within build.toml's bounds
    built: bool
    buildable: Buildable  # "fetch": with packages that the machine does not have yet
    why: str  # what it is built with, or what is in the way

    def as_json(self) -> dict[str, Any]:
        """Plain values, for --json."""
        return asdict(self)


def rows(
    project: Project, *, python: Path | str | None = None, cuda_home: Path | str | None = None
) -> list[Row]:
    """The wanted variants of this platform in the order of the list, then those that are built beyond it.

    Args:
        project: a project.
        python: the interpreter whose torch may serve; this one by default.
        cuda_home: a CUDA toolkit beside those that are found.

    Raises:
        KernelgenError: the interpreter does not run, or the toolkit is none.
    """
    machine = toolchain.machine()
    wanted = variants.wanted(project, f"{machine}-linux")
    there = {b.name: b.variant for b in variants.built(project)}
    beyond = [(name, variant) for name, variant in there.items() if name not in {v.name for v in wanted}]
    local = _Local(python, cuda_home)
    found = []
    for name, variant in [*((v.name, v) for v in wanted), *beyond]:
        state, why = local.judge(variant) if variant else ("no", "not a variant's name")
        found.append(Row(name, name not in dict(beyond), name in there, state, why))
    return found


class _Local:
    """What this machine has, each part probed once."""

    def __init__(self, python: Path | str | None, cuda_home: Path | str | None) -> None:
        installed = toolchain.probe_python(python)
        self._installed = installed
        self._torch = toolchain.read_torch(installed.torch) if installed.torch else None
        self._tvm_ffi = _tvm_ffi(installed)
        self._cudas = _cudas(installed, cuda_home)
        self._cached = {(entry.kind, release(entry.version)) for entry in fetch.cached()}
        self._no_compiler: str | None = None
        try:
            toolchain.probe_host()
        except KernelgenError as error:
            self._no_compiler = error.what

    def judge(self, variant: Variant) -> tuple[Buildable, str]:
        """Whether a variant can be built, and with what or why not."""
        if variant.kind == "noarch":
            return "yes", "Python alone"
        if (variant.machine, variant.system) != (toolchain.machine(), "linux"):
            return "no", f"this is {toolchain.machine()} Linux"
        try:
            refuse_foreign(variant.backend)
        except KernelgenError as error:
            return "no", error.what
        if self._no_compiler:
            return "no", self._no_compiler
        parts = [self._framework(variant)]
        if variant.compute is not None:
            parts.append(self._cuda(variant.compute))
        lack = next((why for state, why in parts if state == "no"), None)
        if lack:
            return "no", lack
        state: Buildable = "fetch" if any(s == "fetch" for s, _ in parts) else "yes"
        return state, ", ".join(why for _, why in parts)

    def _framework(self, variant: Variant) -> tuple[Buildable, str]:
        version = variant.version or (0, 0)
        text = ".".join(map(str, version))
        if variant.kind == "tvm-ffi":
            if self._tvm_ffi and release(self._tvm_ffi) == version:
                return "yes", f"tvm-ffi {self._tvm_ffi}"
            return self._from_cache("tvm-ffi", version, f"tvm-ffi {text}")
        here = self._torch
        if here is not None and here.cxx11_abi == variant.cxx11_abi:
            serves = (
                here.release >= version if variant.kind == "torch-stable-abi" else here.release == version
            )
            if serves:
                return "yes", f"torch {here.version}"
        return self._from_cache("torch", version, f"torch {text}")

    def _cuda(self, version: tuple[int, int]) -> tuple[Buildable, str]:
        text = ".".join(map(str, version))
        if home := self._cudas.get(version):
            return "yes", f"CUDA {text} in {home}"
        if version < fetch.OLDEST_CUDA:
            return (
                "no",
                f"CUDA {text} is not installed, and no package holds its nvcc: name it with --cuda-home",
            )
        return self._from_cache("cuda", version, f"CUDA {text}")

    def _from_cache(self, kind: str, version: tuple[int, int], label: str) -> tuple[Buildable, str]:
        if (kind, version) in self._cached:
            return "yes", f"{label} from the cache"
        return "fetch", f"{label} to be fetched"


def _tvm_ffi(installed: Installed) -> str | None:
    try:
        return toolchain.read_tvm_ffi(installed.tvm_ffi).version if installed.tvm_ffi else None
    except KernelgenError:
        return None


def _cudas(installed: Installed, cuda_home: Path | str | None) -> dict[tuple[int, int], Path]:
    """Toolkits of the machine by version; the one that a build would take first wins."""
    first = toolchain.probe_cuda(cuda_home, installed)
    found: Iterable[toolchain.Cuda] = [first] if first else []
    others = (toolchain.read_cuda(home / "bin" / "nvcc") for home in toolchain.cuda_homes())
    toolkits: dict[tuple[int, int], Path] = {}
    for cuda in (*found, *others):
        toolkits.setdefault(cuda.release, cuda.home)
    return toolkits
