"""The real template under update: a project edited by hand follows it, by kernelgen and by bare Copier."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kernelgen import git, template, update

OPERATORS = ["scale(Tensor x, float factor=2.0) -> Tensor", "fill_(Tensor(a!) x, float value) -> ()"]
# The next version of the template: an edit in each of these managed files, and in an owned one.
CHANGES = {
    "template/build.toml.jinja": ("[general]\n", "# Read by kernel-builder.\n[general]\n"),
    "template/flake.lock": ('"version": 7', '"version": 7 '),
    "template/mypy.ini": ("[mypy]\n", "[mypy]\nwarn_unreachable = True\n"),
    "template/README.md.jinja": ("# ", "# The kernel "),
}
# What the owner appends to, and does to, a project of the version before.
APPENDED = {
    "csrc/scale.cpp": "// mine: kernel\n",
    "torch-ext/fill_.cpp": "// mine: operator\n",
    "torch-ext/torch_binding.cpp": "// mine: binding\n",
    "build.toml": '\n[general.cuda]\nminver = "12.6"\n',
    "tests/test_scale.py": "# mine: test\n",
    "README.md": "\nMine.\n",
}


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)


def commit(root: Path) -> None:
    git.run("init", "-q", cwd=root, hermetic=True)
    git.run("add", "-A", cwd=root, hermetic=True)
    git.run("commit", "-qm", "x", cwd=root, hermetic=True)


def tree_of(project: Path) -> dict[str, bytes]:
    paths = (
        path
        for path in project.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(project).parts
    )
    return {path.relative_to(project).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """The checkout's template as v1.0.0, and what it may become as v1.1.0."""
    root = tmp_path / "template"
    root.mkdir()
    git.run("init", "-q", "--initial-branch=main", cwd=root, hermetic=True)
    files = {file.path: file for file in template.read_tree(template.development_root() or Path())}
    template.commit_version(root, list(files.values()), "v1.0.0", None, 0)
    for path, (old, new) in CHANGES.items():
        data = files[path].data
        assert old.encode() in data
        files[path] = template.TemplateFile(
            path, files[path].mode, data.replace(old.encode(), new.encode(), 1)
        )
    template.commit_version(root, list(files.values()), "v1.1.0", "refs/tags/v1.0.0^0", 1)
    return root


def test_no_line_is_lost(versions: Path, tmp_path: Path) -> None:
    import copier

    project = tmp_path / "mine"
    answers = {"kernel_name": "my-kernel", "repo_id": "acme/my-kernel", "ops": OPERATORS}
    copier.run_copy(str(versions), project, answers, vcs_ref="v1.0.0", defaults=True, quiet=True)
    commit(project)
    for path, text in APPENDED.items():
        (project / path).write_text((project / path).read_text() + text)
    commit(project)
    before = tree_of(project)
    bare = tmp_path / "bare"
    shutil.copytree(project, bare)

    report = update.update(project)
    assert report.conflicts == ()
    assert report.changed == (".copier-answers.yml", "build.toml", "flake.lock", "mypy.ini")
    after = tree_of(project)
    for path, text in APPENDED.items():
        assert after[path].endswith(text.encode())
    assert after["build.toml"].startswith(
        before["build.toml"].partition(b"[general]")[0] + b"# Read by kernel-builder.\n[general]\n"
    )
    assert b"warn_unreachable" in after["mypy.ini"]
    unchanged = before.keys() - set(report.changed)
    assert {path: after[path] for path in unchanged} == {path: before[path] for path in unchanged}

    command = [sys.executable, "-m", "copier", "update", "--defaults"]
    done = subprocess.run(command, cwd=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert tree_of(bare) == after


def test_operators_come_and_go(versions: Path, tmp_path: Path) -> None:
    import copier

    project = tmp_path / "mine"
    answers = {"kernel_name": "my-kernel", "repo_id": "acme/my-kernel", "ops": OPERATORS[:1]}
    copier.run_copy(str(versions), project, answers, vcs_ref="v1.1.0", defaults=True, quiet=True)
    commit(project)
    first = tree_of(project)
    owned = {path: data for path, data in first.items() if "scale" in path}
    report = update.update(project, data={"ops": OPERATORS})
    assert report.conflicts == ()
    assert {path for path in report.added if "fill_" not in path} == set()
    after = tree_of(project)
    assert {path: after[path] for path in owned} == owned
    commit(project)
    report = update.update(project, data={"ops": OPERATORS[:1]})
    assert tree_of(project) == first

    git.run("reset", "-q", "--hard", "HEAD~1", cwd=project, hermetic=True)
    update.rename(project, "other-name")
    assert yaml.safe_load((project / update.ANSWERS).read_text())["kernel_name"] == "other-name"
    renamed = tree_of(project)
    answers = {"kernel_name": "other-name", "repo_id": "acme/my-kernel", "ops": OPERATORS[:1],
               "description": "The my-kernel kernel for PyTorch"}  # fmt: skip
    copier.run_copy(str(versions), tmp_path / "fresh", answers, vcs_ref="v1.1.0", defaults=True, quiet=True)
    assert renamed == tree_of(tmp_path / "fresh")
