"""What this machine has and lacks for building, testing and publishing kernels, one row a subject.

Every row is judged by what it stops: an error stops a local build, a warning stops or weakens something else.
A lack comes with the one command that mends it, in the words of this machine's package manager. Nothing is
imported that could crash: torch and the loader are asked in a process of their own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.version import InvalidVersion, Version

from kernelgen import fetch, toolchain
from kernelgen.errors import KernelgenError
from kernelgen.project import Project
from kernelgen.toolchain import Cuda, HostCompiler, Installed, Torch, release

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Verdict = Literal["ok", "warn", "error"]

_BUILD_BYTES = 2 << 30  # a build with a toolkit from the cache takes about this much disk
_UNIT_BYTES = 3 << 30  # a translation unit with all of torch's headers, in nvcc

# Package names by package manager; the first manager found on PATH is spoken to.
_PACKAGES = {
    "apt-get": ("sudo apt-get install -y", {"g++": "g++", "python": "python3-dev", "git": "git"}),
    "dnf": ("sudo dnf install -y", {"g++": "gcc-c++", "python": "python3-devel", "git": "git"}),
    "zypper": ("sudo zypper install -y", {"g++": "gcc-c++", "python": "python3-devel", "git": "git"}),
    "pacman": ("sudo pacman -S --noconfirm", {"g++": "gcc", "python": "python", "git": "git"}),
    "conda": ("conda install -y -c conda-forge", {"g++": "gxx", "python": "python", "git": "git"}),
    "brew": ("brew install", {"g++": "gcc", "python": "python", "git": "git"}),
}


@dataclass(frozen=True)
class Row:
    """One subject: what was found, what that means, and what mends it."""

    subject: str
    found: str
    verdict: Verdict
    mend: str | None = None  # one command; None when nothing is wrong or no command helps

    def as_json(self) -> dict[str, Any]:
        """Plain values, for --json."""
        return asdict(self)


def diagnose(
    root: Path | None = None,
    *,
    python: Path | str | None = None,
    cxx: Path | str | None = None,
    cuda_home: Path | str | None = None,
) -> list[Row]:
    """Probe the machine.

    Args:
        root: a kernel project; with one, a lack that does not concern its backends is no warning.
        python: the interpreter that will load kernels; this one by default.
        cxx: the C++ compiler; $CXX or g++ by default.
        cuda_home: the CUDA toolkit; found as for a build by default.

    Returns:
        The rows in the order a person would mend them. No lack raises: it is a row.
    """
    wants_cuda, project = _project(root)
    rows: list[Row] = []
    installed = _attempt(rows, "python", lambda: toolchain.probe_python(python))
    host = _attempt(rows, "C++ compiler", lambda: toolchain.probe_host(cxx), _install("g++"))
    torch = _torch(rows, installed)
    cuda = _attempt(rows, "CUDA toolkit", lambda: toolchain.probe_cuda(cuda_home, installed))
    if installed:
        rows += _python_rows(installed)
    if host:
        rows.append(Row("C++ compiler", f"{host.kind} {host.version}, {host.cxx}", "ok"))
    if not any(row.subject == "CUDA toolkit" for row in rows):
        rows += _cuda_rows(cuda, torch, wants=wants_cuda)
    if cuda and host:
        rows.append(_pair_row(cuda, host))
    rows += _gpu_rows(torch, wants=wants_cuda)
    rows += [_ninja_row(), _cache_tool_row(), *_git_rows(root), _nix_row()]
    rows += [
        _disk_row(toolchain.user_cache(), "disk for the cache"),
        _disk_row(root or Path.cwd(), "disk here"),
    ]
    rows.append(_memory_row())
    if installed:
        rows += _loader_rows(installed, torch, project)
    return sorted(rows, key=lambda row: _ORDER.index(row.subject))


def worst(rows: Iterable[Row]) -> Verdict:
    """The gravest verdict of all, which decides the exit status."""
    found = {row.verdict for row in rows}
    return "error" if "error" in found else "warn" if "warn" in found else "ok"


_ORDER = (
    "python", "python headers", "torch", "C++ compiler", "CUDA toolkit", "torch and CUDA",
    "nvcc and C++ compiler", "driver", "GPU", "ninja", "compiler cache", "git", "git identity", "nix",
    "disk here", "disk for the cache", "memory", "kernels loader", "loader and torch", "builds",
)  # fmt: skip


def _attempt(rows: list[Row], subject: str, probe: Any, mend: str | None = None) -> Any:
    """A probe's value, or None and a row that says what was wrong."""
    try:
        return probe()
    except KernelgenError as error:
        rows.append(Row(subject, error.what, "error", mend or error.way_out))
        return None


def _project(root: Path | None) -> tuple[bool, Project | None]:
    """Whether CUDA matters, and the project if there is a readable one."""
    if root is None or not (root / "build.toml").is_file():
        return True, None
    try:
        project = Project.load(root)
    except KernelgenError:
        return True, None
    return "cuda" in project.backends, project


def _install(what: str) -> str | None:
    """The command that installs a system package here."""
    for manager, (command, names) in _PACKAGES.items():
        if shutil.which(manager):
            return f"{command} {names.get(what, what)}"
    return None


def _pip_install(python: Path | str, *packages: str) -> str:
    return shlex.join([str(python), "-m", "pip", "install", *packages])


# --- Python and torch ---------------------------------------------------------------------------------------


def _python_rows(installed: Installed) -> Iterator[Row]:
    python = installed.python
    threads = ", free-threaded" if python.free_threaded else ""
    yield Row("python", f"{python.version}{threads}, {python.executable}", "ok")
    if python.free_threaded and release(python.version) < (3, 15):
        yield Row(
            "loader and torch",
            "the loader takes no compiled variant on a free-threaded Python before 3.15",
            "warn",
        )
    if python.include_dir is None:
        version = ".".join(python.version.split(".")[:2])
        mend = _install("python")
        if mend and "apt-get" in mend:
            mend = mend.replace("python3-dev", f"python{version}-dev")
        yield Row("python headers", "Python.h is not installed", "error", mend)
    else:
        yield Row("python headers", str(python.include_dir), "ok")


def _torch(rows: list[Row], installed: Installed | None) -> Torch | None:
    """The interpreter's torch, with its row."""
    if installed is None:
        return None
    mend = _pip_install(installed.python.executable, "torch")
    if installed.torch is None:
        rows.append(Row("torch", f"not installed for {installed.python.executable}", "error", mend))
        return None
    folder = installed.torch
    torch: Torch | None = _attempt(rows, "torch", lambda: toolchain.read_torch(folder), mend)
    if torch is not None:
        built = [f"CUDA {torch.cuda}" if torch.cuda else "", f"ROCm {torch.hip}" if torch.hip else ""]
        with_what = " and ".join(filter(None, built)) or "no GPU support"
        rows.append(Row("torch", f"{torch.version}, built with {with_what}", "ok"))
    return torch


# --- CUDA ---------------------------------------------------------------------------------------------------


def _cuda_rows(cuda: Cuda | None, torch: Torch | None, *, wants: bool) -> Iterator[Row]:
    wanted = torch.cuda if torch and torch.cuda else "13.0"
    if cuda is None:
        held = [entry for entry in fetch.cached() if entry.kind == "cuda"]
        if held:
            yield Row("CUDA toolkit", f"{held[0].version}, in kernelgen's cache", "ok")
            return
        mend = _cuda_from_pip(wanted) if wants else None
        yield Row("CUDA toolkit", "none found", "warn" if wants else "ok", mend)
        return
    others = [str(home) for home in toolchain.cuda_homes() if home != cuda.home.resolve()]
    also = f"; also {', '.join(others)}" if others else ""
    lack = "" if cuda.lib_dir else "; it has no libcudart.so, a stub is linked"
    yield Row("CUDA toolkit", f"{cuda.full_version or cuda.version}, {cuda.home}{also}{lack}", "ok")
    if torch is not None:
        yield compare_cuda(cuda, torch)


def _cuda_from_pip(version: str) -> str:
    names = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
    series = version if release(version) >= (13, 0) else "13.0"
    return _pip_install(sys.executable, *(f"{name}=={series}.*" for name in names))


def compare_cuda(cuda: Cuda, torch: Torch) -> Row:
    """Whether a toolkit can build for a torch: a different major version cannot."""
    subject = "torch and CUDA"
    if torch.cuda is None:
        found = f"torch {torch.version} is without CUDA: CUDA kernels compile here, but do not load"
        return Row(subject, found, "ok")
    have, want = cuda.release, release(torch.cuda)
    if have == want:
        return Row(subject, f"both {cuda.version}", "ok")
    found = f"nvcc is {cuda.version}, torch {torch.version} was built with {torch.cuda}"
    mend = f"kernelgen build --variant {_variant_hint(torch)}" if want >= (13, 0) else None
    if have[0] != want[0]:
        return Row(subject, f"{found}: what it builds does not load", "error", mend)
    if have > want:
        return Row(
            subject,
            f"{found}: the variant's name says cu{have[0]}{have[1]}, newer than torch's",
            "warn",
            mend,
        )
    return Row(subject, f"{found}: works, by CUDA's minor version compatibility", "warn", mend)


def _variant_hint(torch: Torch) -> str:
    """The ordinary variant of a torch with CUDA; its toolkit is fetched if the machine has none."""
    major, minor = torch.release
    cuda = release(torch.cuda or "13.0")
    return f"torch{major}{minor}-cxx11-cu{cuda[0]}{cuda[1]}-{toolchain.machine()}-linux"


def _pair_row(cuda: Cuda, host: HostCompiler) -> Row:
    """Whether nvcc works with the C++ compiler: the limit it states, then an empty kernel compiled."""
    subject = "nvcc and C++ compiler"
    too_new = host.kind == "gcc" and cuda.max_gcc is not None and release(host.version)[0] > cuda.max_gcc
    if too_new:
        limit = cuda.max_gcc or 0
        older = toolchain.find_older_gcc(limit)
        found = f"nvcc {cuda.version} takes g++ up to {limit}, {host.cxx} is {host.version}"
        if older is None:
            mend = _install("g++")
            return Row(subject, found, "error", mend and mend.replace("g++", f"g++-{limit}"))
        if complaint := _compile_empty(cuda, older):
            return Row(subject, f"{found}; {older.cxx} fails: {complaint}", "error")
        return Row(subject, f"{found}; {older.cxx} is used for .cu files", "ok")
    if complaint := _compile_empty(cuda, host):
        return Row(
            subject, f"an empty kernel does not compile: {complaint}", "error", _cuda_from_pip(cuda.version)
        )
    limit_said = f" (nvcc takes g++ up to {cuda.max_gcc})" if cuda.max_gcc and host.kind == "gcc" else ""
    return Row(subject, f"an empty kernel compiles{limit_said}", "ok")


def _compile_empty(cuda: Cuda, host: HostCompiler) -> str | None:
    """The first error of compiling an empty kernel; None when it compiles."""
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as scratch:
        source = Path(scratch) / "empty.cu"
        source.write_text("#include <cuda_runtime.h>\n__global__ void empty() {}\n", encoding="utf-8")
        command: list[str | Path] = [
            cuda.nvcc,
            *cuda.flags,
            "-ccbin",
            host.cxx,
            "-c",
            source,
            "-o",
            source.with_suffix(".o"),
        ]
        done = _run(command, timeout=120)
    if done is None:
        return "nvcc does not start"
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "nvcc failed")


def _gpu_rows(torch: Torch | None, *, wants: bool) -> Iterator[Row]:
    """The driver and the GPUs, as nvidia-smi tells."""
    tool = shutil.which("nvidia-smi")
    done = (
        _run([tool, "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]) if tool else None
    )
    if tool is None or done is None or done.returncode:
        said = "nvidia-smi is not installed" if tool is None else "nvidia-smi finds no driver"
        yield Row("driver", said, "ok")
        yield Row("GPU", "none: kernels compile here, their GPU tests need one", "warn" if wants else "ok")
        return
    gpus = [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    if not gpus or any(len(gpu) != 3 for gpu in gpus):
        yield Row("GPU", f"nvidia-smi says: {done.stdout.strip() or 'nothing'}", "warn" if wants else "ok")
        return
    yield _driver_row(gpus[0][2], _driver_cuda(tool), torch)
    named = sorted({f"{name} (compute capability {capability})" for name, capability, _ in gpus})
    count = f"{len(gpus)}: " if len(gpus) > 1 else ""
    yield Row("GPU", count + "; ".join(named), "ok")


def _driver_cuda(tool: str) -> str | None:
    """The newest CUDA that the driver runs, from the head of nvidia-smi's table."""
    done = _run([tool])
    found = re.search(r"CUDA Version:\s*(\d+\.\d+)", done.stdout) if done else None
    return found[1] if found else None


def _driver_row(driver: str, runs: str | None, torch: Torch | None) -> Row:
    if runs is None:
        return Row("driver", driver, "ok")
    found = f"{driver}, runs CUDA up to {runs}"
    if torch is None or torch.cuda is None or release(torch.cuda) <= release(runs):
        return Row("driver", found, "ok")
    found += f"; torch was built with {torch.cuda}"
    if release(torch.cuda)[0] != release(runs)[0]:
        return Row(
            "driver",
            found,
            "error",
            "sudo apt-get install -y nvidia-driver" if shutil.which("apt-get") else None,
        )
    return Row("driver", f"{found}: works, except for what is new in it", "warn")


# --- Tools --------------------------------------------------------------------------------------------------


def _ninja_row() -> Row:
    try:
        import ninja
    except ImportError:
        tool = shutil.which("ninja")
    else:
        tool = shutil.which("ninja", path=ninja.BIN_DIR) or shutil.which("ninja")
    done = _run([tool, "--version"]) if tool else None
    if done is None or done.returncode:
        return Row("ninja", "not found", "error", _pip_install(sys.executable, "ninja"))
    return Row("ninja", f"{done.stdout.strip()}, {tool}", "ok")


def _cache_tool_row() -> Row:
    found = next((path for name in ("ccache", "sccache") if (path := shutil.which(name))), None)
    return Row("compiler cache", found or "none (optional)", "ok", None if found else _install("ccache"))


def _git_rows(root: Path | None) -> Iterator[Row]:
    done = _run(["git", "--version"])
    if done is None or done.returncode:
        yield Row("git", "not found", "error", _install("git"))
        return
    yield Row("git", done.stdout.strip().removeprefix("git version "), "ok")
    place = str(root or Path.cwd())
    values = {}
    for key in ("user.name", "user.email"):
        answer = _run(["git", "-C", place, "config", "--get", key])
        values[key] = answer.stdout.strip() if answer else ""
    values["user.name"] = os.environ.get("GIT_AUTHOR_NAME", values["user.name"])
    values["user.email"] = os.environ.get("GIT_AUTHOR_EMAIL", values["user.email"])
    missing = [key for key, value in values.items() if not value]
    if missing:
        example = {"user.name": '"Your Name"', "user.email": "you@example.org"}
        mend = " && ".join(f"git config --global {key} {example[key]}" for key in missing)
        yield Row("git identity", f"{' and '.join(missing)} not set: commits are refused", "warn", mend)
    else:
        yield Row("git identity", f"{values['user.name']} <{values['user.email']}>", "ok")


def _nix_row() -> Row:
    """Nix is optional; where it is, kernel-builder needs flakes, and a sandbox on Linux."""
    done = _run(["nix", "--version"])
    if done is None or done.returncode:
        return Row("nix", "not installed (only `nix build` needs it)", "ok")
    config = _nix_config()
    version = done.stdout.strip()
    features = set(config.get("experimental-features", "").split())
    if lacking := [name for name in ("nix-command", "flakes") if name not in features]:
        line = f"experimental-features = {' '.join(sorted(features | {'nix-command', 'flakes'}))}"
        mend = f"mkdir -p ~/.config/nix && echo {shlex.quote(line)} >> ~/.config/nix/nix.conf"
        return Row("nix", f"{version}; {' and '.join(lacking)} not enabled", "warn", mend)
    if sys.platform == "linux" and config.get("sandbox", "true") != "true":
        mend = "echo 'sandbox = true' | sudo tee -a /etc/nix/nix.conf"
        return Row(
            "nix", f"{version}; its sandbox is {config['sandbox']}, kernel-builder wants true", "warn", mend
        )
    return Row("nix", f"{version}, flakes enabled", "ok")


def _nix_config() -> dict[str, str]:
    """Nix's settings; `config show` is `show-config` before Nix 2.20."""
    features = ["--extra-experimental-features", "nix-command"]
    for words in (["config", "show"], ["show-config"]):
        done = _run(["nix", *features, *words])
        if done and done.returncode == 0:
            rows = (line.partition(" = ") for line in done.stdout.splitlines())
            return {key: value for key, separator, value in rows if separator}
    return {}


def _disk_row(path: Path, subject: str) -> Row:
    place = path.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{_gib(free)} free, {path}"
    if not os.access(place, os.W_OK):
        return Row(subject, f"{place} is not writable", "error")
    if free < _BUILD_BYTES:
        return Row(subject, f"{found}; {_gib(_BUILD_BYTES)} are needed", "warn", "kernelgen clean --cache")
    return Row(subject, found, "ok")


def _memory_row() -> Row:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = f"{_gib(size)}, {len(_cpus())} CPUs"
    if size < _UNIT_BYTES:
        return Row("memory", f"{found}: a file with all of torch's headers may not compile", "warn")
    return Row("memory", found, "ok")


def _cpus() -> Sequence[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


# --- The loader ---------------------------------------------------------------------------------------------

# Runs in the interpreter that will load kernels. It asks the loader itself, with the variant that a build
# here would make and with those that the project has.
_LOADER_SCRIPT = """
import json, sys
out = {}
try:
    from importlib.metadata import version
    out["kernels"] = version("kernels")
    from pathlib import Path
    try:
        from kernels._internals.variants import get_variants_local, parse_variant, resolve_variants
    except ModuleNotFoundError:  # before kernels 0.19
        from kernels.variants import get_variants_local, parse_variant, resolve_variants
    accepted, trace = resolve_variants([parse_variant(sys.argv[1])], None)
    out["accepted"] = bool(accepted)
    out["reason"] = "; ".join(str(getattr(d, "reason", "")) for d in trace)
    if len(sys.argv) > 2:
        variants = get_variants_local(Path(sys.argv[2]))
        good, trace = resolve_variants(variants, None)
        out["loads"] = [v.variant_str for v in good]
        out["has"] = sorted(v.variant_str for v in variants)
except Exception as error:
    out["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(out))
"""


def _loader_rows(installed: Installed, torch: Torch | None, project: Project | None) -> Iterator[Row]:
    """What the `kernels` package says about this torch, and about the project's builds."""
    python = installed.python.executable
    mend = _pip_install(python, "-U", "kernels>=0.17.2")
    build = project.root / "build" if project and (project.root / "build").is_dir() else None
    variant = _own_variant(torch) if torch else "torch-cpu"
    command = [str(python), "-c", _LOADER_SCRIPT, variant, *([str(build)] if build else [])]
    done = _run(command, timeout=120)
    facts = json.loads(done.stdout.splitlines()[-1]) if done and done.stdout.strip() else {}
    if "kernels" not in facts:
        yield Row("kernels loader", f"not installed for {python}", "warn", mend)
        return
    yield _version_row(facts["kernels"], mend)
    if error := facts.get("error"):
        yield Row("loader and torch", f"the loader fails here: {error}", "error", mend)
    elif facts["accepted"]:
        yield Row("loader and torch", f"the loader takes {variant}", "ok")
    else:
        yield Row("loader and torch", f"the loader refuses {variant}: {facts['reason']}", "error", mend)
    if facts.get("has"):
        yield _builds_row(facts, torch)


def _version_row(version: str, mend: str) -> Row:
    """The loader's version, against what our own metadata asks for."""
    newest = next(iter(re.findall(r"[\d.]+", _own_requirement("kernels"))), "0")
    try:
        old = Version(version) < Version(newest)
    except InvalidVersion:
        old = False
    if old:
        return Row("kernels loader", f"{version}; {newest} or later is needed", "warn", mend)
    return Row("kernels loader", version, "ok")


def _own_requirement(name: str) -> str:
    try:
        rows = metadata.requires("kernelgen") or []
    except metadata.PackageNotFoundError:
        return ""
    return next((row.removeprefix(name) for row in rows if re.match(rf"{name}\b(?!-)", row)), "")


def _builds_row(facts: dict[str, Any], torch: Torch | None) -> Row:
    """Whether a build of the project loads under this torch."""
    if facts["loads"]:
        return Row("builds", f"{facts['loads'][0]} loads here", "ok")
    here = f"torch {torch.version}" if torch else "this Python"
    return Row("builds", f"none loads under {here}: {', '.join(facts['has'])}", "warn", "kernelgen build")


def _own_variant(torch: Torch) -> str:
    """The variant that a build in this environment makes, as the loader spells it."""
    major, minor = torch.release
    tag = "-cxx11" if torch.cxx11_abi else "-cxx98"
    compute = "cpu"
    if torch.cuda:
        compute = "cu{}{}".format(*release(torch.cuda))
    elif torch.hip:
        compute = "rocm{}{}".format(*release(torch.hip))
    return f"torch{major}{minor}{tag}-{compute}-{toolchain.machine()}-linux"


def _run(command: Sequence[str | Path], *, timeout: float = 60) -> subprocess.CompletedProcess[str] | None:
    """Run a program for what it prints; None when it cannot be started or hangs."""
    try:
        return subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
