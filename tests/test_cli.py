"""The command line: exit codes, errors without tracebacks, help that teaches, JSON that parses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMANDS = [
    ["new"], ["op", "add"], ["op", "list"], ["op", "remove"], ["update"], ["rename"], ["adopt"], ["migrate"],
    ["build"], ["test"], ["bench"], ["check"], ["variants"], ["doctor"], ["clean"], ["publish"],
]  # fmt: skip


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelgen", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(command: list[str], tmp_path: Path) -> None:
    done = run(*command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert f"kernelgen {' '.join(command)} [OPTIONS]" in done.stdout
    assert f"kernelgen {' '.join(command)}" in done.stdout.split("[OPTIONS]", 1)[1], "no example"


def test_the_list_of_commands_is_whole(tmp_path: Path) -> None:
    shown = run("--help", cwd=tmp_path).stdout
    for command in {first for first, *_ in COMMANDS}:
        assert f" {command} " in shown


def test_version(tmp_path: Path) -> None:
    from kernelgen import __version__

    assert run("--version", cwd=tmp_path).stdout == f"kernelgen {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "status", "start"),
    [
        (["frobnicate"], 2, "Usage:"),
        (["new"], 2, "Usage:"),
        (["build", "--jobs", "0"], 2, "Usage:"),
        (["build"], 1, "error: "),
        (["new", "Bad", "--defaults"], 1, "error: 'Bad' cannot be a kernel's name"),
        (["new", "k9", "--data", "oops"], 1, "error: 'oops' is not NAME=VALUE"),
        (["new", "k9", "--template", "/no/such"], 1, "error: there is no template at '/no/such'"),
        (["check"], 1, "error: "),
        (["build", "no-such"], 1, "error: there is no folder '/"),
        (["build", "one", "-C", "two"], 1, "error: -C says 'two', and 'one' is given too"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_refusals(arguments: list[str], status: int, start: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == status
    assert done.stderr.startswith(start)
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


# Commands of a project, with what they cannot do without.
OF_A_PROJECT = [
    ["op", "add", "f(Tensor x) -> Tensor"], ["op", "list"], ["op", "remove", "f"], ["update"],
    ["update", "--check"], ["update", "--abort"], ["rename", "other"], ["adopt"], ["migrate"], ["build"],
    ["test"], ["bench"], ["check"], ["variants"], ["doctor"], ["clean"], ["publish", "--dry-run"],
]  # fmt: skip


def commands(group: Any, *above: str) -> Iterator[tuple[list[str], Any]]:
    """Every command of the tool, by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *above, name)
        else:
            yield [*above, name], command


def test_every_command_of_a_project_takes_its_folder_in_the_same_way() -> None:
    """And none is forgotten in the lists above."""
    import typer

    from kernelgen.cli import app

    found = {" ".join(words): command for words, command in commands(typer.main.get_command(app))}
    assert sorted(found) == sorted(" ".join(words) for words in COMMANDS)
    del found["new"]
    for words, command in found.items():
        options = next(param.opts for param in command.params if param.name == "project")
        assert options == ["--project", "-C"], words
        assert any(" ".join(given).startswith(words) for given in OF_A_PROJECT), words


@pytest.mark.parametrize("command", OF_A_PROJECT, ids=" ".join)
def test_below_the_root_every_command_names_the_root(command: list[str], tmp_path: Path) -> None:
    root = tmp_path / "a project"
    (root / "csrc").mkdir(parents=True)
    (root / "build.toml").touch()
    done = run(*command, cwd=root / "csrc")
    assert done.returncode == 1
    what, where, way_out = done.stderr.splitlines()
    also = " and no setup.py" if command == ["adopt"] else ""
    assert what == f"error: there is no build.toml{also} here"
    assert where == f"   at: {root / 'csrc'}"
    assert way_out == f"  fix: run it in the project: cd '{root}', or pass -C '{root}'"


@pytest.mark.parametrize(
    "command", [command for command in OF_A_PROJECT if command != ["doctor"]], ids=" ".join
)
def test_outside_a_project_every_command_says_so(command: list[str], tmp_path: Path) -> None:
    """Not that git or an answers file is missing, which would help nobody there."""
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 1
    what, where, way_out = done.stderr.splitlines()
    also = " and no setup.py" if command == ["adopt"] else ""
    assert what == f"error: there is no build.toml{also} here"
    assert where == f"   at: {tmp_path}"
    assert way_out == "  fix: go to a kernel project, or make one: kernelgen new PATH"
    assert list(tmp_path.iterdir()) == []


def test_a_project_that_follows_no_template_is_told_to_adopt(tmp_path: Path) -> None:
    (tmp_path / "build.toml").touch()
    done = run("op", "list", cwd=tmp_path)
    assert done.stderr.splitlines()[::2] == [
        "error: the project has no answers file",
        "  fix: `kernelgen adopt` writes one",
    ]


def test_doctor_outside_a_project_looks_at_the_machine(tmp_path: Path) -> None:
    subjects = [row["subject"] for row in json.loads(run("doctor", "--json", cwd=tmp_path).stdout)]
    assert "git" in subjects
    assert run("doctor", "-C", ".", cwd=tmp_path).stderr == ""


def test_new_says_what_to_run_next(tmp_path: Path) -> None:
    done = run(
        "new", "my-kernel", "--op", "f(Tensor x) -> Tensor", "--op", "g(Tensor x) -> Tensor", cwd=tmp_path
    )
    assert done.returncode == 0
    first, commit, *rest = done.stdout.splitlines()
    assert first == "Made my-kernel: 2 operators for cpu and cuda, full ABI."
    assert commit.startswith("First commit ")
    assert rest == ["", "Next:", "  cd my-kernel", "  kernelgen build", "  kernelgen test"]


def test_op_list_as_json(tmp_path: Path) -> None:
    run("new", "my-kernel", "--defaults", cwd=tmp_path)
    done = run("op", "list", "--json", "-C", "my-kernel", cwd=tmp_path)
    assert json.loads(done.stdout) == ["my_kernel(Tensor x) -> Tensor"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = run("new", "my-kernel", "--defaults", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Permission denied")


def test_what_a_project_cannot_be_is_refused_for_an_old_one_as_for_a_new_one(tmp_path: Path) -> None:
    run("new", "my-kernel", "--defaults", cwd=tmp_path)
    project = tmp_path / "my-kernel"
    for command, what in (
        (["rename", "k" * 65], "error: the kernel's name has 65 characters, and 64 are the limit"),
        (["rename", "My Kernel"], "error: 'My Kernel' cannot be a kernel's name"),
        (
            ["op", "add", f"{'f' * 101}(Tensor x) -> Tensor"],
            f"error: An operator cannot be called '{'f' * 101}'",
        ),
        (["update", "--data", "license=Foo"], "error: 'Foo' is no SPDX licence identifier"),
        (["update", "--data", "ops=[aten]"], "error: Expected '(' and found the end."),
        (["migrate", "--license", "Foo"], "error: 'Foo' is no SPDX licence identifier"),
    ):
        done = run(*command, cwd=project)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(what)
    status = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, check=True)
    assert status.stdout == b""


def test_a_conflict_is_shown_with_file_line_and_both_sides(tmp_path: Path) -> None:
    """And it ends with exit status 1; `update --abort` goes back."""
    run("new", "my-kernel", "--defaults", cwd=tmp_path)
    project = tmp_path / "my-kernel"
    build = project / "build.toml"
    build.write_text(build.read_text().replace('license = "Apache-2.0"', 'license = "mine"'))
    subprocess.run(["git", "commit", "-qam", "mine"], cwd=project, check=True)
    done = run("update", "--data", "license=MIT", cwd=project)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    at = lines.index("  conflict build.toml")
    assert lines[at + 1] == "    line 7"
    assert '      yours    | license = "mine"' in lines[at:]
    assert '      template | license = "MIT"' in lines[at:]
    refused = run("build", cwd=project)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: ")
    assert run("update", "--abort", cwd=project).returncode == 0
    status = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, check=True)
    assert status.stdout == b""
