"""The local Hub answers huggingface_hub as the Hub does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .fixtures import hub
from .server import Account, Hub

if TYPE_CHECKING:
    from pathlib import Path

    from huggingface_hub import CommitOperationAdd

__all__ = ["hub"]


def _add(path: str, content: bytes) -> CommitOperationAdd:
    from huggingface_hub import CommitOperationAdd

    return CommitOperationAdd(path, content)


def test_commit_with_regular_and_large_files(hub: Hub, tmp_path: Path) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api = HfApi()
    url = api.create_repo("acme/relu", repo_type="kernel")
    assert url.repo_id == "acme/relu"
    assert url.repo_type == "kernel"
    big = bytes(range(256)) * 40
    operations = [_add("a/text.py", b"x = 1\n"), _add("a/lib.so", big)]
    info = api.create_commit("acme/relu", operations, commit_message="first", repo_type="kernel")
    tree = {e.path: e for e in api.list_repo_tree("acme/relu", repo_type="kernel", recursive=True)}
    assert sorted(tree) == [".gitattributes", "a", "a/lib.so", "a/text.py"]
    library, text = tree["a/lib.so"], tree["a/text.py"]
    assert isinstance(library, RepoFile)
    assert isinstance(text, RepoFile)
    assert library.lfs is not None
    assert library.lfs.size == library.size == 10240
    assert text.lfs is None
    assert hub.repository("acme/relu").commits("main")[0] == (info.oid, "first")

    local = api.snapshot_download("acme/relu", repo_type="kernel", cache_dir=tmp_path / "cache")
    assert local.endswith(info.oid)
    assert (tmp_path / "cache/kernels--acme--relu/refs/main").read_text() == info.oid
    found = {
        p.name: p.read_bytes()
        for p in (tmp_path / "cache/kernels--acme--relu/snapshots" / info.oid / "a").iterdir()
    }
    assert found == {"text.py": b"x = 1\n", "lib.so": big}
    hub.repository("acme/relu").git("fsck", "--strict")


def test_unchanged_files_make_no_commit(hub: Hub) -> None:
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo("acme/relu", repo_type="kernel")
    for _ in range(2):
        api.create_commit(
            "acme/relu", [_add("a.so", b"\0" * 999)], commit_message="first", repo_type="kernel"
        )
    assert [title for _, title in hub.repository("acme/relu").commits("main")] == ["first", "initial commit"]


def test_branches_tags_and_pull_requests(hub: Hub) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, RevisionNotFoundError

    api = HfApi()
    api.create_repo("acme/relu", repo_type="kernel")
    first = api.list_repo_commits("acme/relu", repo_type="kernel")[-1].commit_id
    api.create_branch("acme/relu", branch="v1", revision=first, repo_type="kernel")
    with pytest.raises(HfHubHTTPError):
        api.create_branch("acme/relu", branch="v1", repo_type="kernel")
    made = api.create_commit(
        "acme/relu", [_add("x", b"1")], commit_message="x", repo_type="kernel", revision="v1"
    )
    api.create_tag("acme/relu", tag="v1.0.0", revision="v1", repo_type="kernel")
    with pytest.raises(HfHubHTTPError):
        api.create_tag("acme/relu", tag="v1.0.0", revision="main", repo_type="kernel")
    pull = api.create_commit(
        "acme/relu", [_add("y", b"1")], commit_message="y", repo_type="kernel", revision="v1", create_pr=True
    )
    assert pull.pr_revision == "refs/pr/1"
    refs = api.list_repo_refs("acme/relu", repo_type="kernel", include_pull_requests=True)
    assert {b.name: b.target_commit for b in refs.branches} == {"main": first, "v1": made.oid}
    assert [(t.name, t.target_commit) for t in refs.tags] == [("v1.0.0", made.oid)]
    assert [(p.ref, p.target_commit) for p in refs.pull_requests or []] == [("refs/pr/1", pull.oid)]
    with pytest.raises(RevisionNotFoundError):
        api.repo_info("acme/relu", repo_type="kernel", revision="v2")


def test_a_commit_on_a_stale_parent_is_refused(hub: Hub) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    api.create_repo("acme/relu", repo_type="kernel")
    head = api.list_repo_commits("acme/relu", repo_type="kernel")[0].commit_id
    api.create_commit("acme/relu", [_add("x", b"1")], commit_message="x", repo_type="kernel")
    with pytest.raises(HfHubHTTPError, match="412"):
        api.create_commit(
            "acme/relu", [_add("x", b"2")], commit_message="y", repo_type="kernel", parent_commit=head
        )


def test_trees_come_in_pages(hub: Hub) -> None:
    from huggingface_hub import HfApi

    hub.page_size = 3
    api = HfApi()
    api.create_repo("acme/relu", repo_type="kernel")
    names = [f"d/{i}" for i in range(10)]
    api.create_commit("acme/relu", [_add(n, b"1") for n in names], commit_message="x", repo_type="kernel")
    tree = list(api.list_repo_tree("acme/relu", repo_type="kernel", recursive=True))
    assert [e.path for e in tree] == [".gitattributes", "d", *names]
    assert [e.path for e in api.list_repo_tree("acme/relu", "d", repo_type="kernel")] == names


def test_who_may_do_what(hub: Hub) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    hub.add_account(Account("eve", role="read"), "hf_eve")
    hub.create("acme/secret", private=True)
    hub.create("acme/model", "model")
    eve = HfApi(token="hf_eve")  # noqa: S106
    assert eve.whoami()["auth"]["accessToken"]["role"] == "read"
    with pytest.raises(RepositoryNotFoundError):
        eve.repo_info("acme/secret", repo_type="kernel")
    assert HfApi().repo_info("acme/secret", repo_type="kernel").private is True
    with pytest.raises(HfHubHTTPError, match="403"):
        eve.create_repo("acme/mine", repo_type="kernel")
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        HfApi(token="hf_wrong").whoami()  # noqa: S106
    with pytest.raises(RepositoryNotFoundError):
        HfApi().repo_info("acme/model", repo_type="kernel")


def test_ranges(hub: Hub) -> None:
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.utils._http import get_session

    api = HfApi()
    api.create_repo("acme/relu", repo_type="kernel")
    api.create_commit("acme/relu", [_add("a.so", bytes(range(100)))], commit_message="x", repo_type="kernel")
    url = hf_hub_url("acme/relu", "a.so", repo_type="kernel", endpoint=hub.endpoint)
    answer = get_session().get(url, headers={"Range": "bytes=90-"}, follow_redirects=True)
    assert (answer.status_code, answer.content) == (206, bytes(range(90, 100)))
    assert answer.headers["Content-Range"] == "bytes 90-99/100"


def test_a_cut_upload_leaves_nothing_behind(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    api = HfApi()
    api.create_repo("acme/relu", repo_type="kernel")
    big = bytes(range(256)) * 400
    with hub.cut_after(50_000), pytest.raises(Exception, match=r"a\.so"):
        api.create_commit("acme/relu", [_add("a.so", big)], commit_message="x", repo_type="kernel")
    assert list((hub.root / "kernels/acme/relu/lfs").iterdir()) == []
    api.create_commit("acme/relu", [_add("a.so", big)], commit_message="x", repo_type="kernel")
    assert hub.repository("acme/relu").files("main")["a.so"] == big
