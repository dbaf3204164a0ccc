"""Toolchains without root: a small package index on 127.0.0.1, and the real one where it is marked slow."""

from __future__ import annotations

import hashlib
import http.server
import io
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from base64 import b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgen import fetch, wheel
from kernelgen.errors import KernelgenError
from kernelgen.toolchain import user_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from filelock import FileLock

HEADERS = {
    "torch/include/ATen/ATen.h": b"#pragma once\n",
    "torch/include/c10/macros/Macros.h": b"#pragma once\n",
    "torch/include/torch/csrc/api/include/torch/all.h": b"#include <ATen/ATen.h>\n",
    "torch/version.py": b"__version__ = '9.9.1+cu130'\ncuda: str | None = '13.0'\nhip: str | None = None\n",
}
LIBRARY = {"torch/lib/libtorch_cpu.so": bytes(range(256)) * 20_000}  # 5 MB that no compiler needs


def make_wheel(
    name: str, version: str, files: dict[str, bytes], *, executable: str = "", requires: tuple[str, ...] = ()
) -> bytes:
    """A wheel as an index would serve it, with RECORD; files are stored in the order given."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    members = files | {
        f"{info}/METADATA": "\n".join(
            [
                "Metadata-Version: 2.1",
                f"Name: {name}",
                f"Version: {version}",
                *(f"Requires-Dist: {text}" for text in requires),
                *(["Provides-Extra: all"] if requires else []),
                "",
            ]
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        f"{path},sha256={urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for path, data in members.items()
    ]
    members[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in members.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o755 if path == executable else 0o644) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


@dataclass
class Index:
    """A package index: its files, and how it treats its clients."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    account: str = ""  # "name:secret" asked of every client
    pause: float = 0  # seconds between blocks of a wheel
    lie: bool = False  # announce a wrong sha256
    cut_after: int | None = None  # bytes of wheels to send before connections break
    sent: int = 0  # bytes of wheels sent
    requests: list[str] = field(default_factory=list)

    def add(
        self,
        name: str,
        version: str,
        files: dict[str, bytes],
        *,
        executable: str = "",
        requires: tuple[str, ...] = (),
    ) -> None:
        """Publish a wheel."""
        wheel = make_wheel(name, version, files, executable=executable, requires=requires)
        self.files[f"{name.replace('-', '_')}-{version}-py3-none-any.whl"] = wheel


class Handler(http.server.BaseHTTPRequestHandler):
    """Speaks PEP 503 with PEP 658 metadata, and HTTP ranges."""

    index: Index

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Be quiet."""

    def do_GET(self) -> None:
        """Answer."""
        self.index.requests.append(self.path)
        if self.index.account and self.index.account not in self._credentials():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "simple":
            self._page(name.strip("/"))
        elif name.endswith(".metadata"):
            self._send(200, self._metadata(name.removesuffix(".metadata")), {})
        elif name in self.index.files:
            self._wheel(self.index.files[name])
        else:
            self.send_error(404)

    def _credentials(self) -> str:
        said = (self.headers.get("Authorization") or "").removeprefix("Basic ")
        return b64decode(said).decode()

    def _page(self, project: str) -> None:
        names = [n for n in self.index.files if n.partition("-")[0].replace("_", "-") == project]
        if not names:
            self.send_error(404)
            return
        rows = []
        for name in names:
            sha256 = "0" * 64 if self.index.lie else hashlib.sha256(self.index.files[name]).hexdigest()
            meta = hashlib.sha256(self._metadata(name)).hexdigest()
            rows.append(
                f'<a href="/files/{name}#sha256={sha256}" data-core-metadata="sha256={meta}">{name}</a>'
            )
        page = f"<!DOCTYPE html><html><body>{''.join(rows)}</body></html>".encode()
        self._send(200, page, {"Content-Type": "text/html"})

    def _metadata(self, name: str) -> bytes:
        with zipfile.ZipFile(io.BytesIO(self.index.files[name])) as archive:
            return archive.read(next(n for n in archive.namelist() if n.endswith("/METADATA")))

    def _wheel(self, data: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked and self.index.ranges:
            start = int(asked[1])
            end = min(int(asked[2]) + 1 if asked[2] else len(data), len(data))
            headers = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
            self._send(206, data[start:end], headers, wheel=True)
        else:
            self._send(200, data, {}, wheel=True)

    def _send(self, status: int, body: bytes, headers: dict[str, str], *, wheel: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        index = self.index
        if wheel and index.cut_after is not None and index.sent + len(body) > index.cut_after:
            body = body[: max(0, index.cut_after - index.sent)]
        if wheel:
            index.sent += len(body)
        try:
            for at in range(0, len(body), 1 << 18):
                self.wfile.write(body[at : at + (1 << 18)])
                time.sleep(self.index.pause)
        except OSError:
            return


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    """An index that pip is set up with, and an empty cache."""
    served = Index()
    handler = type("Bound", (Handler,), {"index": served})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": f"{served.url}/simple",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "KERNELGEN_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(wheel, "_TRIES", 2)
    wheel._opener.cache_clear()
    yield served
    server.shutdown()
    server.server_close()
    wheel._opener.cache_clear()


def test_torch_headers_reads_the_headers_and_little_else(index: Index, tmp_path: Path) -> None:
    index.add("torch", "9.9.1", LIBRARY | HEADERS)
    seen: list[tuple[str, int, int | None]] = []
    torch = fetch.torch_headers("9.9", progress=lambda *event: seen.append(event))
    assert torch.version == "9.9.1+cu130"
    assert torch.cuda == "13.0"
    assert torch.hip is None
    assert torch.lib_dir is None
    assert [(d / "ATen/ATen.h").exists() for d in torch.include_dirs] == [True, False]
    assert [(d / "torch/all.h").exists() for d in torch.include_dirs] == [False, True]
    assert not (torch.include_dirs[0].parent / "lib").exists()
    assert seen[-1][0] == "torch 9.9.1"
    assert seen[-1][1] == seen[-1][2]
    (wheel,) = index.files.values()
    assert seen[-1][1] < len(wheel) / 10
    assert index.sent < len(wheel) / 10
    assert list((tmp_path / "cache/partial").iterdir()) == []


def test_the_cache_answers_without_the_index(index: Index) -> None:
    index.add("torch", "9.9.1", HEADERS)
    first = fetch.torch_headers("9.9")
    index.requests.clear()
    assert fetch.torch_headers("9.9") == first
    assert fetch.torch_headers("9.9.1", offline=True) == first
    assert index.requests == []


def test_offline_and_not_cached_is_an_error(index: Index) -> None:
    with pytest.raises(KernelgenError, match=r"torch 9\.9 is not in the cache"):
        fetch.torch_headers("9.9", offline=True)
    assert index.requests == []


def test_a_server_without_ranges_is_read_whole(index: Index) -> None:
    index.ranges = False
    index.add("torch", "9.9.1", LIBRARY | HEADERS)
    torch = fetch.torch_headers("9.9.1")
    assert (torch.include_dirs[0] / "ATen/ATen.h").read_bytes() == HEADERS["torch/include/ATen/ATen.h"]
    assert not (torch.include_dirs[0].parent / "lib").exists()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on_where_it_stopped(index: Index, ranges: bool) -> None:
    big = {"torch/include/big.h": os.urandom(6_000_000)}
    index.ranges = ranges
    index.add("torch", "9.9.1", HEADERS | big)
    (wheel,) = index.files.values()
    index.cut_after = 4_000_000
    with pytest.raises(KernelgenError, match=r"torch 9\.9\.1 could not be downloaded") as caught:
        fetch.torch_headers("9.9")
    assert caught.value.way_out is not None
    assert fetch.cached() == []
    index.cut_after, index.sent = None, 0
    torch = fetch.torch_headers("9.9")
    assert (torch.include_dirs[0] / "big.h").read_bytes() == big["torch/include/big.h"]
    if ranges:
        assert index.sent < len(wheel) - 2_000_000


def test_an_index_with_a_password_is_read_by_pip(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add("torch", "9.9.1", LIBRARY | HEADERS)
    index.account = "me:secret"
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("://", "://me:secret@") + "/simple")
    torch = fetch.torch_headers("9.9")
    assert (torch.include_dirs[0] / "ATen/ATen.h").exists()
    (manifest,) = user_cache().glob("toolchains/*/manifest.json")
    assert "secret" not in manifest.read_text()


def test_a_fetch_that_is_killed_leaves_nothing_half_and_goes_on(index: Index) -> None:
    index.add("torch", "9.9.1", HEADERS | {"torch/include/big.h": os.urandom(8_000_000)})
    index.pause = 0.02
    (wheel_bytes,) = index.files.values()
    code = "from kernelgen import fetch; fetch.torch_headers('9.9')"
    for after in (1_000_000, 3_000_000, 5_000_000):
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            while index.sent < after and process.poll() is None:
                time.sleep(0.01)
            process.kill()
        assert fetch.cached() == []
        index.sent = after
    index.pause, index.sent = 0, 0
    torch = fetch.torch_headers("9.9")
    assert (torch.include_dirs[0] / "big.h").stat().st_size == 8_000_000
    assert index.sent < len(wheel_bytes)
    assert not list(user_cache().glob(".unpack-*"))


def test_a_wheel_with_another_hash_is_refused(index: Index, tmp_path: Path) -> None:
    index.add("torch", "9.9.1", HEADERS)
    index.lie = True
    with pytest.raises(KernelgenError, match="is not what the index announced"):
        fetch.torch_headers("9.9")
    assert fetch.cached() == []
    assert not any((tmp_path / "cache/toolchains").iterdir())


def test_a_member_that_differs_from_its_record_is_refused(index: Index) -> None:
    index.add("torch", "9.9.1", LIBRARY | HEADERS)
    (name,) = index.files
    # The same length and a matching CRC, as a careful forger would leave it.
    forged = make_wheel("torch", "9.9.1", LIBRARY | HEADERS | {"torch/version.py": b"#" * 90})
    record = next(n for n in zipfile.ZipFile(io.BytesIO(forged)).namelist() if n.endswith("RECORD"))
    good = zipfile.ZipFile(io.BytesIO(index.files[name])).read(record)
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(forged)) as source, zipfile.ZipFile(buffer, "w") as target:
        for member in source.infolist():
            target.writestr(member, good if member.filename == record else source.read(member))
    index.files[name] = buffer.getvalue()
    with pytest.raises(KernelgenError, match=r"torch/version\.py of torch 9\.9\.1 arrived damaged"):
        fetch.torch_headers("9.9")
    assert fetch.cached() == []


def deflated(name: str, version: str, files: dict[str, bytes]) -> bytes:
    """A wheel whose members are compressed, as real ones are."""
    buffer = io.BytesIO()
    stored = io.BytesIO(make_wheel(name, version, files))
    with zipfile.ZipFile(stored) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for member in source.namelist():
            target.writestr(member, source.read(member))
    return buffer.getvalue()


def spoil_member(data: bytes, name: str) -> bytes:
    """The same wheel with other bytes where a member's compressed data begins."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member = next(m for m in archive.infolist() if m.filename.endswith(name))
    at = member.header_offset + 30 + len(member.filename)
    return data[:at] + b"\xff" * member.compress_size + data[at + member.compress_size :]


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda data: spoil_member(data, "version.py"), "torch/version.py"),
        (lambda data: spoil_member(data, "RECORD"), "RECORD"),
        (lambda data: data[: len(data) // 2], "the list of members"),
        (lambda _: b"", "the list of members"),
        (lambda data: data.replace(b"PK\1\2", b"PK\1\3"), "the list of members"),
        (lambda data: data.replace(b"PK\3\4", b"PK\3\5"), ""),
    ],
)
def test_a_damaged_wheel_is_said(tmp_path: Path, spoil: Callable[[bytes], bytes], what: str) -> None:
    path = tmp_path / "torch.whl"
    path.write_bytes(spoil(deflated("torch", "9.9.1", HEADERS)))
    one = wheel.Wheel("torch", "9.9.1", "https://example.com/torch.whl", "")
    with pytest.raises(KernelgenError, match=r"arrived damaged") as caught:
        wheel.unpack(one, path, tmp_path / "tree", fetch._is_torch_header)
    assert caught.value.what.startswith(what)
    assert path.exists(), "a file of the user's index is left alone"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_damaged_list_of_members_is_fetched_anew(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranges: bool
) -> None:
    index.ranges = ranges
    index.add("torch", "9.9.1", LIBRARY | HEADERS)
    (name,) = index.files
    good = index.files[name]
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith("/METADATA")))
    monkeypatch.setattr(Handler, "_metadata", lambda *_: metadata)
    index.files[name] = good.replace(b"PK\1\2", b"PK\1\3")
    with pytest.raises(KernelgenError, match=r"^the list of members of torch 9\.9\.1 arrived damaged"):
        fetch.torch_headers("9.9")
    assert not any((tmp_path / "cache/partial").iterdir())
    index.files[name] = good
    assert fetch.torch_headers("9.9").version == "9.9.1+cu130"


@pytest.mark.parametrize("damage", ["missing", "size", "contents"])
def test_a_damaged_cache_is_mended(index: Index, damage: str) -> None:
    index.add("torch", "9.9.1", HEADERS)
    header = fetch.torch_headers("9.9").include_dirs[0] / "ATen/ATen.h"
    if damage == "missing":
        header.unlink()
    else:
        header.write_bytes(b"#pragma twice" if damage == "contents" else b"")
    seen: list[str] = []
    fetch.torch_headers("9.9", progress=lambda what, _done, _total: seen.append(what))
    assert header.read_bytes() == HEADERS["torch/include/ATen/ATen.h"]
    assert "fetching it again" in seen[0]


def test_verify_finds_a_change_that_kept_size_and_time(index: Index) -> None:
    index.add("torch", "9.9.1", HEADERS)
    header = fetch.torch_headers("9.9").include_dirs[0] / "ATen/ATen.h"
    before = header.stat()
    header.write_bytes(b"#pragma 0nce\n")
    os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))
    fetch.torch_headers("9.9")
    assert header.read_bytes() == b"#pragma 0nce\n"
    fetch.torch_headers("9.9", verify=True)
    assert header.read_bytes() == HEADERS["torch/include/ATen/ATen.h"]


def test_a_path_that_leaves_the_wheel_is_refused(index: Index, tmp_path: Path) -> None:
    index.add("torch", "9.9.1", HEADERS | {"torch/include/../../../evil.h": b"x"})
    with pytest.raises(KernelgenError, match="holds a path that leaves it"):
        fetch.torch_headers("9.9")
    assert not list(tmp_path.rglob("evil.h"))


def cuda_index(index: Index) -> None:
    """A CUDA 13.7 whose nvcc says what the probe asks."""
    script = b'#!/bin/sh\necho Cuda compilation tools, release 13.7, V13.7.2\necho "#$ TOP=${0%/*}/.." >&2\n'
    index.add(
        "nvidia-cuda-nvcc", "13.7.2", {"nvidia/cu13/bin/nvcc": script}, executable="nvidia/cu13/bin/nvcc"
    )
    index.add("nvidia-cuda-crt", "13.7.2", {"nvidia/cu13/include/crt/host_config.h": b"#if __GNUC__ > 15\n"})
    index.add("nvidia-nvvm", "13.7.2", {"nvidia/cu13/nvvm/bin/cicc": b"x"})
    runtime = {"nvidia/cu13/lib/libcudart.so.13": b"x", "nvidia/cu13/include/cuda_runtime.h": b"#\n"}
    index.add("nvidia-cuda-runtime", "13.7.9", runtime)
    index.add("nvidia-cuda-cccl", "13.7.1", {"nvidia/cu13/include/cccl/cub/cub.cuh": b"#\n"})


def test_cuda_toolkit_is_one_tree_of_five_packages(index: Index) -> None:
    cuda_index(index)
    cuda = fetch.cuda_toolkit("13.7")
    assert (cuda.version, cuda.full_version, cuda.max_gcc) == ("13.7", "13.7.2", 15)
    assert [d.name for d in cuda.include_dirs] == ["include", "cccl"]
    assert cuda.lib_dir is not None
    assert (cuda.lib_dir / "libcudart.so").read_bytes() == b"x"
    assert (cuda.home / "lib64/libcudart.so.13").exists()
    assert (cuda.include_dirs[0] / "crt/host_config.h").exists()


@pytest.mark.parametrize("ranges", [True, False])
def test_headers_of_cudas_libraries_come_along_where_that_is_cheap(index: Index, ranges: bool) -> None:
    cuda_index(index)
    requires = ("nvidia-cublas==13.9.4.*; extra == 'all'", "nvidia-cuda-nvcc==13.7.2.*; extra == 'all'")
    index.add("cuda-toolkit", "13.7.1", {}, requires=requires)
    library = {"nvidia/cu13/lib/libcublas.so.13": bytes(range(256)) * 20_000}
    index.add("nvidia-cublas", "13.9.4.1", {**library, "nvidia/cu13/include/cublas_v2.h": b"#\n"})
    index.add("nvidia-cublas", "13.9.5.1", {**library, "nvidia/cu13/include/cublas_v2.h": b"newer\n"})
    index.ranges = ranges
    cuda = fetch.cuda_toolkit("13.7")
    header = cuda.include_dirs[0] / "cublas_v2.h"
    assert header.exists() == ranges
    assert not ranges or header.read_bytes() == b"#\n"
    assert not (cuda.home / "lib/libcublas.so.13").exists()
    if ranges:
        assert index.sent < 1_000_000


def test_cuda_12_has_no_compiler_among_the_packages(index: Index) -> None:
    with pytest.raises(KernelgenError, match=r"no package holds a CUDA 12\.6 compiler") as caught:
        fetch.cuda_toolkit("12.6")
    assert "--cuda-home" in str(caught.value)
    assert index.requests == []


def test_tvm_ffi_has_headers_and_library(index: Index) -> None:
    files = {"tvm_ffi/include/tvm/ffi/any.h": b"#\n", "tvm_ffi/lib/libtvm_ffi.so": b"x"}
    index.add("apache-tvm-ffi", "0.1.9", files)
    found = fetch.tvm_ffi("0.1")
    assert found.version == "0.1.9"
    assert (found.include_dirs[0] / "tvm/ffi/any.h").exists()
    assert (found.lib_dir / "libtvm_ffi.so").exists()


def test_an_unknown_version_shows_what_pip_said(index: Index) -> None:
    index.add("torch", "9.9.1", HEADERS)
    with pytest.raises(KernelgenError, match=r"pip finds no wheel for torch==9\.8\.\*") as caught:
        fetch.torch_headers("9.8")
    assert "9.9.1" in (caught.value.detail or "")


@pytest.mark.parametrize("version", ["two", "", "2.13 --index-url=x", "2.*"])
def test_a_malformed_version_is_refused_before_any_request(index: Index, version: str) -> None:
    with pytest.raises(KernelgenError):
        fetch.torch_headers(version)
    assert index.requests == []


def test_an_index_that_does_not_answer(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(KernelgenError, match="pip finds no wheel"):
        fetch.torch_headers("9.9")


def test_an_exact_local_version_is_not_answered_by_another(index: Index) -> None:
    index.add("torch", "9.9.1", HEADERS)
    fetch.torch_headers("9.9")
    with pytest.raises(KernelgenError, match="is not in the cache"):
        fetch.torch_headers("9.9.1+cpu", offline=True)


def test_clean_cache_removes_everything_and_says_how_much(index: Index, tmp_path: Path) -> None:
    cuda_index(index)
    index.add("torch", "9.9.1", HEADERS)
    fetch.torch_headers("9.9")
    fetch.cuda_toolkit("13.7")
    assert [(e.kind, e.version, e.machine) for e in fetch.cached()] == [
        ("torch", "9.9.1", platform.machine()),
        ("cuda", "13.7.2", platform.machine()),
    ]
    assert json.loads(json.dumps([e.as_json() for e in fetch.cached()]))[0]["kind"] == "torch"
    stranger = tmp_path / "cache/notes.txt"
    stranger.write_text("mine")
    (tmp_path / "cache/.unpack-left-by-a-kill/tree").mkdir(parents=True)
    planned, size = fetch.clean_cache(dry_run=True)
    assert len(fetch.cached()) == 2
    removed, freed = fetch.clean_cache()
    assert removed == planned
    assert freed == size > 0
    assert fetch.cached() == []
    assert not list((tmp_path / "cache").glob(".unpack-*"))
    assert stranger.read_text() == "mine"
    assert fetch.clean_cache() == ([], 0)


def test_clean_cache_refuses_while_another_process_fetches(index: Index) -> None:
    index.add("torch", "9.9.1", HEADERS)
    fetch.torch_headers("9.9")
    held = (
        "import sys; from kernelgen import fetch\n"
        "lock = fetch._lock('torch').acquire(); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(KernelgenError, match="another kernelgen is fetching"):
            fetch.clean_cache()
        other.kill()
    assert len(fetch.clean_cache()[0]) == 1


def test_clean_cache_takes_what_is_there_once_it_has_the_lock(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fetch._lock

    def late(kind: str) -> FileLock:
        """Another process ends its fetch just before the lock is ours."""
        if left.exists():
            left.rename(done)
        return lock(kind)

    left, done = tmp_path / "cache/.unpack-torch-x", tmp_path / "cache/toolchains/torch-9"
    left.mkdir(parents=True)
    done.parent.mkdir()
    monkeypatch.setattr(fetch, "_lock", late)
    assert fetch.clean_cache()[0] == [done]
    assert not done.exists()


def test_two_processes_fetch_once(index: Index) -> None:
    index.add("torch", "9.9.1", LIBRARY | HEADERS)
    code = "from kernelgen import fetch; print(fetch.torch_headers('9.9').include_dirs[0])"
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    printed = {process.communicate()[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(printed) == 1
    assert sum("/simple/torch" in path for path in index.requests) == 1


@given(
    want=st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda p: (min(p), max(p))),
    have=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda p: (min(p), max(p)))),
)
def test_holes_are_what_is_not_covered(want: tuple[int, int], have: list[tuple[int, int]]) -> None:
    covered = {i for start, end in have for i in range(start, end)}
    holes = wheel._holes(want, have)
    assert {i for start, end in holes for i in range(start, end)} == set(range(*want)) - covered
    assert all(start < end for start, end in holes)
    assert holes == sorted(holes)


@given(
    st.lists(st.tuples(st.integers(0, 1 << 22), st.integers(1, 1 << 20)).map(lambda p: (p[0], p[0] + p[1])))
)
def test_coalesced_ranges_cover_and_stay_apart(ranges: list[tuple[int, int]]) -> None:
    merged = wheel._coalesce(ranges)
    assert all(any(a <= start and end <= b for a, b in merged) for start, end in ranges)
    assert all(second[0] - first[1] > wheel._GAP for first, second in itertools.pairwise(merged))


def fatbin_architectures(library: Path) -> set[tuple[str, int]]:
    """(ptx or elf, architecture) of each device image in a shared object.

    A fat binary: magic 0xBA55ED50, version and header size (16 bits each), payload size (64 bits); then
    images, each with kind (16 bits; 1 is PTX, 2 is ELF), version (16), header size (32), payload size (64),
    and the architecture as a number at byte 28.
    """
    data = library.read_bytes()
    found = set()
    for match in re.finditer(re.escape(b"\x50\xed\x55\xba\x01\x00\x10\x00"), data):
        at, end = (
            match.end() + 8,
            match.end() + 8 + int.from_bytes(data[match.end() : match.end() + 8], "little"),
        )
        while at < end:
            kind = int.from_bytes(data[at : at + 2], "little")
            header = int.from_bytes(data[at + 4 : at + 8], "little")
            payload = int.from_bytes(data[at + 8 : at + 16], "little")
            arch = int.from_bytes(data[at + 28 : at + 32], "little")
            found.add(({1: "ptx", 2: "elf"}.get(kind, str(kind)), arch))
            at += header + payload
    return found


@pytest.mark.slow
@pytest.mark.skipif(platform.system() != "Linux" or not shutil.which("g++"), reason="needs g++ on Linux")
def test_the_packages_are_a_whole_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELGEN_CACHE", str(tmp_path / "cache"))
    try:
        cuda = fetch.cuda_toolkit("13.0")
    except KernelgenError as error:
        pytest.skip(f"no index here: {error.what}")
    source = tmp_path / "k.cu"
    source.write_text(
        "#include <cuda_fp16.h>\n#include <cub/block/block_reduce.cuh>\n"
        "__global__ void k(const __half* a, __half* b) { b[threadIdx.x] = a[threadIdx.x]; }\n"
        'extern "C" int go(const __half* a, __half* b) { k<<<1, 32>>>(a, b); return cudaGetLastError(); }\n'
    )
    library = tmp_path / "k.so"
    command: list[str | Path] = [
        cuda.nvcc,
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
    ]
    command += ["-Xcompiler", "-fPIC", "-shared", "-o", library, source]
    # Nothing of a toolkit of this machine: the PATH has the host compiler alone.
    subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)})
    assert fatbin_architectures(library) == {("elf", 90), ("ptx", 90)}
