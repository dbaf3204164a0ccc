"""What this machine can compile with: an interpreter's torch, CUDA, and a host compiler.

The types are frozen and hold nothing but facts, so that a toolchain may come from the machine (the probes in
this file) or from an unpacked wheel. No probe imports torch: its facts are read from the files it ships.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Python:
    """The interpreter that will load the kernel."""

    executable: Path
    version: str  # "3.11.7"
    include_dir: Path | None  # holds Python.h; None without headers, or where they have no limited API
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
    max_gcc: int | None = None  # newest g++ major that its host_config.h lets through
    math_dirs: (
        tuple[Path, ...] | None
    ) = ()  # further include dirs with cusparse.h and its kin; None: there are none
    random_seed: bool = True  # whether nvcc takes --frandom-seed (see `nvcc --help`)

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version: (13, 0)."""
        return release(self.version)


@dataclass(frozen=True)
class Rocm:
    """A ROCm toolkit."""

    version: str  # of HIP: "7.1"
    home: Path
    hipcc: Path

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version: (7, 1)."""
        return release(self.version)


@dataclass(frozen=True)
class HostCompiler:
    """The C++ compiler, and the one that nvcc accepts where they differ."""

    cxx: Path
    kind: str  # "gcc" or "clang"
    version: str  # "12.2.0"
    target: str = ""  # "x86_64-linux-gnu"
    shared_stdcxx: bool = True  # whether -lstdc++ finds a shared library; a trimmed g++ has only the archive

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version: (12, 2)."""
        return release(self.version)


@dataclass(frozen=True)
class TvmFfi:
    """apache-tvm-ffi as installed: headers and library."""

    version: str
    include_dirs: tuple[Path, ...]
    lib_dir: Path


@dataclass(frozen=True)
class Toolchain:
    """All that one variant is compiled with."""

    host: HostCompiler  # for xpu, icpx
    python: Python
    torch: Torch | None = None
    cuda: Cuda | None = None
    tvm_ffi: TvmFfi | None = None
    rocm: Rocm | None = None
    cuda_host: HostCompiler | None = None  # for nvcc, where it refuses `host`
    machine: str = field(default_factory=lambda: machine())  # "x86_64" or "aarch64"
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


def arch_order(arch: str) -> tuple[list[int], str]:
    """The order of GPU architectures: by number, and the bare one before those with a suffix.

    >>> sorted(["10.0", "9.0a", "9.0+PTX", "9.0", "7.5"], key=arch_order)
    ['7.5', '9.0', '9.0+PTX', '9.0a', '10.0']
    >>> sorted(["gfx1030", "gfx90a", "gfx906"], key=arch_order)
    ['gfx906', 'gfx90a', 'gfx1030']
    """
    amd = re.match(r"gfx([0-9a-f]+)", arch)  # the last two digits are hexadecimal
    return [int(amd[1], 16)] if amd else _digits(arch), arch


# -- probes of this machine

SYSTEM_NVCC = Path("/usr/local/cuda/bin/nvcc")


def machine() -> str:
    """This machine's processor as variant names spell it: x86_64 or aarch64."""
    name = platform.machine().lower()
    spelled = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}.get(name)
    if spelled is None:
        raise KernelgenError(
            f"no kernel variants exist for {name} processors", way_out="build on x86_64 or aarch64"
        )
    return spelled


# Run in the interpreter that is asked: it finds torch without importing it.
_PYTHON_SCRIPT = """
import importlib.util, json, os, sys, sysconfig
spec = {n: importlib.util.find_spec(n) for n in ("torch", "tvm_ffi")}
facts = json.dumps({
    "version": ".".join(map(str, sys.version_info[:3])), "include": sysconfig.get_path("include"),
    "site": [p for p in sys.path if os.path.isdir(p)],
    "free": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "packages": {n: os.path.dirname(s.origin) for n, s in spec.items() if s and s.origin}})
"""


@dataclass(frozen=True)
class Installed:
    """An interpreter with the folders of the packages that kernels are built against."""

    python: Python
    torch: Path | None
    tvm_ffi: Path | None


def probe_python(executable: Path | str | None = None) -> Installed:
    """Ask an interpreter (this one by default) what it is and where its torch lies; torch is not imported.

    Raises:
        KernelgenError: it does not exist, does not run, or is older than 3.9.
    """
    path = Path(sys.executable) if executable is None else _existing_python(executable)
    facts = _python_facts(path)
    if release(facts["version"]) < (3, 9):
        raise KernelgenError(f"{path} is Python {facts['version']}; kernels need 3.9 or newer")
    include = Path(facts["include"])
    python = Python(
        executable=path,
        version=facts["version"],
        include_dir=include if (include / "Python.h").exists() and not facts["free"] else None,
        site_dirs=tuple(Path(p) for p in facts["site"]),
        free_threaded=facts["free"],
    )
    found = {name: Path(place) for name, place in facts["packages"].items()}
    return Installed(python, found.get("torch"), found.get("tvm_ffi"))


def _python_facts(path: Path) -> dict[str, Any]:
    if path == Path(sys.executable):
        scope: dict[str, Any] = {}
        exec(_PYTHON_SCRIPT, scope)  # noqa: S102  the constant above; a process more would cost 30 ms
        return dict(json.loads(scope["facts"]))
    result = _run([path, "-c", f"{_PYTHON_SCRIPT}print(facts)"])
    said = result.stdout.strip() if result else ""
    try:
        if result is None or result.returncode:
            raise ValueError
        facts = dict(json.loads(said.rpartition("\n")[2]))  # a site's own module may print before us
    except (ValueError, TypeError):
        facts = {}
    if not facts.keys() >= {"version", "include", "site", "free", "packages"}:
        raise KernelgenError(
            f"{path} does not run as a Python interpreter",
            where="--python",
            detail=(result.stderr.strip() if result else "") or said or None,
            way_out="name one that does, such as .venv/bin/python",
        )
    return facts


def _existing_python(executable: Path | str) -> Path:
    path = Path(executable).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    found = shutil.which(str(path))
    if found is None:
        raise KernelgenError(f"there is no interpreter {str(executable)!r}", where="--python")
    return Path(found).absolute()  # not resolved: a virtual environment is found by its link


def read_torch(folder: Path) -> Torch:
    """A torch from its installed or unpacked `torch` folder.

    Raises:
        KernelgenError: the folder has no version or no headers.
    """
    try:
        text = (folder / "version.py").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    facts = dict(
        re.findall(r"^(__version__|cuda|hip|xpu)\b[^=\n]*= *['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    )
    if "__version__" not in facts:
        raise KernelgenError(
            f"{folder} is not a torch package: its version.py says no version", way_out="reinstall torch"
        )
    include = folder / "include"
    if not (include / "c10").is_dir():
        raise KernelgenError(f"the torch in {folder} has no headers", way_out="install torch from its wheel")
    config = folder / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    old_abi = config.exists() and "_GLIBCXX_USE_CXX11_ABI=0" in config.read_text("utf-8")
    lib = folder / "lib"
    return Torch(
        version=facts["__version__"],
        include_dirs=(include, include / "torch" / "csrc" / "api" / "include"),
        lib_dir=lib if (lib / "libc10.so").exists() else None,
        cuda=facts.get("cuda"),
        hip=facts.get("hip"),
        xpu=facts.get("xpu"),
        cxx11_abi=not old_abi,
    )


def read_tvm_ffi(folder: Path) -> TvmFfi:
    """The tvm-ffi of an installed `tvm_ffi` package folder."""
    dist = sorted(folder.parent.glob("apache_tvm_ffi-*.dist-info"))
    lib = folder / "lib"
    include = folder / "include"
    if not dist or not include.is_dir() or not lib.is_dir():
        raise KernelgenError(f"the tvm-ffi in {folder} is incomplete", way_out="pip install apache-tvm-ffi")
    dlpack = folder / "3rdparty" / "dlpack" / "include"
    return TvmFfi(dist[-1].stem.split("-")[1], (include, *([dlpack] if dlpack.is_dir() else [])), lib)


def host_names() -> tuple[str, ...]:
    """The names that the C++ compiler is looked for by: $CXX alone, where it is set."""
    asked = os.environ.get("CXX")
    return (asked,) if asked else ("g++", "clang++", "c++")


def probe_host(cxx: Path | str | None = None) -> HostCompiler:
    """The C++ compiler: as given, $CXX, g++, then clang++.

    Raises:
        KernelgenError: none is found, or the one asked for does not run.
    """
    asked = cxx or os.environ.get("CXX")
    for name in (asked,) if asked else host_names():
        found = shutil.which(str(name))
        if found:
            return HostCompiler(
                **{**(facts := _cached("host", Path(found), _host_facts)), "cxx": Path(facts["cxx"])}
            )
        if asked:
            raise KernelgenError(
                f"the C++ compiler {str(asked)!r} was not found", where="$CXX" if not cxx else None
            )
    raise KernelgenError(
        "no C++ compiler was found (looked for g++, clang++ and c++)",
        way_out="sudo apt install g++, or set CXX",
    )


def _host_facts(path: Path) -> dict[str, Any]:
    banner = _run([path, "--version"])
    version = _run([path, "-dumpfullversion", "-dumpversion"])
    target = _run([path, "-dumpmachine"])
    library = _run([path, "-print-file-name=libstdc++.so"])
    if not (banner and version and target) or version.returncode:
        raise KernelgenError(f"the C++ compiler {path} does not run")
    kind = "clang" if "clang" in banner.stdout else "gcc"
    return {
        "cxx": str(path),
        "kind": kind,
        "version": version.stdout.strip(),
        "target": target.stdout.strip(),
        "shared_stdcxx": library is None or "/" in library.stdout,
    }


def find_older_gcc(newest: int) -> HostCompiler | None:
    """The newest g++-N on PATH that nvcc still takes."""
    for major in range(newest, 6, -1):
        if found := shutil.which(f"g++-{major}"):
            return probe_host(found)
    return None


def probe_cuda(home: Path | str | None = None, installed: Installed | None = None) -> Cuda | None:
    """The CUDA toolkit: option, CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda, pip's, conda's.

    Returns:
        None when there is none and none was asked for.

    Raises:
        KernelgenError: the one that was asked for, by option or variable, holds no compiler.
    """
    if asked := next(_asked_homes(home), None):
        return _asked_cuda(*asked)
    for nvcc in _nvcc_candidates(installed):
        if nvcc.is_file():
            try:
                return read_cuda(nvcc)
            except KernelgenError:
                continue
    return None


def nvcc_places(home: Path | str | None, installed: Installed) -> list[Path]:
    """Every nvcc that a build may take, whether it is there or not: the ones asked for, then the others."""
    asked = [_home_nvcc(value) for _, value in _asked_homes(home)]
    return list(dict.fromkeys([*asked, *_nvcc_candidates(installed)]))


def _asked_homes(home: Path | str | None) -> Iterator[tuple[str, str]]:
    """The toolkits that were asked for, each with the option or variable that names it."""
    yield from [("--cuda-home", str(home))] if home else []
    yield from ((n, os.environ[n]) for n in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(n))


def _home_nvcc(home: str) -> Path:
    return Path(home).expanduser() / "bin" / "nvcc"


def _asked_cuda(place: str, value: str) -> Cuda:
    nvcc = _home_nvcc(value)
    if nvcc.is_file():
        return read_cuda(nvcc)
    if os.pathsep in value:
        raise KernelgenError(f"{place} must name one folder, not a list: {value}")
    what = "does not exist" if not Path(value).expanduser().is_dir() else "has no bin/nvcc"
    raise KernelgenError(f"{place} is {value}, which {what}", way_out="name the folder that holds bin/nvcc")


def cuda_homes() -> list[Path]:
    """Toolkits in the usual system places, newest first."""
    found = [p for p in Path("/usr/local").glob("cuda*") if (p / "bin" / "nvcc").is_file()]
    return sorted({p.resolve() for p in found}, key=lambda p: _digits(p.name), reverse=True)


def _digits(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def _nvcc_candidates(installed: Installed | None) -> Iterator[Path]:
    if found := shutil.which("nvcc"):
        yield Path(found)
    yield SYSTEM_NVCC
    yield from (p / "bin" / "nvcc" for p in cuda_homes())
    for site in installed.python.site_dirs if installed else ():
        pip_homes = sorted((site / "nvidia").glob("cu[0-9]*"), key=lambda p: _digits(p.name), reverse=True)
        yield from (p / "bin" / "nvcc" for p in pip_homes)
        yield site / "nvidia" / "cuda_nvcc" / "bin" / "nvcc"
    if prefix := os.environ.get("CONDA_PREFIX"):
        yield Path(prefix) / "bin" / "nvcc"


def read_cuda(nvcc: Path) -> Cuda:
    """The toolkit behind an nvcc, through links and wrapper scripts: nvcc itself says where its parts are.

    Raises:
        KernelgenError: it does not run.
    """
    facts = _cached("cuda", nvcc, _cuda_facts)
    return Cuda(
        version=facts["version"],
        home=Path(facts["home"]),
        nvcc=Path(facts["nvcc"]),
        include_dirs=tuple(Path(p) for p in facts["include"]),
        lib_dir=Path(facts["lib"]) if facts["lib"] else None,
        full_version=facts["full_version"],
        flags=tuple(facts["flags"]),
        max_gcc=facts["max_gcc"],
        random_seed=facts["random_seed"],
        math_dirs=() if facts["math"] else None,
    )


def _cuda_facts(nvcc: Path) -> dict[str, Any]:
    banner = _run([nvcc, "--version"])
    dry = _run([nvcc, "--dryrun", "-c", "x.cu"])
    full = re.search(r"V(\d+\.\d+\.\d+)", banner.stdout) if banner else None
    top = re.search(r"^#\$ TOP=(.+)$", dry.stderr, re.MULTILINE) if dry else None
    if full is None or top is None:
        said = (banner.stderr or banner.stdout).strip() if banner else None
        raise KernelgenError(f"{nvcc} does not run as nvcc", detail=said)
    home = Path(os.path.normpath(top.group(1)))
    real = home / "bin" / "nvcc"
    # a toolkit's include and lib64 are often links to those of its target
    targets = [home / "targets" / f"{machine()}-linux", home / "targets" / "sbsa-linux"]
    found = [d / "include" for d in (home, *targets) if (d / "include" / "cuda_runtime.h").is_file()]
    includes = list({d.resolve(): d for d in reversed(found)}.values())[::-1]
    includes += [d / "cccl" for d in includes if (d / "cccl").is_dir()]
    libs = [home / "lib64", home / "lib", *(t / "lib" for t in targets)]
    lib = next((d for d in libs if (d / "libcudart.so").exists()), None)
    extra = [f"-I{d}" for d in includes] if not (home / "include").is_dir() else []
    return {
        "version": ".".join(full.group(1).split(".")[:2]),
        "full_version": full.group(1),
        "home": str(home),
        "nvcc": str(real if real.is_file() else nvcc),
        "include": [str(d) for d in includes],
        "lib": str(lib) if lib else "",
        "flags": extra,
        "max_gcc": _max_gcc(includes),
        "math": any((d / "cusparse.h").is_file() for d in includes),
        "random_seed": "--frandom-seed" in (usage.stdout if (usage := _run([nvcc, "--help"])) else ""),
    }


def with_math_headers(cuda: Cuda, installed: Installed) -> Cuda:
    """A toolkit that lacks cuBLAS's headers and their like, completed from pip's NVIDIA packages."""
    if cuda.math_dirs is not None:
        return cuda
    for site in installed.python.site_dirs:
        found = tuple(sorted(p for p in (site / "nvidia").glob("*/include") if any(p.glob("cu[bs]*.h"))))
        if any((d / "cusparse.h").is_file() for d in found):
            return replace(cuda, math_dirs=found)
    return cuda


def _max_gcc(includes: list[Path]) -> int | None:
    for folder in includes:
        header = folder / "crt" / "host_config.h"
        if header.is_file() and (limit := re.search(r"#if __GNUC__ > (\d+)", header.read_text("latin-1"))):
            return int(limit.group(1))
    return None


def hipcc_places() -> list[Path]:
    """Where hipcc is looked for: ROCM_HOME, ROCM_PATH, PATH, /opt/rocm."""
    homes = [Path(os.environ[n]) for n in ("ROCM_HOME", "ROCM_PATH") if os.environ.get(n)]
    on_path = shutil.which("hipcc")
    return [
        *(home / "bin" / "hipcc" for home in homes),
        *([Path(on_path)] if on_path else []),
        Path("/opt/rocm/bin/hipcc"),
    ]


def probe_rocm() -> Rocm | None:
    """The ROCm toolkit of the first hipcc that runs."""
    for hipcc in hipcc_places():
        banner = _run([hipcc, "--version"]) if hipcc.is_file() else None
        if banner and (version := re.search(r"HIP version: (\d+\.\d+)", banner.stdout)):
            return Rocm(version.group(1), hipcc.resolve().parent.parent, hipcc)
    return None


def probe_icpx() -> HostCompiler | None:
    """Intel's SYCL compiler on PATH."""
    found = shutil.which("icpx")
    banner = _run([found, "--version"]) if found else None
    version = re.search(r"Compiler (\d+\.\d+\.\d+)", banner.stdout) if banner else None
    return (
        HostCompiler(Path(found), "clang", version.group(1), f"{machine()}-linux")
        if found and version
        else None
    )


def gpu_archs() -> tuple[str, ...]:
    """Compute capabilities of this machine's NVIDIA GPUs ("9.0"), by nvidia-smi; empty without one."""
    tool = shutil.which("nvidia-smi")
    result = _run([Path(tool), "--query-gpu=compute_cap", "--format=csv,noheader"]) if tool else None
    if result is None or result.returncode:
        return ()
    return tuple(sorted(set(re.findall(r"^\d+\.\d+$", result.stdout, re.MULTILINE)), key=_digits))


def user_cache() -> Path:
    """Where probes, compatibility objects and toolchains are kept: $KERNELGEN_CACHE, or the user's cache."""
    if place := os.environ.get("KERNELGEN_CACHE"):
        return Path(place).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("kernelgen", appauthor=False)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the old or the new content, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _cached(kind: str, path: Path, probe: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Run a probe once for each state of a program, known by path, size and time of its link and target."""
    stat, link = path.stat(), path.lstat()
    key = f"{path}|{path.resolve()}|{stat.st_mtime_ns}|{stat.st_size}|{link.st_mtime_ns}|6"
    store = user_cache() / f"probe-{kind}.json"
    try:
        known = json.loads(store.read_text("utf-8"))
    except (OSError, ValueError):
        known = {}
    if not isinstance(known, dict) or key not in known:
        known = {**(known if isinstance(known, dict) else {}), key: probe(path)}
        with contextlib.suppress(OSError):  # a cache that cannot be written costs a second, no more
            write_atomically(store, json.dumps(known, indent=1))
    return dict(known[key])


def _run(command: list[Path | str]) -> subprocess.CompletedProcess[str] | None:
    """Run a program for what it prints; None when it cannot be started or hangs."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(
            [str(c) for c in command],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=60,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
