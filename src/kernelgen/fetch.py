"""Toolchains without root: torch's headers and a CUDA compiler, from the index that pip is set up with.

A wheel is looked up by `pip install --dry-run --report`, so the user's index, mirror, certificates and
constraints hold; what is then read of it is only what a compiler needs. A torch wheel with CUDA is over
500 MB of which 2% are headers: where the server answers range requests, only those are read. Everything is
unpacked once into the user's cache, shared by all projects:

    <cache>/toolchains/torch-2.13.0-3f2a.../    the files, and manifest.json with the sha256 of each
    <cache>/partial/<sha256 of the wheel>/      what was downloaded of a wheel so far, and which ranges of it
    <cache>/locks/                              one lock per kind of toolchain, freed by the system on death

A directory under `toolchains/` is complete or does not exist: it is renamed there as the last step.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import os
import re
import shutil
import ssl
import stat
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout
from packaging.version import InvalidVersion, Version

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

Progress = Callable[[str, int, "int | None"], None]
"""Called with what is read ("torch 2.13.0"), the bytes done, and the bytes in all (None: not yet known)."""

Range = tuple[int, int]
"""First byte and one past the last."""

_BLOCK = 1 << 20  # bytes between two notes of what is done, hence what a kill costs at most
_GAP = 1 << 18  # a hole smaller than this is cheaper to read than a new request
_TAIL = 1 << 16  # a zip's closing record lies within its last 64 KiB
_TRIES = 5
_MOST = 0.8  # of a wheel: from here on it is read whole, and so has the index's own hash
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
    request = _Request("torch", ("torch",), version, wanted=_is_torch_header, arrange=_nothing)
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
    request = _Request("cuda", _CUDA_PARTS, version, wanted=_is_toolkit, arrange=_arrange_cuda)
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
    request = _Request("tvm-ffi", ("apache-tvm-ffi",), version, wanted=_is_anything, arrange=_nothing)
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
    root = user_cache()
    doomed = [path for name in ("toolchains", "partial") for path in sorted((root / name).glob("*"))]
    size = sum(_size(path) for path in doomed)
    if dry_run or not doomed:
        return doomed, size
    try:
        with ExitStack() as locks:
            for kind in _KINDS:
                locks.enter_context(_lock(kind).acquire(timeout=0))
            for path in doomed:
                shutil.rmtree(path)
    except Timeout:
        raise KernelgenError(
            "another kernelgen is fetching a toolchain into the cache",
            where=str(root),
            way_out="wait for it to end, then clean again",
        ) from None
    return doomed, size


# --- Finding a wheel ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wheel:
    """A wheel as the package index names it."""

    name: str
    version: str
    url: str
    sha256: str  # hex; "" when the index gives none


def find_wheels(requirements: Sequence[str]) -> list[Wheel]:
    """Ask pip which wheels it would take for these requirements, dependencies left out.

    Nothing is installed, and no source distribution is considered, so no foreign code runs. The interpreter's
    own tags are tried first; when it is too new or too old for any wheel, those of other Python versions,
    since a header is the same for all.

    Raises:
        KernelgenError: no pip, no such version, or no way to the index.
    """
    complaint = ""
    for tags in _tag_choices():
        found, complaint = _ask_pip(requirements, tags)
        if found:
            return found
        if "No matching distribution" not in complaint:
            break
    raise KernelgenError(
        f"pip finds no wheel for {', '.join(requirements)}",
        detail=complaint.strip() or None,
        way_out="see which versions there are with `pip index versions "
        + re.split(r"[=<>!~ ]", requirements[0])[0]
        + "`; an index of your own is set with `pip config set global.index-url URL`",
    )


def _tag_choices() -> Iterator[list[str]]:
    """The options that choose a wheel's tags: our interpreter's, then those of other versions."""
    yield []
    platforms = [f"manylinux_{v}_{machine()}" for v in ("2_28", "2_17")]
    for python in ("3.12", "3.11", "3.10"):
        yield ["--python-version", python, *(o for p in platforms for o in ("--platform", p))]


def _ask_pip(requirements: Sequence[str], tags: Sequence[str]) -> tuple[list[Wheel], str]:
    """The wheels of pip's report, in its order, or nothing and what pip said."""
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as scratch:
        report = Path(scratch) / "report.json"
        command = [
            *_pip(), "install", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:",
            "--quiet", "--retries", "2", "--report", str(report), *tags,
        ]  # fmt: skip
        if tags:  # pip before 23.3 wants a target with these options, even in a dry run
            command += ["--target", str(Path(scratch) / "target")]
        # Neither setting concerns a run that installs nothing, and both would stop it.
        env = os.environ | {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0", "PIP_NO_INPUT": "1"}
        done = subprocess.run([*command, *requirements], capture_output=True, text=True, env=env, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return [], "\n".join(errors) or done.stderr
        items = json.loads(report.read_text(encoding="utf-8"))["install"]
    wheels = []
    for item in items:
        info = item["download_info"]
        hashes = info.get("archive_info", {}).get("hashes", {})
        meta = item["metadata"]
        wheels.append(Wheel(_canonical(meta["name"]), meta["version"], info["url"], hashes.get("sha256", "")))
    return wheels, ""


@functools.cache
def _pip() -> tuple[str, ...]:
    """A command that runs pip: our interpreter's, else one on PATH.

    A pip before 25.3 serves as well, but reads a whole wheel to answer what it would install.
    """
    candidates: list[tuple[str, ...]] = [(sys.executable, "-m", "pip")]
    candidates += [(found,) for name in ("pip", "pip3") if (found := shutil.which(name))]
    candidates += [(found, "-m", "pip") for name in ("python3", "python") if (found := shutil.which(name))]
    for command in candidates:
        if subprocess.run([*command, "--version"], capture_output=True, check=False).returncode == 0:
            return command
    raise KernelgenError(
        "no pip was found, and toolchains are looked up with it",
        way_out=f"{sys.executable} -m ensurepip --upgrade  (or `uv pip install pip`)",
    )


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# --- Reading a wheel ----------------------------------------------------------------------------------------


class _Remote:
    """A wheel on a server, mirrored byte for byte into a sparse file that only has the ranges asked for.

    The journal beside the file lists the ranges that are on disk, one a line, written after the data; so
    whatever moment a process is killed at, the next one goes on from there.
    """

    def __init__(self, wheel: Wheel, folder: Path) -> None:
        self._wheel = wheel
        self._opener = _opener()
        self.path = folder / "wheel"
        self._journal = folder / "ranges"
        folder.mkdir(parents=True, exist_ok=True)
        self._have = self._read_journal()
        self.size, self.ranged = self._probe()

    def ensure(self, ranges: Iterable[Range], report: Callable[[int, int], None] | None = None) -> None:
        """Have these ranges on disk; report is told the bytes on disk, and those wanted."""
        tell = report or (lambda _done, _total: None)
        wanted = _coalesce(ranges)
        missing = [hole for want in wanted for hole in _holes(want, self._have)]
        total = sum(end - start for start, end in wanted)
        done = total - sum(end - start for start, end in missing)
        tell(done, total)
        for start, end in missing:
            for count in self._read(start, end):
                done += count
                tell(done, total)

    def _read(self, start: int, end: int) -> Iterator[int]:
        """Read one range, beginning again where a broken connection left it; yields bytes as they land."""
        failures = 0
        while start < end:
            try:
                for count in self._read_once(start, end):
                    start += count
                    failures = 0
                    yield count
            except (OSError, HTTPException) as error:  # noqa: PERF203 - the loop is the retry
                failures += 1
                if failures == _TRIES or (isinstance(error, urllib.error.HTTPError) and error.code < 500):
                    raise
                time.sleep(0.25 * 2**failures)

    def _read_once(self, start: int, end: int) -> Iterator[int]:
        ranged = {"Range": f"bytes={start}-{end - 1}"} if self.ranged else {}
        with self._open(ranged) as answer, self.path.open("r+b") as file:
            if self.ranged and answer.status != 206:
                raise OSError(f"the server answered {answer.status} to a range request")
            if not self.ranged:
                _skip(answer, start)
            file.seek(start)
            while start < end:
                block = answer.read(min(_BLOCK, end - start))
                if not block:
                    raise OSError(f"the connection closed {end - start} bytes early")
                file.write(block)
                file.flush()
                self._note(start, start + len(block))
                start += len(block)
                yield len(block)

    def _probe(self) -> tuple[int, bool]:
        """The file's size, and whether ranges are answered."""
        with self._open({"Range": "bytes=0-0"}) as answer:
            if answer.status == 206:
                size, ranged = int(answer.headers["Content-Range"].rpartition("/")[2]), True
            else:
                size, ranged = int(answer.headers["Content-Length"]), False
        if not self.path.exists() or self.path.stat().st_size != size:
            self._have = []
            self._journal.unlink(missing_ok=True)
            with self.path.open("wb") as file:
                file.truncate(size)
        return size, ranged

    def _open(self, headers: dict[str, str]) -> Any:
        # gzip would make the ranges those of another file.
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked by _wheel_file
            self._wheel.url, headers={"Accept-Encoding": "identity", "User-Agent": "kernelgen", **headers}
        )
        return self._opener.open(request, timeout=60)

    def _note(self, start: int, end: int) -> None:
        self._have.append((start, end))
        with self._journal.open("a", encoding="ascii") as file:
            file.write(f"{start} {end}\n")

    def _read_journal(self) -> list[Range]:
        try:
            lines = self._journal.read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return []
        return [(int(m[1]), int(m[2])) for line in lines if (m := re.fullmatch(r"(\d+) (\d+)", line))]


def _coalesce(ranges: Iterable[Range]) -> list[Range]:
    """Sorted, disjoint ranges that cover the given ones; small gaps are filled.

    >>> _coalesce([(10, 20), (0, 5), (1 << 30, (1 << 30) + 1)])
    [(0, 20), (1073741824, 1073741825)]
    """
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start - merged[-1][1] <= _GAP:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _holes(want: Range, have: Iterable[Range]) -> list[Range]:
    """The parts of a range that no other covers.

    >>> _holes((0, 10), [(2, 4), (3, 6), (9, 20)])
    [(0, 2), (6, 9)]
    """
    at, end = want
    holes = []
    for first, last in sorted(have):
        if last <= at or first >= end:
            continue
        if first > at:
            holes.append((at, first))
        at = max(at, last)
    if at < end:
        holes.append((at, end))
    return holes


def _skip(stream: IO[bytes], count: int) -> None:
    """Read past bytes that we already have, from a server that cannot start in the middle."""
    while count > 0:
        block = stream.read(min(_BLOCK, count))
        if not block:
            raise OSError("the connection closed early")
        count -= len(block)


def _central_directory(tail: bytes, size: int) -> int:
    """Where a zip's list of members begins, from its last bytes; 0 (all of it) when that cannot be told.

    The closing record: signature, two disk numbers, two counts, the list's size and offset, a comment's
    length (PKZIP application note, 4.3.16). Zip64 archives say 0xFFFFFFFF and are read whole.
    """
    at = tail.rfind(b"PK\5\6")
    if at < 0 or at + 22 > len(tail):
        return 0
    offset = struct.unpack_from("<L", tail, at + 16)[0]
    return int(offset) if offset < size else 0


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    """An HTTP client with the certificates and the proxy that pip is set up with."""
    config = _pip_config()
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=config.get("cert")))
    ]
    if proxy := config.get("proxy"):
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    return urllib.request.build_opener(*handlers)


def _pip_config() -> dict[str, str]:
    """The settings of pip by bare name; the environment's win, as they do in pip.

    `pip config list` prints `global.cert='/path'` and `:env:.cert='/path'`.
    """
    done = subprocess.run([*_pip(), "config", "list"], capture_output=True, text=True, check=False)
    rows = re.findall(r"^(\S+?)\.([\w-]+)='(.*)'$", done.stdout, flags=re.MULTILINE)
    rank = {"global": 0, "install": 1, "download": 1, ":env:": 2}
    known = sorted((row for row in rows if row[0] in rank), key=lambda row: rank[row[0]])
    return {name: value for _, name, value in known}


# --- Unpacking ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Request:
    """What makes one toolchain: packages, which of their files, and the last touches to the unpacked tree."""

    kind: str
    packages: tuple[str, ...]
    version: str
    wanted: Callable[[str], bool]
    arrange: Callable[[Path], None]

    @property
    def requirements(self) -> list[str]:
        """What pip is asked for: the exact version, or the newest below one."""
        try:
            asked = Version(self.version)
        except InvalidVersion:
            raise KernelgenError(
                f"not a version of {self.kind}: {self.version!r}", way_out='write it as "2.13" or "2.13.0"'
            ) from None
        tail = "" if len(asked.release) > 2 or asked.local or asked.is_prerelease else ".*"
        return [f"{name}=={self.version}{tail}" for name in self.packages]

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
    wheels = find_wheels(request.requirements)
    order = {name: index for index, name in enumerate(request.packages)}
    wheels.sort(key=lambda wheel: order.get(wheel.name, len(order)))
    version = wheels[0].version
    stamp = "".join(f"{wheel.name} {wheel.version} {wheel.sha256 or wheel.url}\n" for wheel in wheels)
    digest = hashlib.sha256(stamp.encode()).hexdigest()[:12]
    target = _toolchains() / f"{request.kind}-{version}-{digest}"
    _toolchains().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=user_cache()) as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        for wheel in wheels:
            label = f"{wheel.name} {wheel.version}"
            with _wheel_file(wheel, request.wanted, functools.partial(report, label)) as path:
                _unpack(wheel, path, tree, request.wanted)
        request.arrange(tree)
        _write_manifest(tree, request.kind, version, wheels)
        if target.exists():
            shutil.rmtree(target)
        tree.rename(target)
    for wheel in wheels:
        shutil.rmtree(_partial(wheel), ignore_errors=True)
    entry = _read_entry(target)
    if entry is None:
        raise KernelgenError(f"{target} vanished while it was being written", where=str(target))
    return entry


@contextmanager
def _wheel_file(
    wheel: Wheel, wanted: Callable[[str], bool], report: Callable[[int, int], None]
) -> Iterator[Path]:
    """A local file with, at the least, the wanted members of a wheel, verified as far as was read.

    Read whole, it has the index's sha256. Read in parts, each member still has its own sha256 in the wheel's
    RECORD, which `_unpack` compares.
    """
    parts = urlsplit(wheel.url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        _check_sha256(wheel, path)
        report(path.stat().st_size, path.stat().st_size)
        yield path
        return
    if parts.scheme not in ("http", "https"):
        raise KernelgenError(f"{wheel.name} is offered at an address of an unknown kind: {wheel.url}")
    try:
        path = _read_remote(wheel, wanted, report)
    except (OSError, HTTPException) as error:
        # A private index may want credentials that only pip knows how to get.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=user_cache()) as folder:
            yield _download_with_pip(wheel, Path(folder), error)
        return
    yield path


def _read_remote(wheel: Wheel, wanted: Callable[[str], bool], report: Callable[[int, int], None]) -> Path:
    """Mirror the wanted members, or the whole wheel where that is nearly the same or all the server can."""
    remote = _Remote(wheel, _partial(wheel))
    whole = (0, remote.size)
    ranges = _ranges_of(remote, wanted) if remote.ranged else [whole]
    if sum(end - start for start, end in _coalesce(ranges)) > _MOST * remote.size:
        ranges = [whole]
    remote.ensure(ranges, report)
    if ranges == [whole]:
        _check_sha256(wheel, remote.path)
    return remote.path


def _ranges_of(remote: _Remote, wanted: Callable[[str], bool]) -> list[Range]:
    """Where the wanted members lie, once the wheel's list of members has been read."""
    tail = max(0, remote.size - _TAIL)
    remote.ensure([(tail, remote.size)])
    with remote.path.open("rb") as file:
        file.seek(tail)
        listing = _central_directory(file.read(), remote.size)
    remote.ensure([(listing, remote.size)])
    return [*_member_ranges(remote.path, listing, wanted), (listing, remote.size)]


def _member_ranges(path: Path, listing: int, wanted: Callable[[str], bool]) -> list[Range]:
    """Where the wanted members lie: each from its header to the next member's."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    starts = [*sorted(member.header_offset for member in members), listing]
    following = dict(itertools.pairwise(starts))
    return [
        (member.header_offset, following[member.header_offset])
        for member in members
        if wanted(member.filename) or member.filename.endswith(".dist-info/RECORD")
    ]


def _download_with_pip(wheel: Wheel, folder: Path, reason: Exception) -> Path:
    """The whole wheel by pip itself, which knows keyrings, client certificates and the like."""
    command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--quiet", "--dest", str(folder)]
    done = subprocess.run(
        [*command, f"{wheel.name}=={wheel.version}"], capture_output=True, text=True, check=False
    )
    found = sorted(folder.glob("*.whl"))
    if done.returncode or not found:
        raise KernelgenError(
            f"{wheel.name} {wheel.version} could not be downloaded: {reason}",
            where=wheel.url,
            detail=done.stderr.strip() or None,
            way_out="run the command again: it goes on from where it stopped",
        )
    _check_sha256(wheel, found[0])
    return found[0]


def _check_sha256(wheel: Wheel, path: Path) -> None:
    if not wheel.sha256:
        return
    found = _sha256(path)
    if found != wheel.sha256:
        shutil.rmtree(_partial(wheel), ignore_errors=True)
        raise KernelgenError(
            f"{wheel.name} {wheel.version} is not what the index announced",
            where=wheel.url,
            detail=f"announced sha256 {wheel.sha256}\nreceived  sha256 {found}",
            way_out="run the command again; if it persists, the mirror is damaged",
        )


def _unpack(wheel: Wheel, path: Path, tree: Path, wanted: Callable[[str], bool]) -> None:
    """Unpack the wanted members, each compared with the wheel's RECORD, links and foreign paths refused."""
    with zipfile.ZipFile(path) as archive:
        record = _record(archive)
        for member in archive.infolist():
            if member.is_dir() or not wanted(member.filename):
                continue
            parts = PurePosixPath(member.filename).parts
            if ".." in parts or member.filename.startswith("/") or stat.S_ISLNK(member.external_attr >> 16):
                raise KernelgenError(f"{wheel.name} holds a path that leaves it: {member.filename!r}")
            target = tree.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                data = archive.read(member)
            except (zipfile.BadZipFile, OSError) as error:
                raise _damaged(wheel, member.filename) from error
            expected = record.get(member.filename)
            if (
                expected
                and base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() != expected
            ):
                raise _damaged(wheel, member.filename)
            target.write_bytes(data)
            if (member.external_attr >> 16) & 0o111:
                target.chmod(0o755)


def _damaged(wheel: Wheel, member: str) -> KernelgenError:
    shutil.rmtree(_partial(wheel), ignore_errors=True)
    return KernelgenError(
        f"{member} of {wheel.name} {wheel.version} arrived damaged",
        where=wheel.url,
        way_out="run the command again: it is fetched anew",
    )


def _record(archive: zipfile.ZipFile) -> dict[str, str]:
    """The sha256 of each file by a wheel's RECORD: unpadded URL-safe base64, as the wheel format has it."""
    names = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
    if not names:
        return {}
    rows = archive.read(names[0]).decode("utf-8").splitlines()
    # A path with a comma is quoted; no header of these packages has one, and such a row is just not compared.
    found = (re.fullmatch(r"([^,]+),sha256=([^,]+),\d*", row) for row in rows)
    return {match[1]: match[2] for match in found if match}


# --- The cache on disk --------------------------------------------------------------------------------------


def _write_manifest(tree: Path, kind: str, version: str, wheels: Sequence[Wheel]) -> None:
    """Sizes, times and sha256 of all files, written last into the tree."""
    files: dict[str, tuple[int, int, str]] = {}
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            files[path.relative_to(tree).as_posix()] = (status.st_size, status.st_mtime_ns, _sha256(path))
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
        if (thorough or status.st_mtime_ns != mtime) and _sha256(path / name) != sha256:
            return f"{name} has other contents"
    return None


def _toolchains() -> Path:
    return user_cache() / "toolchains"


def _partial(wheel: Wheel) -> Path:
    return user_cache() / "partial" / (wheel.sha256 or hashlib.sha256(wheel.url.encode()).hexdigest())


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


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


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
