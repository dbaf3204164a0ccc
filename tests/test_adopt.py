"""Adopting projects that kernelgen did not make: what is found, asked and changed, and the next update."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import toy_template
import yaml

from kernelgen import adopt, git, template, update
from kernelgen.errors import KernelgenError

BUILD = """\
# By hand.
[general]
name = "my-relu"
version = 3
edition = 5
license = "apache-2.0"
backends = ["cpu", "cuda", "rocm"]

[general.hub]
repo-id = "acme/my-relu"

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.relu]
backend = "cpu"
depends = ["torch"]
src = ["relu_cpu/relu.cpp"]
"""
BINDING = """\
#include <torch/library.h>
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("relu(Tensor! out, "
          "Tensor input) -> ()");
}
"""
SETUP = """\
import torch
from setuptools import setup
from torch.utils.cpp_extension import CppExtension, CUDAExtension

NAME = "My_Ext"
extension = CUDAExtension if torch.cuda.is_available() else CppExtension
setup(name=NAME, license="MIT", ext_modules=[extension("my_ext._C", ["my_ext/csrc/a.cpp",
"my_ext/csrc/a.cu"])])
"""


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("KERNELGEN_TEMPLATE", raising=False)


def project_of(root: Path, files: dict[str, str], remote: str | None = None) -> Path:
    toy_template.write(root, files)
    git.run("init", "-q", cwd=root, hermetic=True)
    if remote:
        git.run("remote", "add", "origin", remote, cwd=root, hermetic=True)
    return commit(root)


def commit(root: Path) -> Path:
    git.run("add", "-A", cwd=root, hermetic=True)
    git.run("commit", "-qm", "x", cwd=root, hermetic=True)
    return root


def hand_written(root: Path, **changes: str) -> Path:
    files = {
        "build.toml": BUILD,
        "torch-ext/torch_binding.cpp": BINDING,
        "torch-ext/my_relu/__init__.py": "from ._ops import ops\n",
        "torch-ext/my_relu/layers/__init__.py": "",
        "relu_cpu/relu.cpp": "// kernel\n",
        "ruff.toml": "line-length = 77\n",
    }
    return project_of(root, {**files, **changes})


def status(project: Path) -> list[str]:
    return git.text("status", "--porcelain", cwd=project, hermetic=True).splitlines()


def own_template(root: Path) -> Path:
    """The checkout's template as a repository with one version."""
    root.mkdir()
    git.run("init", "-q", "--initial-branch=main", cwd=root, hermetic=True)
    files = template.read_tree(template.development_root() or Path())
    template.commit_version(root, files, "v1.0.0", None, 0)
    return root


def publish(root: Path, tag: str, new: dict[str, str], path: str, old: str, text: str) -> None:
    """A next version of that template, with new files and one edit."""
    files = {file.path: file for file in template.read_tree(template.development_root() or Path())}
    data = files[path].data.decode()
    assert old in data
    for name, content in {**new, path: data.replace(old, text)}.items():
        files[name] = template.TemplateFile(name, "100644", content.encode())
    template.commit_version(root, list(files.values()), tag, "refs/heads/main^0", 1)


def test_a_kernel_builder_project(tmp_path: Path) -> None:
    project = hand_written(tmp_path / "p")
    found = adopt.examine(project)
    assert found.answers == {
        "kernel_name": "my-relu",
        "backends": ["cpu", "cuda"],
        "version": 3,
        "repo_id": "acme/my-relu",
        "license": "Apache-2.0",
        "abi": "full",
        "layers": True,
        "ops": ["relu(Tensor! out, Tensor input) -> ()"],
    }
    assert found.missing == {}
    assert found.origins["ops"] == "torch-ext/torch_binding.cpp:3"
    assert found.notes == ["build.toml: rocm stay yours; the template knows cpu and cuda"]

    shown = adopt.adopt(project, dry_run=True)
    assert status(project) == []
    assert "+++ b/.copier-answers.yml" in shown.diff
    done = adopt.adopt(project)
    assert status(project) == ["A  .copier-answers.yml"]
    assert (done.added, done.merged, done.conflicts) == ((), (), ())
    assert "build.toml" in done.different
    assert "csrc/relu.cpp" in done.not_taken
    answers = yaml.safe_load((project / update.ANSWERS).read_text())
    assert answers["_commit"] == done.version
    assert answers["_src_path"] == "~/.local/share/kernelgen/template"
    assert answers["ops"] == found.answers["ops"]
    commit(project)
    with pytest.raises(KernelgenError, match="has an answers file already"):
        adopt.adopt(project)
    assert update.update(project).is_empty


def test_what_is_taken_and_the_next_update(tmp_path: Path) -> None:
    project, source = hand_written(tmp_path / "p"), own_template(tmp_path / "template")
    before = {p: p.read_bytes() for p in project.rglob("*") if p.is_file() and ".git" not in p.parts}
    with pytest.raises(KernelgenError, match="no file like nothing"):
        adopt.adopt(project, take=["nothing"], source=str(source))
    done = adopt.adopt(project, take=["mypy.ini", "flake.*"], branch="adopt", source=str(source))
    assert done.version == "v1.0.0"
    assert done.added == ("flake.lock", "flake.nix", "mypy.ini")
    assert git.text("branch", "--show-current", cwd=project, hermetic=True) == "adopt"
    assert {p: p.read_bytes() for p in before} == before
    commit(project)

    new = {"template/NEW.md": "new\n"}
    publish(source, "v1.1.0", new, "template/mypy.ini", "[mypy]", "[mypy]\nwarn_unreachable = True")
    report = update.update(project)
    assert report.added == ("NEW.md",)
    assert report.changed == (update.ANSWERS, "mypy.ini")
    assert "warn_unreachable = True\n" in (project / "mypy.ini").read_text()
    assert {p: p.read_bytes() for p in before} == before


def test_a_file_that_both_have_is_merged(tmp_path: Path) -> None:
    project = hand_written(tmp_path / "p")
    done = adopt.adopt(project, take=["ruff.toml"])
    assert done.merged == ("ruff.toml",)
    assert [conflict.path for conflict in done.conflicts] == ["ruff.toml"]
    assert "line-length = 77" in done.conflicts[0].places[0].ours
    assert update.has_conflict_marks(project)
    assert update.abort(project) == [update.ANSWERS, "ruff.toml"]
    assert status(project) == []


def test_a_setuptools_project(tmp_path: Path) -> None:
    files = {
        "setup.py": SETUP,
        "my_ext/csrc/a.cpp": 'TORCH_LIBRARY(x, m) { m.def("muladd(Tensor a, float c) -> Tensor"); }\n',
        "my_ext/csrc/a.cu": "",
        "tests/test_a.py": '@torch.library.custom_op("x::y")\ndef f(): ...\n',
    }
    project = project_of(tmp_path / "p", files, "https://huggingface.co/kernels/acme/my-ext.git")
    done = adopt.adopt(project)
    expected: dict[str, Any] = {
        "kernel_name": "my-ext",
        "license": "MIT",
        "backends": ["cpu", "cuda"],
        "abi": "full",
        "repo_id": "acme/my-ext",
        "ops": ["muladd(Tensor a, float c) -> Tensor"],
    }
    assert done.examination.kind == "setuptools"
    assert done.examination.answers == expected
    assert status(project) == ["A  .copier-answers.yml"]


def test_what_is_not_said_is_asked(tmp_path: Path) -> None:
    build = BUILD.replace('license = "apache-2.0"\n', "").replace("edition = 5\n", "")
    build = build.replace('[general.hub]\nrepo-id = "acme/my-relu"\n', "").replace("version = 3\n", "")
    binding = BINDING.replace('"relu(Tensor! out, "\n          "Tensor input) -> ()"', '"relu", &relu')
    project = hand_written(tmp_path / "p", **{"build.toml": build, "torch-ext/torch_binding.cpp": binding})
    found = adopt.examine(project)
    assert list(found.missing) == ["repo_id", "license", "ops"]
    assert found.answers["version"] == 1
    with pytest.raises(KernelgenError, match="adopting needs repo_id, license, ops") as caught:
        adopt.adopt(project)
    assert caught.value.way_out == (
        "give each: --data repo_id=OWNER/NAME --data license=Apache-2.0 "
        """--data ops='["name(Tensor x) -> Tensor"]'"""
    )
    assert "relu (torch-ext/torch_binding.cpp:3): registered without a schema" in str(caught.value.detail)
    given = {"repo_id": "acme/x", "license": "MIT", "ops": ["relu(Tensor x) -> Tensor"]}
    assert adopt.adopt(project, data=given).examination.answers["license"] == "MIT"
    assert any("edition 3" in note for note in found.notes)


def test_a_remote_that_is_not_utf_8_names_no_repository(tmp_path: Path) -> None:
    text = BUILD.replace('[general.hub]\nrepo-id = "acme/my-relu"\n', "")
    root = hand_written(tmp_path / "p", **{"build.toml": text})
    subprocess.run([b"git", b"remote", b"add", b"origin", b"/srv/\xe9"], cwd=root, check=True)
    assert "repo_id" not in adopt.examine(root).answers


def test_refused_with_the_reason(tmp_path: Path) -> None:
    noarch = BUILD.partition("[torch]")[0]
    cases = {
        "tvm": (BUILD.replace("[torch]", "[tvm-ffi]"), "tvm-ffi"),
        "tpu": (noarch.replace('["cpu", "cuda", "rocm"]', '["tpu"]') + "[torch-noarch]\n", "is for tpu"),
        "broken": ("[general", "not valid TOML"),
    }
    for name, (build, message) in cases.items():
        project = hand_written(tmp_path / name, **{"build.toml": build})
        with pytest.raises(KernelgenError, match=message):
            adopt.adopt(project)
        assert status(project) == []
    plain = project_of(tmp_path / "plain", {"README.md": "x\n"})
    with pytest.raises(KernelgenError, match=r"no build\.toml and no setup"):
        adopt.adopt(plain)
    project = hand_written(tmp_path / "no-git")
    shutil.rmtree(project / ".git")
    with pytest.raises(KernelgenError, match="in git"):
        adopt.adopt(project)
    project = project_of(tmp_path / "pure", {"setup.py": "from setuptools import setup\nsetup(name='x')\n"})
    with pytest.raises(KernelgenError, match="builds no torch extension"):
        adopt.adopt(project)


def test_python_only_kernels(tmp_path: Path) -> None:
    build = BUILD.partition("[torch]")[0] + "[torch-noarch]\n"
    operator = (
        "import torch\nfrom ._ops import add_op_namespace_prefix\n\n\n"
        '@torch.library.custom_op(add_op_namespace_prefix("relu"), mutates_args={"out"})\n'
        "def _relu(out: torch.Tensor, x: torch.Tensor) -> None: ...\n"
    )
    project = hand_written(
        tmp_path / "p",
        **{"build.toml": build, "torch-ext/torch_binding.cpp": "", "torch-ext/my_relu/op.py": operator},
    )
    done = adopt.adopt(project)
    assert done.examination.answers["ops"] == ["relu(Tensor! out, Tensor x) -> ()"]
    assert any("no compiled code" in note for note in done.examination.notes)


@pytest.mark.skipif(
    "KERNELGEN_EXAMPLES" not in os.environ, reason="KERNELGEN_EXAMPLES names no folder of projects"
)
def test_a_folder_of_projects(tmp_path: Path) -> None:
    """Projects such as kernel-builder's examples are adopted, asked about, or refused; none changes."""
    counts = {"adopted": 0, "asked": 0, "refused": 0}
    for folder in sorted(Path(os.environ["KERNELGEN_EXAMPLES"]).iterdir()):
        if not (folder / "build.toml").is_file():
            continue
        project = tmp_path / folder.name
        shutil.copytree(folder, project)
        git.run("init", "-q", cwd=project, hermetic=True)
        commit(project)
        try:
            adopt.adopt(project)
        except KernelgenError as error:
            outcome = "asked" if error.what.startswith("adopting needs") else "refused"
        else:
            outcome = "adopted"
        counts[outcome] += 1
        assert status(project) == (["A  .copier-answers.yml"] if outcome == "adopted" else [])
    print(counts)
    assert counts["adopted"] > 0
