"""Running a project's own tests and benchmark against what was built, through the kernels loader, offline."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelgen.project import Project

# The `kernels` command of an interpreter, wherever its scripts and its module are.
KERNELS = """
import sys
from importlib.metadata import distribution
command = next(entry for entry in distribution("kernels").entry_points if entry.name == "kernels")
sys.argv[0] = "kernels"
command.load()()
"""


def run_tests(project: Project, arguments: Sequence[str] = (), *, python: Path | None = None) -> int:
    """Run the project's pytest suite against `build/`; returns pytest's exit status.

    Args:
        project: a project that is built.
        arguments: passed on to pytest.
        python: the interpreter with torch and pytest, by default this one.

    Raises:
        KernelgenError: the project has no tests.
    """
    if not (project.root / "tests").is_dir():
        raise KernelgenError("the project has no tests", where=str(project.root / "tests"))
    return _run(project, [str(python or sys.executable), "-m", "pytest", *arguments])


def run_benchmark(project: Project, arguments: Sequence[str] = (), *, python: Path | None = None) -> int:
    """Run the project's benchmark against `build/`; returns its exit status.

    `benchmarks/compare.py`, where a project has one, is its own program; otherwise the files
    `benchmarks/benchmark*.py` are run by `kernels benchmark`, which verifies what it times.

    Raises:
        KernelgenError: the project has no benchmark.
    """
    executable = str(python or sys.executable)
    folder = project.root / "benchmarks"
    if (folder / "compare.py").is_file():
        return _run(project, [executable, "benchmarks/compare.py", *arguments])
    if not any(folder.glob("benchmark*.py")):
        raise KernelgenError("the project has no benchmark", where=str(folder / "benchmark.py"))
    return _run(project, [executable, "-c", KERNELS, "benchmark", ".", *arguments])


def _run(project: Project, command: Sequence[str]) -> int:
    with local_kernels(project) as value:
        environment = {**os.environ, "LOCAL_KERNELS": value, "HF_HUB_OFFLINE": "1"}
        return subprocess.run(command, cwd=project.root, env=environment, check=False).returncode


@contextlib.contextmanager
def local_kernels(project: Project) -> Iterator[str]:
    """The LOCAL_KERNELS entry that makes the loader take `build/` for the project's repository.

    The loader splits the variable at every colon, so a path with one goes by a link without.

    Raises:
        KernelgenError: the project names no repository.
    """
    repo_id = project.repo_id
    if not repo_id:
        raise KernelgenError(
            "build.toml names no repository, and the tests load the kernel by it",
            where=f"{project.root / 'build.toml'}: general.hub.repo-id",
            way_out='add repo-id = "owner/name"',
        )
    build = project.root / "build"
    if ":" not in str(build):
        yield f"{repo_id}={build}"
        return
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
        link = Path(folder) / "build"
        link.symlink_to(build)
        yield f"{repo_id}={link}"
