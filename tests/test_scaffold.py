"""New projects and new declarations: what is written, what is refused, and that refusals write nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kernelgen import scaffold, update
from kernelgen.errors import KernelgenError
from kernelgen.schema import names
from kernelgen.template import TemplateSource


def git(*arguments: str, cwd: Path) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True
    ).stdout.strip()


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, without git's own."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if ".git" not in path.parts}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new, 1))


def test_new_commits_a_clean_project(tmp_path: Path) -> None:
    made = scaffold.new(tmp_path / "my-kernel", {})
    assert made.note is None
    assert git("rev-parse", "--short", "HEAD", cwd=made.path) == made.commit
    assert git("status", "--porcelain", cwd=made.path) == ""
    assert made.answers["kernel_name"] == "my-kernel"
    assert made.answers["ops"] == ["my_kernel(Tensor x) -> Tensor"]
    assert made.answers["_src_path"] == "~/.local/share/kernelgen/template"
    assert [path.name for path in tmp_path.iterdir()] == ["my-kernel"]


def test_no_file_names_this_machine(tmp_path: Path) -> None:
    made = scaffold.new(tmp_path / "my-kernel", {"autograd": True, "layers": True})
    for path, data in tree(made.path).items():
        assert str(Path.home()).encode() not in data, path
        assert str(tmp_path).encode() not in data, path


def test_a_path_with_a_space_and_a_letter_beyond_ascii(tmp_path: Path) -> None:
    made = scaffold.new(tmp_path / "mein Käfer" / "k9", {"abi": "stable"})
    assert (made.path / "torch-ext" / "k9" / "k9.py").is_file()
    assert git("status", "--porcelain", cwd=made.path) == ""


SET_IDENTITY = 'git config --global user.name "Your Name" && git config --global user.email you@example.org'


def test_without_a_git_identity_the_note_says_how_to_set_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    commit = "git commit -m 'New kernel: my-kernel'"
    made = scaffold.new(tmp_path / "my-kernel", {})
    assert made.commit is None
    assert made.note == (
        f"staged but not committed, since git does not know who you are; tell it: {SET_IDENTITY} && {commit}"
    )
    assert git("diff", "--cached", "--name-only", cwd=made.path).count("\n") > 15
    staged = scaffold.new(tmp_path / "other/my-kernel", {}, commit=False)
    before = "staged; commit it before the first update or Nix build: "
    assert staged.note == f"{before}{SET_IDENTITY} && {commit}"
    with pytest.raises(KernelgenError) as refused:
        update.worktree(made.path)
    assert refused.value.way_out == f"{SET_IDENTITY} && git add -A && git commit -m 'Start'"
    # Who one is may also be said by variables.
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Test")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "test@example.com")
    assert scaffold.new(tmp_path / "third/my-kernel", {}).commit
    staged = scaffold.new(tmp_path / "fourth/my-kernel", {}, commit=False)
    assert staged.note == f"{before}{commit}"


def test_a_commit_that_a_hook_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\necho 'ask first' >&2\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(
        f"[user]\n\tname = Test\n\temail = test@example.com\n[core]\n\thooksPath = {hooks}\n"
    )
    assert scaffold.new(tmp_path / "my-kernel", {}).note == "staged but not committed: ask first"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "my-kernel").mkdir()
    assert scaffold.new(tmp_path / "my-kernel", {}).commit


@pytest.mark.parametrize(
    ("answers", "what", "way_out"),
    [
        ({"kernel_name": "MyKernel"}, "'MyKernel' cannot be a kernel's name", "for example 'mykernel'"),
        ({"kernel_name": "a"}, "'a' cannot be a kernel's name", "for example 'my-kernel'"),
        ({"kernel_name": "abc\n"}, "'abc\\n' cannot be a kernel's name", "for example 'abc'"),
        ({"kernel_name": "../x"}, "'../x' cannot be a kernel's name", "for example 'my-kernel'"),
        (
            {"kernel_name": "exp"},
            "'exp' cannot be a kernel's name: C, C++, CUDA or Python has 'exp' already",
            "for example 'exp-kernel'",
        ),
        (
            {"kernel_name": "a" * 65},
            "the kernel's name has 65 characters, and 64 are the limit",
            "give a shorter one",
        ),
        (
            {"ops": [f"{'a' * 101}(Tensor x) -> Tensor"]},
            f"An operator cannot be called {'a' * 101!r}: "
            "it is 101 characters long, and files are named after it: 100 are the limit.",
            None,
        ),
        (
            {"license": "Foo"},
            "'Foo' is no SPDX licence identifier",
            "for example Apache-2.0, MIT, BSD-3-Clause, or other",
        ),
        ({"license": "apache 2"}, "'apache 2' is no SPDX licence identifier", "did you mean 'Apache-2.0'?"),
        ({"license": "MIT OR GPL"}, "'MIT OR GPL' is no SPDX licence identifier", "did you mean 'MIT'?"),
        ({"license": "BSD3"}, "'BSD3' is no SPDX licence identifier", "did you mean 'BSD-3-Clause'?"),
        ({"license": "GPL-3"}, "'GPL-3' is no SPDX licence identifier", "did you mean 'GPL-3.0-or-later'?"),
        ({"license": "Zlibb"}, "'Zlibb' is no SPDX licence identifier", "did you mean 'Zlib'?"),
        ({"repoid": "a/b"}, "there is no question 'repoid'", "did you mean 'repo_id'?"),
        ({"operators": []}, "there is no question 'operators'", None),
        ({"ops": "f(Tensor x) -> Tensor"}, "`ops` must be a list of function schemas", None),
        ({"ops": []}, "`ops` must be a list of function schemas", None),
        (
            {"ops": ["f(Tensor x) -> Tensor", "f(Tensor x) -> Tensor"]},
            "The operator f is declared twice.",
            None,
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_answers_write_nothing(
    tmp_path: Path, answers: dict[str, Any], what: str, way_out: str | None
) -> None:
    with pytest.raises(KernelgenError) as refused:
        scaffold.new(tmp_path / "kernel", answers)
    assert refused.value.what == what
    if way_out:
        assert refused.value.way_out == way_out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "license_id", ["MIT", "mit", "MIT OR Apache-2.0", "LicenseRef-mine", "other", "unknown"]
)
def test_a_licence_that_is_one_is_taken(license_id: str) -> None:
    scaffold.check_answers({"kernel_name": "my-kernel", "license": license_id}, known=None)


def test_the_longest_names_make_a_project_and_the_template_holds_the_same_limits(
    tmp_path: Path, repository: Path
) -> None:
    """Bare Copier reads the validators of copier.yml, kernelgen its own constants."""
    name, operator = "k" * scaffold.LONGEST_NAME, "f" * names.LONGEST_OPERATOR
    declared = f"{operator}.{'g' * names.LONGEST_OPERATOR}(Tensor x) -> Tensor"
    made = scaffold.new(tmp_path / "kernel", {"kernel_name": name, "ops": [declared], "autograd": True})
    assert (made.path / f"tests/test_{operator}_{'g' * names.LONGEST_OPERATOR}.py").is_file()
    assert made.commit
    source = tmp_path / "template"
    source.mkdir()
    shutil.copy(repository / "copier.yml", source)
    for part in ("includes", "template"):
        shutil.copytree(repository / part, source / part)
    for answers in (
        {"kernel_name": f"{name}k"},
        {"kernel_name": "ok", "ops": [f"{operator}f(Tensor x) -> Tensor"]},
        {"kernel_name": "ok", "ops": [declared.replace("(", "g(")]},
    ):
        with pytest.raises(KernelgenError, match=r"64 characters|100 characters"):
            scaffold.render(TemplateSource(str(source), None, None), tmp_path / "bare", answers)
        assert not (tmp_path / "bare").exists()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/proc/k9", "No such file or directory"),
        ("/dev/null/k9", "Not a directory"),
        ("x" * 256, "File name too long"),
    ],
)
def test_a_path_that_no_project_can_have(tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(KernelgenError) as refused:
        scaffold.new(tmp_path / path, {"kernel_name": "k9"})
    assert refused.value.what == f"the project cannot be written: {reason}"
    assert refused.value.where == str(tmp_path / path)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_leaves_no_folders_above(tmp_path: Path) -> None:
    with pytest.raises(KernelgenError):
        scaffold.new(tmp_path / "a/b/my-kernel", {"repo_id": "nobody"})
    assert list(tmp_path.iterdir()) == []
    assert scaffold.new(tmp_path / "a/b/my-kernel", {}).commit


@pytest.mark.parametrize(
    ("answers", "part"),
    [
        ({"repo_id": "nobody"}, "Write the repository as owner/name"),
        ({"backends": []}, "Choose one backend or more"),
        ({"backends": ["metal"]}, "backends"),
        ({"dtypes": ["float8"]}, "dtypes"),
        ({"abi": "partial"}, "abi"),
        ({"abi": "stable", "stable_abi": "2.4"}, "Write the version as 2.N, from 2.11 on."),
        ({"version": -1}, "The version is 0 or more."),
        ({"description": 'a "b"'}, "without double quotes"),
        ({"autograd": True, "dtypes": ["uint8"]}, "Gradients need a floating-point dtype."),
    ],
    ids=lambda value: str(value)[:30],
)
def test_answers_that_the_template_refuses_write_nothing(
    tmp_path: Path, answers: dict[str, Any], part: str
) -> None:
    with pytest.raises(KernelgenError) as refused:
        scaffold.new(tmp_path / "kernel", answers)
    assert part in refused.value.what
    assert list(tmp_path.iterdir()) == []


def test_a_bad_schema_has_a_caret_under_the_place(tmp_path: Path) -> None:
    with pytest.raises(KernelgenError) as refused:
        scaffold.new(tmp_path / "kernel", {"ops": ["f(Tensor x, Tensr y) -> Tensor"]})
    line, caret = (refused.value.detail or "").splitlines()[-2:]
    assert line[caret.index("^") :].startswith("Tensr y")
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(KernelgenError, match="the folder is not empty"):
        scaffold.new(tmp_path, {"kernel_name": "my-kernel"})
    assert tree(tmp_path) == {"notes.txt": b"mine"}


def test_overwrite_keeps_and_does_not_stage_what_is_not_the_templates(tmp_path: Path) -> None:
    target = tmp_path / "my-kernel"
    target.mkdir()
    (target / ".env").write_text("SECRET=1")
    (target / "build.toml").write_text("old")
    made = scaffold.new(target, {}, overwrite=True)
    assert (target / ".env").read_text() == "SECRET=1"
    assert (target / "build.toml").read_text().splitlines()[2] == "[general]"
    assert git("ls-files", ".env", cwd=made.path) == ""
    assert git("status", "--porcelain", cwd=made.path) == "?? .env"


def test_no_commit_leaves_it_staged(tmp_path: Path) -> None:
    made = scaffold.new(tmp_path / "my-kernel", {}, commit=False)
    assert made.commit is None
    assert "build.toml" in git("diff", "--cached", "--name-only", cwd=made.path).splitlines()


def test_no_repository_within_a_repository(tmp_path: Path) -> None:
    git("init", "-q", cwd=tmp_path)
    made = scaffold.new(tmp_path / "kernels" / "my-kernel", {})
    assert not (made.path / ".git").exists()
    assert made.note == f"staged in the repository around it, {tmp_path}; commit it there: git commit"
    assert "kernels/my-kernel/build.toml" in git("diff", "--cached", "--name-only", cwd=tmp_path).splitlines()


def test_a_folder_that_the_repository_around_it_ignores_gets_its_own(tmp_path: Path) -> None:
    git("init", "-q", cwd=tmp_path)
    (tmp_path / ".gitignore").write_text("scratch/\n")
    made = scaffold.new(tmp_path / "scratch" / "my-kernel", {})
    assert made.commit
    assert git("rev-parse", "--show-toplevel", cwd=made.path) == str(made.path)


@pytest.mark.parametrize("text", ["{{ nothing.here }}", "{% if %}", "{{ 'a'[3] }}"])
def test_a_template_that_fails_is_an_error_and_writes_nothing(tmp_path: Path, text: str) -> None:
    source = tmp_path / "template"
    source.mkdir()
    (source / "copier.yml").write_text(
        "kernel_name: {type: str}\n_envops: {undefined: jinja2.StrictUndefined}\n"
    )
    (source / "file.txt.jinja").write_text(text)
    with pytest.raises(KernelgenError, match="the template cannot be rendered"):
        scaffold.new(tmp_path / "my-kernel", {}, template_source=str(source))
    assert [path.name for path in tmp_path.iterdir()] == ["template"]


def test_bare_copier_writes_the_same(tmp_path: Path) -> None:
    import copier

    made = scaffold.new(tmp_path / "mine" / "my-kernel", {"autograd": True})
    copier.run_copy(
        made.answers["_src_path"],
        tmp_path / "bare" / "my-kernel",
        data={"kernel_name": "my-kernel", "autograd": True},
        vcs_ref=made.answers["_commit"],
        defaults=True,
        quiet=True,
    )
    assert tree(tmp_path / "bare" / "my-kernel") == tree(made.path)


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    """A project of three operators, edited by its owner in every kind of file, committed."""
    ops = [
        "first(Tensor x) -> Tensor",
        "second_(Tensor(a!) x) -> ()",
        "third(Tensor x, int n) -> (Tensor, Tensor)",
    ]
    root = scaffold.new(tmp_path / "my-kernel", {"ops": ops}).path
    package = root / "torch-ext" / "my_kernel"
    edit(root / "csrc" / "first.cu", "constexpr int kThreads = 256;", "constexpr int kThreads = 512;")
    edit(root / "csrc" / "third.cpp", "  for (int64_t i", "  // My own loop.\n  for (int64_t i")
    edit(
        root / "torch-ext" / "second_.cpp",
        '#include "operator.h"',
        '#include "mine.h"\n#include "operator.h"',
    )
    edit(package / "first.py", "Compute first.", "Double every element.")
    edit(package / "__init__.py", "below this line.\n", 'below this line.\n    "helper",\n')
    edit(package / "__init__.py", "from ._ops", "from . import helper\nfrom ._ops")
    (package / "helper.py").write_text("HELP = 1\n")
    for _ in range(3):
        edit(root / "build.toml", "below this line.\n]", 'below this line.\n  "torch-ext/mine.h",\n]')
    (root / "torch-ext" / "mine.h").write_text("#pragma once\n")
    edit(root / "flake.nix", "ps: [ ]", "ps: [ ps.numpy ]")
    edit(root / "tests" / "test_third.py", "(255,)", "(255,), (1000,)")
    git("add", "-A", cwd=root)
    git("commit", "-qm", "Mine", cwd=root)
    return root


def added_lines(root: Path) -> set[tuple[str, str]]:
    """Every line that the owner's commit added, with its file."""
    found, file = set(), ""
    for line in git("show", "--format=", "--unified=0", "HEAD", cwd=root).splitlines():
        if line.startswith("+++ b/"):
            file = line.removeprefix("+++ b/")
        elif line.startswith("+"):
            found.add((file, line[1:]))
    return found


def test_op_add_and_remove_keep_every_edit(edited: Path) -> None:
    mine = added_lines(edited)
    assert len(mine) == 11
    before = tree(edited)
    report = scaffold.add_operators(edited, ["fourth(Tensor x, *, float eps=1e-05) -> Tensor"])
    assert report.conflicts == ()
    assert "csrc/fourth.cu" in report.added
    assert {line for file, line in mine if line not in (edited / file).read_text().splitlines()} == set()
    assert '"csrc/fourth.cu",' in (edited / "build.toml").read_text()
    assert "from .fourth import fourth" in (edited / "torch-ext/my_kernel/__init__.py").read_text()
    git("commit", "-qm", "Fourth", cwd=edited)
    report = scaffold.remove_operators(edited, ["fourth"])
    assert report.conflicts == ()
    assert tree(edited) == before


def test_removing_an_edited_operator_needs_drop(edited: Path) -> None:
    before = tree(edited)
    with pytest.raises(KernelgenError, match="would delete files that you have edited") as refused:
        scaffold.remove_operators(edited, ["first"])
    assert sorted((refused.value.detail or "").splitlines()) == [
        "csrc/first.cu",
        "torch-ext/my_kernel/first.py",
    ]
    assert tree(edited) == before
    scaffold.remove_operators(edited, ["first"], drop=True)
    assert not (edited / "csrc" / "first.cu").exists()
    assert update.read_answers(edited)["ops"] == [
        "second_(Tensor(a!) x) -> ()",
        "third(Tensor x, int n) -> (Tensor, Tensor)",
    ]


def test_a_dry_run_changes_nothing(edited: Path) -> None:
    before = tree(edited)
    report = scaffold.add_operators(edited, ["fourth(Tensor x) -> Tensor"], dry_run=True)
    assert '+  "csrc/fourth.cu",' in report.diff.splitlines()
    assert tree(edited) == before


@pytest.mark.parametrize(
    ("names", "what", "way_out"),
    [
        (["frist"], "there is no operator 'frist'", "did you mean 'first'?"),
        (["first", "second_", "third"], "a kernel has one operator or more", "add its successor first"),
    ],
)
def test_what_cannot_be_removed(edited: Path, names: list[str], what: str, way_out: str) -> None:
    with pytest.raises(KernelgenError) as refused:
        scaffold.remove_operators(edited, names)
    assert (refused.value.what, refused.value.way_out) == (what, way_out)


def test_the_readers_of_schemas_agree(repository: Path, tmp_path: Path) -> None:
    """The template's reader gives for each operator what the parser gives, key by key."""
    import copier

    from kernelgen import schema

    ops = [
        "f(Tensor x, Tensor(a!) y, Tensor? b=None, Tensor(c!)? d=None) -> Tensor",
        'g.out(Tensor[] xs, Tensor?[] ys, int[2] k=[1, 2], int[]? z=None, *, str m="a,b(]") -> (Tensor, int)',
        "h(Tensor x, Scalar s=1, float f=-1e-05, bool b=True, SymInt n=3, ScalarType t=6) -> Tensor",
    ]
    (tmp_path / "t" / "template").mkdir(parents=True)
    text = (repository / "copier.yml").read_text()
    (tmp_path / "t" / "copier.yml").write_text(text)
    for file in (repository / "includes").rglob("*.*"):
        target = tmp_path / "t" / file.relative_to(repository)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    (tmp_path / "t" / "template" / "ops.yml.jinja").write_text("{= operators | to_nice_yaml =}")
    copier.run_copy(
        str(tmp_path / "t"),
        tmp_path / "out",
        data={"kernel_name": "kk", "ops": ops},
        defaults=True,
        quiet=True,
    )
    rendered = yaml.safe_load((tmp_path / "out" / "ops.yml").read_text())
    for read, text in zip(rendered, ops, strict=True):
        parsed = schema.parse(text).to_json()
        assert read["name"], read["overload"] == (parsed["name"], parsed["overload"])
        for part in ("arguments", "returns"):
            assert len(read[part]) == len(parsed[part])
            for mine, theirs in zip(read[part], parsed[part], strict=True):
                shared = mine.keys() & theirs.keys() - {"default"}
                assert {key: mine[key] for key in shared} == {key: theirs[key] for key in shared}
