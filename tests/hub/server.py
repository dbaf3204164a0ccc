"""A local Hub: an HTTP server with the endpoints that huggingface_hub and the `kernels` loader use.

It answers real clients on 127.0.0.1 (`HF_ENDPOINT`), for repositories of any type, and keeps what they send
in real git repositories (`store.py`). Each answer has the shape that huggingface_hub 2.4 reads.
Uploads go the git-lfs way: clients must run with `HF_HUB_DISABLE_XET=1` (`Hub.environment` sets it), since
huggingface_hub 2.x no longer asks the server which way it prefers when hf_xet is installed.

Faults can be injected: the connection is cut when a total of uploaded bytes is reached, or before an answer.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import struct
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from .store import Entry, Repository, StoreError, parse_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPO_TYPES = ("model", "dataset", "space", "kernel")
MAX_REGULAR_SIZE = 10 * 1024 * 1024
_NAMES = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


@dataclass(frozen=True)
class Account:
    """Who a token belongs to and what it may do.

    Attributes:
        name: the user.
        role: the token's own right, "read" or "write" ("fineGrained" with `scopes`).
        orgs: organisation to the user's role in it ("read", "write", "admin").
        scopes: for a fine-grained token, namespace or repository to the permissions on it.
        approved: whether the account may create repositories of type kernel.
    """

    name: str
    role: str = "write"
    orgs: dict[str, str] = field(default_factory=dict)
    scopes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    approved: bool = True

    def may_write(self, repo_id: str) -> bool:
        """Whether this token may write to a repository of that name."""
        owner = repo_id.split("/")[0]
        if owner != self.name and self.orgs.get(owner) not in ("write", "admin", "contributor"):
            return False
        if self.role == "fineGrained":
            return any("repo.write" in self.scopes.get(scope, ()) for scope in (owner, repo_id))
        return self.role == "write"


@dataclass
class Faults:
    """What shall go wrong: see `Hub.cut_after` and `Hub.cut_before_answer`."""

    bytes_left: int | None = None
    answers_left: int | None = None
    when_cut: Callable[[], None] | None = None
    unplugged: bool = False


class Hub:
    """A Hub that listens on a free port of 127.0.0.1 until it is closed."""

    def __init__(self, root: Path, *, page_size: int = 50) -> None:
        """Start the server with its data below `root` and trees listed `page_size` entries a page."""
        self.root = root
        self.page_size = page_size
        self.accounts: dict[str, Account] = {}
        self.trusted: set[str] = set()
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str]] = []
        self.uploaded_bytes = 0
        self.faults = Faults()
        self.lock = threading.Lock()
        hub = self

        class BoundHandler(_Handler):
            pass

        BoundHandler.hub = hub
        self._server = _Server(("127.0.0.1", 0), BoundHandler)
        port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        # Large files have another host, as on the Hub: clients do not send their token there.
        self.storage = f"http://localhost:{port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add_account(self, account: Account, token: str) -> str:
        """Let `token` stand for an account."""
        self.accounts[token] = account
        return token

    def create(self, repo_id: str, repo_type: str = "kernel", *, private: bool = False) -> Repository:
        """Make a repository, as its owner would by the website."""
        with self.lock:
            key = f"{repo_type}s/{repo_id}"
            path = self.root / key
            self.repositories[key] = Repository.create(path, repo_id, repo_type, private=private)
            return self.repositories[key]

    def repository(self, repo_id: str, repo_type: str = "kernel") -> Repository:
        """The repository of that name; KeyError when there is none."""
        return self.repositories[f"{repo_type}s/{repo_id}"]

    def environment(self, home: Path, token: str | None = None) -> dict[str, str]:
        """Environment variables of a client process that knows this Hub alone and has an own, empty cache."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING_FACE_", "KERNELS_"))}
        variables = {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }
        return {**kept, **variables, **({"HF_TOKEN": token} if token else {})}

    def written(self) -> list[tuple[str, str]]:
        """The requests so far that changed, or could have changed, what the Hub holds."""
        harmless = ("/api/validate-yaml", "/paths-info/", "/preupload/", "/git-upload-pack")
        return [
            (method, path)
            for method, path in self.requests
            if method not in ("GET", "HEAD") and not any(part in path for part in harmless)
        ]

    @contextmanager
    def cut_after(self, count: int, when_cut: Callable[[], None] | None = None) -> Iterator[None]:
        """Cut the connection once `count` more bytes of request bodies have arrived, and stay unplugged.

        Args:
            count: bytes, over all requests that write; the file whose upload is cut is not kept.
            when_cut: called at that moment, before the connection is cut.
        """
        self.faults = Faults(bytes_left=count, when_cut=when_cut)
        try:
            yield
        finally:
            self.faults = Faults()

    @contextmanager
    def cut_before_answer(self, count: int = 1) -> Iterator[None]:
        """Do what the `count`-th commit request from now asks, then cut the connection without an answer."""
        self.faults = Faults(answers_left=count)
        try:
            yield
        finally:
            self.faults = Faults()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away, which is what the faults are for."""


class _CutError(ConnectionError):
    """The fault that was asked for has happened."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    # --- Plumbing ---------------------------------------------------------------------------------

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep the test's output clean."""

    def handle_one_request(self) -> None:
        """Refuse everything while the cable is pulled."""
        if self.hub.faults.unplugged:
            self._cut()
            return
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def _cut(self) -> None:
        """Reset the connection, as a pulled cable or a killed proxy would."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def _serve(self) -> None:
        url = urlsplit(self.path)
        self.query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        with self.hub.lock:
            self.hub.requests.append((self.command, url.path))
        try:
            if self.hub.faults.unplugged:
                raise _CutError
            self._body: Path | bytes = self._read_body(parts)
            self._route(parts)
        except StoreError as error:
            headers = {"X-Error-Message": error.message.splitlines()[0]}
            if error.code:
                headers["X-Error-Code"] = error.code
            self._answer({"error": error.message}, error.status, headers)
        except _CutError:
            self._cut()
        finally:
            if isinstance(getattr(self, "_body", None), Path):
                Path(str(self._body)).unlink(missing_ok=True)

    def _read_body(self, parts: list[str]) -> Path | bytes:
        """The request's body: a temporary file for large files, bytes for all else."""
        counted = self.command == "PUT" or "commit" in parts
        chunks = self._chunks(counted=counted)
        if self.command != "PUT":
            return b"".join(chunks)
        handle, name = tempfile.mkstemp(dir=self.hub.root)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(chunks)
        except BaseException:
            Path(name).unlink()
            raise
        return Path(name)

    def _chunks(self, *, counted: bool) -> Iterator[bytes]:
        for chunk in self._raw_chunks():
            if counted:
                with self.hub.lock:
                    self.hub.uploaded_bytes += len(chunk)
                    faults = self.hub.faults
                    if faults.bytes_left is not None:
                        faults.bytes_left -= len(chunk)
                        if faults.bytes_left <= 0:
                            if faults.when_cut is not None and not faults.unplugged:
                                faults.when_cut()
                            faults.unplugged = True
                            raise _CutError
            yield chunk

    def _raw_chunks(self) -> Iterator[bytes]:
        # Small steps, so that a cut falls close to its byte count.
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while size := int(self.rfile.readline().split(b";")[0], 16):
                for start in range(0, size, 4096):
                    yield self._exactly(min(4096, size - start))
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            chunk = self._exactly(min(4096, left))
            left -= len(chunk)
            yield chunk

    def _exactly(self, count: int) -> bytes:
        data = self.rfile.read(count)
        if len(data) < count:
            raise ConnectionResetError("the client went away")
        return data

    def _json(self) -> Any:
        assert isinstance(self._body, bytes)
        return json.loads(self._body or b"{}")

    def _answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(
            json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})}
        )

    def _send(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(len(body)), **(headers or {})}
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # --- Who asks, and for what -------------------------------------------------------------------

    def _account(self) -> Account | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not token:
            return None
        if token not in self.hub.accounts:
            raise StoreError(401, "Invalid credentials in Authorization header")
        return self.hub.accounts[token]

    def _repository(self, repo_type: str, repo_id: str, *, write: bool = False) -> Repository:
        account = self._account()
        repository = self.hub.repositories.get(f"{repo_type}s/{repo_id}")
        hidden = (
            repository is not None
            and repository.private
            and (account is None or not account.may_write(repo_id))
        )
        if repository is None or hidden:
            raise StoreError(404 if account else 401, "Repository not found", "RepoNotFound")
        if write and account is None:
            raise StoreError(401, "Invalid username or password.")
        if write and account is not None and not account.may_write(repo_id):
            raise StoreError(403, f"You don't have the rights to write to {repo_id}")
        return repository

    def _route(self, parts: list[str]) -> None:
        match parts:
            case ["api", "whoami-v2"]:
                self._whoami()
            case ["api", "validate-yaml"]:
                self._validate_yaml()
            case ["api", "repos", "create"]:
                self._create()
            case ["api", "organizations", name, "overview"]:
                self._organization(name)
            case ["api", kind, owner, name, *rest] if kind.removesuffix("s") in REPO_TYPES:
                self._api(kind.removesuffix("s"), f"{owner}/{name}", rest)
            case ["lfs", kind, owner, name, oid]:
                # No token is asked for: the address, given to those who may, is the permission.
                self._large_file(self.hub.repositories[f"{kind}/{owner}/{name}"], oid)
            case _:
                self._web(parts)

    def _web(self, parts: list[str]) -> None:
        repo_type = "model"
        if parts[0] in ("datasets", "spaces", "kernels"):
            repo_type, parts = parts[0].removesuffix("s"), parts[1:]
        match parts:
            case [owner, name, "info", "lfs", "objects", "batch"] if name.endswith(".git"):
                repo_id = f"{owner}/{name.removesuffix('.git')}"
                # A pull request names no ref here, and needs no right to write.
                self._lfs_batch(self._repository(repo_type, repo_id, write="ref" in self._json()))
            case [owner, name, "resolve", revision, *path]:
                self._resolve(self._repository(repo_type, f"{owner}/{name}"), revision, "/".join(path))
            case _:
                raise StoreError(404, f"no such page: {self.path}")

    def _api(self, repo_type: str, repo_id: str, rest: list[str]) -> None:
        method = self.command
        match rest:
            case [] | ["revision", _] if method == "GET":
                self._info(self._repository(repo_type, repo_id), rest[1] if rest else "main")
            case ["refs"] if method == "GET":
                self._refs(self._repository(repo_type, repo_id))
            case ["tree", revision, *path] if method == "GET":
                self._tree(self._repository(repo_type, repo_id), revision, "/".join(path))
            case ["paths-info", revision] if method == "POST":
                self._paths_info(self._repository(repo_type, repo_id), revision)
            case ["commits", revision] if method == "GET":
                self._commits(self._repository(repo_type, repo_id), revision)
            case ["branch", branch]:
                self._branch(self._repository(repo_type, repo_id, write=True), branch)
            case ["tag", name]:
                self._tag(self._repository(repo_type, repo_id, write=True), name)
            case ["preupload", revision] if method == "POST":
                repository = self._repository(repo_type, repo_id, write="create_pr" not in self.query)
                self._preupload(repository, revision)
            case ["commit", revision] if method == "POST":
                repository = self._repository(repo_type, repo_id, write="create_pr" not in self.query)
                self._commit(repository, revision)
            case _:
                raise StoreError(404, f"no such endpoint: {method} {self.path}")

    # --- The account ------------------------------------------------------------------------------

    def _whoami(self) -> None:
        account = self._account()
        if account is None:
            raise StoreError(401, "Invalid username or password.")
        token: dict[str, Any] = {"displayName": "test", "role": account.role}
        if account.role == "fineGrained":
            scoped = [
                {
                    "entity": {"type": "repo" if "/" in name else "org", "name": name},
                    "permissions": list(granted),
                }
                for name, granted in account.scopes.items()
            ]
            token["fineGrained"] = {"global": [], "scoped": scoped}
        orgs = [{"type": "org", "name": name, "roleInOrg": role} for name, role in account.orgs.items()]
        answer = {"type": "user", "name": account.name, "fullname": account.name, "orgs": orgs}
        self._answer({**answer, "auth": {"type": "access_token", "accessToken": token}})

    def _organization(self, name: str) -> None:
        known = {org for account in self.hub.accounts.values() for org in account.orgs} | self.hub.trusted
        if name not in known:
            raise StoreError(404, "This organization does not exist")
        trusted = name in self.hub.trusted
        self._answer({"name": name, "fullname": name, "avatarUrl": "", "trustedKernelPublisher": trusted})

    def _validate_yaml(self) -> None:
        import yaml

        content = self._json()["content"]
        match = re.match(r"---\r?\n(.*?)\r?\n---", content, re.DOTALL)
        try:
            yaml.safe_load(match.group(1) if match else "")
        except yaml.YAMLError as error:
            self._answer({"errors": [{"message": str(error)}], "warnings": []}, 400)
            return
        warnings = [] if match else [{"message": "empty or missing yaml metadata in repo card"}]
        self._answer({"errors": [], "warnings": warnings})

    def _create(self) -> None:
        account = self._account()
        if account is None:
            raise StoreError(401, "Invalid username or password.")
        wanted = self._json()
        repo_type = wanted.get("type") or "model"
        repo_id = f"{wanted.get('organization') or account.name}/{wanted['name']}"
        if repo_type not in REPO_TYPES or not _NAMES.match(wanted["name"]):
            raise StoreError(400, f"Invalid repository: {repo_type} {repo_id}")
        url = f"{self.hub.endpoint}/{'' if repo_type == 'model' else repo_type + 's/'}{repo_id}"
        if f"{repo_type}s/{repo_id}" in self.hub.repositories:
            self._answer({"error": "You already created this repo", "url": url}, 409)
            return
        if not account.may_write(repo_id) or (repo_type == "kernel" and not account.approved):
            raise StoreError(
                403, f'You don\'t have the rights to create a {repo_type} under the namespace "{repo_id}"'
            )
        private = wanted.get("private") or wanted.get("visibility") == "private"
        self.hub.create(repo_id, repo_type, private=bool(private))
        self._answer({"url": url, "name": repo_id})

    # --- Reading a repository ---------------------------------------------------------------------

    def _info(self, repository: Repository, revision: str) -> None:
        commit = repository.resolve(revision)
        siblings = [
            {"rfilename": e.path} for e in repository.tree(commit, recursive=True) if e.kind == "file"
        ]
        author = repository.repo_id.split("/")[0]
        self._answer(
            {
                "id": repository.repo_id,
                "author": author,
                "private": repository.private,
                "gated": False,
                "sha": commit,
                "siblings": siblings,
                "trustedKernelPublisher": author in self.hub.trusted,
            }
        )

    def _refs(self, repository: Repository) -> None:
        kinds: dict[str, list[dict[str, str]]] = {
            "branches": [],
            "tags": [],
            "converts": [],
            "pullRequests": [],
        }
        prefixes = {"refs/heads/": "branches", "refs/tags/": "tags", "refs/pr/": "pullRequests"}
        for ref, commit in repository.refs().items():
            for prefix, kind in prefixes.items():
                if ref.startswith(prefix):
                    name = ref if kind == "pullRequests" else ref.removeprefix(prefix)
                    kinds[kind].append({"name": name, "ref": ref, "targetCommit": commit})
        if "include_prs" not in self.query:
            del kinds["pullRequests"]
        self._answer(kinds)

    def _tree(self, repository: Repository, revision: str, folder: str) -> None:
        recursive = self.query.get("recursive", "false").lower() in ("true", "1")
        commit = repository.resolve(revision)
        entries = repository.tree(commit, folder, recursive=recursive)
        start = int(self.query.get("cursor", "0"))
        page = entries[start : start + self.hub.page_size]
        headers = {"X-Repo-Commit": commit}
        if start + len(page) < len(entries):
            path = urlsplit(self.path).path
            flag = "true" if recursive else "false"
            following = f"{self.hub.endpoint}{path}?recursive={flag}&cursor={start + len(page)}"
            headers["Link"] = f'<{following}>; rel="next"'
        self._answer([_entry_json(entry) for entry in page], headers=headers)

    def _paths_info(self, repository: Repository, revision: str) -> None:
        assert isinstance(self._body, bytes)
        if self.headers.get("Content-Type", "").startswith("application/json"):
            wanted = self._json()["paths"]
        else:
            wanted = parse_qs(self._body.decode())["paths"]
        entries = repository.tree(revision, recursive=True)
        self._answer([_entry_json(e) for e in entries if e.path in {path.strip("/") for path in wanted}])

    def _commits(self, repository: Repository, revision: str) -> None:
        date = "2026-01-01T00:00:00.000Z"
        answer = [
            {"id": oid, "title": title, "message": "", "authors": [{"user": "system"}], "date": date}
            for oid, title in repository.commits(revision)
        ]
        self._answer(answer)

    def _resolve(self, repository: Repository, revision: str, path: str) -> None:
        try:
            commit = repository.resolve(revision)
            entry = repository.entry(commit, path)
        except StoreError as error:
            headers = {"X-Error-Code": error.code or "", "X-Error-Message": error.message}
            if error.code == "EntryNotFound":
                headers["X-Repo-Commit"] = repository.resolve(revision)
            self._send(b"", error.status, headers)
            return
        if entry.lfs is None:
            headers = {"X-Repo-Commit": commit, "ETag": f'"{entry.oid}"'}
            self._ranged(repository.content(entry), headers)
            return
        kind, repo_id = f"{repository.repo_type}s", repository.repo_id
        headers = {
            "X-Repo-Commit": commit,
            "X-Linked-Etag": f'"{entry.lfs}"',
            "X-Linked-Size": str(entry.size),
            "Location": f"{self.hub.storage}/lfs/{kind}/{repo_id}/{entry.lfs}",
        }
        self._send(b"", 302, headers)

    def _ranged(self, content: bytes, headers: dict[str, str]) -> None:
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        headers = {**headers, "Accept-Ranges": "bytes"}
        if match is None:
            self._send(content, 200, headers)
            return
        start, stop = int(match[1]), int(match[2] or len(content) - 1)
        if start >= len(content):
            self._send(b"", 416, {"Content-Range": f"bytes */{len(content)}"})
            return
        part = content[start : stop + 1]
        headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
        self._send(part, 206, headers)

    # --- Writing to a repository ------------------------------------------------------------------

    def _branch(self, repository: Repository, branch: str) -> None:
        if branch.startswith("refs/"):
            raise StoreError(400, f"Invalid reference for a branch: {branch}")
        if self.command == "DELETE":
            if branch == "main":
                raise StoreError(403, "Cannot delete the main branch")
            repository.delete_ref(f"refs/heads/{branch}")
        else:
            commit = repository.resolve(self._json().get("startingPoint") or "main")
            repository.create_ref(f"refs/heads/{branch}", commit)
        self._answer({})

    def _tag(self, repository: Repository, name: str) -> None:
        if self.command == "DELETE":
            repository.delete_ref(f"refs/tags/{name}")
        else:
            repository.create_ref(f"refs/tags/{self._json()['tag']}", repository.resolve(name))
        self._answer({})

    def _preupload(self, repository: Repository, revision: str) -> None:
        present = {e.path: e for e in repository.tree(revision, recursive=True) if e.kind == "file"}
        attributes = present.get(".gitattributes")
        patterns = _lfs_suffixes(repository.content(attributes)) if attributes else ()
        files = []
        for file in self._json()["files"]:
            binary = b"\0" in base64.b64decode(file["sample"])
            large = binary or file["size"] > MAX_REGULAR_SIZE or file["path"].endswith(patterns)
            answer = {
                "path": file["path"],
                "uploadMode": "lfs" if large else "regular",
                "shouldIgnore": False,
            }
            entry = present.get(file["path"])
            if entry is not None:
                answer["oid"] = entry.lfs or entry.oid
            files.append(answer)
        self._answer({"files": files, "commitOid": repository.resolve(revision)})

    def _lfs_batch(self, repository: Repository) -> None:
        objects = []
        for item in self._json()["objects"]:
            answer = {"oid": item["oid"], "size": item["size"]}
            if not repository.lfs_path(item["oid"]).is_file():
                kind = f"{repository.repo_type}s"
                href = f"{self.hub.storage}/lfs/{kind}/{repository.repo_id}/{item['oid']}"
                answer["actions"] = {"upload": {"href": href, "header": {}}}
            objects.append(answer)
        self._answer({"transfer": "basic", "objects": objects, "hash_algo": "sha256"})

    def _large_file(self, repository: Repository, oid: str) -> None:
        if self.command == "PUT":
            assert isinstance(self._body, Path)
            repository.add_large_file(oid, self._body)
            self._send(b"", 200)
            return
        path = repository.lfs_path(oid)
        if not path.is_file():
            raise StoreError(404, "no such object")
        self._ranged(path.read_bytes(), {"ETag": f'"{oid}"'})

    def _commit(self, repository: Repository, revision: str) -> None:
        assert isinstance(self._body, bytes)
        header: dict[str, Any] = {}
        files: dict[str, bytes] = {}
        large: dict[str, tuple[str, int]] = {}
        deleted: list[str] = []
        for line in filter(None, self._body.split(b"\n")):
            item = json.loads(line)
            value = item["value"]
            match item["key"]:
                case "header":
                    header = value
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    large[value["path"]] = (value["oid"], value["size"])
                case "deletedFile":
                    deleted.append(value["path"])
                case "deletedFolder":
                    deleted.append(value["path"].rstrip("/") + "/")
                case unknown:
                    raise StoreError(400, f"Unknown operation {unknown}")
        if any(parse_pointer(content) for content in files.values()):
            raise StoreError(400, "A pointer was sent as a file")
        number = 1 + sum(ref.startswith("refs/pr/") for ref in repository.refs())
        as_ref = f"refs/pr/{number}" if "create_pr" in self.query else None
        parent = header.get("parentCommit")
        commit = repository.commit(
            revision, header["summary"], files, large, deleted, parent=parent, as_ref=as_ref
        )
        if self.hub.faults.answers_left is not None:
            self.hub.faults.answers_left -= 1
            if self.hub.faults.answers_left == 0:
                raise _CutError
        web = f"{self.hub.endpoint}/{repository.repo_type}s/{repository.repo_id}"
        answer = {
            "success": True,
            "commitOid": commit,
            "commitUrl": f"{web}/commit/{quote(commit)}",
            "hookOutput": "",
        }
        if as_ref:
            answer["pullRequestUrl"] = f"{web}/discussions/{number}"
        self._answer(answer)


def _lfs_suffixes(attributes: bytes) -> tuple[str, ...]:
    lines = attributes.decode().splitlines()
    return tuple(line.split()[0].removeprefix("*") for line in lines if "filter=lfs" in line)


def _entry_json(entry: Entry) -> dict[str, Any]:
    answer: dict[str, Any] = {"type": entry.kind, "oid": entry.oid, "size": entry.size, "path": entry.path}
    if entry.lfs is not None:
        answer["lfs"] = {"oid": entry.lfs, "size": entry.size, "pointerSize": entry.pointer_size}
    return answer
