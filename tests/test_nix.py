"""The generated flake under the real Nix, offline: it parses, its lock fits, its arguments are right."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernelgen import git, template

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[1]
RECORDER = Path(__file__).parent / "nix" / "recorder"
# Nix as an ordinary user's, and with nothing outside a temporary folder: no daemon, no cache, no /nix.
CONFIG = """\
experimental-features = nix-command flakes
build-users-group =
sandbox = false
substituters =
"""
needs_nix = pytest.mark.skipif(shutil.which("nix") is None, reason="nix is not installed (Debian: nix-bin)")


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# --- The lock, without Nix
# --------------------------------------------------------------------------------------------


def test_the_lock_is_what_its_facts_give() -> None:
    script = load_script("flake_lock")
    text = (ROOT / "template" / "flake.lock").read_text()
    assert text == script.lock()
    # Nix offline takes any narHash, so the constant is said a second time here.
    assert json.loads(text)["nodes"]["kernel-builder"]["locked"] == {
        "lastModified": 1787250351,
        "narHash": "sha256-h7n5IcWCjzbAKh+cyvKCZYix4psCEFcAoyWyTABcexs=",
        "owner": "huggingface",
        "repo": "kernels",
        "rev": "8ac69fc542a4306eade0759ef7c45b4f2ae57df0",
        "type": "github",
    }


def test_every_node_is_reachable() -> None:
    nodes = json.loads((ROOT / "template" / "flake.lock").read_text())["nodes"]
    reached, todo = set(), ["root"]
    while todo:
        name = todo.pop()
        reached.add(name)
        todo += [node for node in nodes[name].get("inputs", {}).values() if isinstance(node, str)]
    assert reached == nodes.keys()


# --- A generated project under Nix
# ------------------------------------------------------------------------------------

ANSWERS: dict[str, dict[str, Any]] = {
    "default": {},
    "cpu": {"backends": ["cpu"], "abi": "stable"},
    "cuda": {
        "backends": ["cuda"],
        "ops": ["scale(Tensor x, float a) -> Tensor", "fill_(Tensor(a!) x) -> ()"],
    },
    "stable": {"abi": "stable", "layers": True, "autograd": True},
}


class Nix:
    """Nix with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("NIX_", "GIT_"))}
        self.env |= {"HOME": str(folder / "home"), "NIX_CONFIG": CONFIG}
        (folder / "home").mkdir()

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = ["nix", "--offline", "--store", str(self.store), *args]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)

    def parse(self, flake: Path) -> subprocess.CompletedProcess[str]:
        command = ["nix-instantiate", "--parse", "--store", "dummy://", str(flake)]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)

    def lock_fits(self, project: Path) -> bool:
        done = self("flake", "metadata", "--json", "--no-update-lock-file", f"git+file://{project}")
        return done.returncode == 0 and git.text("status", "--porcelain", cwd=project, hermetic=True) == ""

    def recorded(self, project: Path) -> subprocess.CompletedProcess[str]:
        override = ("--override-input", "kernel-builder", f"path:{RECORDER}")
        return self("eval", "--json", *override, f"git+file://{project}#recorded")


@pytest.fixture
def nix(tmp_path: Path) -> Nix:
    return Nix(tmp_path)


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    import copier

    base = tmp_path_factory.mktemp("nix")
    source = template.materialise(base / "data")
    made = {}
    for name, answers in ANSWERS.items():
        data = {"kernel_name": "my-kernel", "repo_id": "acme/my-kernel", **answers}
        copier.run_copy(source.path_or_url, base / name, data, vcs_ref=source.ref, defaults=True, quiet=True)
        made[name] = commit(base / name)
    return made


def commit(project: Path) -> Path:
    git.run("init", "-q", cwd=project, hermetic=True)
    git.run("add", "-A", cwd=project, hermetic=True)
    git.run("commit", "-q", "--allow-empty", "-m", "x", cwd=project, hermetic=True)
    return project


def copy(project: Path, target: Path) -> Path:
    shutil.copytree(project, target)
    return target


@pytest.mark.nix
@needs_nix
@pytest.mark.parametrize("name", ANSWERS)
def test_flake(name: str, projects: dict[str, Path], nix: Nix) -> None:
    project = projects[name]
    assert nix.parse(project / "flake.nix").returncode == 0
    assert nix.lock_fits(project)
    done = nix.recorded(project)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert {"path", "self"} <= set(record["arguments"])
    assert record["sameFolder"]
    assert record["doGetKernelCheck"]
    assert record["missing"] == []
    assert record["headersNotListed"] == []
    assert record["componentsAreComplete"]
    assert record["general"]["name"] == "my-kernel"
    assert record["general"]["edition"] == 5
    assert record["general"]["backends"] == ANSWERS[name].get("backends", ["cpu", "cuda"])
    # `nix develop` fails without it.
    assert record["general"]["hub"]["repo-id"] == "acme/my-kernel"
    # create-pyproject writes these in the build, and stops where one exists already.
    generated = {"/setup.py", "/pyproject.toml", "/CMakeLists.txt", "/torch-ext/registration.h"}
    assert not generated & set(record["files"])


@pytest.mark.nix
@needs_nix
def test_controls(projects: dict[str, Path], nix: Nix, tmp_path: Path) -> None:
    """The tests above would notice: each of these breaks one thing."""
    broken = copy(projects["default"], tmp_path / "no-lock")
    (broken / "flake.lock").unlink()
    assert not nix.lock_fits(commit(broken))

    broken = copy(projects["default"], tmp_path / "other-address")
    swap(broken / "flake.nix", "github:huggingface/kernels", "github:huggingface/kernels/v0.16.0")
    assert not nix.lock_fits(commit(broken))

    broken = copy(projects["default"], tmp_path / "syntax")
    swap(broken / "flake.nix", "path = ./.;", "path = ./.")
    assert nix.parse(broken / "flake.nix").returncode != 0

    broken = copy(projects["default"], tmp_path / "argument")
    swap(broken / "flake.nix", "path = ./.;", "path = ./.; pythonInputs = 1;")
    assert "unexpected argument 'pythonInputs'" in nix.recorded(commit(broken)).stderr

    broken = copy(projects["default"], tmp_path / "no-self")
    swap(broken / "flake.nix", "inherit self;", "")
    assert "recorder: no self" in nix.recorded(commit(broken)).stderr

    broken = copy(projects["default"], tmp_path / "untracked")
    source = next(path.name for path in (broken / "csrc").glob("*.cu"))
    git.run("rm", "-q", "--cached", f"csrc/{source}", cwd=broken, hermetic=True)
    git.run("commit", "-qm", "x", cwd=broken, hermetic=True)
    assert json.loads(nix.recorded(broken).stdout)["missing"] == [f"csrc/{source}"]


def swap(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
