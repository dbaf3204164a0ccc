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
from typing import IO, TYPE_CHECKING, Any

import kernelgen
from kernelgen import graph, package
from kernelgen.errors import KernelgenError
from kernelgen.graph import Plan, Settings
from kernelgen.targets import (
    BuildOptions,
    Progress,
    Silent,
    Target,
    asked_archs,
    cutlass_includes,
    refuse_foreign,
    targets,
)
from kernelgen.toolchain import hipcc_places, host_names, nvcc_places, probe_python, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernelgen.project import Project
    from kernelgen.variants import Variant

__all__ = [
    "BuildOptions",
    "BuiltVariant",
    "Progress",
    "Silent",
    "Target",
    "build",
    "is_stale",
    "refuse_foreign",
    "targets",
    "up_to_date",
]

_TORCH_INCLUDE = re.compile(
    rb"^[ \t]*#[ \t]*include[ \t]*[<\"](torch/|ATen/|c10/|caffe2/|Python\.h|registration\.h)", re.MULTILINE
)
_QUOTED_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]+)[>\"]", re.MULTILINE)
_STATUS = re.compile(r"^@@(\d+)/(\d+)@@ (.*)$")
_ERROR_LINE = re.compile(
    r"^(?P<place>[^\s:(][^:(]*[:(]\d+(?:[:)]\d*)?\)?):?\s+(?:fatal )?error\s*:?\s", re.IGNORECASE
)
_CGROUP = Path("/sys/fs/cgroup")


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


def build(
    project: Project,
    options: BuildOptions | None = None,
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
    options = options or BuildOptions()
    if done := up_to_date(project, options):
        return done
    found = targets(project, options, shown)
    with _locked(project.root, shown) as lock:
        # another build may have done it while this one waited
        return up_to_date(project, options) or _Run(project, options, shown, found, lock).run()


def is_stale(project: Project, options: BuildOptions | None = None) -> bool:
    """Whether `build` would do something; costs a few file states, and compares no contents."""
    return up_to_date(project, options or BuildOptions()) is None


# -- running


class _Run:
    """One build of one project, with the lock held."""

    def __init__(
        self, project: Project, options: BuildOptions, progress: Progress, found: list[Target], lock: IO[str]
    ) -> None:
        self.project, self.options, self.progress, self.targets = project, options, progress, found
        self.lock = lock
        self.debug = options.debug or os.environ.get("DEBUG", "").lower() in ("1", "true", "yes", "on")
        self.cutlass = self._cutlass()
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
            debug=self.debug,
            torch_free=torch_free(self.project.root, sources),
            nvcc_threads=_positive("NVCC_THREADS", os.environ.get("NVCC_THREADS")),
            cpus=cpus(),
            cutlass=tuple(f"../ext/cutlass/{i}" for i in range(len(self.cutlass))),
        )

    def _cutlass(self) -> list[Path]:
        """Include directories of CUTLASS, if a component depends on it."""
        kernels = [
            c for t in self.targets for c in self.project.components_for(t.variant.backend) if t.toolchain
        ]
        wanted = sorted({d for c in kernels for d in c.depends if d.startswith("cutlass")})
        return cutlass_includes(wanted, probe_python(self.options.python)) if wanted else []

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
        _remove_others(self.mirror, kept | generated)  # first, or we write through a link of an older layout
        for path in generated:
            _write_if_changed(path, package.resource("registration.h"))
        macros = self.home / "include/cuda/c10/cuda/impl/cuda_cmake_macros.h"
        _write_if_changed(macros, package.resource("cuda_cmake_macros.h"))
        _write_if_changed(self.home / "hipify.py", package.resource("hipify.py.txt"))
        for name in ("cublas_v2", "cublasLt", "cusparse", "cusolverDn", "cusolver_common"):
            _write_if_changed(self.home / f"include/standins/{name}.h", package.resource("cuda_standins.h"))
        for name in listed:
            if self.mirror / name not in generated:
                _link(self.mirror / name, self.project.root / name)
        links = {name: target for p in plans for name, target in p.links.items()}
        for name, target in links.items():
            _link(self.home / "ext" / name, Path(target))
        for number, folder in enumerate(self.cutlass):
            _link(self.home / "ext" / "cutlass" / str(number), folder)
        host = next((p.host for p in plans if p.host), None)
        if host:
            libraries = sorted({lib for p in plans for lib in p.libraries})
            _link(self.home / "ext" / "stubs", package.stubs(host, libraries))
        if host and any(p.cuda for p in plans):
            _link(self.home / "ext" / graph.PRELOAD, package.stable_paths(host))

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
        notes = list(target.notes)
        library, full = None, ""
        if plan.units and plan.host:
            compat = package.compat_archive(plan.host)
            linked = package.link(
                self.project,
                plan,
                self.mirror,
                scratch,
                debug=self.debug,
                compat=compat,
            )
            library, full = linked.path, linked.id
            if linked.violations and not self.options.local_only:
                raise _abi_error(plan.variant, linked.violations)
            if linked.violations:
                count = len(linked.violations)
                notes.append(f"local only: {count} symbol{'s' * (count > 1)} too new for other machines")
        else:
            full = package.noarch_id(self.project, plan.stem)
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
        if self.debug:
            notes.append("not publishable: it was built with --debug")
        if self.options.namespace:
            notes.append(
                f"not publishable: it registers under the fixed namespace {self.options.namespace!r}"
            )
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


def cpus() -> int:
    """Processors that this process may use: its affinity and its cgroup's quota."""
    count = len(os.sched_getaffinity(0))
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
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
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        if limit != "max":
            found.append(max(0, int(limit) - used + _idle_cache()) / (1 << 30))
    except (OSError, ValueError):
        pass
    return min(found) if found else None


def _idle_cache() -> int:
    """Bytes of files that the cgroup keeps in memory until something else needs it."""
    try:
        match = re.search(r"^inactive_file (\d+)$", (_CGROUP / "memory.stat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match.group(1)) if match else 0


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
    if not path.is_file() or path.is_symlink() or path.read_bytes() != text.encode():
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
    own = [*here.glob("*.py"), *(here / "data").iterdir()]
    return {
        "files": states,
        "environment": {n: os.environ.get(n) for n in names},
        "tools": _tool_states(options),
        "kernelgen": [kernelgen.__version__, max(_state(p)[0] for p in own)],
        "git": package.provenance(project, list(states)).get("kernel"),
    }


def _tool_states(options: BuildOptions) -> dict[str, Any]:
    installed = probe_python(options.python)
    places: dict[str, Iterable[Path | str | None]] = {
        "python": [installed.python.executable],
        "torch": [installed.torch and installed.torch / "version.py"],
        "tvm-ffi": [installed.tvm_ffi],
        "nvcc": nvcc_places(options.cuda_home, installed),
        "hipcc": hipcc_places(),
        "icpx": [shutil.which("icpx")],
        "cxx": [shutil.which(n) for n in host_names()],
        "launcher": [_launcher()],
    }
    # where a link leads tells apart two toolkits that were unpacked with the same times
    return {
        name: [[str(p), str(Path(p).resolve()), _state(Path(p))] for p in found if p]
        for name, found in places.items()
    }


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
