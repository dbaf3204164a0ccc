"""examples/img2gray: what the template writes, with kernels by hand; and README's first command."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_example_is_what_the_template_writes(repository: Path) -> None:
    """Its managed files equal a rendering; `python scripts/render_example.py` brings them back."""
    path = repository / "scripts" / "render_example.py"
    spec = importlib.util.spec_from_file_location("render_example", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    pairs = list(script.expected())
    stale = [str(file) for file, data in pairs if not file.is_file() or file.read_bytes() != data]
    assert stale == []
    assert len(pairs) >= 15


def test_readme_has_exactly_two_set_up_commands(repository: Path) -> None:
    """And .ci/run takes the second one from there."""
    text = (repository / "README.md").read_text()
    commands = re.findall(r"^(python3 -m venv .*)$", text, re.MULTILINE)
    assert [command.rsplit(" && ", 1)[1] for command in commands] == [
        ".venv/bin/python examples/quickstart.py",
        ".venv/bin/python -m pytest",
    ]


@pytest.fixture(scope="module")
def quickstart(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that README's first command made, and what it printed."""
    folder = tmp_path_factory.mktemp("quickstart")
    command = [sys.executable, str(repository / "examples" / "quickstart.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "img2gray", done.stdout


@pytest.mark.slow
def test_quickstart_prints_a_checked_result(quickstart: tuple[Path, str]) -> None:
    project, printed = quickstart
    assert (
        printed.splitlines()[-1]
        == ("cpu: [1, 3, 64, 64] torch.uint8 -> [1, 1, 64, 64], all 4096 pixels right")
        or "cuda: [1, 3, 64, 64]" in printed
    )
    status = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, check=True)
    assert status.stdout == b""


@pytest.mark.slow
def test_the_examples_own_tests_pass(quickstart: tuple[Path, str]) -> None:
    project, _ = quickstart
    done = subprocess.run(
        [sys.executable, "-m", "kernelgen", "test"], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 50  # type: ignore[index]


@pytest.mark.slow
def test_the_example_passes_every_judgement(quickstart: tuple[Path, str]) -> None:
    project, _ = quickstart
    done = subprocess.run(
        [sys.executable, "-m", "kernelgen", "check"], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " error " not in done.stdout
