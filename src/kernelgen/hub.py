"""Publishing: a release on disk becomes a version branch, a card and a tag on the Hub.

First a plan is made, from reading alone; then the plan is carried out. What users load changes in one step:
large files are sent first and are not visible, then one commit on the version branch shows all of them. A
version's first release is committed on a branch of another name, and the version branch is made from that
commit, so that there is no moment at which the branch exists without its builds.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kernelgen import card, release, surface
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.hf_api import GitRefs, RepoFile

    from kernelgen.build import Progress
    from kernelgen.project import Project

    # Judges a project and says what is wrong with it, a line each; nothing means that it passed.
    Judge = Callable[[Project], Sequence[str]]

MAIN = "main"
STAGING = "kernelgen-upload"
APPROVAL = "https://huggingface.co/spaces/kernels-community/README/discussions/new"
# Files are handed to the client in groups of this size, so that progress is reported now and then.
GROUP_BYTES = 32 * 1024 * 1024
GROUP_FILES = 200
# A published extension larger than this is not fetched to compare schemas.
LARGEST_COMPARED = 256 * 1024 * 1024
_REPO_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class PublishOptions:
    """What the person asked for.

    Attributes:
        repo_id: the repository, `owner/name`; build.toml's by default.
        branch: the branch for the builds; build.toml's or `v<version>` by default.
        tag: `v<version>.<minor>.<patch>`, to be put on the release.
        create_repo: create the repository if there is none.
        private: create it as a private one.
        create_pr: open pull requests instead of committing, which needs no right to write.
        keep_variants: leave published variants that this release does not have where they are.
        dry_run: make the plan only.
    """

    repo_id: str | None = None
    branch: str | None = None
    tag: str | None = None
    create_repo: bool = False
    private: bool = False
    create_pr: bool = False
    keep_variants: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Change:
    """One file that differs from what is published; sizes in bytes."""

    kind: Literal["add", "change", "remove"]
    path: str
    size: int
    old_size: int = 0


@dataclass(frozen=True)
class BranchPlan:
    """What one commit would do.

    Attributes:
        branch: the branch.
        exists: whether it is there already.
        head: the commit that the plan was made against; None when there is no branch.
        changes: every file that would be added, changed or removed, sorted by path.
        unchanged: how many files stay as they are.
    """

    branch: str
    exists: bool
    head: str | None
    changes: tuple[Change, ...]
    unchanged: int


@dataclass(frozen=True)
class PublishPlan:
    """What publishing would do, exactly."""

    repo_id: str
    url: str
    user: str
    may_write: bool | None  # None: the token does not tell
    creates_repo: bool
    private: bool
    version: int
    release: BranchPlan
    card: BranchPlan
    variants: tuple[str, ...]
    removed_variants: tuple[str, ...]
    tag: str | None
    creates_tag: bool
    create_pr: bool
    api: surface.Comparison | None = None  # None: a version's first release
    warnings: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether everything is published already."""
        return not (self.creates_repo or self.release.changes or self.card.changes or self.creates_tag)


@dataclass(frozen=True)
class PublishResult:
    """What publishing did.

    Attributes:
        status: "dry_run", "declined", "unchanged", "published" or "pull_request".
        plan: what was to be done.
        commits: branch to the commit that was made; empty where nothing changed.
        pull_requests: branch to the address of the pull request that was opened.
    """

    status: Literal["dry_run", "declined", "unchanged", "published", "pull_request"]
    plan: PublishPlan
    commits: dict[str, str] = field(default_factory=dict)
    pull_requests: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, for --output-json."""
        plan = asdict(self.plan)
        api = plan.pop("api")
        if api is not None:
            del api["table"]
        return {
            "status": self.status,
            "repo_id": self.plan.repo_id,
            "branch": self.plan.release.branch,
            "url": self.plan.url,
            "commits": self.commits,
            "pull_requests": [{"branch": b, "url": u} for b, u in self.pull_requests.items()],
            "plan": {**plan, "api": api},
        }


def publish(
    project: Project,
    options: PublishOptions | None = None,
    *,
    progress: Progress | None = None,
    judge: Judge | None = None,
    confirm: Callable[[PublishPlan], bool] | None = None,
) -> PublishResult:
    """Publish what is built.

    Run again after an interruption it goes on where it stopped: files that have arrived are not sent twice, a
    commit that was made is not made again, and a tag that stands is left alone.

    Args:
        project: the kernel; its git tree must be clean and its variants built from it.
        options: see `PublishOptions`.
        progress: told of the work as it goes on: bytes while files are sent, steps otherwise.
        judge: what must find no fault before anything is sent; `kernelgen check` by default.
        confirm: shown the plan before the first write; False ends it with nothing changed.

    Returns:
        The plan, and the commits that were made.

    Raises:
        KernelgenError: the release is refused, with every reason; or the Hub refused or could not be reached.
    """
    options = options or PublishOptions()
    report = progress or _Silent()
    shipped = release.collect(project)
    _refuse(shipped, options, judge, report)
    api = _api()
    plan, work = _plan(api, shipped, options, report)
    if options.dry_run:
        return PublishResult("dry_run", plan)
    if plan.is_empty:
        return PublishResult("unchanged", plan)
    if confirm is not None and not confirm(plan):
        return PublishResult("declined", plan)
    return _carry_out(api, plan, work, report)


# --- May it be shipped? ------------------------------------------------------------------------------


def _refuse(shipped: release.Release, options: PublishOptions, judge: Judge | None, report: Progress) -> None:
    """Raise with every reason that can be told without the Hub."""
    project = shipped.project
    if options.tag is not None:
        release.parse_tag(options.tag, project.version)
    if options.tag is not None and options.create_pr:
        raise KernelgenError(
            "a pull request cannot be tagged", where="--tag", way_out="tag the release after it is merged"
        )
    report.advance(0, 1, "judging the release")
    problems = release.refusals(shipped)
    if not problems:
        problems = list(judge(project)) if judge else _check(project, report)
    report.advance(1, 1, "judging the release")
    if problems:
        first, *others = problems
        raise KernelgenError(
            f"this release cannot be published: {first}",
            where=str(project.root),
            detail="\n".join(f"also: {reason}" for reason in others) or None,
        )


def _check(project: Project, report: Progress) -> list[str]:
    """The errors that `kernelgen check` finds; kernels are loaded and called where torch is installed."""
    from importlib.util import find_spec

    from kernelgen import check

    findings = check.check(
        project.root, run=find_spec("torch") is not None, tell=lambda what: report.advance(0, None, what)
    )
    return [f"{f.code} {f.where or f.subject}: {f.message}" for f in findings if f.verdict == "error"]


# --- The plan ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """Where the content of the planned commits comes from."""

    files: dict[str, Path]
    card: bytes | None


def _plan(
    api: HfApi, shipped: release.Release, options: PublishOptions, report: Progress
) -> tuple[PublishPlan, _Work]:
    project = shipped.project
    repo_id = _repo_id(project, options)
    branch = _branch(project, options)
    report.advance(0, 1, f"reading {repo_id}")
    warnings: list[str] = []
    user, may_write = _identity(api, repo_id, warnings)
    with _explained(f"read {repo_id}", repo_id):
        refs = _refs(api, repo_id)
        _require(api, repo_id, branch, refs, options, may_write)
        heads = {b.name: b.target_commit for b in refs.branches} if refs else {}
        # A new branch begins at the repository's first commit, which holds no builds.
        base = heads.get(branch) or (_first_commit(api, repo_id) if refs else None)
        present = _files(api, repo_id, base) if base else {}
        page_present = _files(api, repo_id, heads[MAIN]) if MAIN in heads else {}
        rendered = _card(project, shipped, repo_id, warnings)
        comparison = _compare(api, repo_id, branch, heads.get(branch), present, shipped, warnings)
    builds = _plan_branch(branch, heads.get(branch), present, shipped.files, _release_scope(shipped, options))
    page_files = {} if rendered is None else {"README.md": rendered}
    page = _plan_branch(MAIN, heads.get(MAIN), page_present, page_files, lambda _path: False)
    if comparison is not None:
        _refuse_shrinking(comparison, project, branch)
        if options.keep_variants:
            _refuse_uneven(comparison, _variants_in(present) - _variants_in(shipped.files))
    plan = PublishPlan(
        repo_id=repo_id,
        url=f"{api.endpoint}/kernels/{repo_id}/tree/{branch}",
        user=user,
        may_write=may_write,
        creates_repo=refs is None,
        private=refs is None and options.private,
        version=project.version,
        release=builds,
        card=page,
        variants=tuple(variant.name for variant in shipped.variants),
        removed_variants=_removed_variants(builds, shipped),
        tag=options.tag,
        creates_tag=_tag_is_new(options.tag, refs, builds),
        create_pr=options.create_pr,
        api=comparison,
        warnings=tuple(warnings),
    )
    report.advance(1, 1, f"reading {repo_id}")
    return plan, _Work(shipped.files, rendered)


def _repo_id(project: Project, options: PublishOptions) -> str:
    repo_id = options.repo_id or project.repo_id
    if not repo_id:
        raise KernelgenError(
            "no repository is named",
            where=str(project.root / "build.toml"),
            way_out='set repo-id = "owner/name" in [general.hub], or use --repo-id',
        )
    if not _REPO_ID.fullmatch(repo_id):
        raise KernelgenError(f"{repo_id!r} is not a repository", way_out="write it as owner/name")
    return repo_id


def _branch(project: Project, options: PublishOptions) -> str:
    branch = options.branch or project.branch or f"v{project.version}"
    if branch == MAIN:
        raise KernelgenError(
            "builds do not go to main, which holds the card",
            where="--branch",
            way_out=f"leave --branch out for v{project.version}, which is what loaders look for",
        )
    return branch


def _identity(api: HfApi, repo_id: str, warnings: list[str]) -> tuple[str, bool | None]:
    """Who the token belongs to, and whether it may write to the repository; None when it does not tell."""
    if resource := os.environ.get("HF_OIDC_RESOURCE"):
        # A token by identity federation is good for one repository and has no user to ask for.
        if resource != f"kernels/{repo_id}":
            warnings.append(f"HF_OIDC_RESOURCE is {resource}, which is not kernels/{repo_id}")
        return f"trusted publisher of {resource}", None
    with _explained("find out who is logged in", repo_id):
        answer = api.whoami()
    return str(answer["name"]), _may_write(answer, repo_id)


def _may_write(whoami: dict[str, Any], repo_id: str) -> bool | None:
    """What the answer of /api/whoami-v2 says of the right to write to a repository."""
    owner = repo_id.split("/")[0]
    token = whoami.get("auth", {}).get("accessToken", {})
    if token.get("role") == "read":
        return False
    if owner == whoami["name"]:
        member: bool | None = True
    else:
        roles = {org.get("name"): org.get("roleInOrg") for org in whoami.get("orgs", [])}
        if owner not in roles:
            return False
        member = {"admin": True, "write": True, "read": False}.get(str(roles[owner]))
    if token.get("role") != "fineGrained" or not member:
        return member
    scoped = token.get("fineGrained", {}).get("scoped", [])
    granted = {p for s in scoped if s["entity"].get("name") in (owner, repo_id) for p in s["permissions"]}
    return True if "repo.write" in granted else None


def _refs(api: HfApi, repo_id: str) -> GitRefs | None:
    """The branches and tags of the repository; None when there is no such kernel repository."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return api.list_repo_refs(repo_id, repo_type="kernel")
    except RepositoryNotFoundError:
        return None


def _require(
    api: HfApi,
    repo_id: str,
    branch: str,
    refs: GitRefs | None,
    options: PublishOptions,
    may_write: bool | None,
) -> None:
    """Refuse what the Hub would refuse later."""
    if options.create_pr:
        if refs is None or branch not in {b.name for b in refs.branches}:
            raise KernelgenError(
                f"a pull request needs an existing branch, and {repo_id} has no {branch}",
                where="--create-pr",
                way_out=f"ask an owner of {repo_id} to create the branch {branch}",
            )
        return
    if may_write is False:
        raise KernelgenError(
            f"this login may not write to {repo_id}",
            way_out=f"log in with write access to {repo_id.split('/')[0]} (hf auth login), or --create-pr",
        )
    if refs is None and not options.create_repo:
        other = _is_model(api, repo_id)
        raise KernelgenError(
            f"there is no kernel repository {repo_id}"
            + (", only a model repository, where loaders no longer look" if other else ""),
            way_out=f"create it with --create-repo (publishing kernels needs the Hub's approval: {APPROVAL})",
        )


def _is_model(api: HfApi, repo_id: str) -> bool:
    return api.repo_exists(repo_id, repo_type="model")


def _release_scope(shipped: release.Release, options: PublishOptions) -> Callable[[str], bool]:
    """Which published files give way when this release does not have them."""
    own = tuple(f"build/{variant.name}/" for variant in shipped.variants)
    builds = own if options.keep_variants else ("build/",)
    benchmark = re.compile(r"benchmarks/benchmark[^/]*\.py")
    return lambda path: path.startswith(builds) or benchmark.fullmatch(path) is not None


def _plan_branch(
    branch: str,
    head: str | None,
    present: Mapping[str, RepoFile],
    wanted: Mapping[str, Path | bytes],
    in_scope: Callable[[str], bool],
) -> BranchPlan:
    """Compare what is wanted with what the branch holds; files in scope that are not wanted are removed."""
    changes = []
    for path, content in wanted.items():
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        entry = present.get(path)
        if entry is None:
            changes.append(Change("add", path, size))
        elif not _same(entry, content):
            changes.append(Change("change", path, size, entry.size))
    unchanged = len(wanted) - len(changes)
    gone = [path for path in present if path not in wanted and in_scope(path)]
    changes += [Change("remove", path, 0, present[path].size) for path in gone]
    return BranchPlan(branch, head is not None, head, tuple(sorted(changes, key=lambda c: c.path)), unchanged)


def _variants_in(paths: Iterable[str]) -> set[str]:
    """Names of the variants that a branch's files belong to."""
    return {path.split("/")[1] for path in paths if path.startswith("build/") and path.count("/") > 1}


def _first_commit(api: HfApi, repo_id: str) -> str:
    return api.list_repo_commits(repo_id, repo_type="kernel")[-1].commit_id


def _files(api: HfApi, repo_id: str, revision: str) -> dict[str, RepoFile]:
    from huggingface_hub.hf_api import RepoFile

    tree = api.list_repo_tree(repo_id, repo_type="kernel", revision=revision, recursive=True)
    return {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}


def _same(entry: RepoFile, content: Path | bytes) -> bool:
    """Whether a published file has this content: by sha256 for large files, else by git's object id."""
    data = content if isinstance(content, bytes) else content.read_bytes()
    if len(data) != entry.size:
        return False
    if entry.lfs is not None:
        return hashlib.sha256(data).hexdigest() == entry.lfs.sha256
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() == entry.blob_id


def _card(project: Project, shipped: release.Release, repo_id: str, warnings: list[str]) -> bytes | None:
    if not (project.root / card.CARD).is_file():
        warnings.append("there is no CARD.md: the page on the Hub stays as it is")
        return None
    return card.render(project, shipped, repo_id=repo_id).encode()


def _removed_variants(builds: BranchPlan, shipped: release.Release) -> tuple[str, ...]:
    removed = _variants_in(change.path for change in builds.changes if change.kind == "remove")
    return tuple(sorted(removed - _variants_in(shipped.files)))


def _tag_is_new(tag: str | None, refs: GitRefs | None, builds: BranchPlan) -> bool:
    """Whether the tag has to be made; refuses to move one."""
    standing = next((t for t in refs.tags if t.name == tag), None) if refs and tag else None
    if standing is None:
        return tag is not None
    if builds.changes or standing.target_commit != builds.head:
        raise KernelgenError(
            f"the tag {tag} stands on commit {standing.target_commit[:12]} and is never moved",
            where="--tag",
            way_out="choose the next minor or patch number",
        )
    return False


# --- The public API: published and new ---------------------------------------------------------------


def _compare(
    api: HfApi,
    repo_id: str,
    branch: str,
    head: str | None,
    present: Mapping[str, RepoFile],
    shipped: release.Release,
    warnings: list[str],
) -> surface.Comparison | None:
    """Hold the published API beside the new one; None when the branch has no build."""
    if head is None or not _variants_in(present):
        return None
    current = shipped.surface()
    if current.names is None:
        warnings.append("there is no __all__: the kernel has no public API that a version could keep")
    published = _published_surface(api, repo_id, head, present, warnings)
    return surface.compare(published, current, (f"published ({branch})", "this release"))


def _published_surface(
    api: HfApi, repo_id: str, commit: str, present: Mapping[str, RepoFile], warnings: list[str]
) -> surface.Surface:
    """The published API: every `__all__`, and the schemas of each backend's smallest extension."""
    found = []
    for path in present:
        if re.fullmatch(r"build/[^/]+/__init__\.py", path):
            source = _fetch(api, repo_id, path, commit).decode("utf-8", "replace")
            found.append(surface.Surface(surface.public_names(source), None))
    for path in _smallest_extensions(present):
        if present[path].size > LARGEST_COMPARED:
            warnings.append(f"{path} is too large to fetch: its operators were not compared")
        else:
            found.append(surface.Surface(None, surface.schemas_in(_fetch(api, repo_id, path, commit))))
    return surface.merge(found)


def _smallest_extensions(present: Mapping[str, RepoFile]) -> list[str]:
    """One extension for each backend: variants of one backend register the same operators."""
    extensions: dict[str, str] = {}
    for path in sorted(present, key=lambda p: present[p].size):
        if re.fullmatch(r"build/[^/]+/[^/]+\.(so|pyd|dylib|dll)", path):
            extensions.setdefault(_family(path.split("/")[1]), path)
    return list(extensions.values())


def _family(variant: str) -> str:
    """The backend in a variant's name, whatever its version."""
    match = re.search(r"-(cpu|metal|cu|rocm|xpu)", variant)
    return match[1] if match else variant


def _fetch(api: HfApi, repo_id: str, path: str, commit: str) -> bytes:
    from pathlib import Path

    return Path(api.hf_hub_download(repo_id, path, repo_type="kernel", revision=commit)).read_bytes()


def _refuse_shrinking(comparison: surface.Comparison, project: Project, branch: str) -> None:
    if not comparison.shrinks:
        return
    gone = ", ".join(comparison.removed)
    raise KernelgenError(
        f"version {project.version} promises what this release no longer has: {gone}",
        where=branch,
        detail=comparison.table,
        way_out=f"bring it back, or set version = {project.version + 1} in build.toml and build again",
    )


def _refuse_uneven(comparison: surface.Comparison, kept: set[str]) -> None:
    """An addition must reach every variant of its version, or some machines find it and others do not."""
    if not comparison.added or not kept:
        return
    raise KernelgenError(
        f"this release adds {', '.join(comparison.added)}, not in {', '.join(sorted(kept))}, which stay",
        where="--keep-variants",
        detail=comparison.table,
        way_out="build those variants too, or leave --keep-variants out, or raise the version",
    )


# --- Carrying it out ---------------------------------------------------------------------------------


def _carry_out(api: HfApi, plan: PublishPlan, work: _Work, report: Progress) -> PublishResult:
    commits: dict[str, str] = {}
    pulls: dict[str, str] = {}
    with _explained(f"publish to {plan.repo_id}", plan.repo_id):
        if plan.creates_repo:
            api.create_repo(plan.repo_id, repo_type="kernel", private=plan.private or None, exist_ok=True)
        if plan.release.changes:
            operations = _additions(plan.release, work.files)
            message = _message(plan)
            if plan.create_pr or plan.release.exists:
                _send(api, plan, plan.release.branch, operations, report)
                _commit(api, plan, plan.release, operations, message, commits, pulls)
            else:
                commits[plan.release.branch] = _first_release(api, plan, operations, message, report)
        if plan.card.changes:
            _commit_card(api, plan, work, commits, pulls)
        if plan.creates_tag and plan.tag is not None:
            target = commits.get(plan.release.branch) or plan.release.head
            api.create_tag(plan.repo_id, tag=plan.tag, revision=target, repo_type="kernel")
    return PublishResult("pull_request" if plan.create_pr else "published", plan, commits, pulls)


def _message(plan: PublishPlan) -> str:
    count = len(plan.variants)
    name = plan.tag or f"version {plan.version}"
    return f"Release {name}: {count} variant{'s' if count != 1 else ''}"


def _additions(branch: BranchPlan, files: dict[str, Path]) -> list[CommitOperationAdd]:
    from huggingface_hub import CommitOperationAdd

    changed = [change.path for change in branch.changes if change.kind != "remove"]
    return [CommitOperationAdd(path, files[path]) for path in changed]


def _send(
    api: HfApi, plan: PublishPlan, revision: str, operations: list[CommitOperationAdd], report: Progress
) -> None:
    """Send the large files; none is visible before a commit names it, none that has arrived is sent again."""
    total = sum(operation.upload_info.size for operation in operations)
    sent = 0
    report.advance(0, total, "sending files")
    for group in _groups(operations):
        with _quiet_client():
            api.preupload_lfs_files(
                plan.repo_id,
                group,
                repo_type="kernel",
                revision=revision,
                create_pr=plan.create_pr,
            )
        sent += sum(operation.upload_info.size for operation in group)
        report.advance(sent, total, "sending files")


def _groups(operations: Iterable[CommitOperationAdd]) -> Iterator[list[CommitOperationAdd]]:
    group: list[CommitOperationAdd] = []
    size = 0
    for operation in operations:
        if group and (size + operation.upload_info.size > GROUP_BYTES or len(group) >= GROUP_FILES):
            yield group
            group, size = [], 0
        group.append(operation)
        size += operation.upload_info.size
    if group:
        yield group


def _commit(
    api: HfApi,
    plan: PublishPlan,
    branch: BranchPlan,
    operations: list[CommitOperationAdd],
    message: str,
    commits: dict[str, str],
    pulls: dict[str, str],
) -> None:
    """Make one commit, on top of the one that the plan was made against, or open a pull request with it."""
    from huggingface_hub import CommitOperationDelete

    removed = [CommitOperationDelete(c.path, is_folder=False) for c in branch.changes if c.kind == "remove"]
    with _quiet_client():
        info = api.create_commit(
            plan.repo_id,
            [*operations, *removed],
            commit_message=message,
            repo_type="kernel",
            revision=branch.branch,
            create_pr=plan.create_pr,
            parent_commit=branch.head,
        )
    commits[branch.branch] = info.oid
    if plan.create_pr:
        pulls[branch.branch] = str(info.pr_url)


def _first_release(
    api: HfApi, plan: PublishPlan, operations: list[CommitOperationAdd], message: str, report: Progress
) -> str:
    """Make the version branch in one step, from a commit that was made under another branch's name."""
    from dataclasses import replace

    first = _first_commit(api, plan.repo_id)
    refs = _refs(api, plan.repo_id)
    if refs is not None and any(b.name == STAGING for b in refs.branches):
        # Left by a run that was interrupted: what it committed may be another state of the project.
        api.delete_branch(plan.repo_id, branch=STAGING, repo_type="kernel")
    api.create_branch(plan.repo_id, branch=STAGING, revision=first, repo_type="kernel")
    _send(api, plan, STAGING, operations, report)
    commits: dict[str, str] = {}
    staged = replace(plan.release, branch=STAGING, head=first)
    _commit(api, plan, staged, operations, message, commits, {})
    oid = commits[STAGING]
    api.create_branch(plan.repo_id, branch=plan.release.branch, revision=oid, repo_type="kernel")
    api.delete_branch(plan.repo_id, branch=STAGING, repo_type="kernel")
    return oid


def _commit_card(
    api: HfApi, plan: PublishPlan, work: _Work, commits: dict[str, str], pulls: dict[str, str]
) -> None:
    from huggingface_hub import CommitOperationAdd

    content = work.card or b""
    message = f"Card of version {plan.version}"
    _commit(api, plan, plan.card, [CommitOperationAdd("README.md", content)], message, commits, pulls)


# --- The client --------------------------------------------------------------------------------------


def _api() -> HfApi:
    from huggingface_hub import HfApi

    from kernelgen import __version__

    return HfApi(library_name="kernelgen", library_version=__version__)


class _Silent:
    """Progress that nobody looks at."""

    def advance(self, done: int, total: int | None, what: str) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


@contextmanager
def _quiet_client() -> Iterator[None]:
    """Keep huggingface_hub's own progress bars off the terminal: progress is the caller's to show."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    before = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if not before:
            enable_progress_bars()


@contextmanager
def _explained(doing: str, repo_id: str) -> Iterator[None]:
    """Turn what the client raises into an error in our words; what it says holds no token."""
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

    try:
        yield
    except KernelgenError:
        raise
    except LocalTokenNotFoundError:
        raise KernelgenError("nobody is logged in to the Hub", way_out="run: hf auth login") from None
    except OfflineModeIsEnabled:
        raise KernelgenError(
            f"offline mode does not allow to {doing}", way_out="unset HF_HUB_OFFLINE"
        ) from None
    except HfHubHTTPError as error:
        raise _refused(doing, repo_id, error) from error
    except ValueError as error:
        raise KernelgenError(f"could not {doing}", where=repo_id, detail=str(error)) from error
    except (OSError, RuntimeError) as error:
        raise _unreachable(doing, error) from error
    except Exception as error:
        # The HTTP client's own errors share no base with the above: httpx in huggingface_hub 1, httpx2 in 2.
        if not type(error).__module__.startswith("httpx"):
            raise
        raise _unreachable(doing, error) from error


def _refused(doing: str, repo_id: str, error: Any) -> KernelgenError:
    status = error.response.status_code if error.response is not None else 0
    said = next((line for line in str(error.server_message or "").splitlines() if line.strip()), None)
    way_out = {
        401: "log in again: hf auth login",
        403: f"ask for the right to publish kernels: {APPROVAL}; or use --create-pr",
        404: "look at the name of the repository, and whether this login may see it",
        412: "somebody else has published meanwhile: look at it, then run this again",
        429: "the Hub asks for patience: run this again in a few minutes",
    }.get(status)
    if way_out is None and status >= 500:
        way_out = "the Hub has a fault: run this again later; files that have arrived are not sent again"
    return KernelgenError(
        f"the Hub refused to {doing} (HTTP {status})", where=repo_id, detail=said, way_out=way_out
    )


def _unreachable(doing: str, error: BaseException) -> KernelgenError:
    cause = error.__cause__ or error
    return KernelgenError(
        f"the connection broke while trying to {doing}",
        detail=f"{type(cause).__name__}: {cause}".splitlines()[0],
        way_out="run the same command again: it goes on where it stopped",
    )
