"""Project x toolchain x options -> what to compile, as plain values and as a ninja file. No I/O.

Commands run in a mirror of the listed sources (`.kernelgen/src`), and everything outside the project is
reached by links beside it (`.kernelgen/ext`), so that no command line, object or error message holds a path
of this machine: quoting is never a question, and two directories give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kernelgen.errors import KernelgenError
from kernelgen.project import SOURCE_SUFFIXES, Component, Project, data
from kernelgen.toolchain import Cuda, HostCompiler, Rocm, Toolchain, arch_order, release

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kernelgen.variants import Variant

# Stands in objects where the id will be, which is a hash of those objects: an edit of one kernel then does
# not recompile the binding. As long as an id, and made of letters that nothing else is made of.
PLACEHOLDER = "kgq7xzv0wjy3"
PRELOAD = "libstable_paths.so"  # see data/stable_paths.c

_HEAVY_GIB = {"nvcc": 3.0, "cxx": 1.6}  # peak of one process that reads torch/all.h


@dataclass(frozen=True)
class Settings:
    """What a person may choose about compiling."""

    archs: tuple[str, ...] = ()  # CUDA capabilities asked for; empty: kernel-builder's default list
    namespace: str | None = None  # a fixed torch.ops namespace instead of the unique one
    debug: bool = False
    torch_free: frozenset[str] = frozenset()  # sources that include no torch header
    nvcc_threads: int | None = None
    cpus: int = 1
    cutlass: tuple[str, ...] = ()  # include directories for cutlass_* dependencies


@dataclass(frozen=True)
class Unit:
    """One source compiled one way; equal units are compiled once."""

    source: str  # relative to the mirror
    rule: str  # "cxx", "nvcc" or "hip"
    flags: tuple[str, ...]  # these decide the object
    tool: str = ""  # and so do the compilers' versions
    speed: tuple[str, ...] = ()  # these do not
    heavy: bool = False
    translated: str = ""  # what is compiled in the source's place

    @property
    def object(self) -> str:
        """Where the object goes: the source's path under a folder named by the flags."""
        key = hashlib.sha256("\0".join((self.rule, self.tool, *self.flags)).encode()).hexdigest()[:10]
        return f"../obj/{self.rule}-{key}/{self.source}.o"


@dataclass(frozen=True)
class Plan:
    """All that makes one variant."""

    variant: Variant
    units: tuple[Unit, ...] = ()
    link: tuple[str, ...] = ()  # flags after the objects
    libraries: tuple[str, ...] = ()  # SONAME stems that stubs may stand in for
    links: Mapping[str, str] = field(default_factory=dict)  # name under ext/ -> absolute target
    archs: tuple[str, ...] = ()  # GPU architectures in the objects, as metadata.json lists them
    stem: str = ""  # "_img2gray_cpu_" of the id
    host: HostCompiler | None = None
    cuda: Cuda | None = None
    rocm: Rocm | None = None
    python: Path | None = None  # whose torch translates CUDA to HIP


def plan(project: Project, variant: Variant, toolchain: Toolchain | None, settings: Settings) -> Plan:
    """What a variant is made of.

    Raises:
        KernelgenError: this backend cannot be built by this toolchain, or an architecture set is empty.
    """
    stem = f"_{project.python_name}_{variant.backend}_"
    if variant.kind == "noarch":
        return Plan(variant, stem=stem, archs=_noarch_archs(project, variant.backend))
    if toolchain is None:
        raise KernelgenError(f"{variant.name} needs a compiler")
    _check_bounds(project, variant, toolchain)
    components = [c for c in project.components_for(variant.backend) if _applies(c, toolchain)]
    flags = _Flags(project, variant, toolchain, settings)
    archs: dict[str, tuple[str, ...]] = {}
    if variant.backend == "cuda" and toolchain.cuda:
        archs = {c.name: component_archs(c, settings.archs, toolchain.cuda.version) for c in components}
    if variant.backend == "rocm":
        archs = {c.name: rocm_archs(c) for c in components}
    units: dict[str, Unit] = {}
    for source in project.framework.src:
        if _is_source(source):
            every = _ordered({a for found in archs.values() for a in found})
            units[source] = flags.unit(source, None, every)
    for component in components:
        for source in component.src:
            if _is_source(source):
                units.setdefault(source, flags.unit(source, component, archs.get(component.name, ())))
    return Plan(
        variant=variant,
        units=tuple(units[s] for s in sorted(units)),
        link=flags.link(),
        libraries=flags.libraries(),
        links=flags.links(),
        archs=_ordered({a for found in archs.values() for a in found}),
        stem=stem,
        host=toolchain.host,
        cuda=toolchain.cuda if variant.backend == "cuda" else None,
        rocm=toolchain.rocm if variant.backend == "rocm" else None,
        python=toolchain.python.executable,
    )


def _is_source(path: str) -> bool:
    return PurePosixPath(path).suffix in SOURCE_SUFFIXES


def _noarch_archs(project: Project, backend: str) -> tuple[str, ...]:
    return _ordered(project.framework.archs.get(backend, ()))


def _applies(component: Component, toolchain: Toolchain) -> bool:
    """Whether a component's cuda-minver lets it take part; kernel-builder drops it silently too."""
    cuda = toolchain.cuda
    return not (component.cuda_minver and cuda and cuda.release < release(component.cuda_minver))


def _check_bounds(project: Project, variant: Variant, toolchain: Toolchain) -> None:
    torch, cuda = toolchain.torch, toolchain.cuda
    low, high = project.framework.minver, project.framework.maxver
    if torch and project.framework.kind == "torch":
        _bound("torch", torch.release, low, high, "torch")
        target = variant.version if variant.kind == "torch-stable-abi" else None
        if target and torch.release < target:
            wanted = ".".join(map(str, target))
            raise KernelgenError(
                f"the stable ABI of torch {wanted} needs torch {wanted} or newer; {torch.version} is older"
            )
    if cuda and variant.backend == "cuda":
        _bound("CUDA", cuda.release, project.cuda_minver, project.cuda_maxver, "general.cuda")


def _bound(what: str, version: tuple[int, int], low: str | None, high: str | None, table: str) -> None:
    said = ".".join(map(str, version))
    if low and version < release(low):
        raise KernelgenError(
            f"{what} {said} is below this project's minver {low}", where=f"build.toml [{table}]"
        )
    if high and version > release(high):
        raise KernelgenError(
            f"{what} {said} is above this project's maxver {high}", where=f"build.toml [{table}]"
        )


# -- architectures


def default_archs(cuda_version: str) -> tuple[str, ...]:
    """kernel-builder's list for a toolkit."""
    for row in data("targets.toml")["cuda-archs"]:
        if release(cuda_version) >= release(row["from"]):
            return tuple(row["archs"])
    raise KernelgenError(f"CUDA {cuda_version} is too old to build kernels", way_out="use CUDA 12.6 or newer")


def parse_archs(text: str, where: str = "TORCH_CUDA_ARCH_LIST") -> tuple[str, ...]:
    """Capabilities separated by semicolons, commas or spaces.

    >>> parse_archs("8.0;9.0a 12.0+PTX")
    ('8.0', '9.0a', '12.0+PTX')
    """
    tokens = [t for t in re.split(r"[;,\s]+", text.strip()) if t]
    for token in tokens:
        if not re.fullmatch(r"\d{1,2}\.\d[af]?(\+PTX)?", token):
            raise KernelgenError(
                f"{token!r} is not a compute capability",
                where=where,
                way_out='write them like "8.0;9.0a;12.0+PTX"',
            )
    return tuple(dict.fromkeys(tokens))


def component_archs(component: Component, asked: Sequence[str], cuda_version: str) -> tuple[str, ...]:
    """The architectures that a component is compiled for.

    A component that names capabilities is compiled for its intersection with those asked for; where that is
    empty, with kernel-builder's whole list, as kernel-builder itself always does.

    Raises:
        KernelgenError: both are empty.
    """
    default = default_archs(cuda_version)
    if not component.archs:
        return tuple(asked) or default
    for target in (asked, default):
        if found := intersect(component.archs, target):
            return found
    raise KernelgenError(
        f"kernel {component.name!r} has no capability that CUDA {cuda_version} is built for",
        where=f"build.toml kernel.{component.name}.cuda-capabilities",
        detail=f"the kernel's: {', '.join(component.archs)}\nCUDA {cuda_version}: {', '.join(default)}",
        way_out="name a capability of the second list",
    )


def rocm_archs(component: Component) -> tuple[str, ...]:
    """The architectures of a ROCm component: those it names that kernel-builder supports, or all of these.

    Raises:
        KernelgenError: it names none of them.
    """
    supported = data("targets.toml")["rocm"]["archs"]
    found = tuple(a for a in supported if a in component.archs or not component.archs)
    if not found:
        raise KernelgenError(
            f"kernel {component.name!r} has no architecture that ROCm kernels are built for",
            where=f"build.toml kernel.{component.name}.rocm-archs",
            detail=f"the kernel's: {', '.join(component.archs)}\nsupported: {', '.join(supported)}",
            way_out="name an architecture of the second list",
        )
    return found


def intersect(source: Sequence[str], target: Sequence[str]) -> tuple[str, ...]:
    """kernel-builder's loose intersection of a kernel's capabilities with a target list.

    A capability with suffix a or f stays when its base is targeted, and uses that base up. Every other target
    takes the highest capability that is not above it and has its major version, or has PTX.

    >>> intersect(["8.0", "9.0a"], ["7.5", "8.0", "8.6", "9.0", "10.0+PTX"])
    ('8.0', '9.0a')
    """
    bases = list(dict.fromkeys(s.removesuffix("+PTX") for s in source))
    ptx = {s.removesuffix("+PTX") for s in source if s.endswith("+PTX")}
    targets = list(dict.fromkeys(t.removesuffix("+PTX").rstrip("af") for t in target))
    found: list[str] = []
    for special in [b for b in bases if b[-1] in "af"]:
        bases.remove(special)
        if special[:-1] in targets:
            targets.remove(special[:-1])
            found.append(special)
    for wanted in targets:
        best = None
        for base in _ordered(bases):
            if release(base) > release(wanted):
                break
            if base in ptx or release(base)[0] == release(wanted)[0]:
                best = base
        if best:
            found.append(best)
    return _ordered(f"{a}+PTX" if a in ptx else a for a in dict.fromkeys(found))


def _tool(host: HostCompiler) -> str:
    return f"{host.kind} {host.version} {host.target}"


def _ordered(archs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(archs, key=arch_order))


def gencode(archs: Sequence[str]) -> list[str]:
    """Nvcc's flags for a list of capabilities; +PTX adds the virtual code."""
    flags = []
    for arch in archs:
        number = arch.removesuffix("+PTX").replace(".", "")
        flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if arch.endswith("+PTX"):
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return flags


# -- flags


class _Flags:
    """The flags of one variant."""

    def __init__(self, project: Project, variant: Variant, toolchain: Toolchain, settings: Settings) -> None:
        self.project, self.variant, self.tools, self.settings = project, variant, toolchain, settings
        self.torch = toolchain.torch if project.framework.kind == "torch" else None
        self.cuda = toolchain.cuda if variant.backend == "cuda" else None
        self.defines = self._defines(f"_{project.python_name}_{variant.backend}_{PLACEHOLDER}")

    def _defines(self, name: str) -> list[str]:
        backend = self.variant.backend
        if self.project.framework.kind == "tvm-ffi":
            return [f"-DTVM_FFI_EXTENSION_NAME={name}", f"-D{backend.upper()}_KERNEL"]
        defines = [f"-DTORCH_EXTENSION_NAME={name}", "-DPy_LIMITED_API=3", f"-D{backend.upper()}_KERNEL"]
        if self.settings.namespace:
            defines.append(f"-DKERNELGEN_NAMESPACE={self.settings.namespace}")
        defines += {"cuda": ["-DUSE_CUDA=1"], "xpu": ["-DUSE_XPU"]}.get(backend, [])
        if backend == "rocm":
            defines += ["-DUSE_ROCM=1", "-D__HIP_PLATFORM_AMD__=1"]
        if self.variant.kind == "torch-stable-abi" and self.variant.version:
            major, minor = self.variant.version
            defines.append(f"-DTORCH_TARGET_VERSION={major << 56 | minor << 48:#x}")
        if self.torch and not self.torch.cxx11_abi:
            defines.append("-D_GLIBCXX_USE_CXX11_ABI=0")
        return defines

    @property
    def standard(self) -> str:
        """17, or 20 from the torch on whose headers need it."""
        if self.torch is None:
            return "17"
        return "20" if self.torch.release >= release(data("targets.toml")["torch"]["cxx20-from"]) else "17"

    def unit(self, source: str, component: Component | None, archs: tuple[str, ...]) -> Unit:
        """How a source is compiled; `component` is None for the binding."""
        uses_torch = self.torch is not None and source not in self.settings.torch_free
        heavy = uses_torch and self.variant.kind != "torch-stable-abi"
        nvcc = PurePosixPath(source).suffix == ".cu"
        includes = self._includes(component, uses_torch, nvcc=nvcc)
        if nvcc and self.variant.backend == "rocm":
            return self._hip_unit(source, component, archs, includes)
        if not nvcc:
            own = component.cxx_flags if component else self.project.framework.cxx_flags
            if component and self.variant.backend == "xpu":
                own = (*own, *data("targets.toml")["xpu"]["compile"], *component.gpu_flags)
            flags = (*self._cxx(source), *self.defines, *includes, *own)
            return Unit(source, "cxx", flags, _tool(self.tools.host), heavy=heavy)
        own = component.gpu_flags if component else ()
        flags = (*self._nvcc(source), *self.defines, *gencode(archs), *includes, *self._cuda_flags(own))
        host = _tool(self.tools.cuda_host or self.tools.host)
        tool = f"nvcc {self.cuda.full_version if self.cuda else ''}, {host}"
        return Unit(source, "nvcc", flags, tool, self._threads(len(archs), heavy), heavy)

    def _hip_unit(
        self, source: str, component: Component | None, archs: tuple[str, ...], includes: list[str]
    ) -> Unit:
        """A CUDA source in its HIP translation, which stands with its headers in ../hip."""
        flags = ["-x", "hip", f"-std=c++{self.standard}", *self._optimise(), "-fPIC", "-fvisibility=hidden"]
        flags += [f"--offload-arch={a}" for a in archs]
        here = [f"-I../hip/{f[2:]}" for f in includes if f.startswith("-I")]
        own = component.gpu_flags if component else ()
        tool = f"hipcc {self.tools.rocm.version if self.tools.rocm else ''}"
        translated = "../hip/" + PurePosixPath(source).with_suffix(".hip").as_posix().replace("cuda", "hip")
        every = (*flags, "-DENABLE_FP8", *self.defines, *here, *includes, *own)
        return Unit(source, "hip", every, tool, heavy=True, translated=translated)

    def _threads(self, archs: int, heavy: bool) -> tuple[str, ...]:
        threads = self.settings.nvcc_threads or (1 if heavy else min(archs, self.settings.cpus))
        return (f"--threads={threads}",) if threads > 1 else ()

    def _cuda_flags(self, own: tuple[str, ...]) -> tuple[str, ...]:
        if self.cuda and self.cuda.release < (12, 8):  # which does not know it; kernel-builder drops it too
            return tuple(f for f in own if not f.startswith("-static-global-template-stub"))
        return own

    def _optimise(self) -> list[str]:
        return ["-O0", "-g"] if self.settings.debug else ["-O3", "-DNDEBUG"]

    def _host_flags(self, host: HostCompiler) -> list[str]:
        flags = ["-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
        if host.kind == "gcc":
            flags += ["-fno-gnu-unique", "-fno-canonical-system-headers"]
        return flags

    def _cxx(self, source: str) -> list[str]:
        host = self._host_flags(self.tools.host)
        maps = ["-ffile-prefix-map=../ext/=", *(f"-ffile-prefix-map={p}=cuda" for p in self._cuda_paths())]
        return [f"-std=gnu++{self.standard}", *self._optimise(), *host, *maps, f"-frandom-seed={source}"]

    def _cuda_paths(self) -> list[str]:
        """The toolkit's folder, which nvcc itself puts into #line; left alone if it cannot be quoted."""
        home = str(self.cuda.home) if self.cuda else ""
        return [home] if re.fullmatch(r"[\w./+-]+", home) else []

    def _nvcc(self, source: str) -> list[str]:
        if self.cuda is None:
            raise KernelgenError(f"{source} needs nvcc, but this is a {self.variant.backend} variant")
        host = self.tools.cuda_host or self.tools.host
        passed = [f for f in self._host_flags(host) if f != "-Wextra"]  # nvcc's own stubs trip over it
        passed += [
            "-fmacro-prefix-map=../ext/=",
            *(f"-fmacro-prefix-map={p}=cuda" for p in self._cuda_paths()),
        ]
        optimise = ["-O0", "-g", "-G"] if self.settings.debug else ["-O3", "-DNDEBUG"]
        flags = [f"-std=c++{self.standard}", *optimise, f"-Xcompiler={','.join(passed)}"]
        flags += ["--expt-relaxed-constexpr", "-DENABLE_FP8", *self.cuda.flags]
        if self.cuda.random_seed:
            flags.append(f"--frandom-seed={source}")
        if self.tools.cuda_host:
            flags.append("-ccbin=../ext/cuda-host")
        return flags

    def _includes(self, component: Component | None, uses_torch: bool, *, nvcc: bool) -> list[str]:
        own = component.include if component else self.project.framework.include
        flags = [f"-I{PurePosixPath(i)}" for i in own]
        flags.append("-Icsrc")
        depends = component.depends if component else ()
        system = list(self.settings.cutlass) if any(d.startswith("cutlass") for d in depends) else []
        if uses_torch and self.torch:
            ext = f"../ext/{self._torch_name()}"
            system += [f"{ext}/include", f"{ext}/api"]
            if self.variant.backend == "cuda" and not self.torch.has_cuda_macros:
                system.append("../include/cuda")
        if self.tools.tvm_ffi and self.project.framework.kind == "tvm-ffi":
            count = len(self.tools.tvm_ffi.include_dirs)
            system += [f"../ext/{self._tvm_name()}/{i}" for i in range(count)]
        if uses_torch and self.tools.python.include_dir:
            system.append("../ext/python")
        if self.variant.backend == "rocm":
            system.append("../ext/rocm/include")
        if self.cuda and not nvcc:  # nvcc knows its own
            system += [f"../ext/{self._cuda_name()}/{i}" for i in range(len(self.cuda.include_dirs))]
        words = [word for path in system for word in ("-isystem", path)]
        return flags + words + (self._math() if uses_torch and self.cuda else [])

    def _math(self) -> list[str]:
        """Headers of CUDA's libraries that torch's headers name, wherever they are, after all others."""
        dirs = self.cuda.math_dirs if self.cuda else ()
        if dirs is None:
            return ["-isystem", "../include/standins"]
        return [w for i in range(len(dirs)) for w in ("-isystem", f"../ext/{self._cuda_name()}/math{i}")]

    # names under ext/ hold what decides the object, so that another version is another flag

    def _torch_name(self) -> str:
        return f"torch-{self.torch.version if self.torch else ''}"

    def _cuda_name(self) -> str:
        return f"cuda-{self.cuda.full_version or self.cuda.version if self.cuda else ''}"

    def _tvm_name(self) -> str:
        return f"tvm-ffi-{self.tools.tvm_ffi.version if self.tools.tvm_ffi else ''}"

    def links(self) -> dict[str, str]:
        """What ext/ must hold."""
        found: dict[str, Path] = {}
        if self.torch:
            name = self._torch_name()
            found[f"{name}/include"], found[f"{name}/api"] = self.torch.include_dirs
            if self.torch.lib_dir:
                found[f"{name}/lib"] = self.torch.lib_dir
        if self.cuda:
            for i, directory in enumerate(self.cuda.include_dirs):
                found[f"{self._cuda_name()}/{i}"] = directory
            for i, directory in enumerate(self.cuda.math_dirs or ()):
                found[f"{self._cuda_name()}/math{i}"] = directory
            if self.cuda.lib_dir:
                found[f"{self._cuda_name()}/lib"] = self.cuda.lib_dir
        if self.tools.tvm_ffi:
            for i, directory in enumerate(self.tools.tvm_ffi.include_dirs):
                found[f"{self._tvm_name()}/{i}"] = directory
            found[f"{self._tvm_name()}/lib"] = self.tools.tvm_ffi.lib_dir
        if self.tools.python.include_dir:
            found["python"] = self.tools.python.include_dir
        if self.tools.rocm:
            found["rocm"] = self.tools.rocm.home
        if self.tools.cuda_host:
            found["cuda-host"] = self.tools.cuda_host.cxx
        return {name: str(target) for name, target in found.items()}

    def libraries(self) -> tuple[str, ...]:
        """What the extension needs at run time; the torch that loads it has all of it loaded before."""
        if self.project.framework.kind == "tvm-ffi":
            cudart = (f"cudart.so.{self.cuda.release[0]}",) if self.cuda else ()
            return ("tvm_ffi.so", *cudart)
        if self.variant.backend == "cuda" and self.cuda:
            torch = ("c10.so", "torch_cpu.so", "torch.so", "torch_cuda.so", "c10_cuda.so")
            return (*torch, f"cudart.so.{self.cuda.release[0]}")
        plain = ("c10.so", "torch_cpu.so", "torch.so")
        if self.variant.backend == "rocm" and self.tools.rocm:
            return (*plain, "torch_hip.so", "c10_hip.so", f"amdhip64.so.{self.tools.rocm.release[0]}")
        return (*plain, "torch_xpu.so", "c10_xpu.so") if self.variant.backend == "xpu" else plain

    def link(self) -> tuple[str, ...]:
        """Flags after the objects; stubs stand last on the search path, for what is not here."""
        paths = []
        if self.torch and self.torch.lib_dir:
            paths.append(f"-L../ext/{self._torch_name()}/lib")
        if self.cuda and self.cuda.lib_dir:
            paths.append(f"-L../ext/{self._cuda_name()}/lib")
        if self.tools.tvm_ffi and self.project.framework.kind == "tvm-ffi":
            paths.append(f"-L../ext/{self._tvm_name()}/lib")
        if self.tools.rocm and self.variant.backend == "rocm":
            paths.append("-L../ext/rocm/lib")
        names = [f"-l{lib.split('.so')[0]}" for lib in self.libraries()]
        if self.variant.backend == "xpu":
            paths = [*data("targets.toml")["xpu"]["link"], *paths]
        # Named before the compiler adds its own -lstdc++: a static copy would bring newer symbols of glibc.
        stdcxx = [] if self.tools.host.shared_stdcxx else ["-l:libstdc++.so.6"]
        return (*paths, "-L../ext/stubs", "-Wl,--no-as-needed", *names, "-Wl,--as-needed", *stdcxx)


# -- text


def ninja_text(
    plans: Sequence[Plan],
    *,
    launcher: str | None = None,
    jobs: int | None = None,
    memory_gib: float | None = None,
) -> str:
    """The ninja file that makes every object of every plan, each once.

    Args:
        plans: what to build.
        launcher: ccache or sccache.
        jobs: asked for by the person; then nothing holds heavy processes back.
        memory_gib: free memory, by which heavy processes are held back otherwise.
    """
    from ninja.ninja_syntax import Writer

    buffer = io.StringIO()
    writer: Any = Writer(buffer, width=1 << 20)  # type: ignore[arg-type]
    writer.comment("Made by kernelgen; commands run in .kernelgen/src.")
    writer.variable("ninja_required_version", "1.9")
    writer.variable("builddir", "..")
    pools: dict[str, str] = {}
    if jobs is None and memory_gib is not None:
        for rule, cost in _HEAVY_GIB.items():
            pools[rule] = f"heavy_{rule}"
            writer.pool(pools[rule], max(1, int(memory_gib // cost)))
    prefix = f"{shlex.quote(launcher)} " if launcher else ""
    made: set[str] = set()
    for number, plan_ in enumerate(plans):
        _write_plan(writer, plan_, number, prefix, pools, made)
    return buffer.getvalue()


def _write_plan(
    writer: Any, plan_: Plan, number: int, prefix: str, pools: Mapping[str, str], made: set[str]
) -> None:
    if plan_.host is None:
        return
    tails = "$flags $speed -MD -MF $out.d -c $in -o $out"
    cxx = _escape(shlex.quote(str(plan_.host.cxx)))
    writer.rule(
        f"cxx{number}", f"{_escape(prefix)}{cxx} {tails}", "compiling $in", depfile="$out.d", deps="gcc"
    )
    if plan_.cuda:
        nvcc = _escape(shlex.quote(str(plan_.cuda.nvcc)))
        command = f"LD_PRELOAD=../ext/{PRELOAD} {_escape(prefix)}{nvcc} {tails}"
        writer.rule(f"nvcc{number}", command, "compiling $in", depfile="$out.d", deps="gcc")
    if plan_.rocm:
        _write_hip(writer, plan_, number, prefix)
    for unit in plan_.units:
        if unit.object in made:
            continue
        made.add(unit.object)
        variables = {"flags": _escape(shlex.join(unit.flags))}
        if unit.speed:
            variables["speed"] = shlex.join(unit.speed)
        if unit.heavy and unit.rule in pools:
            variables["pool"] = pools[unit.rule]
        source = _escape_path(unit.translated or unit.source)
        writer.build(_escape_path(unit.object), f"{unit.rule}{number}", source, variables=variables)


def _write_hip(writer: Any, plan_: Plan, number: int, prefix: str) -> None:
    """One translation of all CUDA sources of a plan, then hipcc for each."""
    units = [u for u in plan_.units if u.rule == "hip"]
    sources = " ".join(shlex.quote(u.source) for u in units)
    python, hipcc = (_escape(shlex.quote(str(p))) for p in (plan_.python, plan_.rocm and plan_.rocm.hipcc))
    writer.rule(f"hipify{number}", f"{python} ../hipify.py . ../hip {_escape(sources)}", "translating to HIP")
    inputs = [_escape_path(u.source) for u in units]
    writer.build([_escape_path(u.translated) for u in units], f"hipify{number}", inputs)
    command = f"{_escape(prefix)}{hipcc} $flags $speed -MD -MF $out.d -c $in -o $out"
    writer.rule(f"hip{number}", command, "compiling $in", depfile="$out.d", deps="gcc")


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def _escape_path(text: str) -> str:
    return text.replace("$", "$$")  # ninja_syntax escapes spaces and colons itself


def compile_commands(plans: Sequence[Plan], root: Path) -> list[dict[str, Any]]:
    """compile_commands.json for editors: the true sources, seen from the project's root."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for plan_ in plans:
        for unit in plan_.units:
            program = plan_.cuda.nvcc if unit.rule == "nvcc" and plan_.cuda else plan_.host and plan_.host.cxx
            arguments = [
                str(program),
                "-I.kernelgen/include/torch",
                *map(_from_root, unit.flags),
                "-c",
                unit.source,
            ]
            key = (unit.source, plan_.variant.backend)
            found.setdefault(key, {"directory": str(root), "file": unit.source, "arguments": arguments})
    return list(found.values())


def _from_root(flag: str) -> str:
    return flag.replace("../", ".kernelgen/", 1) if "../" in flag and not flag.startswith("-D") else flag
