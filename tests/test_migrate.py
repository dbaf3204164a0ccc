"""Migration of projects of earlier editions; the ecosystem's own parser judges each result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tomlkit
import toy_template

from kernelgen import git, migrate, project, update
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from pathlib import Path

EDITION_1 = """\
# A kernel of early 2025.
[general]
name = "old_kernel"  # with an underscore

[torch]
src = [
  "torch-ext/torch_binding.cpp",
]

# Everything in one.
[kernel.activation]
cuda-capabilities = ["7.0", "8.0"]
rocm-archs = ["gfx90a"]
language = "cuda-hipify"  # both
src = [
  "activation/a.cu",  # the kernel
]
depends = ["torch"]

[kernel.shader]
language = "metal"
src = ["a.metal"]
depends = []
"""

EDITION_1_UNIVERSAL = """\
[general]
name = "triton-thing"

# Python only.
[torch]  # no binding
universal = true
pyext = ["py", "json"]
"""

EDITION_2 = """\
[general]
name = "relu"
universal = false
cuda-minver = "12"  # Hopper
cuda-maxver = "12.8.0"
python-depends = ["einops", "nvidia-cutlass-dsl"]

[general.hub]
repo-id = "acme/relu"  # ours

[torch]
src = ["torch-ext/torch_binding.cpp"]
minver = "2.6"

[kernel.relu]
backend = "cuda"
depends = ["torch"]
cuda_flags = ["-O3"]  # as the old docs said
src = ["relu.cu"]
cuda-minver = "12.4.1"

[kernel.relu_cpu]
backend = "cpu"
depends = ["torch"]
src = ["relu.cpp"]
"""

EDITION_2_UNIVERSAL = """\
[general]
name = "triton-thing"
universal = true
"""

EDITION_3 = """\
[general]
name = "relu"
backends = ["cuda"]  # only

[general.cuda]
minver = "12.6"

[kernel.relu]
backend = "cuda"
depends = ["torch"]
src = ["relu.cu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]
"""

EDITION_3_NOARCH = """\
[general]
name = "triton-thing"
license = "MIT"
version = 3
backends = ["cuda", "rocm"]
"""

EDITION_4 = """\
# Four.
[general]
name = "relu"
version = 2 # second
license = "MIT"
backends = ["cuda"]

[torch]
src = ["torch-ext/torch_binding.cpp"]
stable-abi = "2.11" # one build

[kernel.relu]
backend = "cuda"
depends = ["torch"]
src = ["relu.cu"]
"""

EDITION_4_NOARCH = """\
[general]
name = "triton-thing"
version = 1
license = "MIT"
backends = ["cuda"]

[torch-noarch]
cuda-capabilities = ["9.0"]  # as the docs say, and the parser does not
"""

OLD = {
    "1": EDITION_1,
    "1-universal": EDITION_1_UNIVERSAL,
    "2": EDITION_2,
    "2-universal": EDITION_2_UNIVERSAL,
    "3": EDITION_3,
    "3-noarch": EDITION_3_NOARCH,
    "4": EDITION_4,
    "4-noarch": EDITION_4_NOARCH,
}


def comments(text: str) -> set[str]:
    return {line.partition("#")[2] for line in text.splitlines() if "#" in line}


@pytest.mark.parametrize("name", OLD)
def test_every_edition_becomes_five(name: str, tmp_path: Path) -> None:
    text = OLD[name]
    new, done, _ = migrate.migrate_build(text, license_id="Apache-2.0")  # Build.open has taken it
    general = tomlkit.parse(new).unwrap()["general"]
    assert general["edition"] == 5
    assert general["version"] >= 1
    assert comments(new) == comments(text)
    assert f"general.edition: 5 (it was {name[0]})" in done
    # kernelgen's own judgement, with every file there that the project names.
    name = str(general["name"]).replace("-", "_")
    sources = [f"torch-ext/{name}/__init__.py", "torch-ext/torch_binding.cpp"]
    sources += ["activation/a.cu", "a.metal", "relu.cu", "relu.cpp"]
    toy_template.write(tmp_path, {"build.toml": new, **dict.fromkeys(sources, "")})
    _, problems = project.examine(tmp_path)
    assert [problem.message for problem in problems if not problem.warning] == []
    again, done, notes = migrate.migrate_build(new)
    assert (again, done, notes) == (new, [], [])


def test_edition_1_in_full() -> None:
    new, _, notes = migrate.migrate_build(EDITION_1, license_id="MIT")
    assert (
        new
        == """\
# A kernel of early 2025.
[general]
name = "old-kernel"  # with an underscore
version = 1
edition = 5
license = "MIT"
backends = ["cuda", "metal", "rocm"]

[torch]
src = [
  "torch-ext/torch_binding.cpp",
]

# Everything in one.
[kernel.activation]
cuda-capabilities = ["7.0", "8.0"]
backend = "cuda"  # both
src = [
  "activation/a.cu",  # the kernel
]
depends = ["torch"]

[kernel.shader]
backend = "metal"
src = ["a.metal"]
depends = []

[kernel.activation_rocm]
backend = "rocm"
src = [
  "activation/a.cu",  # the kernel
]
depends = ["torch"]
rocm-archs = ["gfx90a"]
"""
    )
    assert [note.partition(":")[0] for note in notes] == ["build.toml"] * 2


def test_edition_2_in_full() -> None:
    new, _, _ = migrate.migrate_build(EDITION_2, license_id="MIT")
    assert tomlkit.parse(new).unwrap() == {
        "general": {
            "name": "relu",
            "version": 1,
            "edition": 5,
            "license": "MIT",
            "backends": ["cpu", "cuda"],
            "python-depends": ["einops"],
            "hub": {"repo-id": "acme/relu"},
            "cuda": {"minver": "12.0", "maxver": "12.8", "python-depends": ["nvidia-cutlass-dsl"]},
        },
        "torch": {"src": ["torch-ext/torch_binding.cpp"], "minver": "2.6"},
        "kernel": {
            "relu": {
                "backend": "cuda",
                "depends": ["torch"],
                "cuda-flags": ["-O3"],
                "src": ["relu.cu"],
                "cuda-minver": "12.4",
            },
            "relu_cpu": {"backend": "cpu", "depends": ["torch"], "src": ["relu.cpp"]},
        },
    }


def test_universal_becomes_noarch() -> None:
    for text in (EDITION_1_UNIVERSAL, EDITION_2_UNIVERSAL):
        new, _, notes = migrate.migrate_build(text, license_id="MIT")
        parsed = tomlkit.parse(new).unwrap()
        assert "torch-noarch" in parsed
        assert "torch" not in parsed
        assert parsed["general"]["backends"] == ["cann", "cpu", "cuda", "metal", "neuron", "rocm", "xpu"]
        assert any("narrow" in note for note in notes)
    assert (
        '[torch-noarch]  # no binding\npyext = ["py", "json"]\n'
        in migrate.migrate_build(EDITION_1_UNIVERSAL, license_id="MIT")[0]
    )


def test_edition_6_stays() -> None:
    text = """\
[general]
name = "six-op"
version = 1
edition = 6
license = "MIT"
backends = ["cpu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.six]
language = "cpp-cpu"
depends = ["torch"]
src = ["six.cpp"]
"""
    assert migrate.migrate_build(text) == (text, [], [])
    with pytest.raises(KernelgenError, match="does not accept"):
        migrate.migrate_build(text.replace("cpp-cpu", "cpp-npu"))


def test_refusals() -> None:
    with pytest.raises(KernelgenError, match="no licence") as caught:
        migrate.migrate_build(EDITION_3)
    assert "--license" in str(caught.value.way_out)
    for text, message in [
        ("a = [", "not TOML"),
        ("[torch]\n", "no \\[general\\] name"),
        ('[general]\nname = "x"\nedition = 7\n', "edition 7"),
        (EDITION_4.replace('depends = ["torch"]', 'depends = ["nothing"]'), "does not accept"),
    ]:
        with pytest.raises(KernelgenError, match=message):
            migrate.migrate_build(text)


def test_flake() -> None:
    old = """\
{
  inputs.kernel-builder.url = "github:huggingface/kernel-builder/v0.6.1";  # ours
  outputs = { self, kernel-builder }:
    kernel-builder.lib.genFlakeOutputs {
      path = ./.;
      rev = self.shortRev or self.dirtyShortRev or self.lastModifiedDate;
      checkInputs = pkgs: [ pkgs.einops ];
      nativeCheckInputs = pkgs: [ ];
      torchVersions = [ { torchVersion = "2.7"; } ];
    };
}
"""
    new, done = migrate.migrate_flake(old)
    assert (
        new
        == """\
{
  inputs.kernel-builder.url = "github:huggingface/kernels";  # ours
  outputs = { self, kernel-builder }:
    kernel-builder.lib.genKernelFlakeOutputs {
      path = ./.;
      inherit self;
      pythonCheckInputs = pkgs: [ pkgs.einops ];
      pythonNativeCheckInputs = pkgs: [ ];
      torchVersions = _: [ { torchVersion = "2.7"; } ];
    };
}
"""
    )
    assert len(done) == 6
    assert migrate.migrate_flake(new) == (new, [])


def test_sources() -> None:
    decorated = '@torch.library.custom_op("relu::fwd", mutates_args=())\ndef f(): ...\n'
    old = f"import torch\nfrom ._ops import ops\n\n\n{decorated}"
    new, changed = migrate.wrap_op_names(old)
    assert changed
    assert "from ._ops import ops, add_op_namespace_prefix\n" in new
    assert '@torch.library.custom_op(add_op_namespace_prefix("fwd"), mutates_args=())\n' in new
    assert migrate.wrap_op_names(new) == (new, False)
    plain, _ = migrate.wrap_op_names('import torch\n\n@torch.library.register_fake("a::b")\ndef f(): ...\n')
    assert plain.startswith(
        "import torch\nfrom ._ops import add_op_namespace_prefix\n\n@torch.library.register_fake(add_op"
    )

    assert migrate.relative_imports(
        "from relu.ops import x\nfrom relu import y\nfrom relux import z\n", "relu", 1
    ) == (
        "from ..ops import x\nfrom .. import y\nfrom relux import z\n",
        True,
    )
    assert migrate.loader_calls('get_local_kernel(Path("a").resolve(), "my_k")', "my_k")[0] == (
        'get_local_kernel(Path("a").resolve())'
    )
    assert migrate.loader_calls('get_local_kernel(repo, "my-k", backend="cpu")', "my_k")[0] == (
        'get_local_kernel(repo, backend="cpu")'
    )
    assert not migrate.loader_calls('get_local_kernel(repo, "cuda")', "my_k")[1]


def test_a_whole_project(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    files = {
        "build.toml": EDITION_2,
        "flake.nix": 'inputs.kernel-builder.url = "github:huggingface/kernel-builder";\n',
        "flake.lock": "{}\n",
        "setup.py": "x = '_cmake_build'\nclass build_kernel: ...\n",
        "CMakeLists.txt": "TORCH_EXTENSION_NAME include(${CMAKE_CURRENT_LIST_DIR}/cmake/utils.cmake)\n",
        "cmake/utils.cmake": "",
        "cmake/mine.cmake": "",
        "torch-ext/registration.h": "#define REGISTER_EXTENSION(NAME)\n#define TORCH_LIBRARY_EXPAND\n",
        "torch-ext/relu/__init__.py": "from relu._ops import ops\n",
        "torch-ext/relu/relu/__init__.py": "",
        "torch-ext/relu/layers/__init__.py": 'import torch\n@torch.library.custom_op("a::b")\ndef f(): ...\n',
        "tests/test_relu.py": 'def test_x():\n    k = get_local_kernel(Path("."), "relu")\n',
        "README.md": "Look into build/torch-universal.\n",
        ".gitignore": "build\n",
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    git.run("init", "-q", cwd=folder, hermetic=True)
    with pytest.raises(KernelgenError, match="no commit yet"):
        migrate.migrate(folder)
    git.run("add", "-A", cwd=folder, hermetic=True)
    git.run("commit", "-qm", "x", cwd=folder, hermetic=True)

    shown = migrate.migrate(folder, license_id="MIT", dry_run=True)
    assert git.text("status", "--porcelain", cwd=folder, hermetic=True) == ""
    done = migrate.migrate(folder, license_id="MIT")
    assert done == shown
    gone = {path for path in files if not (folder / path).exists()}
    assert gone == {
        "setup.py",
        "CMakeLists.txt",
        "cmake/utils.cmake",
        "torch-ext/registration.h",
        "torch-ext/relu/relu/__init__.py",
    }
    assert (folder / "torch-ext/relu/__init__.py").read_text() == "from ._ops import ops\n"
    assert (
        "from .._ops import add_op_namespace_prefix"
        in (folder / "torch-ext/relu/layers/__init__.py").read_text()
    )
    assert 'get_local_kernel(Path("."))' in (folder / "tests/test_relu.py").read_text()
    assert (folder / ".gitignore").read_text().startswith("build\nresult\n")
    assert [note for note in done.notes if not note.startswith("build.toml")] == [
        "flake.lock: belongs to the old address; run `nix flake update`",
        "README.md:1: an old variant name; see `kernelgen variants`",
        "tests/: no test has the marker kernels_ci, so `nix run .#ci-test` runs none",
        "CARD.md: missing; the Hub page is made from it",
    ]
    git.run("commit", "-qm", "y", cwd=folder, hermetic=True)
    assert migrate.migrate(folder).files == {}

    git.run("revert", "--no-edit", "HEAD", cwd=folder, hermetic=True)
    migrate.migrate(folder, license_id="MIT")
    update.abort(folder)
    assert git.text("status", "--porcelain", cwd=folder, hermetic=True) == ""
