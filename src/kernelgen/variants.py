"""The names of build variants: their grammar, which a project wants, and which of them are built.

The grammar is that of the `kernels` loader (kernels/variants.py) and of kernel-builder's build names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelgen.errors import KernelgenError
from kernelgen.project import Project, data, nearest
from kernelgen.toolchain import release

if TYPE_CHECKING:
    from pathlib import Path

_NOARCH = {"cann": "npu"}  # the backend that noarch names spell differently
_NAME = re.compile(
    r"(?P<kind>torch-stable-abi|torch|tvm-ffi)(?P<major>\d)(?P<minor>\d+)(-(?P<abi>cxx11|cxx98))?"
    r"-(?P<compute>cpu|metal|cu\d{2,}|rocm\d{2,}|xpu\d{2,})-(?P<machine>x86_64|aarch64)-(?P<system>linux|darwin|windows)"
)
_PREFIX = {"cuda": "cu", "rocm": "rocm", "xpu": "xpu"}


@dataclass(frozen=True)
class Variant:
    """One directory of `build/`: what it was compiled against and where it loads."""

    kind: str  # "torch", "torch-stable-abi", "tvm-ffi" or "noarch"
    backend: str
    version: tuple[int, int] | None = None  # of the framework; the target version for the stable ABI
    compute: tuple[int, int] | None = None  # of CUDA, ROCm or DPC++; None for cpu and metal
    machine: str = "x86_64"
    system: str = "linux"
    cxx11_abi: bool = True

    @property
    def name(self) -> str:
        """The directory's name.

        >>> Variant("torch", "cuda", (2, 10), (13, 0)).name
        'torch210-cxx11-cu130-x86_64-linux'
        """
        if self.kind == "noarch":
            return f"torch-{_NOARCH.get(self.backend, self.backend)}"
        major, minor = self.version or (0, 0)
        numbers = "".join(map(str, self.compute or ()))
        compute = _PREFIX.get(self.backend, self.backend) + numbers
        tag = (
            ("-cxx11" if self.cxx11_abi else "-cxx98")
            if self.kind == "torch" and self.system == "linux"
            else ""
        )
        return f"{self.kind}{major}{minor}{tag}-{compute}-{self.machine}-{self.system}"


def parse(name: str) -> Variant:
    """The variant behind a directory's name.

    Raises:
        KernelgenError: the loader would not take this name either.
    """
    backends = data("build_toml.toml")["backends"]
    noarch = {f"torch-{_NOARCH.get(b, b)}": b for b in backends}
    if name in noarch:
        return Variant("noarch", noarch[name])
    match = _NAME.fullmatch(name)
    if match is None or (match["abi"] and match["kind"] != "torch"):
        example = "torch213-cxx11-cu130-x86_64-linux"
        raise KernelgenError(f"{name!r} is not a variant name", way_out=f"they look like {example}")
    family, digits = re.fullmatch(r"([a-z]+)(\d*)", match["compute"]).groups()  # type: ignore[union-attr]
    return Variant(
        kind=match["kind"],
        backend={"cu": "cuda"}.get(family, family),
        version=(int(match["major"]), int(match["minor"])),
        compute=(int(digits[:-1]), int(digits[-1])) if digits else None,
        machine=match["machine"],
        system=match["system"],
        cxx11_abi=match["abi"] != "cxx98",
    )


def for_backend(
    project: Project,
    backend: str,
    *,
    framework: tuple[int, int],
    compute: tuple[int, int] | None = None,
    machine: str = "x86_64",
    system: str = "linux",
    cxx11_abi: bool = True,
) -> Variant:
    """The variant that a backend of a project makes with these versions of torch (or tvm-ffi) and CUDA."""
    if project.is_noarch(backend):
        return Variant("noarch", backend)
    if project.framework.kind == "tvm-ffi":
        return Variant("tvm-ffi", backend, framework, compute, machine, system)
    if stable := project.framework.stable_abi.get(backend):
        return Variant("torch-stable-abi", backend, release(stable), compute, machine, system)
    return Variant("torch", backend, framework, compute, machine, system, cxx11_abi)


def wanted(project: Project, platform: str = "x86_64-linux") -> list[Variant]:
    """What a compliant Hub kernel has for a platform: the data file's list within the project's bounds."""
    table = data("targets.toml")
    machine, system = platform.split("-")
    found: dict[str, Variant] = {}
    for backend in project.backends:
        if project.is_noarch(backend):
            found.setdefault(f"torch-{backend}", Variant("noarch", backend))
            continue
        for spelled in table["wanted"].get(platform, {}).get(backend, []):
            family, _, only = spelled.partition("@")
            digits = re.sub(r"\D", "", family)
            compute = (int(digits[:-1]), int(digits[-1])) if digits else None
            if backend == "cuda" and not _within(compute, project.cuda_minver, project.cuda_maxver):
                continue
            for version in table["torch"]["wanted"]:
                bounds = (project.framework.minver, project.framework.maxver)
                if (only and only != version) or not _within(release(version), *bounds):
                    continue
                framework = release(version)
                if project.framework.kind == "tvm-ffi":
                    framework = release(table["tvm-ffi"]["wanted"][0])
                variant = for_backend(
                    project, backend, framework=framework, compute=compute, machine=machine, system=system
                )
                found.setdefault(variant.name, variant)
    return list(found.values())


def _within(version: tuple[int, int] | None, low: str | None, high: str | None) -> bool:
    if version is None:
        return True
    return not ((low and version < release(low)) or (high and version > release(high)))


@dataclass(frozen=True)
class Built:
    """A variant directory that exists."""

    name: str
    path: Path
    variant: Variant | None  # None when the name does not parse
    id: str | None  # None when metadata.json is missing or unreadable


def built(project: Project | Path) -> list[Built]:
    """The directories of `build/`, in order of name; hidden ones and files are passed over."""
    root = project.root if isinstance(project, Project) else project
    folder = root / "build"
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name.startswith((".", "_")) or not path.is_dir() or path.name == "benchmarks":
            continue
        try:
            variant = parse(path.name)
        except KernelgenError:
            variant = None
        found.append(Built(path.name, path, variant, _read_id(path)))
    return found


def _read_id(path: Path) -> str | None:
    try:
        metadata = json.loads((path / "metadata.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    found = metadata.get("id") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else None


def check_name(name: str, known: list[Variant]) -> Variant:
    """A variant by name, or an error that names the nearest of the known ones."""
    try:
        return parse(name)
    except KernelgenError as error:
        meant = nearest(name, {v.name for v in known})
        raise KernelgenError(
            error.what, where="--variant", way_out=meant and f"did you mean {meant}?"
        ) from None
