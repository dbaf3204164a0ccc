"""A small template with kernelgen's marks and five versions, for tests of updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelgen import git, template

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ("v0.1.0", "v0.2.0", "v0.3.0", "v0.4.0", "v0.5.0")

_COPIER = """\
_subdirectory: template
_envops:
  block_start_string: "{=%"
  block_end_string: "%=}"
  variable_start_string: "{="
  variable_end_string: "=}"
  comment_start_string: "{=#"
  comment_end_string: "#=}"
  keep_trailing_newline: true
  trim_blocks: true
  undefined: jinja2.StrictUndefined
_skip_if_exists: ["csrc/*.cu", README.md, bench.py, benchmarks/]
kernel_name: {type: str, default: demo}
license: {type: str, default: MIT}
ops: {type: yaml, default: [scale]}
python_name: {type: str, default: "{= kernel_name | replace('-', '_') =}", when: false}
operators: {type: json, default: "{= ops | to_json =}", when: false}
"""

_BINDING = """\
// Managed.
#include "registration.h"

// Checks.
void check_device(int device);
void check_dtype(int dtype);
void check_shape(int shape);

// Operators.
{=% for op in operators %=}
void {= op =}(int n);
{=% endfor %=}

// Registration of {= kernel_name =}.
TORCH_LIBRARY({= python_name =}, ops) {
{=% for op in operators %=}
  ops.def("{= op =}(Tensor x) -> Tensor");
{=% endfor %=}
}
"""

_BUILD = """\
[general]
name = "{= kernel_name =}"
license = "{= license =}"
version = 1

[kernel.cuda]
backend = "cuda"
src = [
{=% for op in operators %=}
  "csrc/{= op =}.cu",
{=% endfor %=}
]
"""

_LINT = "[lint]\nwidth = 100\nrules = all\n\n[format]\nquotes = double\nindent = 4\nends = lf\n"
_NOTES = "How to release {= kernel_name =}.\nFirst, run the tests.\nThen, publish.\n"
_KERNEL = """\
// {= op =} of {= kernel_name =}, by template VERSION.
__global__ void {= op =}(float* x) {
  x[0] = 1;
}
"""
_OPERATOR_NAME = "{=% yield op from operators %=}{= op =}{=% endyield %=}"


def files(version: str) -> dict[str, str]:
    """The template's files in a version, by path below its root."""
    number = VERSIONS.index(version)
    tree = {
        "copier.yml": _COPIER,
        "template/.copier-answers.yml.jinja": "# Managed.\n{= _copier_answers | to_nice_yaml =}",
        "template/build.toml.jinja": _BUILD,
        "template/flake.lock": '{"rev": "1"}\n',
        "template/README.md.jinja": "# {= kernel_name =}\n\nMade by template " + version + ".\n",
        f"template/csrc/{_OPERATOR_NAME}.cu.jinja": _KERNEL.replace("VERSION", version),
        "template/torch-ext/torch_binding.cpp.jinja": _BINDING,
        "template/torch-ext/{= python_name =}/_ops.pyi.jinja": "# {= kernel_name =}\n"
        + "def f() -> None: ...\n" * 9,
        "template/tools/lint.cfg": _LINT,
        "template/NOTES.txt.jinja": _NOTES,
        "template/bench.py.jinja": "# Benchmark of {= kernel_name =}.\nimport time\n\nprint(time.time())\n",
    }
    if number >= 1:  # a new question, and a default that changed
        tree["copier.yml"] = tree["copier.yml"].replace("default: MIT", "default: Apache-2.0") + (
            'cxx: {type: int, default: 17, help: "C++ standard"}\n'
        )
        tree["template/build.toml.jinja"] += 'cxx-flags = ["-std=c++{= cxx =}"]\n'
        tree["template/flake.lock"] = '{"rev": "2"}\n'
    if number >= 2:  # a managed file under another name, with a change in it
        tree["template/config/style.cfg"] = tree.pop("template/tools/lint.cfg").replace(
            "width = 100", "width = 110"
        )
    if number >= 3:  # a managed file goes, an owned one moves
        del tree["template/NOTES.txt.jinja"]
        tree["template/benchmarks/benchmark.py.jinja"] = tree.pop("template/bench.py.jinja")
    if number >= 4:  # a block moves, and a new file comes
        checks, rest = _BINDING.split("// Operators.", 1)
        head, checks = checks.split("// Checks.", 1)
        tree["template/torch-ext/torch_binding.cpp.jinja"] = (
            f"{head}// Operators.{rest}\n// Checks.{checks.rstrip()}\n"
        )
        tree["template/ci.yml.jinja"] = "name: {= kernel_name =}\n"
    return tree


def write(root: Path, tree: dict[str, str]) -> None:
    """Write a template version's files below a folder."""
    for path, content in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)


def repository(root: Path, trees: dict[str, dict[str, str]] | None = None) -> Path:
    """Make a git repository with a tag for each version."""
    root.mkdir(parents=True, exist_ok=True)
    git.run("init", "-q", "--initial-branch=main", cwd=root, hermetic=True)
    parent = None
    for number, (tag, tree) in enumerate((trees or {v: files(v) for v in VERSIONS}).items()):
        contents = [
            template.TemplateFile(path, "100644", text.encode()) for path, text in sorted(tree.items())
        ]
        template.commit_version(root, contents, tag, parent, number)
        parent = f"refs/tags/{tag}^0"
    git.run("reset", "-q", "--hard", "main", cwd=root, hermetic=True)
    return root
