"""Publishing, against a local Hub and through the real client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hub.fixtures import TOKEN, hub
from hub.project import INIT, KernelProject
from hub.server import Account, Hub

from kernelgen import clean, release
from kernelgen import hub as publishing
from kernelgen.errors import KernelgenError
from kernelgen.hub import PublishOptions, PublishResult

if TYPE_CHECKING:
    from pathlib import Path

    from hub.store import Repository

    from kernelgen.project import Project

__all__ = ["hub"]

CREATE = PublishOptions(create_repo=True)
ADD_SCHEMA = b"add(Tensor x, Tensor y) -> Tensor"
SCALE_SCHEMA = b"scale(Tensor x) -> Tensor"


def publish(project: Project, options: PublishOptions, **more: Any) -> PublishResult:
    """Publish without `kernelgen check`, which has its own tests and would load torch each time."""
    return publishing.publish(project, options, **{"judge": lambda _project: (), **more})


@pytest.fixture
def kernel(tmp_path: Path) -> KernelProject:
    return KernelProject.create(tmp_path / "scale-add")


def titles(repository: Repository, branch: str) -> list[str]:
    return [title for _, title in repository.commits(branch)]


def refused(hub: Hub, kernel: KernelProject, options: PublishOptions = CREATE, **more: Any) -> KernelgenError:
    """Publish, expecting a refusal before anything is written."""
    before = len(hub.written())
    with pytest.raises(KernelgenError) as caught:
        publish(kernel.load(), options, **more)
    assert hub.written()[before:] == []
    assert TOKEN not in str(caught.value)
    return caught.value


# --- The whole way ---------------------------------------------------------------------------------


def test_first_release(hub: Hub, kernel: KernelProject) -> None:
    project = kernel.build()
    result = publish(project, PublishOptions(create_repo=True, tag="v1.0.0"))
    repository = hub.repository("acme/scale-add")
    refs = repository.refs()
    assert result.status == "published"
    assert sorted(refs) == ["refs/heads/main", "refs/heads/v1", "refs/tags/v1.0.0"]
    assert refs["refs/heads/v1"] == refs["refs/tags/v1.0.0"] == result.commits["v1"]
    assert titles(repository, "v1") == ["Release v1.0.0: 1 variant", "initial commit"]
    assert titles(repository, "main") == ["Card of version 1", "initial commit"]
    build = kernel.root / "build" / "torch-cpu"
    files = repository.files("v1")
    assert sorted(files) == [
        ".gitattributes",
        "benchmarks/benchmark.py",
        "build/torch-cpu/__init__.py",
        "build/torch-cpu/_ops.py",
        "build/torch-cpu/metadata.json",
        "build/torch-cpu/table.bin",
    ]
    assert files["build/torch-cpu/table.bin"] == (build / "table.bin").read_bytes()
    assert repository.entry("v1", "build/torch-cpu/table.bin").lfs is not None
    assert sorted(repository.files("main")) == [".gitattributes", "README.md"]
    assert "- torch-cpu: CPU" in repository.files("main")["README.md"].decode()
    repository.git("fsck", "--strict")


def test_publishing_twice_changes_nothing(hub: Hub, kernel: KernelProject) -> None:
    project = kernel.build()
    options = PublishOptions(create_repo=True, tag="v1.0.0")
    publish(project, options)
    before = len(hub.written())
    assert publish(project, options).status == "unchanged"
    assert hub.written()[before:] == []


def test_a_changed_kernel_adds_one_commit_to_each_branch(hub: Hub, kernel: KernelProject) -> None:
    publish(kernel.build(), PublishOptions(create_repo=True, tag="v1.0.0"))
    kernel.write("torch-ext/scale_add/__init__.py", INIT + "\n# faster\n")
    kernel.write("CARD.md", "# New\n")
    kernel.commit()
    result = publish(kernel.build(), PublishOptions(tag="v1.0.1"))
    repository = hub.repository("acme/scale-add")
    assert [c.path for c in result.plan.release.changes] == [
        "build/torch-cpu/__init__.py",
        "build/torch-cpu/metadata.json",
    ]
    assert titles(repository, "v1")[:2] == ["Release v1.0.1: 1 variant", "Release v1.0.0: 1 variant"]
    assert titles(repository, "main")[:2] == ["Card of version 1", "Card of version 1"]
    assert len(titles(repository, "v1")) == len(titles(repository, "main")) == 3
    assert repository.refs()["refs/tags/v1.0.0"] != repository.refs()["refs/tags/v1.0.1"]


def test_a_new_version_gets_its_own_branch(hub: Hub, kernel: KernelProject) -> None:
    publish(kernel.build(), CREATE)
    first = hub.repository("acme/scale-add").refs()["refs/heads/v1"]
    kernel.write("build.toml", (kernel.root / "build.toml").read_text().replace("version = 1", "version = 2"))
    kernel.write("torch-ext/scale_add/__init__.py", INIT.replace('"scale", ', ""))
    kernel.commit()
    result = publish(kernel.build(), PublishOptions())
    assert result.plan.api is None
    refs = hub.repository("acme/scale-add").refs()
    assert refs["refs/heads/v1"] == first
    assert titles(hub.repository("acme/scale-add"), "v2") == [
        "Release version 2: 1 variant",
        "initial commit",
    ]


class Recorder:
    """Keeps what a progress display would show."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int | None, str]] = []

    def advance(self, done: int, total: int | None, what: str) -> None:
        self.steps.append((done, total, what))

    def note(self, text: str) -> None:
        raise AssertionError(text)


def test_progress_counts_every_byte(hub: Hub, kernel: KernelProject) -> None:
    seen = Recorder()
    publish(kernel.build(), CREATE, progress=seen)
    sizes = [p.stat().st_size for p in (kernel.root / "build").rglob("*") if p.is_file()]
    total = sum(sizes) + len("# times it\n")
    assert [s for s in seen.steps if s[2] == "sending files"] == [
        (0, total, "sending files"),
        (total, total, "sending files"),
    ]


def test_legacy_builds_on_main_do_not_leak_into_a_version(hub: Hub, kernel: KernelProject) -> None:
    project = kernel.build()
    init = (kernel.root / "build/torch-cpu/__init__.py").read_bytes()
    repository = hub.create("acme/scale-add")
    repository.commit("main", "old", {"build/torch-cpu/__init__.py": init, "build/torch26/x.py": b""}, {}, [])
    publish(project, PublishOptions())
    names = sorted(name for name in repository.files("v1") if name.startswith("build/"))
    assert names == [f"build/torch-cpu/{n}" for n in ("__init__.py", "_ops.py", "metadata.json", "table.bin")]


def test_cleaning_for_a_release_keeps_what_is_published(kernel: KernelProject) -> None:
    project = kernel.build("torch-cpu", "torch-cuda")
    (kernel.root / "build/torch-cpu/__pycache__").mkdir()
    (kernel.root / "build/torch-cpu/__pycache__/x.cpython-311.pyc").write_bytes(b"")
    shipped = {path for name, path in release.collect(project).files.items() if name.startswith("build/")}
    assert shipped == set(clean.release_files(project))
    assert {path.suffix for path in shipped} == {".py", ".json", ".bin"}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "the variant has no metadata.json"),
        (b"x\n", "metadata.json cannot be read: Expecting value: line 1 column 1 (char 0)"),
        (b"[1]\n", "metadata.json holds no table"),
    ],
)
def test_damaged_metadata_is_to_be_built_again(
    kernel: KernelProject, content: bytes | None, what: str
) -> None:
    project = kernel.build("torch-cpu")
    metadata = kernel.root / "build/torch-cpu/metadata.json"
    metadata.unlink()
    if content is not None:
        metadata.write_bytes(content)
    with pytest.raises(KernelgenError) as caught:
        release.collect(project)
    assert caught.value.what == what
    assert caught.value.way_out == "build again, or remove the folder"


# --- The plan --------------------------------------------------------------------------------------


def test_dry_run_writes_nothing(hub: Hub, kernel: KernelProject) -> None:
    publish(kernel.build("torch-cpu", "torch-cuda"), CREATE)
    kernel.write("torch-ext/scale_add/__init__.py", INIT + "\n# faster\n")
    kernel.commit()
    for path in (kernel.root / "build/torch-cuda").iterdir():
        path.unlink()
    (kernel.root / "build/torch-cuda").rmdir()
    project = kernel.build()
    before = len(hub.written())
    result = publish(project, PublishOptions(tag="v1.1.0", dry_run=True))
    assert hub.written()[before:] == []
    plan = result.plan
    assert (plan.user, plan.may_write, plan.creates_repo, plan.creates_tag) == ("ada", True, False, True)
    assert [(c.kind, c.path) for c in plan.release.changes] == [
        ("change", "build/torch-cpu/__init__.py"),
        ("change", "build/torch-cpu/metadata.json"),
        ("remove", "build/torch-cuda/__init__.py"),
        ("remove", "build/torch-cuda/_ops.py"),
        ("remove", "build/torch-cuda/metadata.json"),
        ("remove", "build/torch-cuda/table.bin"),
    ]
    assert plan.removed_variants == ("torch-cuda",)
    assert plan.release.unchanged == 3
    printed = json.loads(json.dumps(result.to_json()))
    assert printed["status"] == "dry_run"
    assert printed["plan"]["removed_variants"] == ["torch-cuda"]
    assert printed["plan"]["release"]["changes"][0]["size"] == len(INIT + "\n# faster\n")

    done = publish(project, PublishOptions(tag="v1.1.0"))
    assert done.plan == plan
    assert "build/torch-cuda/table.bin" not in hub.repository("acme/scale-add").files("v1")


def test_published_variants_can_be_kept(hub: Hub, kernel: KernelProject) -> None:
    publish(kernel.build("torch-cuda"), CREATE)
    for path in (kernel.root / "build/torch-cuda").iterdir():
        path.unlink()
    (kernel.root / "build/torch-cuda").rmdir()
    result = publish(kernel.build("torch-cpu"), PublishOptions(keep_variants=True))
    assert {c.kind for c in result.plan.release.changes} == {"add"}
    assert "build/torch-cuda/table.bin" in hub.repository("acme/scale-add").files("v1")

    kernel.write("torch-ext/scale_add/__init__.py", INIT.replace('"add"]', '"add", "shift"]'))
    kernel.commit()
    kernel.build("torch-cpu")
    error = refused(hub, kernel, PublishOptions(keep_variants=True))
    assert error.what == "this release adds shift, not in torch-cuda, which stay"


def test_saying_no_to_the_plan_changes_nothing(hub: Hub, kernel: KernelProject) -> None:
    project = kernel.build()
    assert publish(project, CREATE, confirm=lambda _plan: False).status == "declined"
    assert hub.written() == []


# --- Refusals --------------------------------------------------------------------------------------


def test_shrinking_the_api_needs_a_new_version(hub: Hub, kernel: KernelProject) -> None:
    publish(kernel.build(extension=b"\0" + ADD_SCHEMA + b"\0" + SCALE_SCHEMA + b"\0"), CREATE)
    kernel.write("torch-ext/scale_add/__init__.py", INIT.replace('"scale", ', ""))
    kernel.commit()
    kernel.build(extension=b"\0" + ADD_SCHEMA + b"\0")
    error = refused(hub, kernel)
    assert error.what == (
        "version 1 promises what this release no longer has: scale, scale(Tensor x) -> Tensor"
    )
    assert error.way_out == "bring it back, or set version = 2 in build.toml and build again"
    assert error.detail is not None
    assert error.detail.splitlines() == [
        "published (v1)                     this release",
        "---------------------------------  ---------------------------------",
        "add                                add",
        "scale                              -                                  removed",
        "add(Tensor x, Tensor y) -> Tensor  add(Tensor x, Tensor y) -> Tensor",
        "scale(Tensor x) -> Tensor          -                                  removed",
    ]


def test_changed_sources_are_refused(hub: Hub, kernel: KernelProject) -> None:
    kernel.build()
    kernel.write("torch-ext/scale_add/__init__.py", INIT + "# edited\n")
    kernel.write("torch-ext/scale_add/new.py", "")
    kernel.write("notes.txt", "untracked, and none of the build's business")
    error = refused(hub, kernel)
    assert error.what == (
        "this release cannot be published: torch-ext/scale_add/__init__.py has changes that are not committed"
    )
    assert error.detail == "also: torch-ext/scale_add/new.py is not in git"


def test_stale_builds_are_refused(hub: Hub, kernel: KernelProject) -> None:
    built = kernel.git("rev-parse", "HEAD")[:12]
    kernel.build()
    kernel.write("CARD.md", "# Another card\n")
    kernel.commit()
    assert publish(kernel.load(), PublishOptions(create_repo=True, dry_run=True)).status == "dry_run"
    kernel.write("torch-ext/scale_add/__init__.py", INIT + "# edited\n")
    kernel.commit()
    assert refused(hub, kernel).what == (
        "this release cannot be published: build/torch-cpu: it is older than the sources "
        f"(torch-ext/scale_add/__init__.py changed since {built}): build again"
    )


def test_builds_of_uncommitted_sources_are_refused(hub: Hub, kernel: KernelProject) -> None:
    kernel.build(dirty=True)
    assert "it was built from sources that were not committed" in refused(hub, kernel).what


def test_builds_with_a_development_namespace_are_refused(hub: Hub, kernel: KernelProject) -> None:
    kernel.build()
    (kernel.root / "build/torch-cpu/_ops.py").write_text('_NAMESPACE = "dev_scale_add"\n')
    assert "fixed namespace 'dev_scale_add'" in refused(hub, kernel).what


def test_builds_of_another_version_are_refused(hub: Hub, kernel: KernelProject) -> None:
    kernel.build()
    kernel.write("build.toml", (kernel.root / "build.toml").read_text().replace("version = 1", "version = 2"))
    kernel.commit()
    error = refused(hub, kernel)
    assert "its version is 1, but build.toml says 2: build again" in error.what
    assert "build.toml changed since" in str(error.detail)


def test_conflict_marks_are_refused(hub: Hub, kernel: KernelProject) -> None:
    kernel.write("example.py", "<<<<<<< before\nx = 1\n=======\nx = 2\n>>>>>>> after\n")
    kernel.commit()
    kernel.build()
    assert refused(hub, kernel).what == "this release cannot be published: example.py has conflict marks"


def test_a_failed_judgement_is_refused(hub: Hub, kernel: KernelProject) -> None:
    kernel.build()
    error = refused(hub, kernel, judge=lambda _project: ["abi: GLIBC_2.32", "layout: no metadata"])
    assert error.what == "this release cannot be published: abi: GLIBC_2.32"
    assert error.detail == "also: layout: no metadata"


def test_nothing_built(hub: Hub, kernel: KernelProject) -> None:
    assert refused(hub, kernel).what == "nothing is built"


@pytest.mark.parametrize(
    ("tag", "what"),
    [
        ("1.0.0", "'1.0.0' is not a release tag"),
        ("v1.0", "'v1.0' is not a release tag"),
        ("v01.0.0", "'v01.0.0' is not a release tag"),
        ("v2.0.0", "the tag v2.0.0 is for version 2, but build.toml says version = 1"),
    ],
)
def test_wrong_tags(hub: Hub, kernel: KernelProject, tag: str, what: str) -> None:
    kernel.build()
    assert refused(hub, kernel, PublishOptions(create_repo=True, tag=tag)).what == what


def test_a_tag_is_never_moved(hub: Hub, kernel: KernelProject) -> None:
    publish(kernel.build(), PublishOptions(create_repo=True, tag="v1.0.0"))
    stands = hub.repository("acme/scale-add").refs()["refs/tags/v1.0.0"]
    kernel.write("torch-ext/scale_add/__init__.py", INIT + "# edited\n")
    kernel.commit()
    kernel.build()
    error = refused(hub, kernel, PublishOptions(tag="v1.0.0"))
    assert error.what == f"the tag v1.0.0 stands on commit {stands[:12]} and is never moved"


def test_a_missing_repository_is_created_only_if_asked(hub: Hub, kernel: KernelProject) -> None:
    kernel.build()
    error = refused(hub, kernel, PublishOptions())
    assert error.what == "there is no kernel repository acme/scale-add"
    assert "--create-repo" in str(error.way_out)
    hub.create("acme/scale-add", "model")
    error = refused(hub, kernel, PublishOptions())
    assert error.what.endswith("only a model repository, where loaders no longer look")


def test_a_private_repository(hub: Hub, kernel: KernelProject) -> None:
    assert publish(kernel.build(), PublishOptions(create_repo=True, private=True)).plan.private is True
    assert hub.repository("acme/scale-add").private is True


@pytest.mark.parametrize(
    "account",
    [
        Account("eve", role="read", orgs={"acme": "write"}),
        Account("eve", orgs={"acme": "read"}),
        Account("eve"),
    ],
)
def test_those_who_may_not_write(
    hub: Hub, kernel: KernelProject, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.build()
    monkeypatch.setenv("HF_TOKEN", hub.add_account(account, "hf_eve"))
    assert refused(hub, kernel).what == "this login may not write to acme/scale-add"


def test_a_fine_grained_token(hub: Hub, kernel: KernelProject, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account("bot", "fineGrained", orgs={"acme": "write"}, scopes={"acme": ("repo.write",)})
    monkeypatch.setenv("HF_TOKEN", hub.add_account(account, "hf_bot"))
    assert publish(kernel.build(), CREATE).plan.may_write is True


def test_no_approval_to_publish_kernels(
    hub: Hub, kernel: KernelProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.build()
    newcomer = Account("eve", orgs={"acme": "write"}, approved=False)
    monkeypatch.setenv("HF_TOKEN", hub.add_account(newcomer, "hf_eve"))
    with pytest.raises(KernelgenError) as caught:
        publish(kernel.load(), CREATE)
    assert caught.value.what == "the Hub refused to publish to acme/scale-add (HTTP 403)"
    assert "kernels-community" in str(caught.value.way_out)
    assert hub.repositories == {}


def test_nobody_is_logged_in(
    hub: Hub, kernel: KernelProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    kernel.build()
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    error = refused(hub, kernel)
    assert (error.what, error.way_out) == ("nobody is logged in to the Hub", "run: hf auth login")


def test_a_wrong_token_is_not_shown(hub: Hub, kernel: KernelProject, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.build()
    monkeypatch.setenv("HF_TOKEN", "hf_SECRETSECRET")
    error = refused(hub, kernel)
    assert error.what == "the Hub refused to find out who is logged in (HTTP 401)"
    assert "SECRET" not in str(error)


def test_no_network(hub: Hub, kernel: KernelProject) -> None:
    kernel.build()
    hub.close()
    with pytest.raises(KernelgenError) as caught:
        publish(kernel.load(), CREATE)
    assert caught.value.what == "the connection broke while trying to find out who is logged in"


def test_offline_mode(hub: Hub, kernel: KernelProject, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    kernel.build()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert refused(hub, kernel).way_out == "unset HF_HUB_OFFLINE"


def test_the_main_branch_is_for_the_card(hub: Hub, kernel: KernelProject) -> None:
    kernel.build()
    assert "main" in refused(hub, kernel, PublishOptions(branch="main")).what


# --- Pull requests ---------------------------------------------------------------------------------


def test_pull_requests_need_no_right_to_write(
    hub: Hub, kernel: KernelProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(kernel.build(), CREATE)
    repository = hub.repository("acme/scale-add")
    before = {name: oid for name, oid in repository.refs().items() if name.startswith("refs/heads/")}
    kernel.write("torch-ext/scale_add/table.bin", b"\1" * 20_000)
    kernel.commit()
    monkeypatch.setenv("HF_TOKEN", hub.add_account(Account("eve"), "hf_eve"))
    result = publish(kernel.build(), PublishOptions(create_pr=True))
    assert result.status == "pull_request"
    assert result.pull_requests == {"v1": f"{hub.endpoint}/kernels/acme/scale-add/discussions/1"}
    refs = repository.refs()
    assert {name: oid for name, oid in refs.items() if name.startswith("refs/heads/")} == before
    assert repository.files("refs/pr/1")["build/torch-cpu/table.bin"] == b"\1" * 20_000


def test_a_pull_request_needs_a_branch(hub: Hub, kernel: KernelProject) -> None:
    kernel.build()
    hub.create("acme/scale-add")
    error = refused(hub, kernel, PublishOptions(create_pr=True))
    assert error.what == "a pull request needs an existing branch, and acme/scale-add has no v1"


# --- Interruptions ---------------------------------------------------------------------------------


def test_somebody_else_published_meanwhile(hub: Hub, kernel: KernelProject) -> None:
    publish(kernel.build(), CREATE)
    kernel.write("torch-ext/scale_add/__init__.py", INIT + "# edited\n")
    kernel.commit()
    repository = hub.repository("acme/scale-add")

    def intrude(_plan: object) -> bool:
        repository.commit("v1", "theirs", {"build/torch-cpu/x.py": b""}, {}, [])
        return True

    with pytest.raises(KernelgenError, match="HTTP 412"):
        publish(kernel.build(), PublishOptions(), confirm=intrude)
    assert titles(repository, "v1")[0] == "theirs"


def test_an_answer_that_is_lost_makes_no_second_commit(hub: Hub, kernel: KernelProject) -> None:
    project = kernel.build()
    with hub.cut_before_answer(), pytest.raises(KernelgenError, match="run the same command again"):
        publish(project, CREATE)
    assert publish(project, CREATE).status == "published"
    kernel.write("torch-ext/scale_add/__init__.py", INIT + "# edited\n")
    kernel.commit()
    project = kernel.build()
    with hub.cut_before_answer(), pytest.raises(KernelgenError):
        publish(project, CREATE)
    assert publish(project, CREATE).status == "unchanged"
    assert len(titles(hub.repository("acme/scale-add"), "v1")) == 3


def test_a_short_break_is_bridged_by_the_client(
    hub: Hub, kernel: KernelProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client tries again by itself; the cable is back by then."""
    from hub.server import Faults

    def back(_seconds: float) -> None:
        hub.faults = Faults()

    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", back)
    project = kernel.build()
    with hub.cut_after(30_000):
        assert publish(project, CREATE).status == "published"
    table = (kernel.root / "build/torch-cpu/table.bin").read_bytes()
    assert hub.repository("acme/scale-add").files("v1")["build/torch-cpu/table.bin"] == table
