"""The shape of the package: who imports whom, who prints, what starting the command line costs."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import kernelgen

SOURCE = Path(kernelgen.__file__).parent
FILES = {
    ".".join(("kernelgen", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}


def imported(name: str) -> set[str]:
    """Every module that a module imports, deferred imports and those for type checkers included."""
    found = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def test_no_import_goes_in_a_circle() -> None:
    """A package's face counts as imported where a name is taken from it; its parts are below it."""
    graph = {}
    for name in FILES:
        inner = {module for module in imported(name) if module in FILES and module != name}
        parents = {name.rpartition(".")[0], "kernelgen"}
        graph[name] = inner - parents
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert order.index("kernelgen.errors") < order.index("kernelgen.build") < order.index("kernelgen.cli")


def test_only_the_command_line_talks() -> None:
    talkers = {
        name
        for name in FILES
        if {module.split(".")[0] for module in imported(name)} & {"rich", "typer"}
        or any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            for node in ast.walk(TREES[name])
        )
    }
    assert {name for name in talkers if not name.startswith("kernelgen.cli")} == {"kernelgen.console"}


def test_nothing_below_the_command_line_imports_it() -> None:
    for name in FILES:
        if not name.startswith("kernelgen.cli") and name != "kernelgen.__main__":
            assert not any(module.startswith("kernelgen.cli") for module in imported(name)), name


def test_starting_up_imports_nothing_heavy() -> None:
    program = (
        "import sys, kernelgen.cli\n"
        "print(sorted({'torch', 'copier', 'huggingface_hub', 'kernels', 'yaml'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
