"""Wheels of a package index: found by pip, read only as far as they are wanted.

A wheel is looked up by `pip install --dry-run --report`, so the user's index, mirror, certificates and
constraints hold. A torch wheel with CUDA is over 500 MB of which 2% are headers: where the server answers
range requests, only those are read, and a broken download goes on where it stopped.
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
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kernelgen.errors import KernelgenError
from kernelgen.toolchain import machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Range = tuple[int, int]
"""First byte and one past the last."""

_BLOCK = 1 << 20  # bytes between two notes of what is done, hence what a kill costs at most
_GAP = 1 << 18  # a hole smaller than this is cheaper to read than a new request
_TAIL = 1 << 16  # a zip's closing record lies within its last 64 KiB
_TRIES = 5
_MOST = 0.8  # of a wheel: from here on it is read whole, and so has the index's own hash


# --- Finding a wheel ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wheel:
    """A wheel as the package index names it."""

    name: str
    version: str
    url: str
    sha256: str  # hex; "" when the index gives none
    requires: tuple[str, ...] = ()  # its dependencies, extras included

    @property
    def key(self) -> str:
        """A name for what is kept of it: its hash."""
        return self.sha256 or hashlib.sha256(self.url.encode()).hexdigest()


def find(requirements: Sequence[str]) -> list[Wheel]:
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
        done = subprocess.run(
            [*command, *requirements], capture_output=True, text=True, errors="replace", env=env, check=False
        )
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return [], "\n".join(errors) or done.stderr
        items = json.loads(report.read_text(encoding="utf-8"))["install"]
    wheels = []
    for item in items:
        info = item["download_info"]
        hashes = info.get("archive_info", {}).get("hashes", {})
        meta = item["metadata"]
        requires = tuple(meta.get("requires_dist", ()))
        name = _canonical(meta["name"])
        wheels.append(Wheel(name, meta["version"], info["url"], hashes.get("sha256", ""), requires))
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
@contextmanager
def reading(
    wheel: Wheel,
    wanted: Callable[[str], bool],
    folder: Path,
    report: Callable[[int, int], None],
    *,
    whole: bool = True,
) -> Iterator[Path]:
    """A local file with, at the least, the wanted members of a wheel, verified as far as was read.

    Read whole, it has the index's sha256. Read in parts, each member still has its own sha256 in the wheel's
    RECORD, which `unpack` compares.

    Args:
        wheel: what to read.
        wanted: which members, by name.
        folder: keeps what was read so far; it may go once the file was used.
        report: told the bytes on disk and those wanted.
        whole: whether all of it may be read when the server cannot give parts.

    Raises:
        KernelgenError: it could not be read, or is not what the index announced.
    """
    parts = urlsplit(wheel.url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        if whole:  # else only a few members are wanted, and each has its own hash
            _check_sha256(wheel, path)
        report(path.stat().st_size, path.stat().st_size)
        yield path
        return
    if parts.scheme not in ("http", "https"):
        raise KernelgenError(f"{wheel.name} is offered at an address of an unknown kind: {wheel.url}")
    try:
        path = _read_remote(wheel, wanted, folder, report, whole=whole)
    except (OSError, HTTPException) as error:
        # A private index may want credentials that only pip knows how to get.
        if not whole:
            raise _not_read(wheel, error) from error
        with tempfile.TemporaryDirectory(prefix="pip-", dir=folder) as place:
            yield _download_with_pip(wheel, Path(place), error)
        return
    yield path


def _read_remote(
    wheel: Wheel,
    wanted: Callable[[str], bool],
    folder: Path,
    report: Callable[[int, int], None],
    *,
    whole: bool,
) -> Path:
    """Mirror the wanted members, or the whole wheel where that is nearly the same or all the server can."""
    remote = _Remote(wheel, folder)
    if not remote.ranged and not whole:
        raise OSError("the server cannot give a part of it")
    everything = (0, remote.size)
    ranges = _ranges_of(remote, wanted) if remote.ranged else [everything]
    if sum(end - start for start, end in _coalesce(ranges)) > _MOST * remote.size:
        ranges = [everything]
    remote.ensure(ranges, report)
    if ranges == [everything]:
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
    with _archive(remote.wheel, remote.path) as archive:
        return [*_member_ranges(archive.infolist(), listing, wanted), (listing, remote.size)]


def _member_ranges(
    members: Sequence[zipfile.ZipInfo], listing: int, wanted: Callable[[str], bool]
) -> list[Range]:
    """Where the wanted members lie: each from its header to the next member's."""
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
        [*command, f"{wheel.name}=={wheel.version}"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    found = sorted(folder.glob("*.whl"))
    if done.returncode or not found:
        raise _not_read(wheel, reason, done.stderr.strip())
    _check_sha256(wheel, found[0])
    return found[0]


def _not_read(wheel: Wheel, reason: Exception, detail: str = "") -> KernelgenError:
    return KernelgenError(
        f"{wheel.name} {wheel.version} could not be downloaded: {reason}",
        where=wheel.url,
        detail=detail or None,
        way_out="run the command again: it goes on from where it stopped",
    )


def _check_sha256(wheel: Wheel, path: Path) -> None:
    if not wheel.sha256:
        return
    found = sha256_of(path)
    if found != wheel.sha256:
        _forget(path)
        raise KernelgenError(
            f"{wheel.name} {wheel.version} is not what the index announced",
            where=wheel.url,
            detail=f"announced sha256 {wheel.sha256}\nreceived  sha256 {found}",
            way_out="run the command again; if it persists, the mirror is damaged",
        )


def unpack(wheel: Wheel, path: Path, tree: Path, wanted: Callable[[str], bool]) -> None:
    """Unpack the wanted members, each compared with the wheel's RECORD, links and foreign paths refused."""
    with _archive(wheel, path) as archive:
        with _intact(wheel, "RECORD", path):
            record = _record(archive)
        for member in archive.infolist():
            if member.is_dir() or not wanted(member.filename):
                continue
            parts = PurePosixPath(member.filename).parts
            if ".." in parts or member.filename.startswith("/") or stat.S_ISLNK(member.external_attr >> 16):
                raise KernelgenError(f"{wheel.name} holds a path that leaves it: {member.filename!r}")
            target = tree.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with _intact(wheel, member.filename, path):
                data = archive.read(member)
            expected = record.get(member.filename)
            if (
                expected
                and base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() != expected
            ):
                raise _damaged(wheel, member.filename, path)
            target.write_bytes(data)
            if (member.external_attr >> 16) & 0o111:
                target.chmod(0o755)


def _archive(wheel: Wheel, path: Path) -> zipfile.ZipFile:
    with _intact(wheel, "the list of members", path):
        return zipfile.ZipFile(path)


@contextmanager
def _intact(wheel: Wheel, member: str, path: Path) -> Iterator[None]:
    """Say which part of a wheel is damaged, by whatever zipfile trips over in it."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as error:
        raise _damaged(wheel, member, path) from error


def _forget(path: Path) -> None:
    """Let nothing of a damaged download be used again; a file of the user's index is left alone."""
    if path.name == _Remote.FILE:
        shutil.rmtree(path.parent, ignore_errors=True)


def _damaged(wheel: Wheel, member: str, path: Path) -> KernelgenError:
    _forget(path)
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


# --- Ranges -------------------------------------------------------------------------------------------------


class _Remote:
    """A wheel on a server, mirrored byte for byte into a sparse file that only has the ranges asked for.

    The journal beside the file lists the ranges that are on disk, one a line, written after the data; so
    whatever moment a process is killed at, the next one goes on from there.
    """

    FILE = "mirror"

    def __init__(self, wheel: Wheel, folder: Path) -> None:
        self.wheel = wheel
        self._opener = _opener()
        self.path = folder / self.FILE
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
            ranged = answer.status == 206
            said = (answer.headers.get("Content-Range") or "").rpartition("/")[2]
            said = said if ranged else answer.headers.get("Content-Length") or ""
        if not said.isdecimal():
            raise OSError("the server does not say how long it is")
        size = int(said)
        if not self.path.exists() or self.path.stat().st_size != size:
            self._have = []
            self._journal.unlink(missing_ok=True)
            with self.path.open("wb") as file:
                file.truncate(size)
        return size, ranged

    def _open(self, headers: dict[str, str]) -> Any:
        # gzip would make the ranges those of another file.
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked by reading
            self.wheel.url, headers={"Accept-Encoding": "identity", "User-Agent": "kernelgen", **headers}
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
    done = subprocess.run(
        [*_pip(), "config", "list"], capture_output=True, text=True, errors="replace", check=False
    )
    rows = re.findall(r"^(\S+?)\.([\w-]+)='(.*)'$", done.stdout, flags=re.MULTILINE)
    rank = {"global": 0, "install": 1, "download": 1, ":env:": 2}
    known = sorted((row for row in rows if row[0] in rank), key=lambda row: rank[row[0]])
    return {name: value for _, name, value in known}


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
