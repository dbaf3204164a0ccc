"""Every rule of `check` on a tree that keeps it and on trees that break it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelgen import artefact, build, check, elf, finding, lint, package, runtime, twin, variants
from kernelgen.errors import KernelgenError
from kernelgen.project import Project

BUILD_TOML = """[general]
name = "my-kernel"
version = 1
license = "MIT"
edition = 5
backends = ["cpu"]

[general.hub]
repo-id = "acme/my-kernel"

[torch-noarch]
"""
COMPILED_TOML = BUILD_TOML.replace(
    "[torch-noarch]\n",
    '[torch]\nsrc = ["torch-ext/torch_binding.cpp"]\n'
    '[kernel.k]\nbackend = "cpu"\ndepends = ["torch"]\nsrc = ["csrc/k.cpp"]\n',
)
OP = """import torch

from ._ops import add_op_namespace_prefix


@torch.library.custom_op(add_op_namespace_prefix("double"), mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.register_fake(add_op_namespace_prefix("double"))
def _(x):
    return torch.empty_like(x)
"""
INIT = "from . import layers\nfrom .op import double\n\n__all__ = ['double', 'layers']\n"
LAYERS = """import torch
from torch import nn

from .op import double


class Double(nn.Module):
    can_torch_compile: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return double(x)
"""
NOARCH = {
    "build.toml": BUILD_TOML,
    "CARD.md": "",
    ".gitignore": "build/\n.kernelgen/\n",
    "torch-ext/my_kernel/__init__.py": INIT,
    "torch-ext/my_kernel/op.py": OP,
    "torch-ext/my_kernel/layers.py": LAYERS,
}
CPU = "torch213-cxx11-cpu-x86_64-linux"
IDENTITY = "_my_kernel_cpu_1a2b3c4d5e6f"


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


def of(findings: list[finding.Finding], code: str) -> list[finding.Finding]:
    return [f for f in findings if f.code == code]


def verdicts(findings: list[finding.Finding]) -> dict[str, str]:
    """The gravest verdict of each rule."""
    codes = sorted({f.code for f in findings})
    return {code: finding.worst(of(findings, code)) for code in codes}


@pytest.fixture
def noarch(tmp_path: Path) -> Path:
    """A right kernel of Python alone, committed."""
    root = tmp_path / "my-kernel"
    write(root, NOARCH)
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


def built(root: Path) -> Path:
    """Build it; 0.1 s, since nothing is compiled."""
    (made,) = build.build(Project.load(root), build.BuildOptions(backends=("cpu",)))
    return root / "build" / made.name


# --- The declaration and the sources ------------------------------------------------------------------------


def test_a_right_project_that_is_not_built(noarch: Path) -> None:
    findings = check.check(noarch)
    assert verdicts(findings) == {
        "KG101": "ok",
        "KG102": "ok",
        "KG103": "ok",
        "KG105": "ok",
        "KG106": "note",
        "KG201": "ok",
        "KG202": "ok",
        "KG203": "ok",
        "KG204": "ok",
        "KG205": "ok",
        "KG206": "ok",
    }
    assert of(findings, "KG106")[0].message == "nothing is built: only the sources were judged"
    assert {f.code for f in findings} <= set(finding.RULES)
    assert json.loads(json.dumps([f.as_json() for f in findings]))[0]["code"] == "KG101"


def test_a_fault_of_build_toml_has_its_line_and_stops_the_rest(noarch: Path) -> None:
    (noarch / "build.toml").write_text(
        BUILD_TOML.replace('license = "MIT"', 'license = "MIT"\nupstraem = "x"')
    )
    findings = check.check(noarch)
    (fault,) = [f for f in of(findings, "KG101") if f.verdict == "error"]
    assert fault.where == "build.toml:5"
    assert "unknown key" in fault.message
    assert fault.way_out == "did you mean 'upstream'?"
    assert of(findings, "KG102")[0].verdict == "error"


def test_what_kernel_builder_refuses_is_an_error(noarch: Path) -> None:
    (noarch / "build.toml").write_text(BUILD_TOML.replace("version = 1", 'version = "1"'))
    (refused,) = of(check.check(noarch), "KG102")
    assert refused.verdict == "error"
    assert refused.message.startswith("refused: ")


@pytest.mark.parametrize(("edition", "verdict"), [(4, "note"), (3, "warn")])
def test_an_old_edition(noarch: Path, edition: int, verdict: str) -> None:
    text = BUILD_TOML.replace("edition = 5\n", "")
    if edition == 3:
        text = text.replace("[torch-noarch]\n", "")
    (noarch / "build.toml").write_text(text)
    (old,) = of(check.check(noarch), "KG102")
    assert old.verdict == verdict
    assert f"edition {edition}" in old.message


def test_a_source_that_git_does_not_have(noarch: Path) -> None:
    write(noarch, {"torch-ext/my_kernel/new.py": ""})
    (fault,) = of(check.check(noarch), "KG103")
    assert (fault.verdict, fault.where) == ("error", "torch-ext/my_kernel/new.py")
    assert fault.way_out == "git add torch-ext/my_kernel/new.py"
    git(noarch, "add", "-A")
    assert of(check.check(noarch), "KG103")[0].verdict == "ok"


def test_a_project_outside_git(tmp_path: Path) -> None:
    write(tmp_path, NOARCH)
    (warning,) = of(check.check(tmp_path), "KG103")
    assert warning.verdict == "warn"


def test_conflict_marks(noarch: Path) -> None:
    path = noarch / "torch-ext/my_kernel/op.py"
    path.write_text(f"{OP}\n'''\n<<<<<<< yours\na\n=======\nb\n>>>>>>> theirs\n'''\n")
    faults = of(check.check(noarch), "KG105")
    assert faults
    assert faults[0].verdict == "error"
    assert "op.py" in (faults[0].where or "")


def test_a_managed_file_edited_by_hand_is_a_note(tmp_path: Path) -> None:
    from kernelgen import scaffold

    root = tmp_path / "my-kernel"
    scaffold.new(root, {"repo_id": "acme/my-kernel", "ops": ["twice(Tensor x) -> Tensor"]})
    assert [f.verdict for f in of(check.check(root), "KG104")] == ["ok"]
    with (root / "flake.nix").open("a") as file:
        file.write("# mine\n")
    (note,) = of(check.check(root), "KG104")
    assert (note.verdict, note.where) == ("note", "flake.nix")


def test_no_build_toml(tmp_path: Path) -> None:
    with pytest.raises(KernelgenError, match=r"there is no build\.toml"):
        check.check(tmp_path)


def test_a_variant_that_is_not_built(noarch: Path) -> None:
    with pytest.raises(KernelgenError, match="build/torch-cuda does not exist"):
        check.check(noarch, only=["torch-cuda"])


# --- The Python package -------------------------------------------------------------------------------------

GOOD_REGISTRATIONS = [
    "@torch.library.custom_op(add_op_namespace_prefix('f'), mutates_args=())\ndef f(x): ...",
    "from . import _ops\n@torch.library.register_fake(_ops.add_op_namespace_prefix('f'))\ndef f(x): ...",
    "torch.library.define(add_op_namespace_prefix('f'), '(Tensor x) -> Tensor')",
    "lib = torch.library.Library(add_op_namespace_prefix('').rstrip(':'), 'FRAGMENT')",
    "name = add_op_namespace_prefix('f')\ntorch.library.register_autograd(name, backward)",
    "@f.register_fake\ndef _(x): ...",
    "y = torch.ops.aten.relu(x)\nz = ops.f(x)",
    "text = 'std::vector'\nprint('a::b c')",
    "class A:\n    def g(self):\n        torch.library.impl(add_op_namespace_prefix('f'), 'cpu', self)",
]
BAD_REGISTRATIONS = {
    "decorator": "@torch.library.custom_op('ns::f', mutates_args=())\ndef f(x): ...",
    "bare name": "from torch.library import custom_op\n@custom_op('ns::f', mutates_args=())\ndef f(x): ...",
    "alias": "import torch.library as tl\n@tl.register_fake('ns::f')\ndef f(x): ...",
    "renamed": "from torch.library import custom_op as op\n@op('ns::f', mutates_args=())\ndef f(x): ...",
    "keyword": "@torch.library.custom_op(name='ns::f', mutates_args=())\ndef f(x): ...",
    "f-string": "@torch.library.custom_op(f'ns::{x}', mutates_args=())\ndef f(x): ...",
    "sum": "@torch.library.custom_op('ns' + '::f', mutates_args=())\ndef f(x): ...",
    "constant": "NAME = 'ns::f'\n@torch.library.custom_op(NAME, mutates_args=())\ndef f(x): ...",
    "method": "class A:\n    @torch.library.custom_op('ns::f', mutates_args=())\n    def f(self): ...",
    "nested": "def g():\n    @torch.library.custom_op('ns::f', mutates_args=())\n    def f(x): ...",
    "class": "@torch.library.register_torch_dispatch('ns::f', Mode)\nclass A: ...",
    "triton": "@torch.library.triton_op('ns::f', mutates_args={})\ndef f(x): ...",
    "call": "f = torch.library.custom_op('ns::f', fn, mutates_args=())",
    "define": "torch.library.define('ns::f', '(Tensor x) -> Tensor')",
    "impl": "@torch.library.impl('ns::f', 'cpu')\ndef f(x): ...",
    "autograd": "torch.library.register_autograd('ns::f', backward)",
    "library": "lib = torch.library.Library('ns', 'DEF')",
    "library keyword": "lib = torch.library.Library(ns='ns', kind='DEF')",
    "imported library": "from torch.library import Library\nlib = Library('ns', 'FRAGMENT')",
    "another's operator": "@torch.library.register_fake(other.f)\ndef f(x): ...",
    "in a branch": "if torch.cuda.is_available():\n    torch.library.define('ns::f', '()')",
}


def package_findings(tmp_path: Path, files: dict[str, str], toml: str = BUILD_TOML) -> list[finding.Finding]:
    own = {f"torch-ext/my_kernel/{name}": text for name, text in files.items()}
    write(tmp_path, {"build.toml": toml, "torch-ext/my_kernel/__init__.py": "__all__ = []\n", **own})
    return lint.lint(Project.load(tmp_path))


@pytest.mark.parametrize("source", GOOD_REGISTRATIONS)
def test_registrations_under_the_builds_namespace(tmp_path: Path, source: str) -> None:
    head = "import torch\nfrom ._ops import add_op_namespace_prefix, ops\n"
    assert verdicts(package_findings(tmp_path, {"op.py": head + source}))["KG201"] == "ok"


@pytest.mark.parametrize("source", BAD_REGISTRATIONS.values(), ids=BAD_REGISTRATIONS.keys())
def test_registrations_under_a_fixed_namespace(tmp_path: Path, source: str) -> None:
    (fault,) = of(package_findings(tmp_path, {"op.py": f"import torch\n{source}\n"}), "KG201")
    assert fault.verdict == "error"
    assert re.fullmatch(r"torch-ext/my_kernel/op\.py:\d", fault.where or "")
    assert "add_op_namespace_prefix" in (fault.way_out or "")


@pytest.mark.parametrize("source", ["torch.ops.my_kernel.f(x)", "register('ns::f', fn)"])
def test_names_that_look_fixed_are_warned_about(tmp_path: Path, source: str) -> None:
    (warning,) = of(package_findings(tmp_path, {"op.py": f"import torch\n{source}\n"}), "KG201")
    assert warning.verdict == "warn"


def test_a_test_is_judged_by_what_kernel_builder_refuses(tmp_path: Path) -> None:
    bad = "import torch\n\n@torch.library.custom_op('ns::f', mutates_args=())\ndef f(x): ...\n"
    write(
        tmp_path,
        {"tests/test_k.py": bad, "tests/test_n.py": "import numpy\ntorch.library.define('a::b', '')\n"},
    )
    findings = package_findings(tmp_path, {})
    assert [f.where for f in of(findings, "KG201")] == ["tests/test_k.py:3"]
    assert of(findings, "KG204")[0].verdict == "ok"


@pytest.mark.parametrize(
    ("init", "verdict", "said"),
    [
        ("def f(): ...\n__all__ = ['f']", "ok", ""),
        ("from .op import f\n__all__ = ('f',)", "ok", ""),
        ("__all__ = ['f']\n__all__ += ['g']\nf = g = 1", "ok", ""),
        ("from .op import *\n__all__ = ['f']", "ok", ""),
        ("if True:\n    from .op import f\nelse:\n    f = None\n__all__ = ['f']", "ok", ""),
        ("__all__ = ['op']", "ok", ""),
        ("def f(): ...", "warn", "no __all__"),
        ("__all__ = [n for n in dir()]", "warn", "no __all__"),
        ("__all__ = ['f', 'missing']\ndef f(): ...", "error", "names missing"),
        ("def g():\n    f = 1\n__all__ = ['f']", "error", "names f"),
        ("f = 1\n__all__ = ['f', 'f']", "warn", "twice"),
    ],
)
def test_public_api(tmp_path: Path, init: str, verdict: str, said: str) -> None:
    (found,) = of(package_findings(tmp_path, {"__init__.py": init, "op.py": ""}), "KG202")
    assert found.verdict == verdict
    assert said in found.message


@pytest.mark.parametrize(
    ("source", "code", "verdict"),
    [
        ("from . import op\nfrom .op import f\nfrom .. import my_kernel", "KG203", "ok"),
        ("from my_kernel.op import f", "KG203", "error"),
        ("import my_kernel", "KG203", "error"),
        ("def f():\n    from my_kernel import g", "KG203", "error"),
        ("import os, json\nimport torch.nn\nimport triton", "KG204", "ok"),
        ("import numpy", "KG204", "error"),
        ("from einops import rearrange", "KG204", "error"),
        ("try:\n    import numpy\nexcept ImportError:\n    numpy = None", "KG204", "ok"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy", "KG204", "ok"),
        ("def f():\n    import numpy", "KG204", "warn"),
        ("if torch.cuda.is_available():\n    import numpy", "KG204", "warn"),
    ],
)
def test_imports(tmp_path: Path, source: str, code: str, verdict: str) -> None:
    assert verdicts(package_findings(tmp_path, {"op.py": source}))[code] == verdict


def test_a_declared_dependency_may_be_imported(tmp_path: Path) -> None:
    toml = BUILD_TOML.replace('license = "MIT"', 'license = "MIT"\npython-depends = ["einops"]')
    assert verdicts(package_findings(tmp_path, {"op.py": "import einops"}, toml))["KG204"] == "ok"
    (fault,) = of(package_findings(tmp_path, {"op.py": "import einops"}), "KG204")
    assert fault.way_out == 'declare it: python-depends = ["einops"]'


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations\ndef f(x: int | None) -> list[int]: ...",
        "from typing import Optional\ndef f(x: Optional[int]) -> 'int | None': ...",
        "def f():\n    x: int | None = 1",
        "a = 1 | 2\nb = {1} | {2}",
        "isinstance(x, (int, str))",
        "with (open('a') as f, open('b') as g):\n    pass",
    ],
)
def test_what_python_3_9_takes(tmp_path: Path, source: str) -> None:
    assert verdicts(package_findings(tmp_path, {"op.py": source}))["KG205"] == "ok"


@pytest.mark.parametrize(
    "source",
    [
        "match x:\n    case 1:\n        pass",
        "def f(x: int | None): ...",
        "def f() -> int | str: ...",
        "class A:\n    x: int | None = None",
        "x: int | None = None",
        "Alias = int | None",
        "isinstance(x, int | str)",
        "from typing import Self",
        "import typing\nx = typing.TypeAlias",
        "import tomllib",
        "zip(a, b, strict=True)",
        "from dataclasses import dataclass\n@dataclass(slots=True)\nclass A: ...",
        "type X = int",
        "try:\n    pass\nexcept* ValueError:\n    pass",
        "def f(:\n",
    ],
)
def test_what_python_3_9_does_not_take(tmp_path: Path, source: str) -> None:
    (fault,) = of(package_findings(tmp_path, {"op.py": source}), "KG205")
    assert fault.verdict == "error"
    assert (fault.where or "").startswith("torch-ext/my_kernel/op.py:")


def test_rules_do_not_pass_on_what_could_not_be_read(tmp_path: Path) -> None:
    findings = package_findings(tmp_path, {"__init__.py": "match x:\n    case 1: ...\n"})
    assert verdicts(findings) == {
        "KG201": "note", "KG202": "note", "KG203": "note", "KG204": "note", "KG205": "error", "KG206": "note",
    }  # fmt: skip


def layer(body: str, bases: str = "nn.Module") -> str:
    return f"from torch import nn\n\n\nclass Layer({bases}):\n{body}\n"


FORWARD = "    def forward(self, x): ...\n"


@pytest.mark.parametrize(
    ("text", "verdict", "said"),
    [
        (LAYERS, "ok", ""),
        (
            layer(f"    can_torch_compile = True\n    has_backward = False\n    weight: int\n{FORWARD}"),
            "ok",
            "",
        ),
        (layer(f"    def extra_repr(self): ...\n{FORWARD}"), "ok", ""),
        (layer(f"    eps = 1e-6\n{FORWARD}"), "error", "the member eps"),
        (layer(f"    def helper(self): ...\n{FORWARD}"), "error", "the method helper"),
        (layer(f"    def __init__(self): ...\n{FORWARD}"), "error", "a constructor"),
        (layer("    pass"), "error", "no forward"),
        (layer(FORWARD, bases="object"), "error", "is not a torch.nn.Module"),
        ("class _Private:\n    x = 1\n", "ok", ""),
    ],
)
def test_layers(tmp_path: Path, text: str, verdict: str, said: str) -> None:
    init = "from . import layers\n__all__ = ['layers']\n"
    (found,) = of(package_findings(tmp_path, {"__init__.py": init, "layers.py": text}), "KG206")
    assert found.verdict == verdict
    assert said in found.message


@pytest.mark.parametrize(
    ("init", "verdict"), [("__all__ = []", "error"), ("from . import layers\n__all__ = []", "warn")]
)
def test_layers_must_be_reachable(tmp_path: Path, init: str, verdict: str) -> None:
    findings = package_findings(tmp_path, {"__init__.py": init, "layers/__init__.py": LAYERS})
    assert verdicts(findings)["KG206"] == verdict


# --- What was built, by its files ---------------------------------------------------------------------------


def judged(root: Path, name: str = "torch-cpu") -> list[finding.Finding]:
    project = Project.load(root)
    (one,) = [b for b in variants.built(project) if b.name == name]
    return artefact.judge(project, one)


def test_a_right_variant(noarch: Path) -> None:
    built(noarch)
    findings = judged(noarch)
    assert verdicts(findings) == {"KG301": "ok", "KG302": "ok", "KG303": "ok", "KG304": "ok"}


def test_a_misnamed_variant(noarch: Path) -> None:
    built(noarch).rename(noarch / "build/torch-cpuu")
    (fault,) = of(judged(noarch, "torch-cpuu"), "KG301")
    assert fault.verdict == "error"
    assert fault.way_out == "did you mean torch-cpu?"


def test_a_variant_named_for_another_backend(noarch: Path) -> None:
    built(noarch).rename(noarch / "build/torch-cuda")
    (fault,) = of(judged(noarch, "torch-cuda"), "KG301")
    assert fault.message == "named for cuda, but its metadata says cpu"


@pytest.mark.parametrize("name", ["__init__.py", "_ops.py"])
def test_a_missing_file(noarch: Path, name: str) -> None:
    (built(noarch) / name).unlink()
    findings = judged(noarch)
    assert [f.where for f in of(findings, "KG302")] == [f"build/torch-cpu/{name}"]
    assert verdicts(findings)["KG304"] == "error"


def test_a_package_of_its_own_name_and_bytecode(noarch: Path) -> None:
    folder = built(noarch)
    write(folder, {"my_kernel/__init__.py": "", "__pycache__/a.cpython-311.pyc": "x", "fast.so": "x"})
    said = sorted((f.verdict, f.where) for f in of(judged(noarch), "KG302"))
    assert said == [
        ("error", "build/torch-cpu/fast.so"),
        ("error", "build/torch-cpu/my_kernel"),
        ("warn", "build/torch-cpu/__pycache__/a.cpython-311.pyc"),
    ]


@pytest.mark.parametrize("key", ["name", "id", "version", "license", "python-depends", "backend"])
def test_every_required_key_of_the_metadata(noarch: Path, key: str) -> None:
    path = built(noarch) / "metadata.json"
    table = json.loads(path.read_text())
    del table[key]
    path.write_text(json.dumps(table))
    faults = of(judged(noarch), "KG303")
    assert faults[0].verdict == "error"
    assert key in faults[0].message


def test_no_digest(noarch: Path) -> None:
    path = built(noarch) / "metadata.json"
    table = json.loads(path.read_text())
    del table["digest"]
    path.write_text(json.dumps(table))
    assert [f.verdict for f in of(judged(noarch), "KG304")] == ["error"]


def test_metadata_that_is_missing_or_no_json(noarch: Path) -> None:
    path = built(noarch) / "metadata.json"
    path.write_text("{")
    assert "is not JSON" in of(judged(noarch), "KG303")[0].message
    path.unlink()
    assert "is missing" in of(judged(noarch), "KG303")[0].message


@pytest.mark.parametrize(
    ("key", "value"), [("version", 2), ("name", "other"), ("license", "Apache-2.0"), ("id", "my_kernel")]
)
def test_metadata_that_says_other_things_than_build_toml(noarch: Path, key: str, value: Any) -> None:
    path = built(noarch) / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    faults = [f for f in of(judged(noarch), "KG303") if f.verdict == "error"]
    assert any(f.message.startswith(f"{key} is {value!r}") for f in faults)


@pytest.mark.parametrize("change", ["edit", "remove", "add"])
def test_files_that_the_digest_does_not_cover(noarch: Path, change: str) -> None:
    folder = built(noarch)
    path = folder / "op.py"
    if change == "edit":
        path.write_text(OP + "\n")
    elif change == "remove":
        path.unlink()
    else:
        path = folder / "extra.txt"
        path.write_text("x")
    faults = of(judged(noarch), "KG304")
    assert faults[0].verdict == "error"
    assert path.name in faults[0].message


def test_a_dirty_build_is_a_note(noarch: Path) -> None:
    write(noarch, {"torch-ext/my_kernel/op.py": OP + "\n"})
    built(noarch)
    assert [f.verdict for f in of(judged(noarch), "KG303")] == ["note"]


# --- Compiled files -----------------------------------------------------------------------------------------

needs_gxx = pytest.mark.skipif(
    not shutil.which("g++") or sys.platform != "linux" or os.uname().machine != "x86_64",
    reason="needs g++ on Linux, x86_64",
)
GOOD = f'extern "C" __attribute__((visibility("default"))) void* PyInit_{IDENTITY}() {{ return 0; }}\n'


def compiled(
    tmp_path: Path, source: str, *flags: str, name: str = CPU, strip: bool = True
) -> list[finding.Finding]:
    """Findings on a variant whose extension is compiled from a few lines."""
    root = tmp_path / "p"
    toml = COMPILED_TOML
    if "stable" in name:
        toml = toml.replace("[torch]\n", '[torch]\nstable-abi = "2.11"\n')
    if "-cu" in name:
        toml = toml.replace('backends = ["cpu"]', 'backends = ["cpu", "cuda"]')
    write(root, {**NOARCH, "build.toml": toml, "torch-ext/torch_binding.cpp": "\n", "csrc/k.cpp": "\n"})
    folder = root / "build" / name
    backend = "cuda" if "-cu" in name else "cpu"
    identity = IDENTITY.replace("_cpu_", f"_{backend}_")
    metadata = {
        "name": "my-kernel",
        "id": identity,
        "version": 1,
        "license": "MIT",
        "python-depends": [],
        "backend": {"type": backend, **({"archs": ["9.0", "12.0+PTX"]} if backend == "cuda" else {})},
    }
    write(
        folder,
        {"__init__.py": "", "_ops.py": f"from . import {identity}\n", "metadata.json": json.dumps(metadata)},
    )
    path = tmp_path / "k.cpp"
    path.write_text(source.replace(IDENTITY, identity))
    library = folder / f"{identity}.abi3.so"
    command = ["g++", "-shared", "-fPIC", "-O1", "-o", str(library), str(path), "-nostartfiles", *flags]
    subprocess.run(command, check=True)
    if strip:
        subprocess.run(["strip", "--strip-all", str(library)], check=True)
    return judged(root, name)


@needs_gxx
def test_a_right_library(tmp_path: Path) -> None:
    findings = compiled(tmp_path, GOOD)
    codes = ("KG301", "KG302", "KG303", "KG305", "KG306", "KG307", "KG308", "KG309", "KG310")
    assert {code: verdicts(findings)[code] for code in codes} == dict.fromkeys(codes, "ok")


@needs_gxx
@pytest.mark.parametrize("strip", [False, True])
def test_a_symbol_of_a_newer_system_is_named_also_when_stripped(tmp_path: Path, strip: bool) -> None:
    source = (
        GOOD + '#include <pthread.h>\nextern "C" int f(pthread_t* t) { return pthread_create(t, 0, 0, 0); }\n'
    )
    faults = [f for f in of(compiled(tmp_path, source, strip=strip), "KG305") if f.verdict == "error"]
    if os.confstr("CS_GNU_LIBC_VERSION") < "glibc 2.34":  # type: ignore[operator]
        pytest.skip("this system is old enough")
    assert faults[0].message.startswith("pthread_create: GLIBC_2.34")


@needs_gxx
def test_a_python_symbol_outside_the_limited_api(tmp_path: Path) -> None:
    source = GOOD + 'extern "C" { void* PyUnicode_AsUTF8(void*); }\n'
    source += "void* f(void* x) { return PyUnicode_AsUTF8(x); }\n"
    (fault,) = of(compiled(tmp_path, source), "KG305")
    assert fault.verdict == "error"
    assert fault.message.startswith("PyUnicode_AsUTF8: ")


@needs_gxx
def test_a_torch_symbol_in_a_stable_abi_variant(tmp_path: Path) -> None:
    source = GOOD + "namespace at { struct Tensor { void f() const; }; }\nvoid g(at::Tensor* t) { t->f(); }\n"
    stable = "torch-stable-abi211-cpu-x86_64-linux"
    (fault,) = of(compiled(tmp_path, source, name=stable), "KG305")
    assert fault.message == "_ZNK2at6Tensor1fEv is not in torch's stable ABI"
    assert verdicts(compiled(tmp_path, source))["KG305"] == "ok"


@needs_gxx
def test_a_foreign_library_and_a_search_path(tmp_path: Path) -> None:
    empty = tmp_path / "libcurand.so.10"
    subprocess.run(
        ["g++", "-shared", "-x", "c++", "/dev/null", "-o", str(empty), "-Wl,-soname,libcurand.so.10"],
        check=True,
    )
    flags = ("-Wl,--no-as-needed", str(empty), "-Wl,-rpath,/home/me/lib")
    findings = compiled(tmp_path, GOOD, *flags)
    assert [f.message for f in of(findings, "KG306")] == [
        "needs libcurand.so.10, which neither the system policy nor torch brings"
    ]
    assert "/home/me/lib" in of(findings, "KG307")[0].message


@needs_gxx
def test_the_runtime_of_another_cuda(tmp_path: Path) -> None:
    for number in (12, 13):
        empty = tmp_path / f"libcudart.so.{number}"
        command = ["g++", "-shared", "-x", "c++", "/dev/null", "-o", str(empty), f"-Wl,-soname,{empty.name}"]
        subprocess.run(command, check=True)
        flags = ("-Wl,--no-as-needed", str(empty))
        found = verdicts(compiled(tmp_path, GOOD, *flags, name="torch213-cxx11-cu130-x86_64-linux"))
        assert found["KG306"] == ("ok" if number == 13 else "error")


@needs_gxx
def test_an_executable_stack(tmp_path: Path) -> None:
    assert verdicts(compiled(tmp_path, GOOD, "-Wl,-z,execstack"))["KG308"] == "error"


@needs_gxx
def test_shared_statics_and_a_missing_init(tmp_path: Path) -> None:
    shared = "template <class T> struct S { static int x; };\n"
    shared += "template <class T> int S<T>::x = 1;\nint* f() { return &S<int>::x; }\n"
    (warning,) = of(compiled(tmp_path, GOOD + shared), "KG309")
    assert (warning.verdict, warning.message[:20]) == ("warn", "1 GNU unique symbols")
    assert verdicts(compiled(tmp_path, GOOD + shared, "-fno-gnu-unique"))["KG309"] == "ok"
    (fault,) = of(compiled(tmp_path, "int f() { return 0; }\n"), "KG309")
    assert "does not export PyInit_" in fault.message


def fat_binary(*images: tuple[int, int]) -> str:
    """C++ that holds a fat binary with images of (kind, architecture) and four bytes of payload each."""
    body = b"".join(
        kind.to_bytes(2, "little") + b"\1\1" + (64).to_bytes(4, "little") + (4).to_bytes(8, "little")
        + b"\0" * 12 + arch.to_bytes(4, "little") + b"\0" * 32 + b"code"
        for kind, arch in images
    )  # fmt: skip
    data = b"\x50\xed\x55\xba\1\0\x10\0" + len(body).to_bytes(8, "little") + body
    listed = ",".join(map(str, data))
    return f'extern "C" __attribute__((used)) const unsigned char fatbin[] = {{{listed}}};\n'


@needs_gxx
@pytest.mark.parametrize(
    ("images", "verdict", "said"),
    [
        ([(2, 90), (2, 120), (1, 120)], "ok", ""),
        ([(2, 120), (1, 120)], "error", "no code for 9.0"),
        ([(2, 90), (2, 120)], "error", "no PTX for 12.0+PTX"),
        ([(2, 75), (2, 90), (2, 120), (1, 120)], "warn", "code for 7.5"),
        ([(2, 100), (2, 75), (2, 90), (2, 120), (1, 120)], "warn", "code for 7.5, 10.0, which"),
    ],
)
def test_architectures(tmp_path: Path, images: list[tuple[int, int]], verdict: str, said: str) -> None:
    findings = compiled(tmp_path, GOOD + fat_binary(*images), name="torch213-cxx11-cu130-x86_64-linux")
    (found,) = of(findings, "KG310")
    assert found.verdict == verdict
    assert said in found.message


@needs_gxx
def test_a_library_for_another_machine_and_a_damaged_one(tmp_path: Path) -> None:
    findings = compiled(tmp_path, GOOD, name="torch213-cxx11-cpu-aarch64-linux")
    assert of(findings, "KG305")[0].message == "is for x86_64, the variant for aarch64"
    path = next((tmp_path / "p/build").rglob("*.so"))
    path.write_bytes(b"\x7fELF" + b"\0" * 100)
    faults = of(judged(tmp_path / "p", "torch213-cxx11-cpu-aarch64-linux"), "KG305")
    assert faults[0].message.startswith("not a readable shared object")


def test_the_stand_in_object_is_read_by_kernel_abi_check(tmp_path: Path) -> None:
    path = tmp_path / "u.o"
    path.write_bytes(elf.object_with_undefined(("PyModule_Create2", "PyType_GetName", "_PyPrivate")))
    assert [str(v) for v in package.judge(path) if v.symbol == "PyModule_Create2"] == []
    assert {v.symbol for v in package.judge(path)} == {"PyType_GetName", "_PyPrivate"}


# --- Running it ---------------------------------------------------------------------------------------------


def tried(root: Path, **files: str) -> list[finding.Finding]:
    """Build with some files replaced, then run the runtime judges."""
    write(root, {f"torch-ext/my_kernel/{name}.py": text for name, text in files.items()})
    built(root)
    project = Project.load(root)
    return runtime.trials(project, variants.built(project), sys.executable, lambda _what: None)


@pytest.mark.slow
def test_a_right_kernel_runs(noarch: Path) -> None:
    write(noarch, {".copier-answers.yml": 'ops: ["double(Tensor x) -> Tensor"]\n'})
    findings = tried(noarch)
    assert verdicts(findings) == dict.fromkeys([f"KG40{n}" for n in range(1, 8)], "ok")
    assert of(findings, "KG403")[0].message == "double"
    assert of(findings, "KG407")[0].message == "Double"
    assert not list((noarch / "build").rglob("__pycache__"))


@pytest.mark.slow
def test_an_operator_that_is_wrong_in_many_ways(noarch: Path) -> None:
    write(noarch, {".copier-answers.yml": 'ops: ["double(Tensor x) -> Tensor"]\n'})
    op = OP.replace("x: torch.Tensor)", "x: torch.Tensor, n: int = 2)").replace("def _(x)", "def _(x, n=2)")
    op = op.replace("torch.empty_like(x)", "x.new_empty(x.numel())")
    op += """
torch.library.define(add_op_namespace_prefix("half"), "(Tensor x) -> Tensor")
torch.library.impl(add_op_namespace_prefix("half"), "cpu", lambda x: x * 0.5)
torch.library.define("fixed_namespace_of_a_test::f", "(Tensor x) -> Tensor")
"""
    init = INIT.replace("'double',", "'double', 'gone',") + "gone = 1\ndel gone\n"
    stateful = LAYERS.replace("    can_torch", "    scale = 2\n    can_torch")
    findings = tried(noarch, op=op, layers=stateful, __init__=init)
    said = {f.code: f for f in findings if f.verdict in ("error", "warn")}
    assert said["KG402"].message == "__all__ names gone, which the module does not have"
    assert {f.message.partition(":")[0] for f in of(findings, "KG403")} == {
        "declared, but not registered",
        "registered, but not declared",
    }
    assert said["KG404"].message.startswith("half has no fake")
    assert said["KG405"].message.startswith("double: test_faketensor")
    assert "fixed_namespace_of_a_test" in said["KG406"].message
    assert "scale" in said["KG407"].message or "members" in said["KG407"].message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("init", "said"),
    [
        ("import no_such_module\n", "No module named 'no_such_module'"),
        ("import os\nos.abort()\n", "the process was killed by SIGABRT"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_kernel_that_does_not_load(noarch: Path, init: str, said: str) -> None:
    (fault,) = tried(noarch, __init__=init)
    assert (fault.code, fault.verdict) == ("KG401", "error")
    assert said in fault.message


@pytest.mark.skipif(not shutil.which("c++filt"), reason="needs binutils")
def test_a_missing_symbol_is_told_in_plain_words() -> None:
    said = runtime._readable("ImportError: k.abi3.so: undefined symbol: _ZNK2at6Tensor4sizeEl")
    assert said.endswith("undefined symbol: _ZNK2at6Tensor4sizeEl (at::Tensor::size(long) const)")
    assert runtime._way_out_of(said) == "build it again for this torch: kernelgen build"


@pytest.mark.slow
def test_an_interpreter_without_the_loader(noarch: Path, tmp_path: Path) -> None:
    built(noarch)
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    project = Project.load(noarch)
    (warning,) = runtime.trials(project, variants.built(project), bare, lambda _what: None)
    assert (warning.code, warning.verdict) == ("KG401", "warn")
    assert "No module named 'kernels'" in warning.message


@pytest.mark.slow
def test_a_loader_of_another_build_is_a_fault(noarch: Path, tmp_path: Path) -> None:
    built(noarch)
    (tmp_path / "site/kernels").mkdir(parents=True)
    (tmp_path / "site/kernels/__init__.py").touch()
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} -S "$@"\n')
    other.chmod(0o755)
    project = Project.load(noarch)
    (fault,) = runtime.trials(project, variants.built(project), other, lambda _what: None)
    assert (fault.code, fault.verdict, fault.way_out) == ("KG401", "error", None)
    assert "No module named 'kernels.variants'" in fault.message


@pytest.mark.slow
def test_a_variant_without_readable_metadata_is_not_tried(noarch: Path) -> None:
    (built(noarch) / "metadata.json").write_text("{}")
    project = Project.load(noarch)
    (fault,) = runtime.trials(project, variants.built(project), sys.executable, lambda _what: None)
    assert (fault.code, fault.verdict) == ("KG401", "error")


@pytest.mark.slow
def test_a_variant_for_another_machine_is_not_tried(noarch: Path) -> None:
    folder = built(noarch)
    shutil.copytree(folder, noarch / "build/torch-tpu")
    project = Project.load(noarch)
    found = [b for b in variants.built(project) if b.name == "torch-tpu"]
    (note,) = runtime.trials(project, found, sys.executable, lambda _what: None)
    assert note.verdict == "note"
    assert note.message.startswith("not tried here: ")


def test_a_twin_has_another_id_that_hashes_alike(noarch: Path, tmp_path: Path) -> None:
    folder = built(noarch)
    metadata = json.loads((folder / "metadata.json").read_text())
    other = twin.make(folder, metadata, tmp_path / "twin")
    assert other is not None
    assert other != metadata["id"]
    assert len(other) == len(metadata["id"])

    def gnu_hash(name: str) -> int:
        value = 5381
        for letter in name.encode():
            value = (value * 33 + letter) & 0xFFFFFFFF
        return value

    assert gnu_hash(f"PyInit_{other}") == gnu_hash(f"PyInit_{metadata['id']}")
    copied = json.loads((tmp_path / "twin/metadata.json").read_text())
    assert copied["id"] == other
    assert "digest" not in copied
    assert (tmp_path / "twin/op.py").read_text() == OP


def test_no_twin_of_an_id_without_a_unique_part(noarch: Path, tmp_path: Path) -> None:
    folder = built(noarch)
    metadata = {"name": "my-kernel", "id": "fixed", "backend": {"type": "cpu"}}
    assert twin.make(folder, metadata, tmp_path / "twin") is None
    assert not (tmp_path / "twin").exists()


@pytest.mark.slow
@needs_gxx
def test_a_compiled_kernel_from_scaffold_to_verdict(tmp_path: Path) -> None:
    from kernelgen import scaffold

    root = tmp_path / "my-kernel"
    answers = {
        "repo_id": "acme/my-kernel",
        "ops": ["twice(Tensor x) -> Tensor"],
        "abi": "stable",
        "backends": ["cpu"],
    }
    scaffold.new(root, answers)
    build.build(Project.load(root), build.BuildOptions(backends=("cpu",)))
    findings = check.check(root)
    assert [f for f in findings if f.verdict in ("error", "warn")] == []
    assert {f"KG40{n}" for n in range(1, 8)} <= set(verdicts(findings))
    assert of(findings, "KG406")[0].verdict == "ok"
