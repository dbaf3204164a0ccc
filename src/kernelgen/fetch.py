"""Toolchains without root: torch's headers and a CUDA compiler, from the index that pip is set up with.

What is read of a wheel is only what a compiler needs (see `wheel`). It is unpacked once into the user's
cache, shared by all projects:

    <cache>/toolchains/torch-2.13.0-3f2a.../    the files, and manifest.json with the sha256 of each
    <cache>/partial/<sha256 of the wheel>/      what was downloaded of a wheel so far, and which ranges of it
    <cache>/locks/                              one lock per kind of toolchain, freed by the system on death

A directory under `toolchains/` is complete or does not exist: it is renamed there as the last step.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from kernelgen import wheel
from kernelgen.errors import KernelgenError
from kernelgen.toolchain import (
    Cuda,
    Torch,
    TvmFfi,
    machine,
    read_cuda,
    read_torch,
    read_tvm_ffi,
    release,
    user_cache,
)

if TYPE_CHECKING:
    from kernelgen.wheel import Wheel

Progress = Callable[[str, int, "int | None"], None]
"""Called with what is read ("torch 2.13.0"), the bytes done, and the bytes in all (None: not yet known)."""

_MANIFEST = "manifest.json"
_KINDS = ("torch", "cuda", "tvm-ffi")
OLDEST_CUDA = (13, 0)

# The parts of a toolkit that nvcc needs. The 12.x packages of this kind hold ptxas and nvvm, but not nvcc.
_CUDA_PARTS = (
    "nvidia-cuda-nvcc",
    "nvidia-cuda-crt",
    "nvidia-nvvm",
    "nvidia-cuda-runtime",
    "nvidia-cuda-cccl",
)
# Libraries whose headers torch's CUDA headers include, and curand, whose generators are for kernels.
_MATH_PARTS = ("nvidia-cublas", "nvidia-curand", "nvidia-cusolver", "nvidia-cusparse")


# --- What is asked for --------------------------------------------------------------------------------------


def torch_headers(
    version: str, *, progress: Progress | None = None, offline: bool = False, verify: bool = False
) -> Torch:
    """A torch's headers, without its libraries and without its dependencies.

    Args:
        version: "2.13" (the newest 2.13.x that pip offers, or that the cache holds) or "2.13.0".
        progress: called as bytes arrive.
        offline: use the cache alone.
        verify: hash every cached file again, not only those whose size or time changed.

    Returns:
        The toolchain's `Torch`, `lib_dir` None: its libraries are linked as stubs.

    Raises:
        KernelgenError: no such version, nothing cached and offline, or the download failed.
    """
    request = _Request("torch", ("torch",), version, wanted=_is_torch_header, arrange=_nothing, extras=_none)
    return read_torch(_provide(request, progress, offline=offline, verify=verify).path / "torch")


def cuda_toolkit(
    version: str, *, progress: Progress | None = None, offline: bool = False, verify: bool = False
) -> Cuda:
    """A CUDA compiler with its headers and runtime, made of NVIDIA's packages; 13.0 and later.

    Args:
        version: "13.0" or "13".
        progress: called as bytes arrive.
        offline: use the cache alone.
        verify: hash every cached file again.

    Returns:
        The toolchain's `Cuda`; its `lib_dir` holds libcudart.so and libcudart_static.a.

    Raises:
        KernelgenError: a 12.x version (no package holds its nvcc), no such version, or the download failed.
    """
    if release(version) < OLDEST_CUDA:
        raise KernelgenError(
            f"no package holds a CUDA {version} compiler: those of 12.x have ptxas and nvvm, but not nvcc",
            way_out="install that toolkit and name it with --cuda-home, or ask for 13.0 or later",
        )
    request = _Request(
        "cuda", _CUDA_PARTS, version, wanted=_is_toolkit, arrange=_arrange_cuda, extras=_math_headers
    )
    entry = _provide(request, progress, offline=offline, verify=verify)
    return read_cuda(_cuda_home(entry.path) / "bin" / "nvcc")


def tvm_ffi(
    version: str, *, progress: Progress | None = None, offline: bool = False, verify: bool = False
) -> TvmFfi:
    """The headers and the library of apache-tvm-ffi.

    Args:
        version: "0.1" or "0.1.9".
        progress: called as bytes arrive.
        offline: use the cache alone.
        verify: hash every cached file again.

    Raises:
        KernelgenError: no such version, nothing cached and offline, or the download failed.
    """
    request = _Request(
        "tvm-ffi", ("apache-tvm-ffi",), version, wanted=_is_anything, arrange=_nothing, extras=_none
    )
    return read_tvm_ffi(_provide(request, progress, offline=offline, verify=verify).path / "tvm_ffi")


@dataclass(frozen=True)
class Entry:
    """One unpacked toolchain in the cache."""

    kind: str  # "torch", "cuda" or "tvm-ffi"
    version: str  # of the first wheel: "2.13.0+cpu", "13.0.88"
    machine: str  # "x86_64"
    path: Path
    size: int  # bytes of all its files

    def as_json(self) -> dict[str, Any]:
        """Plain values, for --json."""
        return {
            "kind": self.kind,
            "version": self.version,
            "machine": self.machine,
            "path": str(self.path),
            "size": self.size,
        }


def cached() -> list[Entry]:
    """Every complete toolchain in the cache, newest version first within a kind."""
    entries = [entry for path in sorted(_toolchains().glob("*/")) if (entry := _read_entry(path))]
    return sorted(entries, key=lambda e: (e.kind, Version(e.version)), reverse=True)


def clean_cache(*, dry_run: bool = False) -> tuple[list[Path], int]:
    """Remove every toolchain and every half download; nothing else lives in those directories.

    Args:
        dry_run: only say what would go.

    Returns:
        The directories, and the bytes that they held.

    Raises:
        KernelgenError: another process is fetching into the cache at this moment.
    """
    doomed = _removable()
    if dry_run or not doomed:
        return doomed, sum(_size(path) for path in doomed)
    try:
        with ExitStack() as locks:
            for kind in _KINDS:
                locks.enter_context(_lock(kind).acquire(timeout=0))
            doomed = _removable()  # a fetch may have ended since
            size = sum(_size(path) for path in doomed)
            for path in doomed:
                shutil.rmtree(path)
    except Timeout:
        raise KernelgenError(
            "another kernelgen is fetching a toolchain into the cache",
            where=str(user_cache()),
            way_out="wait for it to end, then clean again",
        ) from None
    return doomed, size


def _removable() -> list[Path]:
    ours = ("toolchains/*", "partial/*", ".unpack-*")  # the last are left by a kill
    return [path for pattern in ours for path in sorted(user_cache().glob(pattern))]


# --- Unpacking ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Request:
    """What makes one toolchain: packages, which of their files, and the last touches to the unpacked tree."""

    kind: str
    packages: tuple[str, ...]
    version: str
    wanted: Callable[[str], bool]
    arrange: Callable[[Path], None]
    extras: Callable[[_Request], list[Wheel]]  # wheels whose headers are taken too, where that is cheap

    @property
    def requirements(self) -> list[str]:
        """What pip is asked for."""
        return [self.pinned(name) for name in self.packages]

    def pinned(self, name: str) -> str:
        """A package in the exact version, or the newest below one: torch==2.13.*.

        Raises:
            KernelgenError: the version is malformed.
        """
        try:
            asked = Version(self.version)
        except InvalidVersion:
            raise KernelgenError(
                f"not a version of {self.kind}: {self.version!r}", way_out='write it as "2.13" or "2.13.0"'
            ) from None
        tail = "" if len(asked.release) > 2 or asked.local or asked.is_prerelease else ".*"
        return f"{name}=={self.version}{tail}"

    def accepts(self, version: str) -> bool:
        """Whether a version on disk answers the request."""
        asked, found = Version(self.version), Version(version)
        if asked.local and asked != found:
            return False
        return found.release[: len(asked.release)] == asked.release and not found.is_prerelease


def _provide(request: _Request, progress: Progress | None, *, offline: bool, verify: bool) -> Entry:
    """The toolchain from the cache, fetched if it is not there or was damaged."""
    _ = request.requirements  # a malformed version is refused before anything is touched
    report = progress or (lambda _what, _done, _total: None)
    with _locked(request.kind, report):
        for entry in cached():
            if entry.kind != request.kind or entry.machine != machine():
                continue
            if not request.accepts(entry.version):
                continue
            damage = _damage(entry.path, thorough=verify)
            if damage is None:
                return entry
            report(f"{entry.kind} {entry.version}: {damage}, fetching it again", 0, None)
            shutil.rmtree(entry.path)
        if offline:
            raise KernelgenError(
                f"{request.kind} {request.version} is not in the cache, and going online was ruled out",
                where=str(user_cache()),
                way_out="run the same command once with the network",
            )
        return _fetch(request, report)


def _fetch(request: _Request, report: Progress) -> Entry:
    """Find, read, unpack and verify; the finished directory appears in one rename."""
    wheels = wheel.find(request.requirements)
    order = {name: index for index, name in enumerate(request.packages)}
    wheels.sort(key=lambda found: order.get(found.name, len(order)))
    extras = request.extras(request)
    version = wheels[0].version
    stamp = "".join(f"{one.name} {one.version} {one.key}\n" for one in (*wheels, *extras))
    digest = hashlib.sha256(stamp.encode()).hexdigest()[:12]
    target = _toolchains() / f"{request.kind}-{version}-{digest}"
    _toolchains().mkdir(parents=True, exist_ok=True)
    for left in user_cache().glob(f".unpack-{request.kind}-*"):
        shutil.rmtree(left)  # by a process that was killed: we hold the lock of this kind
    with tempfile.TemporaryDirectory(prefix=f".unpack-{request.kind}-", dir=user_cache()) as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        for one in wheels:
            _add(one, tree, request.wanted, report)
        for one in extras:
            # Headers of libraries that hardly a kernel calls: not worth hundreds of megabytes.
            with suppress(KernelgenError):
                _add(one, tree, _is_header, report, whole=False)
        request.arrange(tree)
        _write_manifest(tree, request.kind, version, [*wheels, *extras])
        if target.exists():
            shutil.rmtree(target)
        tree.rename(target)
    for one in (*wheels, *extras):
        shutil.rmtree(_partial(one), ignore_errors=True)
    entry = _read_entry(target)
    if entry is None:
        raise KernelgenError(f"{target} vanished while it was being written", where=str(target))
    return entry


def _add(
    one: Wheel, tree: Path, wanted: Callable[[str], bool], report: Progress, *, whole: bool = True
) -> None:
    """Read a wheel's wanted members into the tree."""
    tell = functools.partial(report, f"{one.name} {one.version}")
    with wheel.reading(one, wanted, _partial(one), tell, whole=whole) as path:
        wheel.unpack(one, path, tree, wanted)


def _math_headers(request: _Request) -> list[Wheel]:
    """The packages whose headers torch's own include, in the versions that NVIDIA released together.

    The `cuda-toolkit` package has nothing but these versions; without it in the index there are none.
    """
    try:
        (bundle,) = wheel.find([request.pinned("cuda-toolkit")])
        pins = [Requirement(text) for text in bundle.requires]
        wanted = {
            str(Requirement(f"{pin.name}{pin.specifier}"))
            for pin in pins
            if pin.name in _MATH_PARTS and (pin.marker is None or pin.marker.evaluate({"extra": "all"}))
        }
        return sorted(wheel.find(sorted(wanted)), key=lambda one: one.name) if wanted else []
    except KernelgenError:
        return []


# --- The cache on disk --------------------------------------------------------------------------------------


def _write_manifest(tree: Path, kind: str, version: str, wheels: Sequence[Wheel]) -> None:
    """Sizes, times and sha256 of all files, written last into the tree."""
    files: dict[str, tuple[int, int, str]] = {}
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            files[path.relative_to(tree).as_posix()] = (
                status.st_size,
                status.st_mtime_ns,
                wheel.sha256_of(path),
            )
    manifest = {
        "kind": kind,
        "version": version,
        "machine": machine(),
        "size": sum(size for size, _, _ in files.values()),
        "wheels": [{"name": w.name, "version": w.version, "sha256": w.sha256} for w in wheels],
        "files": files,
    }
    (tree / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def _read_manifest(path: Path) -> dict[str, Any] | None:
    try:
        loaded = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return loaded if isinstance(loaded, dict) else None


def _read_entry(path: Path) -> Entry | None:
    manifest = _read_manifest(path)
    if manifest is None:
        return None
    return Entry(manifest["kind"], manifest["version"], manifest["machine"], path, manifest["size"])


def _damage(path: Path, *, thorough: bool) -> str | None:
    """What is wrong with an unpacked toolchain, None if it is whole.

    A file whose size and time are those of its unpacking is taken for unchanged, which makes the check cheap
    enough for every use; any other, or every one when thorough, is hashed.
    """
    manifest = _read_manifest(path) or {"files": {}}
    files: Mapping[str, list[Any]] = manifest["files"]
    for name, (size, mtime, sha256) in files.items():
        try:
            status = os.stat(f"{path}/{name}")  # noqa: PTH116 - 10000 files at each use: Path costs a third more
        except OSError:
            return f"{name} is missing"
        if status.st_size != size:
            return f"{name} has another size"
        if (thorough or status.st_mtime_ns != mtime) and wheel.sha256_of(path / name) != sha256:
            return f"{name} has other contents"
    return None


def _toolchains() -> Path:
    return user_cache() / "toolchains"


def _partial(one: Wheel) -> Path:
    return user_cache() / "partial" / one.key


def _lock(kind: str) -> FileLock:
    folder = user_cache() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"{kind}.lock")


@contextmanager
def _locked(kind: str, report: Progress) -> Iterator[None]:
    """Hold the lock of one kind of toolchain, saying so when another process has it."""
    lock = _lock(kind)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(f"waiting for another kernelgen that fetches {kind}", 0, None)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _size(path: Path) -> int:
    """Bytes on disk; a sparse file counts what it holds."""
    return sum(entry.lstat().st_blocks * 512 for entry in [path, *path.rglob("*")])


# --- From files to toolchain types --------------------------------------------------------------------------


def _is_torch_header(name: str) -> bool:
    return name.startswith("torch/include/") or name in (
        "torch/version.py",
        "torch/share/cmake/Torch/TorchConfig.cmake",  # says which C++ ABI an older torch was built with
    )


def _is_toolkit(name: str) -> bool:
    return name.startswith("nvidia/") and "/.metadata/" not in name


def _is_anything(_name: str) -> bool:
    return True


def _is_header(name: str) -> bool:
    return name.startswith("nvidia/") and "/include/" in name


def _none(_request: _Request) -> list[Wheel]:
    """No further wheels."""
    return []


def _nothing(_tree: Path) -> None:
    """No last touches."""


def _arrange_cuda(tree: Path) -> None:
    """Give the packages' tree the names that nvcc and the linker look for."""
    home = _cuda_home(tree)
    for library in sorted((home / "lib").glob("libcudart.so.*")):
        (home / "lib" / "libcudart.so").symlink_to(library.name)
    if not (home / "lib64").exists():
        (home / "lib64").symlink_to("lib")


def _cuda_home(tree: Path) -> Path:
    homes = sorted((tree / "nvidia").glob("cu*/bin/nvcc"))
    if not homes:
        raise KernelgenError("the CUDA packages hold no nvcc", where=str(tree))
    return homes[0].parent.parent
