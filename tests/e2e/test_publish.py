"""From a commit to a kernel that others load by name, with real clients, processes and caches."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hub.fixtures import TOKEN, hub
from hub.project import INIT, KernelProject

from kernelgen.hub import PublishOptions, publish
from kernelgen.run import KERNELS

if TYPE_CHECKING:
    from pathlib import Path

    from hub.server import Hub
    from hub.store import Repository

    from kernelgen.project import Project

__all__ = ["hub"]

CUTS = int(os.environ.get("KERNELGEN_CUTS", "5"))
PYPROJECT = """\
[project]
name = "consumer"
version = "1"

[tool.kernels.dependencies]
"acme/my-kernel" = 1
"""


def run(hub: Hub, home: Path, *command: str, cwd: Path | None = None, status: int = 0) -> str:
    """Run a program of this environment as a stranger would: knowing this Hub alone, logged in nowhere."""
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *command],
        env={**hub.environment(home), "KERNELS_CACHE": str(home / "kernels")},
        cwd=cwd or home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stdout + done.stderr


def no_check(_project: Project) -> tuple[str, ...]:
    """For kernels that no builder made."""
    return ()


def kernels(hub: Hub, home: Path, *arguments: str, cwd: Path | None = None, status: int = 0) -> str:
    """Run the `kernels` command."""
    return run(hub, home, "-c", KERNELS, *arguments, cwd=cwd, status=status)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A generated project, compiled for the CPU from its first commit."""
    from kernelgen import build, scaffold
    from kernelgen.project import Project

    path = tmp_path_factory.mktemp("projects") / "my-kernel"
    scaffold.new(path, {"repo_id": "acme/my-kernel", "backends": ["cpu"], "abi": "stable"})
    project = Project.load(path)
    build.build(project)
    return project


CALL = """\
import torch, kernels
kernel = kernels.{get}
x = torch.arange(6.0).reshape(2, 3)
print(torch.equal(kernel.my_kernel(x), x), kernel.__name__)
"""
GET = 'get_kernel("acme/my-kernel", version=1, trust_remote_code=True)'
LOAD = 'load_kernel("acme/my-kernel", lockfile=__import__("pathlib").Path("kernels.lock"))'
GET_LOCKED = 'get_locked_kernel("acme/my-kernel", lockfile=__import__("pathlib").Path("kernels.lock"))'


@pytest.mark.slow
def test_a_published_kernel_is_loaded_by_name(hub: Hub, built: Project, tmp_path: Path) -> None:
    publish(built, PublishOptions(create_repo=True, tag="v1.0.0"))
    (folder,) = (built.root / "build").iterdir()
    variant, identity = folder.name, json.loads((folder / "metadata.json").read_text())["id"]

    assert run(hub, tmp_path / "user", "-c", CALL.format(get=GET)) == f"True {identity}\n"
    untrusted = run(hub, tmp_path / "user", "-c", CALL.format(get=GET.replace("True", "False")), status=1)
    assert "is not from a trusted publisher" in untrusted

    # The card's own example, as a reader of the Hub's page would copy it.
    page = hub.repository("acme/my-kernel").files("main")["README.md"].decode()
    example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert run(hub, tmp_path / "reader", "-c", example + "print(tuple(result.shape))\n") == "(2, 3)\n"
    assert f"| `{variant}` | 2.11 or later | CPU | x86_64 Linux |" in page
    example_py = (built.root / "example.py").read_text()
    assert "tensor(" in run(hub, tmp_path / "reader", "-c", example_py)


@pytest.mark.slow
def test_the_kernels_command_works_against_it(hub: Hub, built: Project, tmp_path: Path) -> None:
    publish(built, PublishOptions(create_repo=True, tag="v1.0.0"))
    head = hub.repository("acme/my-kernel").refs()["refs/heads/v1"]
    consumer = tmp_path / "consumer"
    consumer.mkdir()
    (consumer / "pyproject.toml").write_text(PYPROJECT)
    home = tmp_path / "home"

    assert "is not from a trusted publisher" in kernels(hub, home, "lock", ".", cwd=consumer, status=1)
    hub.trusted.add("acme")
    kernels(hub, home, "lock", ".", cwd=consumer)
    locked = json.loads((consumer / "kernels.lock").read_text())
    assert locked == [{"dependency": {"repo-id": "acme/my-kernel", "version": 1}, "lock": {"commit": head}}]
    kernels(hub, home, "download", ".", cwd=consumer)
    fetched = len(hub.requests)
    assert run(hub, home, "-c", CALL.format(get=LOAD), cwd=consumer).startswith("True ")
    assert len(hub.requests) == fetched  # `load_kernel` never asks the Hub
    assert run(hub, home, "-c", CALL.format(get=GET_LOCKED), cwd=consumer).startswith("True ")
    assert [path for _, path in hub.requests[fetched:] if path.startswith("/lfs/")] == []
    assert run(hub, tmp_path / "other", "-c", CALL.format(get=GET_LOCKED), cwd=consumer).startswith("True ")

    info = json.loads(kernels(hub, home, "info", "acme/my-kernel", "--json"))
    assert (info["name"], info["version"], info["revision"]) == ("my-kernel", 1, "v1")
    assert "Version 1:" in kernels(hub, home, "versions", "acme/my-kernel")


@pytest.mark.slow
def test_a_second_publish_reaches_users_and_leaves_pins_alone(hub: Hub, tmp_path: Path) -> None:
    project = KernelProject.create(tmp_path / "scale-add")
    publish(project.build(), PublishOptions(create_repo=True, tag="v1.0.0"), judge=no_check)
    repository = hub.repository("acme/scale-add")
    pinned = repository.refs()["refs/heads/v1"]
    project.write("torch-ext/scale_add/__init__.py", INIT.replace("_TABLE[3]", "_TABLE[5]"))
    project.write("CARD.md", (project.root / "CARD.md").read_text() + "\nFaster.\n")
    project.commit()
    publish(project.build(), PublishOptions(tag="v1.1.0"), judge=no_check)
    assert len(repository.commits("v1")) == len(repository.commits("main")) == 3

    ask = 'get_kernel("acme/scale-add", {}, trust_remote_code=True).scale(__import__("torch").ones(1)).item()'
    code = "import kernels\n" + "".join(
        f"print(kernels.{ask.format(which)})\n"
        for which in ("version=1", f'revision="{pinned}"', 'revision="v1.0.0"', 'revision="v1.1.0"')
    )
    assert run(hub, tmp_path / "user", "-c", code).split() == ["5.0", "3.0", "3.0", "5.0"]


# --- Interrupted uploads ---------------------------------------------------------------------------

PUBLISH = """\
import sys
from kernelgen.hub import PublishOptions, publish
from kernelgen.project import Project

options = PublishOptions(repo_id=sys.argv[2], create_repo=True, tag=sys.argv[3])
publish(Project.load(sys.argv[1]), options, judge=lambda _project: ())
"""


def tree(repository: Repository, branch: str) -> dict[str, bytes] | None:
    """What users of a branch see; None when there is no such branch."""
    if f"refs/heads/{branch}" not in repository.refs():
        return None
    return {path: content for path, content in repository.files(branch).items() if path.startswith("build/")}


def release_of(project: KernelProject) -> dict[str, bytes]:
    build = project.root / "build"
    return {
        f"build/{path.relative_to(build).as_posix()}": path.read_bytes()
        for path in build.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["first-release", "next-release"])
def test_an_upload_killed_at_any_byte_is_completed_by_the_next(hub: Hub, tmp_path: Path, first: bool) -> None:
    """Kill the publishing process when a random number of bytes has arrived, then publish again."""
    project = KernelProject.create(tmp_path / "scale-add")
    project.build("torch-cpu", "torch-cuda")
    before = None if first else release_of(project)
    old = project.root.with_name("old")
    if not first:
        project.git("clone", "-q", ".", str(old))
        (project.root / "build").rename(old / "build")
        project.write("torch-ext/scale_add/__init__.py", INIT.replace("_TABLE[3]", "_TABLE[5]"))
        project.write("torch-ext/scale_add/table.bin", bytes(range(255, -1, -1)) * 400)
        project.commit()
        project.build("torch-cpu", "torch-cuda")
    after = release_of(project)
    tag = "v1.0.0" if first else "v1.0.1"

    def prepare(repo_id: str) -> None:
        if not first:
            options = PublishOptions(repo_id=repo_id, create_repo=True, tag="v1.0.0")
            publish(KernelProject(old).load(), options, judge=no_check)

    prepare("acme/reference")
    start = hub.uploaded_bytes
    reference = PublishOptions(repo_id="acme/reference", create_repo=True, tag=tag)
    publish(project.load(), reference, judge=no_check)
    total = hub.uploaded_bytes - start
    expected = [title for _, title in hub.repository("acme/reference").commits("v1")]

    seed = int(os.environ.get("KERNELGEN_SEED", "7"))
    chosen = random.Random(seed)  # noqa: S311 - which bytes to cut at is no secret
    for number in range(CUTS):
        repo_id, cut = f"acme/cut-{number}", chosen.randrange(1, total)
        prepare(repo_id)
        process = subprocess.Popen(
            [sys.executable, "-c", PUBLISH, str(project.root), repo_id, tag],
            env=hub.environment(tmp_path / "home", TOKEN),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with hub.cut_after(cut, when_cut=process.kill):
            assert process.wait() == -signal.SIGKILL, f"cut at {cut} of {total}, seed {seed}"
        repository = hub.repository(repo_id)
        assert tree(repository, "v1") in (before, after), f"cut at {cut} of {total}, seed {seed}"

        options = PublishOptions(repo_id=repo_id, create_repo=True, tag=tag)
        publish(project.load(), options, judge=no_check)
        assert tree(repository, "v1") == after
        assert [title for _, title in repository.commits("v1")] == expected
        assert len(repository.commits("main")) == len(hub.repository("acme/reference").commits("main"))
        assert sorted(repository.refs()) == sorted(hub.repository("acme/reference").refs())
        assert repository.refs()[f"refs/tags/{tag}"] == repository.refs()["refs/heads/v1"]
        repository.git("fsck", "--strict")
