"""Builds a project: finds toolchains, runs one ninja graph for all variants, packages each.

Everything that is not a result lies in `<project>/.kernelgen/`:

    src/            the mirror: links to the listed sources, and the registration.h that kernel-builder makes
    ext/            links to what lies outside the project (torch, CUDA, Python)
    obj/            objects, one folder per set of flags
    build.ninja, compile_commands.json, build.log, state.json, lock
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import kernelgen
from kernelgen import graph, package, variants
from kernelgen.errors import KernelgenError
from kernelgen.graph import Plan, Settings
from kernelgen.toolchain import (
    SYSTEM_NVCC,
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
    probe_python,
    read_cuda,
    read_torch,
    read_tvm_ffi,
    with_math_headers,
    write_atomically,
)
from kernelgen.variants import Variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernelgen.project import Project

_TORCH_INCLUDE = re.compile(
    rb"^[ \t]*#[ \t]*include[ \t]*[<\"](torch/|ATen/|c10/|caffe2/|Python\.h|registration\.h)", re.MULTILINE
)
_QUOTED_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]+)[>\"]", re.MULTILINE)
_STATUS = re.compile(r"^@@(\d+)/(\d+)@@ (.*)$")
_ERROR_LINE = re.compile(
    r"^(?P<place>[^\s:(][^:(]*[:(]\d+(?:[:)]\d*)?\)?):?\s+(?:fatal )?error\s*:?\s", re.IGNORECASE
)


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


@dataclass(frozen=True)
class BuiltVariant:
    """A variant as it is after a build."""

    name: str
    path: Path
    id: str
    backend: str
    archs: tuple[str, ...]
    fresh: bool  # nothing had changed
    notes: tuple[str, ...] = ()  # for the person: warnings, "not publishable because"


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


def build(
    project: Project,
    options: BuildOptions = BuildOptions(),
    progress: Progress | None = None,
) -> list[BuiltVariant]:
    """Build what `options` ask for, and nothing that is up to date.

    Returns:
        The variants asked for, in the order of the project's backends.

    Raises:
        KernelgenError: nothing can be built here (no compiler, no torch, a version out of bounds), a source
            does not compile, an object would not load elsewhere, or another build holds the project.
    """
    shown = progress or Silent()
    if done := up_to_date(project, options):
        return done
    found = targets(project, options, shown)
    with _locked(project.root, shown) as lock:
        return _Run(project, options, shown, found, lock).run()


def is_stale(project: Project, options: BuildOptions = BuildOptions()) -> bool:
    """Whether `build` would do something; costs a few file states, and compares no contents."""
    return up_to_date(project, options) is None


# -- what to build


def targets(project: Project, options: BuildOptions, progress: Progress | None = None) -> list[Target]:
    """The variants that options ask for, each with its toolchain.

    Raises:
        KernelgenError: one that was asked for cannot be built here, or none can.
    """
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
            except KernelgenError as error:
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
            version, abi = _release(framework.version), True
        else:
            framework = self._torch()
            version, abi = framework.release, framework.cxx11_abi
        cuda, notes = self._current_cuda(framework) if backend == "cuda" else (None, ())
        variant = variants.for_backend(
            self.project,
            backend,
            framework=version,
            compute=cuda.release if cuda else None,
            machine=machine(),
            cxx11_abi=abi,
        )
        return Target(variant, self._toolchain(framework, cuda), notes)

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
        if built_with is None or _release(built_with) == cuda.release:
            return cuda, ()
        if _release(built_with)[0] != cuda.release[0]:
            raise KernelgenError(
                f"torch was built with CUDA {built_with}, but nvcc in {cuda.home} is {cuda.version}",
                way_out=f"point --cuda-home at a CUDA {built_with} toolkit",
            )
        worse = cuda.release > _release(built_with)
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
            except KernelgenError as error:
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
            if installed and _release(installed.version) == version:
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
        if cuda and cuda.max_gcc and host.kind == "gcc" and _release(host.version)[0] > cuda.max_gcc:
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
    "metal": ("xcrun", "macOS with Xcode"),
}


def refuse_foreign(backend: str) -> None:
    """Say why a backend cannot be compiled here.

    Raises:
        KernelgenError: always, but for cpu and cuda.
    """
    if backend in ("cpu", "cuda"):
        return
    tool, needs = _FOREIGN.get(backend, ("", ""))
    if not tool:
        raise KernelgenError(f"{backend} kernels are Python only; this project lists a compiled one")
    found = shutil.which(tool)
    what = (
        f"{tool} was found ({found}), but kernelgen does not drive it yet"
        if found
        else f"{tool} was not found"
    )
    raise KernelgenError(
        f"{backend} cannot be built here, because {what}; it needs {needs}",
        way_out="kernel-builder build (Nix) makes this variant from the same project",
    )


def _release(version: str) -> tuple[int, int]:
    from kernelgen.toolchain import release

    return release(version)


# -- running


class _Run:
    """One build of one project, with the lock held."""

    def __init__(
        self, project: Project, options: BuildOptions, progress: Progress, found: list[Target], lock: IO[str]
    ) -> None:
        self.project, self.options, self.progress, self.targets = project, options, progress, found
        self.lock = lock
        self.home = project.root / ".kernelgen"
        self.mirror = self.home / "src"
        self.log: list[str] = []
        self.warnings = 0

    def run(self) -> list[BuiltVariant]:
        inputs = input_states(self.project, self.options)
        settings = self._settings()
        plans = [graph.plan(self.project, t.variant, t.toolchain, settings) for t in self.targets]
        self._prepare(plans)
        compiled = [p for p in plans if p.units]
        if compiled:
            self._compile(compiled)
        built = [self._package(t, p) for t, p in zip(self.targets, plans, strict=True)]
        self._prune()
        _remember(self.project, self.options, inputs, built)
        return built

    # settings

    def _settings(self) -> Settings:
        sources = self.project.listed_files()
        return Settings(
            archs=asked_archs(self.options) if any(t.variant.backend == "cuda" for t in self.targets) else (),
            namespace=self.options.namespace,
            debug=self.options.debug or os.environ.get("DEBUG", "0") not in ("", "0"),
            torch_free=torch_free(self.project.root, sources),
            nvcc_threads=_positive("NVCC_THREADS", os.environ.get("NVCC_THREADS")),
            cpus=cpus(),
            cutlass=self._cutlass(),
        )

    def _cutlass(self) -> tuple[str, ...]:
        kernels = [
            c for t in self.targets for c in self.project.components_for(t.variant.backend) if t.toolchain
        ]
        wanted = sorted({d for c in kernels for d in c.depends if d.startswith("cutlass")})
        if not wanted:
            return ()
        return tuple(f"../ext/cutlass/{i}" for i in range(len(cutlass_includes(wanted, self._python()))))

    def _python(self) -> Installed:
        return probe_python(self.options.python)

    # files

    def _prepare(self, plans: Sequence[Plan]) -> None:
        """Bring the mirror and the links up to date, touching only what differs."""
        (self.home / "obj").mkdir(parents=True, exist_ok=True)
        if not (self.home / ".gitignore").exists():
            write_atomically(self.home / ".gitignore", "*\n")
        listed = self.project.listed_files()
        kept = {self.mirror / f for f in listed}
        header = self.mirror / self.project.ext_dir / "registration.h"
        generated = {header, self.home / "include" / "torch" / "registration.h"}
        for path in generated:
            _write_if_changed(path, package.resource("registration.h"))
        macros = self.home / "include/cuda/c10/cuda/impl/cuda_cmake_macros.h"
        _write_if_changed(macros, package.resource("cuda_cmake_macros.h"))
        for name in ("cublas_v2", "cublasLt", "cusparse", "cusolverDn", "cusolver_common"):
            _write_if_changed(self.home / f"include/standins/{name}.h", package.resource("cuda_standins.h"))
        for name in listed:
            if self.mirror / name not in generated:
                _link(self.mirror / name, self.project.root / name)
        _remove_others(self.mirror, kept | generated)
        links = {name: target for p in plans for name, target in p.links.items()}
        for name, target in links.items():
            _link(self.home / "ext" / name, Path(target))
        self._cutlass_links()
        host = next((p.host for p in plans if p.host), None)
        if host:
            libraries = sorted({lib for p in plans for lib in p.libraries})
            _link(self.home / "ext" / "stubs", package.stubs(host, libraries))
        if host and any(p.cuda for p in plans):
            _link(self.home / "ext" / graph.PRELOAD, package.stable_paths(host))

    def _cutlass_links(self) -> None:
        kernels = [
            c for t in self.targets for c in self.project.components_for(t.variant.backend) if t.toolchain
        ]
        wanted = sorted({d for c in kernels for d in c.depends if d.startswith("cutlass")})
        for number, folder in enumerate(cutlass_includes(wanted, self._python()) if wanted else ()):
            _link(self.home / "ext" / "cutlass" / str(number), folder)

    # compiling

    def _compile(self, plans: Sequence[Plan]) -> None:
        jobs = self.options.jobs or _positive("MAX_JOBS", os.environ.get("MAX_JOBS"))
        text = graph.ninja_text(plans, launcher=_launcher(), jobs=jobs, memory_gib=free_memory_gib())
        _write_if_changed(self.home / "build.ninja", text)
        commands = graph.compile_commands(plans, self.project.root)
        _write_if_changed(self.home / "compile_commands.json", json.dumps(commands, indent=1))
        status = self._ninja(["-j", str(jobs or cpus()), *(["-k", "0"] if self.options.keep_going else [])])
        text_log = "\n".join(self.log) + "\n"
        if self.log:
            write_atomically(self.home / "build.log", text_log)
        self.warnings = len(re.findall(r"\bwarning\b ?[:#]", text_log))
        if status:
            raise compile_error(text_log, self.project.root)
        if self.options.verbose or (self.warnings and self.project.answers):
            for line in self.log:
                self.progress.note(line)

    def _ninja(self, flags: list[str]) -> int:
        from ninja import BIN_DIR

        verbose = ["-v"] if self.options.verbose else []
        command = [str(Path(BIN_DIR) / "ninja"), "-f", "../build.ninja", *flags, *verbose]
        environment = {**os.environ, "NINJA_STATUS": "@@%f/%t@@ ", "LC_ALL": "C.UTF-8", "TERM": "dumb"}
        environment.pop("LD_PRELOAD", None)
        process = subprocess.Popen(
            command,
            cwd=self.mirror,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            pass_fds=(self.lock.fileno(),),  # the lock lives as long as the last compiler
        )
        try:
            for line in process.stdout or ():
                self._read(line.rstrip("\n"))
            return process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)  # ninja stops its compilers and removes what they half wrote
            process.wait()
            raise

    def _read(self, line: str) -> None:
        if status := _STATUS.match(line):
            done, total, what = int(status[1]), int(status[2]), status[3]
            self.progress.advance(done, total, what)
            if self.options.verbose:
                self.log.append(what)
        elif not line.startswith("ninja: "):
            self.log.append(line)

    # packaging

    def _package(self, target: Target, plan: Plan) -> BuiltVariant:
        stage = self.home / "stage"
        stage.mkdir(exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=stage))
        try:
            return self._package_in(scratch, target, plan)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _package_in(self, scratch: Path, target: Target, plan: Plan) -> BuiltVariant:
        fixed = self.options.namespace is not None
        notes = list(target.notes)
        library, full = None, ""
        if plan.units and plan.host:
            compat = package.compat_archive(plan.host)
            linked = package.link(
                self.project,
                plan,
                self.mirror,
                scratch,
                fixed_id=fixed,
                debug=self.options.debug,
                compat=compat,
            )
            library, full = linked.path, linked.id
            if linked.violations and not self.options.local_only:
                raise _abi_error(plan.variant, linked.violations)
            if linked.violations:
                count = len(linked.violations)
                notes.append(f"local only: {count} symbol{'s' * (count > 1)} too new for other machines")
        else:
            full = package.noarch_id(self.project, plan.stem, fixed_id=fixed)
        inputs = [*self.project.listed_files(), "build.toml", *self._shipped()]
        path = package.write_variant(
            self.project,
            plan,
            full,
            library,
            scratch,
            provenance=package.provenance(self.project, inputs),
            namespace=self.options.namespace,
        )
        if fixed:
            notes.append(f"not publishable: it registers under the fixed namespace {full!r}")
        if self.warnings and not (self.options.verbose or self.project.answers):
            notes.append(f"{self.warnings} compiler warnings, in .kernelgen/build.log")
        return BuiltVariant(
            plan.variant.name, path, full, plan.variant.backend, plan.archs, fresh=False, notes=tuple(notes)
        )

    def _shipped(self) -> list[str]:
        return [p.relative_to(self.project.root).as_posix() for _, p in package.shipped_files(self.project)]

    def _prune(self) -> None:
        """Remove scratch folders that a killed build left."""
        shutil.rmtree(self.home / "stage", ignore_errors=True)


def _abi_error(variant: Variant, violations: Sequence[package.Violation]) -> KernelgenError:
    shown = "\n".join(f"  {v}" for v in violations[:12])
    more = f"\n  and {len(violations) - 12} more" if len(violations) > 12 else ""
    return KernelgenError(
        f"{variant.name} would not load on older machines: {violations[0]}",
        detail=shown + more,
        way_out="avoid what needs these symbols, or keep the build to this machine with --local-only",
    )


def compile_error(log: str, root: Path) -> KernelgenError:
    """The first compiler error of a log, with its place and the lines that explain it."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if match := _ERROR_LINE.match(line):
            place = re.sub(r"[:(](\d+).*$", r":\1", match["place"])
            detail = "\n".join(lines[number : number + 6])
            return KernelgenError(
                "the compiler refused a source file",
                where=place,
                detail=detail,
                way_out=f"the whole log: {root}/.kernelgen/build.log",
            )
    killed = any("Killed" in line or "signal 9" in line for line in lines)
    what = "a compiler was killed, probably for want of memory" if killed else "a compiler failed"
    way = "build with fewer jobs: -j 1" if killed else f"the whole log: {root}/.kernelgen/build.log"
    return KernelgenError(what, detail="\n".join(lines[-12:]), way_out=way)


# -- small questions


def asked_archs(options: BuildOptions) -> tuple[str, ...]:
    """The capabilities to compile for: option, TORCH_CUDA_ARCH_LIST, this machine's GPUs; empty: the default list."""
    if options.archs:
        return graph.parse_archs(" ".join(options.archs), "--arch")
    if text := os.environ.get("TORCH_CUDA_ARCH_LIST", "").strip():
        return graph.parse_archs(text)
    return () if options.all or options.variants else gpu_archs()


def torch_free(root: Path, listed: Sequence[str]) -> frozenset[str]:
    """The listed files that neither include a torch header nor a listed file that does.

    Such a source is compiled without torch's include paths, hence once for all versions of torch.
    """
    contents = {name: (root / name).read_bytes() for name in listed if (root / name).is_file()}
    tainted = {name for name, text in contents.items() if _TORCH_INCLUDE.search(text)}
    by_name: dict[str, set[str]] = {}
    for name in listed:
        by_name.setdefault(Path(name).name, set()).add(name)
    includes = {
        name: {
            target
            for found in _QUOTED_INCLUDE.findall(text)
            for target in by_name.get(Path(found.decode("utf-8", "replace")).name, ())
        }
        for name, text in contents.items()
    }
    while more := {n for n, found in includes.items() if n not in tainted and found & tainted}:
        tainted |= more
    return frozenset(set(contents) - tainted)


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
            way_out=f"set CUTLASS_SRC_DIR to a checkout of CUTLASS {number}, or pip install 'nvidia-cutlass=={number}.*'",
        )
    return found


def cpus() -> int:
    """Processors that this process may use: its affinity and its cgroup's quota."""
    count = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            count = min(count, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return count


def free_memory_gib() -> float | None:
    """Memory that is free in this process's cgroup or on the machine, in GiB; None when neither says."""
    found = []
    try:
        meminfo = Path("/proc/meminfo").read_text()
        if match := re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE):
            found.append(int(match.group(1)) / (1 << 20))
    except OSError:
        pass
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        if limit != "max":
            found.append(max(0, int(limit) - used) / (1 << 30))
    except (OSError, ValueError):
        pass
    return min(found) if found else None


def _positive(name: str, text: str | None) -> int | None:
    if text is None or not text.strip():
        return None
    if not re.fullmatch(r"[1-9]\d*", text.strip()):
        raise KernelgenError(f"{name} must be a whole number above 0, is {text!r}", where=name)
    return int(text)


def _launcher() -> str | None:
    return shutil.which("ccache") or shutil.which("sccache")


# -- files


def _write_if_changed(path: Path, text: str) -> None:
    if not path.is_file() or path.is_symlink() or path.read_text("utf-8") != text:
        write_atomically(path, text)


def _link(link: Path, target: Path) -> None:
    """Make `link` point at `target` (absolute), replacing what is there."""
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)
    temporary = link.with_name(f".{link.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def _remove_others(folder: Path, kept: set[Path]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path in kept:
            continue
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


@contextmanager
def _locked(root: Path, progress: Progress) -> Iterator[IO[str]]:
    """Hold the project's lock, which the system frees when the last process that has it dies."""
    home = root / ".kernelgen"
    try:
        home.mkdir(exist_ok=True)
        file = (home / "lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise KernelgenError(f"cannot write in the project: {error.strerror}", where=str(home)) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            progress.note(f"waiting for the build of this project by process {file.read().strip() or '?'}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield file


# -- nothing changed


def up_to_date(project: Project, options: BuildOptions) -> list[BuiltVariant] | None:
    """The variants of the last build with these options, if neither an input nor an output changed since."""
    try:
        state = json.loads((project.root / ".kernelgen" / "state.json").read_text("utf-8"))
        entry = state["builds"][_key(options)]
        if entry["inputs"] != input_states(project, options):
            return None
        found = []
        for item in entry["variants"]:
            path = project.root / "build" / item["name"]
            if tree_state(path) != item["state"]:
                return None
            notes, archs = tuple(item["notes"]), tuple(item["archs"])
            found.append(BuiltVariant(item["name"], path, item["id"], item["backend"], archs, True, notes))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found


def _remember(
    project: Project, options: BuildOptions, inputs: Mapping[str, Any], built: Sequence[BuiltVariant]
) -> None:
    path = project.root / ".kernelgen" / "state.json"
    try:
        builds = dict(json.loads(path.read_text("utf-8"))["builds"])
    except (OSError, ValueError, KeyError, TypeError):
        builds = {}
    entries = [
        {
            "name": b.name,
            "id": b.id,
            "backend": b.backend,
            "archs": b.archs,
            "notes": b.notes,
            "state": tree_state(b.path),
        }
        for b in built
    ]
    builds.pop(_key(options), None)
    builds[_key(options)] = {"inputs": inputs, "variants": entries}
    newest = dict(list(builds.items())[-20:])
    package.write_json(path, {"builds": newest})


def _key(options: BuildOptions) -> str:
    """The options that decide what is built."""
    shown = {
        k: v for k, v in asdict(options).items() if k not in ("jobs", "verbose", "keep_going", "offline")
    }
    return hashlib.sha256(json.dumps(shown, default=str, sort_keys=True).encode()).hexdigest()[:16]


def input_states(project: Project, options: BuildOptions) -> dict[str, Any]:
    """The state of everything that a build reads: files by size and time, variables, the commit."""
    root = project.root
    files = [root / "build.toml", *(root / f for f in project.listed_files())]
    files += [p for _, p in package.shipped_files(project)]
    states = {str(p.relative_to(root)): _state(p) for p in files}
    names = (
        "CXX",
        "CUDA_HOME",
        "CUDA_PATH",
        "TORCH_CUDA_ARCH_LIST",
        "DEBUG",
        "CUTLASS_SRC_DIR",
        "KERNELGEN_CACHE",
    )
    here = Path(kernelgen.__file__).parent
    modules = ("build", "graph", "package", "project", "toolchain", "variants")
    own = [*(here / f"{m}.py" for m in modules), *(here / "data").iterdir()]
    return {
        "files": states,
        "environment": {n: os.environ.get(n) for n in names},
        "tools": _tool_states(options),
        "kernelgen": [kernelgen.__version__, max(_state(p)[0] for p in own)],
        "git": package.provenance(project, list(states)).get("kernel"),
    }


def _tool_states(options: BuildOptions) -> dict[str, Any]:
    installed = probe_python(options.python)
    places = {
        "python": installed.python.executable,
        "torch": installed.torch and installed.torch / "version.py",
        "tvm-ffi": installed.tvm_ffi,
        "nvcc": shutil.which("nvcc"),
        "cuda": SYSTEM_NVCC,
        "cxx": shutil.which(os.environ.get("CXX") or "g++"),
        "launcher": _launcher(),
    }
    return {name: [str(p), _state(Path(p))] if p else None for name, p in places.items()}


def _state(path: Path) -> list[int]:
    try:
        found = path.stat()
    except OSError:
        return [0, 0]
    return [found.st_mtime_ns, found.st_size]


def tree_state(folder: Path) -> dict[str, list[int]]:
    """Size and time of every file below a folder, bytecode apart."""
    return {
        p.relative_to(folder).as_posix(): _state(p)
        for p in sorted(folder.rglob("*"))
        if p.is_file() and "__pycache__" not in p.parts
    }
