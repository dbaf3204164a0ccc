"""Updates, on real git and real Copier: what the template changed arrives, what its owner wrote stays."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
import toy_template
import yaml
from hypothesis import given, settings

from kernelgen import git, journal, merge, update
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from collections.abc import Callable

V1, V2, V3, V4, V5 = toy_template.VERSIONS


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_template.repository(tmp_path_factory.mktemp("toy") / "template")


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)


def commit(project: Path, message: str = "edit") -> None:
    git.run("add", "-A", cwd=project, hermetic=True)
    git.run("commit", "-q", "--allow-empty", "-m", message, cwd=project, hermetic=True)


def new(project: Path, toy: Path, version: str, **answers: Any) -> Path:
    """A project of a template version, committed."""
    import copier

    copier.run_copy(str(toy), project, answers, vcs_ref=version, defaults=True, quiet=True)
    git.run("init", "-q", cwd=project, hermetic=True)
    commit(project, "new")
    return project


@pytest.fixture(scope="session")
def made(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Projects by version and answers, each rendered once; to be copied, not changed."""
    projects: dict[str, Path] = {}

    def make(version: str, **answers: Any) -> Path:
        key = repr((version, answers))
        if key not in projects:
            projects[key] = new(tmp_path_factory.mktemp("made") / "p", toy, version, **answers)
        return projects[key]

    return make


def tree_of(project: Path) -> dict[str, str]:
    """Every file of a working tree, git's own left out."""
    paths = (path for path in project.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(project).as_posix(): path.read_text() for path in paths}


def status(project: Path) -> str:
    return git.text("status", "--porcelain", cwd=project, hermetic=True)


def append(text: str) -> Callable[[str], str]:
    return lambda content: content + text


def swap(old: str, new: str) -> Callable[[str], str]:
    def edit(content: str) -> str:
        assert old in content
        return content.replace(old, new)

    return edit


# --- The matrix: from each version to the newest, three kinds of edits, two lists of operators
# -----------------------

OPERATORS = (["scale"], ["scale", "shift", "clamp"])
# Where a file of the newest version was in an older one.
OLD_PATHS = {
    "config/style.cfg": lambda version: "tools/lint.cfg" if version < V3 else "config/style.cfg",
    "benchmarks/benchmark.py": lambda version: "bench.py" if version < V4 else "benchmarks/benchmark.py",
}
OWNED = ("README.md", "csrc/scale.cu", "csrc/shift.cu", "csrc/clamp.cu", "benchmarks/benchmark.py")
# Edits by the newest version's path; None deletes.
EDITS: dict[str, dict[str, Callable[[str], str] | None]] = {
    "none": {},
    "apart": {
        "README.md": append("\nMine.\n"),
        "csrc/scale.cu": swap("x[0] = 1;", "x[0] = 2;  // faster"),
        "benchmarks/benchmark.py": append("# more\n"),
        "config/style.cfg": swap("quotes = double", "quotes = single"),
        "build.toml": swap("version = 1", "version = 2"),
        "torch-ext/torch_binding.cpp": swap('#include "registration.h"', '#include "mine.h"'),
        "torch-ext/demo/_ops.pyi": None,
        "csrc/mine.cuh": lambda _: "// mine\n",
    },
    "same": {
        "config/style.cfg": swap("width = 1", "width = 9"),
        "torch-ext/torch_binding.cpp": swap("check_dtype(int dtype)", "check_dtype(long dtype)"),
        "flake.lock": lambda _: '{"rev": "mine"}\n',
        "NOTES.txt": append("Mine.\n"),
    },
}


def true_conflicts(pattern: str, version: str) -> set[str]:
    """The files where the owner and a later template version have changed the same lines."""
    if pattern != "same":
        return set()
    changed_since = {"config/style.cfg": V3, "torch-ext/torch_binding.cpp": V5, "flake.lock": V2}
    return {path for path, since in changed_since.items() if version < since}


@pytest.mark.parametrize("operators", OPERATORS, ids=lambda names: f"{len(names)}op")
@pytest.mark.parametrize("pattern", EDITS)
@pytest.mark.parametrize("version", [V1, V2, V3, V4])
def test_matrix(
    version: str, pattern: str, operators: list[str], made: Callable[..., Path], tmp_path: Path
) -> None:
    project = tmp_path / "p"
    shutil.copytree(made(version, ops=operators), project)
    pristine = tree_of(project)
    for path, edit in EDITS[pattern].items():
        where = project / OLD_PATHS.get(path, lambda _, path=path: path)(version)
        if edit is None:
            where.unlink()
        elif where.exists() or path.endswith(".cuh"):
            where.write_text(edit(where.read_text() if where.exists() else ""))
    commit(project)

    report = update.update(project)

    conflicts = true_conflicts(pattern, version)
    assert {conflict.path for conflict in report.conflicts} == conflicts
    kept = {"NOTES.txt"} if pattern == "same" and version < V4 else set()
    assert {kept.path for kept in report.kept} == kept
    fresh = made(V5, ops=operators, license="MIT" if version == V1 else "Apache-2.0")
    expected = tree_of(fresh)
    for path in OWNED:  # an owned file is the one that its first version wrote
        if path in expected:
            expected[path] = pristine[OLD_PATHS.get(path, lambda _, path=path: path)(version)]
    for path, edit in EDITS[pattern].items():
        if edit is None:
            del expected[path]
        elif path == "NOTES.txt":
            if version < V4:
                expected[path] = edit(pristine[path])
        else:
            expected[path] = edit(expected.get(path, ""))
    found = tree_of(project)
    expected_lock = expected["flake.lock"]
    for path in conflicts - {"flake.lock"}:
        text = found.pop(path)
        assert merge.places(text.encode())
        expected.pop(path)
    assert found == expected
    assert report.new_answers == ({"cxx": 17} if version == V1 else {})
    assert (report.current, report.target) == (version, V5)
    if conflicts:
        unmerged = git.text("diff", "--name-only", "--diff-filter=U", cwd=project, hermetic=True)
        assert set(unmerged.splitlines()) == conflicts
        assert update.has_conflict_marks(project)
        with pytest.raises(KernelgenError, match="unresolved conflicts"):
            update.update(project)
        before = git.text("rev-parse", "HEAD", cwd=project, hermetic=True)
        if "flake.lock" in conflicts:
            assert found["flake.lock"] == expected_lock
            git.run("checkout", "-q", "--theirs", "flake.lock", cwd=project, hermetic=True)
            assert (project / "flake.lock").read_text() == '{"rev": "2"}\n'
        update.abort(project)
        assert status(project) == ""
        assert git.text("rev-parse", "HEAD", cwd=project, hermetic=True) == before
        assert not update.has_conflict_marks(project)
    else:
        commit(project)
        assert update.update(project).is_empty
        assert status(project) == ""


def test_version_by_version_is_the_same_as_at_once(toy: Path, tmp_path: Path) -> None:
    step, leap = (new(tmp_path / name, toy, V1) for name in ("step", "leap"))
    for project in (step, leap):
        (project / "csrc/scale.cu").write_text("// mine\n")
        (project / "tools/lint.cfg").write_text((project / "tools/lint.cfg").read_text() + "mine = 1\n")
        commit(project)
    for version in (V2, V3, V4, V5):
        update.update(step, to_version=version.removeprefix("v"))
        commit(step)
    update.update(leap)
    assert tree_of(step) == tree_of(leap)
    assert (leap / "config/style.cfg").read_text().endswith("ends = lf\nmine = 1\n")


# --- Conflicts, abort, dry run
# ----------------------------------------------------------------------------------------


def test_a_conflict_shows_line_and_both_sides(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V2)
    lint = project / "tools/lint.cfg"
    lint.write_text(lint.read_text().replace("width = 100", "width = 80"))
    commit(project)
    report = update.update(project)
    (conflict,) = report.conflicts
    assert conflict.path == "config/style.cfg"
    assert conflict.places == (merge.Place(2, "width = 80\n", "width = 110\n"),)
    assert (project / "config/style.cfg").read_text().splitlines()[1:6] == [
        "<<<<<<< yours",
        "width = 80",
        "=======",
        "width = 110",
        f">>>>>>> template {V5}",
    ]
    assert update.conflict_marks(project) == ("config/style.cfg:2",)
    # Committed with the marks in it, it is still refused.
    commit(project)
    with pytest.raises(KernelgenError, match="unresolved conflicts") as caught:
        update.update(project)
    assert caught.value.detail == "config/style.cfg:2"


def test_dry_run_shows_the_diff_and_changes_nothing(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V1)
    before = tree_of(project)
    report = update.update(project, dry_run=True)
    assert tree_of(project) == before
    assert status(project) == ""
    assert "rename from a/tools/lint.cfg\nrename to b/config/style.cfg\n" in report.diff
    assert "-width = 100\n+width = 110\n" in report.diff
    assert '+cxx-flags = ["-std=c++17"]\n' in report.diff
    assert report.moved == (("bench.py", "benchmarks/benchmark.py"), ("tools/lint.cfg", "config/style.cfg"))
    assert report.added == ("ci.yml",)
    assert report.removed == ("NOTES.txt",)


def test_check_says_what_there_is(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V1)
    (project / "README.md").write_text("dirty\n")
    assert update.check(project) == update.Status(V1, V5, True)
    git.run("checkout", "-q", ".", cwd=project, hermetic=True)
    update.update(project)
    assert update.check(project) == update.Status(V5, V5, False)


def test_abort_needs_an_update(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V1)
    with pytest.raises(KernelgenError, match="no update to abort"):
        update.abort(project)
    update.update(project)
    (project / "build.toml").write_text("half resolved")
    update.abort(project)
    assert status(project) == ""
    with pytest.raises(KernelgenError, match="no update to abort"):
        update.abort(project)
    update.update(project)
    commit(project)
    with pytest.raises(KernelgenError, match="no update to abort"):
        update.abort(project)


# --- What is refused, and what never blocks
# ---------------------------------------------------------------------------


def test_a_dirty_tree_is_refused_untracked_files_are_not(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V4)
    (project / "scratch.txt").write_text("mine\n")
    (project / "build").mkdir()
    (project / "build" / "a.so").write_bytes(b"\0")
    (project / "build.toml").write_text("dirty\n")
    before = tree_of(project)
    with pytest.raises(KernelgenError, match="not committed") as caught:
        update.update(project)
    assert caught.value.detail == "build.toml"
    assert "git stash" in str(caught.value.way_out)
    assert tree_of(project) == before
    git.run("checkout", "-q", "build.toml", cwd=project, hermetic=True)
    assert update.update(project).added == ("ci.yml",)
    assert (project / "scratch.txt").read_text() == "mine\n"


def test_an_untracked_file_blocks_only_its_own_path(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V4)
    (project / "ci.yml").write_text("mine\n")
    with pytest.raises(KernelgenError, match="does not track") as caught:
        update.update(project)
    assert caught.value.detail == "ci.yml"
    assert status(project) == "?? ci.yml"
    commit(project)  # tracked, it is merged: both sides have written it
    report = update.update(project)
    assert [conflict.path for conflict in report.conflicts] == ["ci.yml"]
    update.abort(project)
    (project / "ci.yml").write_text("name: demo\n")
    commit(project)
    assert update.update(project).conflicts == ()


def test_refusals(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V4)
    for arguments, message in [
        ({"data": {"licence": "MIT"}}, "no question 'licence'"),
        ({"data": {"kernel_name": "other"}}, "kernel_name can't change"),
        ({"to_version": "0.2.0"}, "is at template version v0.4.0, which is newer than v0.2.0"),
        ({"to_version": "9"}, "no version '9'"),
        ({"to_version": "banana"}, "no version 'banana'"),
    ]:
        with pytest.raises(KernelgenError, match=message):
            update.update(project, **arguments)  # type: ignore[arg-type]
    answers = project / update.ANSWERS
    text = answers.read_text()
    for wrong, message in [
        (text.replace(V4, "v7.0.0"), "version v7.0.0, which is not known here"),
        (text.replace(str(toy), "/nowhere"), "no template at '/nowhere'"),
        ("kernel_name: demo\n", "does not say which template"),
        ("a: [", "not YAML"),
    ]:
        answers.write_text(wrong)
        commit(project)
        with pytest.raises(KernelgenError, match=message):
            update.update(project)
    answers.unlink()
    with pytest.raises(KernelgenError, match="no answers file"):
        update.update(project)


def test_outside_git_and_before_the_first_commit(toy: Path, tmp_path: Path) -> None:
    import copier

    copier.run_copy(str(toy), tmp_path / "p", vcs_ref=V4, defaults=True, quiet=True)
    with pytest.raises(KernelgenError, match="needs the project in git"):
        update.update(tmp_path / "p")
    git.run("init", "-q", cwd=tmp_path / "p", hermetic=True)
    with pytest.raises(KernelgenError, match="no commit yet"):
        update.update(tmp_path / "p")


def test_a_link_out_of_the_project_is_not_followed(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V3)
    (tmp_path / "outside").mkdir()
    (project / "benchmarks").symlink_to(tmp_path / "outside")
    commit(project)
    with pytest.raises(KernelgenError, match="leads out of the project"):
        update.update(project)
    assert list((tmp_path / "outside").iterdir()) == []
    assert status(project) == ""


# --- Answers: operators and names
# -------------------------------------------------------------------------------------


def test_adding_an_operator_touches_no_other(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V4)
    (project / "csrc/scale.cu").write_text("// mine\n")
    commit(project)
    report = update.update(project, to_version="current", data={"ops": ["scale", "shift"]})
    assert report.added == ("csrc/shift.cu",)
    assert report.changed == (update.ANSWERS, "build.toml", "torch-ext/torch_binding.cpp")
    assert (report.current, report.target) == (V4, V4)
    assert (project / "csrc/scale.cu").read_text() == "// mine\n"
    assert yaml.safe_load((project / update.ANSWERS).read_text())["ops"] == ["scale", "shift"]


def test_an_edited_kernel_is_deleted_only_when_told(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V1, ops=["scale", "shift", "clamp"])
    (project / "csrc/shift.cu").write_text("// mine\n")
    commit(project)
    update.update(project)  # clamp.cu is still what v0.1.0 wrote, although v0.5.0 writes it differently
    commit(project)
    with pytest.raises(KernelgenError, match="would delete files that you have edited") as caught:
        update.update(project, data={"ops": ["scale"]})
    assert caught.value.detail == "csrc/shift.cu"
    assert status(project) == ""
    report = update.update(project, data={"ops": ["scale"]}, drop=True)
    assert report.removed == ("csrc/clamp.cu", "csrc/shift.cu")
    assert not (project / "csrc/shift.cu").exists()


def test_an_operator_renamed_is_not_a_file_renamed(toy: Path, tmp_path: Path) -> None:
    """Another operator's skeleton looks much like this one's; its edits must not wander there."""
    project = new(tmp_path / "p", toy, V5)
    report = update.update(project, data={"ops": ["shift"]})
    assert (report.added, report.removed, report.moved) == (("csrc/shift.cu",), ("csrc/scale.cu",), ())


def test_rename_takes_edits_along(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V5)
    stub = project / "torch-ext/demo/_ops.pyi"
    stub.write_text(stub.read_text() + "def mine() -> None: ...\n")
    (project / "torch-ext/demo/extra.py").write_text("import demo\n")
    (project / "csrc/scale.cu").write_text((project / "csrc/scale.cu").read_text().replace("= 1", "= 2"))
    commit(project)
    report = update.rename(project, "my-demo")
    moved = project / "torch-ext/my_demo/_ops.pyi"
    assert moved.read_text() == "# my-demo\n" + "def f() -> None: ...\n" * 9 + "def mine() -> None: ...\n"
    assert (project / "csrc/scale.cu").read_text().startswith(f"// scale of my-demo, by template {V5}.")
    assert "= 2" in (project / "csrc/scale.cu").read_text()
    assert 'name = "my-demo"' in (project / "build.toml").read_text()
    assert not (project / "torch-ext/demo").exists()
    assert ("torch-ext/demo/extra.py", "torch-ext/my_demo/extra.py") in report.moved
    assert "torch-ext/my_demo/extra.py" in {kept.path for kept in report.kept}
    assert report.conflicts == ()
    assert yaml.safe_load((project / update.ANSWERS).read_text())["kernel_name"] == "my-demo"


# --- Where projects live
# ----------------------------------------------------------------------------------------------


def test_below_a_bigger_repository_in_a_worktree_with_a_hook_around(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mono = tmp_path / "möno repo"
    mono.mkdir()
    git.run("init", "-q", cwd=mono, hermetic=True)
    import copier

    copier.run_copy(str(toy), mono / "kernels/demo", vcs_ref=V1, defaults=True, quiet=True)
    (mono / "other.txt").write_text("1\n")
    commit(mono)
    git.run("worktree", "add", "-q", "-b", "work", str(tmp_path / "tree"), cwd=mono, hermetic=True)
    monkeypatch.setenv("GIT_DIR", str(mono / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(mono / ".git/index"))
    tree = tmp_path / "tree"
    (tree / "other.txt").write_text("dirty, and none of the project's business\n")
    report = update.update(tree / "kernels/demo")
    assert report.target == V5
    lines = status(tree).splitlines()
    assert " M other.txt" in lines
    assert "R  kernels/demo/bench.py -> kernels/demo/benchmarks/benchmark.py" in lines
    assert status(mono) == ""
    update.abort(tree / "kernels/demo")
    assert status(tree).splitlines() == [" M other.txt"]


def test_a_git_directory_on_another_file_system(toy: Path, tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system only")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        project = new(tmp_path / "p", toy, V1)
        shutil.move(project / ".git", f"{folder}/git")
        (project / ".git").write_text(f"gitdir: {folder}/git\n")
        before = tree_of(project)
        update.update(project)
        assert ".ci.yml.kernelgen" not in tree_of(project)
        assert (project / "ci.yml").exists()
        update.abort(project)
        assert (tree_of(project), status(project)) == (before, "")


def test_line_ends_of_the_project_stay(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V2)
    lint = project / "tools/lint.cfg"
    lint.write_bytes(lint.read_bytes().replace(b"\n", b"\r\n").replace(b"double", b"single"))
    commit(project)
    report = update.update(project)
    assert report.conflicts == ()
    moved = (project / "config/style.cfg").read_bytes()
    assert b"width = 110\r\n" in moved
    assert b"quotes = single\r\n" in moved
    assert moved.count(b"\n") == moved.count(b"\r\n")


def test_hostile_git_configuration(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V1)
    hostile = """
[commit]
  gpgsign = true
[core]
  hooksPath = /nonexistent
  quotePath = true
[diff]
  noprefix = true
  renames = false
[merge]
  conflictStyle = diff3
[color]
  ui = always
[status]
  branch = true
  short = true
[grep]
  lineNumber = true
  fullName = true
"""
    (Path(os.environ["HOME"]) / ".gitconfig").write_text(hostile)
    fresh = new(tmp_path / "fresh", toy, V5, license="MIT")
    update.update(project)
    expected, found = tree_of(fresh), tree_of(project)
    assert found.keys() == expected.keys()
    assert found["torch-ext/torch_binding.cpp"] == expected["torch-ext/torch_binding.cpp"]


def test_a_file_that_cannot_be_written_puts_all_back(toy: Path, tmp_path: Path) -> None:
    project = new(tmp_path / "p", toy, V3)
    (project / "benchmarks").write_text("a file where the template has a folder\n")
    commit(project)
    before = tree_of(project)
    with pytest.raises(KernelgenError):
        update.update(project)
    assert (tree_of(project), status(project)) == (before, "")


# --- Killed at any moment
# ---------------------------------------------------------------------------------------------

_CHILD = """
import os, signal, sys
from pathlib import Path
from kernelgen import update

project, limit = Path(sys.argv[1]), int(sys.argv[2])
seen = applying = 0
import copier, yaml, filelock, plumbum

def count(event, arguments):
    global seen, applying
    if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "subprocess.Popen", "shutil.copyfile") or (
        event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    ):
        seen += 1
        if str(arguments[0]).endswith("journal.json.new"):
            applying = seen
        if seen == limit:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
update.update(project)
print(seen, applying)
"""


def test_killed_at_any_moment(toy: Path, tmp_path: Path) -> None:
    """KERNELGEN_KILLS sets how many moments are tried."""
    project = new(tmp_path / "p", toy, V1)
    (project / "csrc/scale.cu").write_text("// mine\n")
    (project / "tools/lint.cfg").write_text((project / "tools/lint.cfg").read_text() + "mine = 1\n")
    commit(project)
    before = (tree_of(project), "")

    def run(limit: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", _CHILD, str(project), str(limit)],
            capture_output=True,
            text=True,
            check=False,
        )

    whole = run(0)
    assert whole.returncode == 0, whole.stderr
    after = (tree_of(project), status(project))
    assert before != after
    update.abort(project)
    steps, applying = map(int, whole.stdout.split())

    moments = int(os.environ.get("KERNELGEN_KILLS", "8"))
    generator = random.Random(6)  # noqa: S311
    window = range(applying, steps + 1)  # while files of the project are written
    limits = generator.sample(window, min(len(window), moments * 3 // 4))
    limits += generator.sample(range(1, applying), moments - len(limits))
    seen = set()
    for limit in limits:
        assert run(limit).returncode == -signal.SIGKILL
        tree = journal.find(project)
        assert tree is not None
        with journal.locked(tree):  # what the next kernelgen does first
            pass
        state = (tree_of(project), status(project))
        assert state in (before, after), f"killed at step {limit} of {steps}"
        seen.add(state == after)
        if state == after:
            update.abort(project)
        assert (tree_of(project), status(project)) == before
    assert False in seen


# --- The merge alone
# --------------------------------------------------------------------------------------------------


def _file(text: str) -> journal.File:
    return journal.File("100644", text.encode())


def test_places_needs_all_marks_in_order() -> None:
    assert merge.places(b"a\n<<<<<<< x\n1\n=======\n2\n>>>>>>> y\n") == (merge.Place(2, "1\n", "2\n"),)
    assert merge.places(b"=======\nTitle\n=======\n>>>>>>> y\n<<<<<<< x\n") == ()


_TEXTS = st.lists(st.sampled_from("abcdefgh"), max_size=8).map(
    lambda ls: _file("".join(f"{c}\n" for c in ls))
)
_TREES = st.dictionaries(st.sampled_from(["x", "y", "d/z", "d/w"]), _TEXTS, max_size=4)


@settings(max_examples=40, deadline=None)
@given(base=_TREES, ours=_TREES, theirs=_TREES)
def test_merges_of_any_trees(base: merge.Tree, ours: merge.Tree, theirs: merge.Tree) -> None:
    labels = merge.Labels("yours", "theirs")

    def merged(a: merge.Tree, b: merge.Tree, c: merge.Tree, owned: bool) -> merge.Merged:
        return merge.merge(a, b, c, owned=lambda _: owned, labels=labels)

    # One side alone has changed: its files stand.
    assert merged(base, ours, base, False).files == ours
    assert merged(base, base, theirs, False).files == theirs
    # Owned files: what was there stays, what was deleted stays deleted.
    kept = merged(base, ours, theirs, True).files
    assert {path: kept[path] for path in ours.keys() & theirs.keys()} == {
        path: ours[path] for path in ours.keys() & theirs.keys()
    }
    assert not kept.keys() & (base.keys() - ours.keys() - theirs.keys())
    # Managed files: every line of the owner's and of the template's that the base lacks is in the result.
    result = merged(base, ours, theirs, False)
    for path in ours.keys() & theirs.keys() & base.keys():
        lines = result.files[path].data.splitlines()
        for side in (ours, theirs):
            added = set(side[path].data.splitlines()) - set(base[path].data.splitlines())
            assert added <= set(lines)


def test_an_owner_who_moved_a_managed_file_gets_its_changes() -> None:
    text = "".join(f"line {n}\n" for n in range(20))
    base = {"a.cfg": _file(text)}
    ours = {"conf/a.cfg": _file(text.replace("line 3\n", "mine\n"))}
    theirs = {"a.cfg": _file(text.replace("line 15\n", "theirs\n"))}
    merged = merge.merge(base, ours, theirs, owned=lambda _: False, labels=merge.Labels("a", "b"))
    expected = text.replace("line 3\n", "mine\n").replace("line 15\n", "theirs\n")
    assert merged.files == {"conf/a.cfg": _file(expected)}


def test_the_executable_bit_is_merged() -> None:
    base, ours = {"run.sh": _file("a\n")}, {"run.sh": _file("a\n")}
    theirs = {"run.sh": journal.File("100755", b"a\n")}
    merged = merge.merge(base, ours, theirs, owned=lambda _: False, labels=merge.Labels("a", "b"))
    assert merged.files == theirs


def test_tags_that_are_not_utf_8_or_hold_odd_breaks_are_passed_over(toy: Path, tmp_path: Path) -> None:
    before = update._list_tags(str(toy))
    toy = shutil.copytree(toy, tmp_path / "toy")
    for tag in (b"v\xe9", "a\u2028b".encode()):
        subprocess.run([b"git", b"tag", tag], cwd=toy, check=True)
    assert update._list_tags(str(toy)) == before
    assert before
