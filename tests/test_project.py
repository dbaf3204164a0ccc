"""build.toml: what is accepted, what is refused, where the fault is said to be."""

from __future__ import annotations

import copy
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernelgen.errors import KernelgenError
from kernelgen.project import Project, detect_edition, examine, key_lines, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

TWICE = Path(__file__).parent / "projects" / "twice"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(TWICE, tmp_path / "p")
    return tmp_path / "p"


def edit(root: Path, old: str, new: str) -> Path:
    path = root / "build.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return root


def refusal(root: Path) -> KernelgenError:
    with pytest.raises(KernelgenError) as caught:
        Project.load(root)
    return caught.value


def upstream_accepts(root: Path) -> bool:
    from kernelgen.package import refused_by_builder

    return refused_by_builder(root) is None


def to_edition_6(root: Path) -> Path:
    for old, new in (("edition = 5", "edition = 6"), ('backend = "c', 'language = "cpp-c')):
        path = root / "build.toml"
        path.write_text(path.read_text().replace(old, new))
    return root


def test_edition_6_names_languages(root: Path) -> None:
    before = Project.load(root)
    after = Project.load(to_edition_6(root))
    assert upstream_accepts(root)
    assert after.edition == 6
    assert after.components == before.components
    assert after.backends == before.backends


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"cpp-cpu"', '"rust-cpu"', "'rust-cpu': kernelgen builds C++ only"),
        ('"cpp-cpu"', '"cpp-npu"', "unknown language 'cpp-npu'"),
        ('"cpp-cpu"', '"cpp-cpu"\ncuda-flags = []', "is for backend 'cuda', but this kernel's is 'cpu'"),
        ("edition = 6", 'edition = 6\nbuild-layout = "zip"', "unknown build layout 'zip'"),
        ('["cpu", "cuda"]', '["cpu"]', "'cuda' is not among general.backends"),
    ],
)
def test_faults_of_edition_6(root: Path, old: str, new: str, said: str) -> None:
    assert said in refusal(edit(to_edition_6(root), old, new)).what


def test_a_whole_project(root: Path) -> None:
    project = Project.load(root)
    assert (project.name, project.python_name, project.edition) == ("twice-op", "twice_op", 5)
    assert project.backends == ("cpu", "cuda")
    assert project.framework.stable_abi["cpu"] == "2.11"
    assert [c.src for c in project.components_for("cuda")] == [
        ("csrc/twice.h", "csrc/twice.cpp", "csrc/twice.cu")
    ]
    assert project.listed_files("cpu") == ("csrc/twice.cpp", "csrc/twice.h", "torch-ext/torch_binding.cpp")
    assert project.warnings == ()
    assert upstream_accepts(root)


@pytest.mark.parametrize(
    ("old", "new", "said", "line", "way_out"),
    [
        ("license =", "licence =", "general.licence: unknown key", 5, "did you mean 'license'?"),
        ("[general.hub]", "[general.hubs]", "general.hubs: unknown key", 8, "did you mean 'hub'?"),
        (
            '"csrc/twice.cu"',
            '"csrc/twicd.cu"',
            "'csrc/twicd.cu' does not exist",
            32,
            "did you mean 'csrc/twice.cu'?",
        ),
        ('"csrc/twice.cu"', '"csrc/*.cu"', "patterns are not expanded", 32, None),
        ('"csrc/twice.cu"', '"../other.cu"', "must lie inside the project", 32, None),
        ('["cpu", "cuda"]', '["cpu", "cudda"]', "unknown backend 'cudda'", 6, "did you mean 'cuda'?"),
        (
            '["cpu", "cuda"]',
            '["cpu"]',
            "'cuda' is not among general.backends",
            27,
            'add "cuda" to general.backends',
        ),
        ('["cpu", "cuda"]', "[]", "is empty", 6, None),
        ('"twice-op"', '"Twice_Op"', "'Twice_Op' is not a kernel name", 2, "for example 'twice-op'"),
        ("version = 1", "version = -1", "must not be negative", 3, None),
        ("version = 1", 'version = "1"', "must be a number, not a string", 3, None),
        ("edition = 5", "edition = 6", "the key 'language' is required", 18, None),
        (
            "edition = 5",
            "edition = 9",
            "edition 9 is none that this kernelgen knows (1 to 6)",
            4,
            "set edition = 5, or upgrade kernelgen",
        ),
        ('"2.11"', '"2"', "is not a version of two numbers", 12, None),
        ("depends = []", 'depends = ["cutlas_3_6"]', "unknown dependency", 20, "did you mean 'cutlass_3_6'?"),
        ("depends = []", "", "the key 'depends' is required", 18, None),
        ('backend = "cpu"', 'backend = "cpu"\ncuda-flags = []', "is for backend 'cuda'", 20, None),
        ("[torch]", "[torch-noarch]\n[torch]", "exactly one of", 1, None),
        (
            'license = "Apache-2.0"',
            'license = "Apache-2.0"\npython-depends = ["numpy"]',
            "unknown Python dep",
            6,
            None,
        ),
    ],
)
def test_faults_are_placed(root: Path, old: str, new: str, said: str, line: int, way_out: str | None) -> None:
    error = refusal(edit(root, old, new))
    assert said in error.what
    assert error.where == f"{root / 'build.toml'}:{line}"
    if way_out:
        assert error.way_out == way_out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("license =", "licence ="),
        ('["cpu", "cuda"]', '["cpu", "cudda"]'),
        ('"twice-op"', '"Twice_Op"'),
        ("version = 1", "version = -1"),
        ("edition = 5", "edition = 6"),
        ('"2.11"', '"2"'),
        ("depends = []", 'depends = ["cutlas_3_6"]'),
        ("depends = []", ""),
        ('backend = "cpu"', 'backend = "cpu"\ncuda-flags = []'),
        ("[torch]", "[torch-noarch]\n[torch]"),
    ],
)
def test_what_kernel_builder_refuses_is_refused(root: Path, old: str, new: str) -> None:
    edit(root, old, new)
    assert not upstream_accepts(root)
    refusal(root)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("edition = 5\n", ""),
        ('stable-abi = "2.11"', 'stable-abi = { cpu = "2.11" }'),
        ('stable-abi = "2.11"', 'pyext = ["py", "json"]\nminver = "2.9"\ncxx-flags = ["-DX"]'),
        (
            "[general.hub]",
            '[general.cuda]\nminver = "12.6"\npython-depends = ["nvidia-cutlass-dsl"]\n[general.hub]',
        ),
        ('license = "Apache-2.0"', 'license = "MIT"\nupstream = "git@github.com:org/repo.git"'),
        ('license = "Apache-2.0"', 'license = "MIT"\nkernel-depends = [{ repo-id = "a/b", version = 1 }]'),
        ('backend = "cuda"', 'backend = "cuda"\ncuda-capabilities = ["9.0a"]\ncuda-minver = "12.8"'),
    ],
)
def test_what_kernel_builder_accepts_is_accepted(root: Path, old: str, new: str) -> None:
    edit(root, old, new)
    assert upstream_accepts(root)
    Project.load(root)


def test_every_further_fault_is_in_the_detail(root: Path) -> None:
    error = refusal(edit(edit(root, "version = 1", "version = -1"), '"2.11"', '"2"'))
    assert error.what == "general.version: must not be negative, is -1"
    assert error.detail is not None
    assert "line 12: torch.stable-abi" in error.detail


def test_broken_toml_and_no_project(root: Path, tmp_path: Path) -> None:
    (root / "build.toml").write_text("[general\n")
    assert refusal(root).where == f"{root / 'build.toml'}:1"
    assert refusal(tmp_path).what == "there is no build.toml here"
    assert "run it in" in (refusal(root / "csrc").way_out or "")


def test_missing_package(root: Path) -> None:
    shutil.rmtree(root / "torch-ext" / "twice_op")
    assert refusal(root).what == "general.name: the Python package is missing: torch-ext/twice_op/__init__.py"


def test_advice_does_not_refuse(root: Path) -> None:
    (root / "CARD.md").unlink()
    edit(root, '"Apache-2.0"', '"do what you want"')
    project = Project.load(root)
    assert [w.key for w in project.warnings] == ["general.license", "general"]


def with_rocm(root: Path, archs: str) -> Path:
    edit(root, '["cpu", "cuda"]', '["cpu", "cuda", "rocm"]')
    path = root / "build.toml"
    kernel = f'[kernel.r]\nbackend = "rocm"\ndepends = []\nrocm-archs = {archs}\nsrc = ["csrc/twice.cu"]\n'
    path.write_text(f"{path.read_text()}\n{kernel}")
    return root


@pytest.mark.parametrize("archs", ['["gfx99999"]', '["gfx99999", "gfx9999"]', '["gfx940", "gfx99999"]', "[]"])
def test_rocm_architectures_of_which_none_can_be_built(root: Path, archs: str) -> None:
    if archs == "[]":  # the default list
        assert Project.load(with_rocm(root, archs)).warnings == ()
        return
    error = refusal(with_rocm(root, archs))
    assert error.what == "kernel.r.rocm-archs: ROCm kernels are built for none of these"
    assert error.where == f"{root / 'build.toml'}:38"
    assert (error.way_out or "").startswith("name one or more of gfx906, gfx908, gfx90a, gfx942,")


@pytest.mark.parametrize("archs", ['["gfx942", "gfx99999"]', '["gfx940", "gfx942"]'])
def test_rocm_architectures_of_which_one_can_be_built(root: Path, archs: str) -> None:
    assert Project.load(with_rocm(root, archs)).warnings == ()


def test_rocm_architectures_of_yesterday_are_advised_on(root: Path) -> None:
    (found,) = Project.load(with_rocm(root, '["gfx940"]')).warnings
    assert (found.key, found.message) == ("kernel.r.rocm-archs", "ROCm kernels are built for none of these")


OLD = {
    1: """
[general]
name = "twice-op"
[torch]
src = ["torch-ext/torch_binding.cpp"]
[kernel.twice]
language = "cuda-hipify"
cuda-capabilities = ["8.0"]
depends = ["torch"]
src = ["csrc/twice.cu"]
""",
    2: """
[general]
name = "twice-op"
cuda-minver = "12.4"
python-depends = ["einops", "nvidia-cutlass-dsl"]
[torch]
src = ["torch-ext/torch_binding.cpp"]
[kernel.twice]
backend = "cuda"
depends = ["torch"]
src = ["csrc/twice.cu"]
""",
    3: """
[general]
name = "twice-op"
backends = ["cuda"]
[general.cuda]
minver = "12.4"
[torch]
src = ["torch-ext/torch_binding.cpp"]
[kernel.twice]
backend = "cuda"
depends = ["torch"]
src = ["csrc/twice.cu"]
""",
    4: """
[general]
name = "twice-op"
version = 3
license = "MIT"
backends = ["cuda"]
[torch]
stable-abi = "2.11"
src = ["torch-ext/torch_binding.cpp"]
[kernel.twice]
backend = "cuda"
depends = ["torch"]
src = ["csrc/twice.cu"]
""",
}


@pytest.mark.parametrize("edition", OLD)
def test_old_editions(root: Path, edition: int) -> None:
    (root / "build.toml").write_text(OLD[edition])
    project = Project.load(root)
    assert project.edition == edition
    assert project.backends == (("cuda", "rocm") if edition == 1 else ("cuda",))
    assert project.components[0].src == ("csrc/twice.cu",)
    assert project.cuda_minver == ("12.4" if edition in (2, 3) else None)
    if edition == 2:
        assert project.python_depends == {"general": ("einops",), "cuda": ("nvidia-cutlass-dsl",)}


def test_universal_projects_of_old_editions_are_noarch(root: Path) -> None:
    (root / "build.toml").write_text('[general]\nname = "twice-op"\nuniversal = true\n')
    assert Project.load(root).framework.kind == "torch-noarch"
    (root / "build.toml").write_text('[general]\nname = "twice-op"\nbackends = ["cpu"]\n')
    project = Project.load(root)
    assert (project.edition, project.framework.kind) == (3, "torch-noarch")


def test_shape_tells_the_edition() -> None:
    assert detect_edition({"general": {"name": "x", "edition": 5}}) == 5
    assert detect_edition({"general": {"name": "x"}, "kernel": {"a": {"src": []}}}) == 1
    assert detect_edition({"general": {"name": "x"}, "kernel": {"a": {"backend": "cuda"}}}) == 2


def test_lines_of_keys() -> None:
    lines = key_lines('[general]\nname = "x"\n\n[kernel."a b"]\nsrc = [\n  "k.cu",\n]\n')
    assert lines == {"general": 1, "general.name": 2, "kernel.a b": 4, "kernel.a b.src": 5}


def test_nearest() -> None:
    assert nearest("cuda_flags", ["cuda-flags", "src"]) == "cuda-flags"
    assert nearest("zzz", ["cuda-flags"]) is None


def test_answers_are_optional(root: Path) -> None:
    assert Project.load(root).answers == {}
    (root / ".copier-answers.yml").write_text("kernel_name: twice-op\nops: [a]\n")
    assert Project.load(root).answers["ops"] == ["a"]
    assert examine(root)[1] == []


# -- against kernel-builder's own parser, on files spoilt at random

VALUES = [
    *(0, -1, 5, 6, 1.5, True, "x", "", "13", "12.8.0", "2.11", "9.0a", "cpu", "cuda", "rocm", "tpu", "a/b"),
    *("https://x/y", "ftp://x/y", "git@h:o/r", [], [1], ["cpu"], ["torch"], ["cutlass_3_6"], {}, {"a": 1}),
    *({"cpu": "2.11"}, [{"repo-id": "a/b", "revision": "x"}], [{"repo-id": "a/b"}], ["csrc/twice.cu"]),
]
KEYS = "name version license edition backends src backend depends include cuda-flags hip-flags sycl-flags rocm-archs universal stable-abi pyext hub cuda tpu language zzz minver kernel-depends python-depends source repo-id".split()  # noqa: E501, SIM905
FULL = {
    "general": {
        "upstream": "https://github.com/a/b",
        "python-depends": ["einops"],
        "cuda": {"minver": "12.6", "maxver": "13.2", "kernel-depends": [{"repo-id": "a/b", "version": 1}]},
        "xpu": {"python-depends": []},
    },
    "torch": {"include": ["."], "pyext": ["py"], "minver": "2.9", "cxx-flags": ["-DX"]},
}


def tables(table: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield table
    for value in table.values():
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                yield from tables(inner)


def spoil(table: dict[str, Any], rng: random.Random) -> None:
    chosen = rng.choice(list(tables(table)))
    if chosen and rng.random() < 0.3:
        chosen.pop(rng.choice(list(chosen)))
    else:
        key = rng.choice(list(chosen) or KEYS) if rng.random() < 0.5 else rng.choice(KEYS)
        chosen[key] = copy.deepcopy(rng.choice(VALUES))


def test_nothing_that_kernel_builder_refuses_gets_through(root: Path) -> None:
    import tomlkit

    path = root / "build.toml"
    base = tomlkit.parse(path.read_text()).unwrap()
    for name, more in FULL.items():
        base[name].update(more)
    rng = random.Random(5)  # noqa: S311
    accepted = 0
    for _ in range(500):
        spoilt = copy.deepcopy(base)
        for _ in range(rng.choice([1, 1, 2])):
            spoil(spoilt, rng)
        path.write_text(tomlkit.dumps(spoilt))
        project, problems = examine(root)
        ours = project is not None and all(p.warning for p in problems)
        accepted += ours
        assert upstream_accepts(root) or not ours, path.read_text()
    assert accepted > 20
