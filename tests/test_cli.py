"""The command line: exit codes, errors without tracebacks, help that teaches, JSON that parses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        (["op", "list"], 1, "error: the project has no answers file"),
        (["new", "Bad", "--defaults"], 1, "error: 'Bad' cannot be a kernel's name"),
        (["new", "k9", "--data", "oops"], 1, "error: 'oops' is not NAME=VALUE"),
        (["new", "k9", "--template", "/no/such"], 1, "error: there is no template at '/no/such'"),
        (["check"], 1, "error: "),
        (["update"], 1, "error: the project has no answers file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_refusals(arguments: list[str], status: int, start: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == status
    assert done.stderr.startswith(start)
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


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
