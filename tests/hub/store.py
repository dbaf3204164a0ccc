"""The content of a local Hub: one bare git repository for each repository, large files beside it.

Every object, commit, branch and tag is real git (`git fsck` passes, `git log` tells the history); files that
the Hub would keep in large-file storage are git-lfs pointers in git, their bytes in `lfs/<sha256>`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

ZERO_OID = "0" * 40
GITATTRIBUTES = "".join(
    f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n"
    for suffix in ("bin", "pt", "safetensors", "so", "zip")
)
_IDENTITY = {
    "GIT_AUTHOR_NAME": "local hub",
    "GIT_AUTHOR_EMAIL": "hub@localhost",
    "GIT_COMMITTER_NAME": "local hub",
    "GIT_COMMITTER_EMAIL": "hub@localhost",
}


class StoreError(Exception):
    """A refusal, with the HTTP status and the Hub's error code that go with it."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


@dataclass(frozen=True)
class Entry:
    """One file or folder of a tree; `size` is that of the content, not of its pointer."""

    path: str
    kind: str  # "file" or "directory"
    oid: str
    size: int = 0
    lfs: str | None = None
    pointer_size: int = 0


@dataclass
class Repository:
    """One repository: a bare git directory, its large files, and what the Hub knows about it."""

    repo_id: str
    repo_type: str
    private: bool
    path: Path
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def create(cls, path: Path, repo_id: str, repo_type: str, *, private: bool) -> Repository:
        """Make the repository with the Hub's first commit, which holds .gitattributes alone."""
        path.mkdir(parents=True)
        (path / "lfs").mkdir()
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(path / "git")], check=True)
        repository = cls(repo_id, repo_type, private, path)
        repository.commit("main", "initial commit", {".gitattributes": GITATTRIBUTES.encode()}, {}, [])
        return repository

    def git(self, *args: str, stdin: bytes | None = None, env: dict[str, str] | None = None) -> bytes:
        """Run git in the bare repository and give its output."""
        return subprocess.run(
            ["git", "--git-dir", str(self.path / "git"), *args],
            input=stdin,
            capture_output=True,
            check=True,
            env={**os.environ, **_IDENTITY, "GIT_CONFIG_NOSYSTEM": "1", **(env or {})},
        ).stdout

    # --- Reading ----------------------------------------------------------------------------------

    def refs(self) -> dict[str, str]:
        """Every ref's full name and the commit that it names."""
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)").decode().splitlines()
        return dict(line.split(" ", 1) for line in lines)

    def resolve(self, revision: str) -> str:
        """The commit of a branch, tag, full ref name or commit id."""
        refs = self.refs()
        for name in (f"refs/heads/{revision}", f"refs/tags/{revision}", revision):
            if name in refs:
                return refs[name]
        if len(revision) == 40:
            try:
                return self.git("rev-parse", "--verify", f"{revision}^{{commit}}").decode().strip()
            except subprocess.CalledProcessError:
                pass
        raise StoreError(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def tree(self, revision: str, folder: str = "", *, recursive: bool = False) -> list[Entry]:
        """What a folder holds at a revision, folders included, sorted by path."""
        commit = self.resolve(revision)
        options = ["-r", "-t"] if recursive else []
        prefix = f"{folder.strip('/')}/" if folder.strip("/") else ""
        listing = self.git("ls-tree", "-l", "-z", *options, commit, *([prefix] if prefix else [])).decode()
        entries = []
        for line in filter(None, listing.split("\0")):
            head, path = line.split("\t", 1)
            _mode, kind, oid, size = head.split()
            if kind == "tree":
                entries.append(Entry(path, "directory", oid))
            else:
                entries.append(self._file_entry(path, oid, int(size)))
        if prefix and not entries:
            raise StoreError(404, f"{folder} does not exist on {revision}", "EntryNotFound")
        return entries

    def _file_entry(self, path: str, oid: str, size: int) -> Entry:
        if size < 200:
            pointer = parse_pointer(self.git("cat-file", "blob", oid))
            if pointer is not None:
                return Entry(path, "file", oid, pointer[1], pointer[0], size)
        return Entry(path, "file", oid, size)

    def files(self, revision: str) -> dict[str, bytes]:
        """Every file's content at a revision, large files included."""
        return {e.path: self.content(e) for e in self.tree(revision, recursive=True) if e.kind == "file"}

    def entry(self, revision: str, path: str) -> Entry:
        """One file at a revision."""
        found = [e for e in self.tree(revision, recursive=True) if e.path == path and e.kind == "file"]
        if not found:
            raise StoreError(404, f"{path} does not exist on {revision}", "EntryNotFound")
        return found[0]

    def content(self, entry: Entry) -> bytes:
        """The bytes of a file."""
        if entry.lfs is not None:
            return self.lfs_path(entry.lfs).read_bytes()
        return self.git("cat-file", "blob", entry.oid)

    def commits(self, revision: str) -> list[tuple[str, str]]:
        """(commit, title) from the newest to the oldest."""
        log = self.git("log", "--format=%H %s", self.resolve(revision)).decode().splitlines()
        return [(line[:40], line[41:]) for line in log]

    def lfs_path(self, oid: str) -> Path:
        """Where a large file lies, or would lie."""
        return self.path / "lfs" / oid

    # --- Writing ----------------------------------------------------------------------------------

    def add_large_file(self, oid: str, source: Path) -> None:
        """Take an uploaded file into storage if it is what its name says."""
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        if digest != oid:
            raise StoreError(400, f"the content's sha256 is {digest}, not {oid}")
        source.replace(self.lfs_path(oid))

    def commit(
        self,
        branch: str,
        title: str,
        files: dict[str, bytes],
        large: dict[str, tuple[str, int]],
        deleted: list[str],
        *,
        parent: str | None = None,
        as_ref: str | None = None,
    ) -> str:
        """Write one commit and move the branch to it, or `as_ref` for a pull request.

        Args:
            branch: the branch that the commit is based on.
            title: the commit's first line.
            files: path to content.
            large: path to (sha256, size); each must have been uploaded.
            deleted: files, and folders that end with a slash.
            parent: refuse unless the branch is at this commit.
            as_ref: leave the branch alone and make this ref instead.
        """
        with self.lock:
            refs = self.refs()
            target = branch if branch.startswith("refs/") else f"refs/heads/{branch}"
            head = refs.get(target)
            if head is None and refs:
                raise StoreError(404, f"Invalid rev id: {branch}", "RevisionNotFound")
            if parent is not None and parent != head:
                raise StoreError(412, "A commit has happened since. Please refresh and try again.")
            for path, (oid, _size) in large.items():
                if not self.lfs_path(oid).is_file():
                    raise StoreError(400, f"LFS pointer of {path} points to a file that does not exist")
            commit = self._write_commit(head, title, files, large, deleted)
            self.git("update-ref", as_ref or target, commit, ZERO_OID if as_ref or head is None else head)
            return commit

    def _write_commit(
        self,
        head: str | None,
        title: str,
        files: dict[str, bytes],
        large: dict[str, tuple[str, int]],
        deleted: list[str],
    ) -> str:
        scratch = Path(tempfile.mkdtemp(dir=self.path))
        try:
            env = {"GIT_INDEX_FILE": str(scratch / "index")}
            if head is not None:
                self.git("read-tree", head, env=env)
            present = self.git("ls-files", "-z", env=env).decode().split("\0")
            lines = []
            for name in deleted:
                matches = [p for p in present if p == name or (name.endswith("/") and p.startswith(name))]
                if not matches:
                    raise StoreError(404, f"A file with this name doesn't exist: {name}", "EntryNotFound")
                lines += [f"0 {ZERO_OID}\t{path}" for path in matches]
            contents = dict(files)
            contents.update({path: make_pointer(oid, size) for path, (oid, size) in large.items()})
            for path, content in contents.items():
                blob = self.git("hash-object", "-w", "--stdin", stdin=content).decode().strip()
                lines.append(f"100644 {blob}\t{path}")
            self.git("update-index", "-z", "--index-info", stdin="\0".join([*lines, ""]).encode(), env=env)
            tree = self.git("write-tree", env=env).decode().strip()
            parents = ["-p", head] if head else []
            return self.git("commit-tree", tree, *parents, "-m", title).decode().strip()
        finally:
            shutil.rmtree(scratch)

    def create_ref(self, name: str, commit: str) -> None:
        """Make a branch or tag; an existing one is refused, never moved."""
        with self.lock:
            if name in self.refs():
                raise StoreError(409, f"Reference already exists: {name}")
            self.git("update-ref", name, commit, ZERO_OID)

    def delete_ref(self, name: str) -> None:
        """Remove a branch or tag."""
        with self.lock:
            if name not in self.refs():
                raise StoreError(404, f"Invalid rev id: {name}", "RevisionNotFound")
            self.git("update-ref", "-d", name)


def make_pointer(oid: str, size: int) -> bytes:
    """A git-lfs pointer file (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md)."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n".encode()


def parse_pointer(content: bytes) -> tuple[str, int] | None:
    """(sha256, size) of a git-lfs pointer, None for any other file."""
    lines = content.split(b"\n")
    if len(lines) < 3 or lines[0] != b"version https://git-lfs.github.com/spec/v1":
        return None
    return lines[1].removeprefix(b"oid sha256:").decode(), int(lines[2].removeprefix(b"size "))
