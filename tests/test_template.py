"""The template's own repository: made from a bundle or a checkout, refreshed, and used by real Copier."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from kernelgen import git, template
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from pathlib import Path

COPIER_YML = """\
_subdirectory: template
_envops: {block_start_string: "{=%", block_end_string: "%=}", variable_start_string: "{=",
  variable_end_string: "=}", comment_start_string: "{=#", comment_end_string: "#=}",
  undefined: jinja2.StrictUndefined}
kernel_name: {type: str, default: demo}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of its own, with a hostile git configuration."""
    home = tmp_path / "home"
    home.mkdir()
    hostile = "[commit]\n gpgsign = true\n[init]\n defaultBranch = trunk\n[core]\n autocrlf = true\n"
    (home / ".gitconfig").write_text(hostile)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("KERNELGEN_TEMPLATE", raising=False)
    monkeypatch.setenv("GIT_DIR", "/nonexistent")  # what a git hook would leave behind
    return home


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose template is one file, and no bundle."""
    root = tmp_path / "checkout"
    write_version(root, "first\n")
    monkeypatch.setattr(template, "development_root", lambda: root)
    monkeypatch.setattr(template, "bundle_path", lambda: root / "template.bundle")
    return root


def write_version(root: Path, text: str) -> None:
    (root / "template").mkdir(parents=True, exist_ok=True)
    (root / "copier.yml").write_text(COPIER_YML)
    (root / "template" / "{= kernel_name =}.txt.jinja").write_text(f"{{= kernel_name =}}: {text}")
    (root / "template" / "{=% if true %=}run.sh{=% endif %=}").write_text("#!/bin/sh\necho 'a b'\n")
    (root / "template" / ".copier-answers.yml.jinja").write_text("{= _copier_answers | to_nice_yaml =}")


def release(root: Path, tag: str) -> None:
    """Put the checkout's template into its bundle as a release."""
    repository = root / "releases"
    if not repository.exists():
        repository.mkdir()
        git.run("init", "-q", "--initial-branch=main", cwd=repository, hermetic=True)
    released = template.released_versions(root / "template.bundle")
    parent = next(reversed(released.values()), None)
    template.commit_version(repository, template.read_tree(root), tag, parent, len(released))
    git.run(
        "bundle",
        "create",
        "-q",
        str(root / "template.bundle"),
        "--tags",
        "main",
        cwd=repository,
        hermetic=True,
    )


def copier(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "copier", *args],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k != "GIT_DIR"},
        capture_output=True,
        text=True,
        check=False,
    )


def commit(project: Path) -> None:
    git.run("init", "-q", cwd=project, hermetic=True)
    git.run("add", "-A", cwd=project, hermetic=True)
    git.run("commit", "-qm", "x", cwd=project, hermetic=True)


def test_tree_id_is_what_git_says(checkout: Path) -> None:
    files = template.read_tree(checkout)
    template.materialise(checkout / "data")
    repository = checkout / "data" / "template"
    assert git.text("rev-parse", "main^{tree}", cwd=repository, hermetic=True) == template.tree_id(files)
    assert git.text("ls-files", "-z", cwd=repository, hermetic=True).split("\0")[:-1] == [
        f.path for f in files
    ]
    assert git.text("status", "--porcelain", cwd=repository, hermetic=True) == ""
    modes = git.text("ls-files", "--stage", "template", cwd=repository, hermetic=True).splitlines()
    assert [line[:6] for line in modes] == ["100644", "100644", "100755"]


def test_development_versions_rise_and_are_the_same_everywhere(
    home: Path, checkout: Path, tmp_path: Path
) -> None:
    first = template.source()
    assert first.path_or_url == "~/.local/share/kernelgen/template"
    tree = template.tree_id(template.read_tree(checkout))
    assert first.ref == f"v0.0.0.post1+g{tree[:8]}"
    assert first.version == f"0.0.0.post1+g{tree[:8]}"
    assert template.source() == first
    elsewhere = template.materialise(tmp_path / "elsewhere")
    assert elsewhere.ref == first.ref
    commits = [
        git.text("rev-parse", str(first.ref), cwd=path, hermetic=True)
        for path in (home / ".local/share/kernelgen/template", tmp_path / "elsewhere" / "template")
    ]
    assert commits[0] == commits[1]

    write_version(checkout, "second\n")
    second = template.source()
    assert str(second.ref).startswith("v0.0.0.post2+g")
    write_version(checkout, "first\n")
    third = template.source()
    assert third.ref == f"v0.0.0.post3+g{tree[:8]}"


def test_an_unchanged_template_costs_no_process(
    home: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = template.source()
    monkeypatch.setenv("PATH", "/nonexistent")
    assert template.source() == first
    write_version(checkout, "second\n")
    with pytest.raises(KernelgenError, match="git is not on the PATH"):
        template.source()


def test_bundle_and_checkout_together(home: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release(checkout, "v0.1.0")
    assert template.source().ref == "v0.1.0"  # the checkout is the release
    write_version(checkout, "second\n")
    assert str(template.source().ref).startswith("v0.1.0.post1+g")
    release(checkout, "v0.2.0")
    assert template.source().ref == "v0.2.0"
    # Installed from a wheel: no checkout, the newest of its own bundle.
    monkeypatch.setattr(template, "development_root", lambda: None)
    assert template.source().ref == "v0.2.0"
    assert list(template.released_versions(checkout / "template.bundle")) == ["v0.1.0", "v0.2.0"]


def test_a_release_is_the_same_on_every_machine(checkout: Path) -> None:
    release(checkout, "v0.1.0")
    first = template.released_versions(checkout / "template.bundle")
    shutil.rmtree(checkout / "releases")
    (checkout / "template.bundle").unlink()
    release(checkout, "v0.1.0")
    assert template.released_versions(checkout / "template.bundle") == first


def test_bare_copier_follows(home: Path, checkout: Path, tmp_path: Path) -> None:
    release(checkout, "v0.1.0")
    source = template.source()
    project = tmp_path / "project"
    done = copier(
        "copy", "--defaults", "--vcs-ref", str(source.ref), source.path_or_url, str(project), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    answers = (project / ".copier-answers.yml").read_text()
    assert "_src_path: ~/.local/share/kernelgen/template\n" in answers
    assert "_commit: v0.1.0\n" in answers
    assert (project / "demo.txt").read_bytes() == b"demo: first\n"
    assert os.access(project / "run.sh", os.X_OK)
    assert (project / "run.sh").read_bytes() == b"#!/bin/sh\necho 'a b'\n"

    for text, tag in [("second\n", "v0.1.0.post1+g"), ("third\n", "v0.1.0.post2+g"), ("fourth\n", "v0.2.0")]:
        commit(project)
        write_version(checkout, text)
        if tag == "v0.2.0":
            release(checkout, tag)
        template.source()
        done = copier("update", "--defaults", cwd=project)
        assert done.returncode == 0, done.stderr
        assert (project / "demo.txt").read_text() == f"demo: {text}"
        assert f"_commit: {tag}" in (project / ".copier-answers.yml").read_text()


def test_many_at_once_make_one_repository(home: Path, checkout: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: template.source(), range(8)))
    assert set(found) == {found[0]}
    data = home / ".local/share/kernelgen"
    assert sorted(p.name for p in data.iterdir()) == ["template", "template.json", "template.lock"]


def test_a_broken_repository_is_made_anew(home: Path, checkout: Path) -> None:
    first = template.source()
    data = home / ".local/share/kernelgen"
    (data / "template.new-left-by-a-kill").mkdir()
    shutil.rmtree(data / "template" / ".git" / "objects")
    (data / "template.json").unlink()
    assert template.source() == first
    assert git.text("rev-parse", "HEAD^{tree}", cwd=data / "template", hermetic=True)
    assert sorted(p.name for p in data.iterdir()) == ["template", "template.json", "template.lock"]


def test_a_data_directory_that_cannot_be_written(
    home: Path, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(KernelgenError, match="data directory") as caught:
        template.source()
    assert caught.value.way_out


def test_another_template(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tmp_path / "plain"
    write_version(plain, "x")
    monkeypatch.chdir(tmp_path)
    assert template.source("plain") == template.TemplateSource(str(plain), None, None)
    monkeypatch.setenv("KERNELGEN_TEMPLATE", "plain")
    assert template.source().path_or_url == str(plain)
    assert template.source("gh:acme/kernels").path_or_url == "gh:acme/kernels"
    repository = home / "mine"
    write_version(repository, "x")
    commit(repository)
    assert template.source("~/mine").path_or_url == "~/mine"
    with pytest.raises(KernelgenError, match="no template at 'nowhere'"):
        template.source("nowhere")


def test_own_and_foreign_paths() -> None:
    assert template.is_own("~/.local/share/kernelgen/template")
    assert template.is_own("~/Library/Application Support/kernelgen/template")
    assert not template.is_own("gh:acme/template")
