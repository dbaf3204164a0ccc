"""Rules on the Python package of a kernel, judged on its text alone: nothing is imported or run.

A kernel is loaded under a name that nobody knows beforehand, beside other versions of itself, on any Python
from 3.9 on. So its operators must be registered under the namespace of the build, its imports must be
relative, and what it needs must come with it. kernel-builder refuses some of this (its check of decorators on
top-level functions); these rules cover methods, nested functions, keyword arguments and plain calls as well.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernelgen.finding import RULES, Finding, Verdict, passed
from kernelgen.surface import public_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kernelgen.project import Project

# Functions of torch.library that take an operator's name, and the keyword it may be given by.
_REGISTRARS = {
    "custom_op": "name",
    "triton_op": "name",
    "define": "qualname",
    "impl": "qualname",
    "impl_abstract": "qualname",
    "register_autocast": "op",
    "register_autograd": "op",
    "register_fake": "op",
    "register_kernel": "op",
    "register_torch_dispatch": "op",
    "register_vmap": "op",
    "get_kernel": "op",
}
# The decorators that kernel-builder's own check looks at, by their last name alone.
_PEER_REGISTRARS = {
    "custom_op", "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op",
}  # fmt: skip
_PREFIX = "add_op_namespace_prefix"
_OPERATOR_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?")
# Namespaces of torch.ops that torch itself registers.
_TORCH_NAMESPACES = {
    "aten", "c10d", "c10d_functional", "_c10d_functional", "debugprims", "export", "fsdp", "higher_order",
    "inductor", "mkl", "mkldnn", "onednn", "prim", "prims", "profiler", "quantized", "quantized_decomposed",
    "rngprims", "sparse", "static_runtime", "streams", "symm_mem", "torch_attn", "_quantized",
}  # fmt: skip
# Attributes of torch.ops that are no namespaces.
_OPS_METHODS = {"load_library", "loaded_libraries", "import_module"}

# What torch brings along, and what a backend cannot be used without.
_WITH_TORCH = {"torch", "triton", "kernels"}
_WITH_BACKEND = {
    "cann": {"torch_npu"},
    "neuron": {"torch_neuronx", "neuronxcc"},
    "tpu": {"torch_tpu", "jax"},
}

# Members of torch.nn.Module that a layer may override; the loader compares member names.
_MODULE_MEMBERS = {
    "T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile",
    "cpu", "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer",
    "get_extra_state", "get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia",
    "named_buffers", "named_children", "named_modules", "named_parameters", "parameters", "register_buffer",
    "register_module", "register_parameter", "requires_grad_", "set_extra_state", "set_submodule",
    "share_memory", "state_dict", "to", "to_empty", "train", "type", "xpu", "zero_grad",
}  # fmt: skip
_LAYER_FLAGS = {"can_torch_compile", "has_backward"}

# Names of the standard library that came after Python 3.9, with their version.
_NEWER = {
    "typing": {
        "Concatenate": "3.10", "ParamSpec": "3.10", "ParamSpecArgs": "3.10", "TypeAlias": "3.10",
        "TypeGuard": "3.10", "is_typeddict": "3.10", "LiteralString": "3.11", "Never": "3.11",
        "NotRequired": "3.11", "Required": "3.11", "Self": "3.11", "TypeVarTuple": "3.11", "Unpack": "3.11",
        "assert_never": "3.11", "assert_type": "3.11", "dataclass_transform": "3.11", "reveal_type": "3.11",
        "TypeAliasType": "3.12", "override": "3.12",
    },
    "enum": {"StrEnum": "3.11", "verify": "3.11"},
    "contextlib": {"chdir": "3.11", "aclosing": "3.10"},
    "itertools": {"pairwise": "3.10", "batched": "3.12"},
    "types": {"NoneType": "3.10", "UnionType": "3.10", "EllipsisType": "3.10"},
}  # fmt: skip
_NEWER_MODULES = {"tomllib": "3.11"}
_NEWER_KEYWORDS = {"zip": {"strict": "3.10"}, "dataclass": {"slots": "3.10", "kw_only": "3.10"}}

_USE_PREFIX = "take the name from the build: from ._ops import add_op_namespace_prefix"


@dataclass(frozen=True)
class Module:
    """One Python file of the package, parsed."""

    path: Path
    shown: str  # from the project's root
    tree: ast.Module

    def at(self, node: ast.AST) -> str:
        """A place for a person: file and line."""
        return f"{self.shown}:{getattr(node, 'lineno', 1)}"


def lint(project: Project) -> list[Finding]:
    """Judge the Python package of a project, and the operator names of its tests.

    Returns:
        Every fault; a rule without one gives a single finding that says so.
    """
    modules, unreadable = _modules(project, project.package_dir)
    findings = [*unreadable]
    for module in modules:
        findings += registrations(module)
        findings += imports(module, project)
        findings += old_python(module)
    tests, _ = _modules(project, project.root / "tests")
    findings += [f for module in tests for f in registrations(module, peer_only=True)]
    findings += public_api(modules, project)
    findings += layers(modules, project)
    for code in _PASSED.keys() - {f.code for f in findings}:
        if unreadable:
            findings.append(_fault(code, "note", "judged only as far as the files are Python 3.9"))
        else:
            findings.append(passed(code, _PASSED[code]))
    return sorted(findings, key=lambda f: f.code)


_PASSED = {
    "KG201": "every registration takes its namespace from the build",
    "KG202": "__all__ names what the package defines",
    "KG203": "all are relative",
    "KG204": "the standard library, torch and what build.toml declares",
    "KG205": "nothing newer is used",
    "KG206": "as the loader takes them",
}


def _fault(
    code: str, verdict: Verdict, message: str, way_out: str | None = None, where: str | None = None
) -> Finding:
    return Finding(code, RULES[code], verdict, message, way_out, where)


def _modules(project: Project, folder: Path) -> tuple[list[Module], list[Finding]]:
    """The Python files below a folder, parsed as Python 3.9, and those that are not that."""
    modules, findings = [], []
    for path in sorted(folder.rglob("*.py")):
        shown = path.relative_to(project.root).as_posix()
        if path == folder / "_ops.py" or "__pycache__" in path.parts:
            continue  # made by the build
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            findings.append(_fault("KG205", "error", "not UTF-8 text", where=shown))
            continue
        try:
            tree = ast.parse(text, feature_version=(3, 9))
        except SyntaxError as error:
            where = f"{shown}:{error.lineno or 1}"
            findings.append(_fault("KG205", "error", f"{error.msg}", _OLD_WAY, where))
            continue
        modules.append(Module(path, shown, tree))
    return modules, findings


_OLD_WAY = "kernels are loaded by Python 3.9 and later; write it in the older way"


# --- Operator names -----------------------------------------------------------------------------------------


def registrations(module: Module, *, peer_only: bool = False) -> Iterator[Finding]:
    """Operators registered or reached under a namespace that is written out.

    Two versions of a kernel in one process would register the same name, which torch refuses.

    Args:
        module: a file.
        peer_only: only what kernel-builder refuses too (it reads the tests as well).
    """
    names = _Names(module.tree)
    flagged: set[ast.AST] = set()
    for decorator in _peer_decorators(module.tree):
        if not _is_prefix_call(decorator.args[0]):
            flagged.add(decorator)
            yield _names_finding(module, decorator, _said_of(decorator, names))
    if peer_only:
        return
    for node in ast.walk(module.tree):
        fault = _registration_fault(node, names) if isinstance(node, ast.Call) else None
        if fault and node not in flagged:
            message, verdict = fault
            yield _names_finding(module, node, message, verdict)
        elif isinstance(node, ast.Attribute) and (namespace := _fixed_ops(node, names)):
            message = f"torch.ops.{namespace} is a namespace that the build does not have"
            yield _fault("KG201", "warn", message, "use: from ._ops import ops", module.at(node))


def _names_finding(module: Module, node: ast.AST, message: str, verdict: Verdict = "error") -> Finding:
    return _fault("KG201", verdict, message, _USE_PREFIX, module.at(node))


def _said_of(decorator: ast.Call, names: _Names) -> str:
    called = (names.dotted(decorator.func) or "the decorator").rpartition(".")[2]
    if written := names.text(decorator.args[0]):
        return f'{called}("{written}") registers under a fixed namespace'
    return f"{called} takes its operator from elsewhere than {_PREFIX}(), which kernel-builder refuses"


class _Names:
    """What the names of a module stand for: imports by dotted path, and constant strings."""

    def __init__(self, tree: ast.Module) -> None:
        self._imports: dict[str, str] = {}
        self._strings: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    self._imports[bound] = alias.name if alias.asname else bound
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self._imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Assign) and (text := self.text(node.value)):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._strings[target.id] = text

    def dotted(self, node: ast.expr) -> str | None:
        """The dotted path that an expression means: `tl.custom_op` is torch.library.custom_op."""
        if isinstance(node, ast.Name):
            return self._imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    def text(self, node: ast.expr | None) -> str | None:
        """The string that an expression is, as far as it is written out; `{}` for what is not."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            return self._strings.get(node.id)
        if isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            return "".join(str(p) for p in parts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.text(node.left), self.text(node.right)
            return (left or "{}") + (right or "{}") if left or right else None
        return None


def _peer_decorators(tree: ast.Module) -> Iterator[ast.Call]:
    """Decorators of top-level functions and classes that kernel-builder's check looks at."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and decorator.args:
                    called = decorator.func
                    last = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
                    if last in _PEER_REGISTRARS:
                        yield decorator


def _is_prefix_call(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    return (called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")) == _PREFIX


def _registration_fault(call: ast.Call, names: _Names) -> tuple[str, Verdict] | None:
    """What is wrong with a call that registers an operator; None when it is another call, or right."""
    path = names.dotted(call.func) or ""
    module, _, last = path.rpartition(".")
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    of_library = module == "torch.library"
    if of_library and last == "Library":
        namespace = names.text(call.args[0] if call.args else keywords.get("ns"))
        if namespace and "{}" not in namespace:
            return f'Library("{namespace}") registers under a fixed namespace', "error"
        return None
    if of_library and last in _REGISTRARS:
        name = names.text(call.args[0] if call.args else keywords.get(_REGISTRARS[last]))
        if name and not name.startswith("{}"):
            return f'{last}("{name}") registers under a fixed namespace', "error"
        return None
    candidates = [*call.args[:1], *keywords.values()]
    written = [text for c in candidates if (text := names.text(c)) and _OPERATOR_NAME.fullmatch(text)]
    if written and last in {
        *_REGISTRARS,
        "Library",
    }:  # a method of a Library, or an alias we cannot see through
        return f'{last}("{written[0]}") registers under a fixed namespace', "error"
    if written and not path.startswith(("torch._C._dispatch", "re.")):
        return f'{last or "a call"}("{written[0]}") names an operator under a fixed namespace', "warn"
    return None


def _fixed_ops(node: ast.Attribute, names: _Names) -> str | None:
    """The namespace of `torch.ops.<namespace>` when it is not one of torch's."""
    if names.dotted(node.value) != "torch.ops" or node.attr in _TORCH_NAMESPACES | _OPS_METHODS:
        return None
    return node.attr


# --- Imports ------------------------------------------------------------------------------------------------


def imports(module: Module, project: Project) -> Iterator[Finding]:
    """Imports that fail where the kernel is loaded: of itself by name, and of what is not declared."""
    allowed = _allowed_imports(project)
    guarded = _guarded(module.tree)
    lazy = _inside_functions(module.tree) | _conditional(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            roots = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            roots = [node.module.partition(".")[0]]
        else:
            continue
        for root in dict.fromkeys(roots):
            if root == project.python_name:
                message = f"imports itself as {root}, a name that the loader does not give it"
                way_out = "write it relative: from . import ..."
                yield _fault("KG203", "error", message, way_out, module.at(node))
            elif root not in allowed and node not in guarded:
                yield _undeclared(root, module.at(node), lazy=node in lazy)


def _undeclared(root: str, where: str, *, lazy: bool) -> Finding:
    message = f"imports {root}, which neither torch nor the loader brings"
    if lazy:
        message += " (not at once, so that loading may succeed)"
    way_out = "use the standard library and torch, or vendor it"
    package = next((p for p, names in _dependency_table().items() if root in names), None)
    if package:
        way_out = f'declare it: python-depends = ["{package}"]'
    return _fault("KG204", "warn" if lazy else "error", message, way_out, where)


def _allowed_imports(project: Project) -> set[str]:
    declared = {name for names in project.python_depends.values() for name in names}
    table = _dependency_table()
    allowed = {"__future__", *sys.stdlib_module_names, *_WITH_TORCH}
    allowed |= {name for package in declared for name in table.get(package, ())}
    for backend in project.backends:
        allowed |= _WITH_BACKEND.get(backend, set())
    if project.framework.kind == "tvm-ffi":
        allowed |= {"tvm_ffi", "jax", "jax_tvm_ffi"}  # its _ops module has helpers for JAX, where that is
    return allowed


@functools.cache
def _dependency_table() -> dict[str, tuple[str, ...]]:
    """Import names by the names that build.toml may declare, from the loader's own list."""
    found = importlib.util.find_spec("kernels")
    if found is None or found.origin is None:
        return {}
    # kernels 0.19 moved it one folder down.
    path = next(Path(found.origin).parent.rglob("python_depends.json"), None)
    if path is None:
        return {}
    raw = json.loads(path.read_text("utf-8"))
    table: dict[str, tuple[str, ...]] = {}
    for group in (raw.get("general", {}), *raw.get("backends", {}).values()):
        for name, entry in group.items():
            table[name] = tuple(p["import"] for p in entry.get("python", ()) if "import" in p)
    return table


def _guarded(tree: ast.Module) -> set[ast.AST]:
    """Imports that may fail: in a try that catches ImportError, or for type checkers only."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if (isinstance(node, ast.Try) and any(_catches_import_error(h) for h in node.handlers)) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        ):
            found |= {n for part in node.body for n in ast.walk(part)}
    return found


def _conditional(tree: ast.Module) -> set[ast.AST]:
    """What is below an `if`."""
    return {inner for node in ast.walk(tree) if isinstance(node, ast.If) for inner in ast.walk(node)}


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)}
    return bool(caught & {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def _inside_functions(tree: ast.Module) -> set[ast.AST]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return {inner for node in ast.walk(tree) if isinstance(node, kinds) for inner in ast.walk(node)}


# --- Python 3.9 ---------------------------------------------------------------------------------------------


def old_python(module: Module) -> Iterator[Finding]:
    """What parses as Python 3.9 and still fails there."""
    for node, message in (*_unions(module.tree), *_newer_names(module.tree), *_newer_keywords(module.tree)):
        yield _fault("KG205", "error", message, _OLD_WAY, module.at(node))


def _unions(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """`int | None` where it is evaluated: annotations without the future import, isinstance, aliases."""
    future = any(
        isinstance(n, ast.ImportFrom)
        and n.module == "__future__"
        and any(alias.name == "annotations" for alias in n.names)
        for n in tree.body
    )
    evaluated: list[ast.expr] = []
    for node in ast.walk(tree):
        if not future and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            extra = (a for a in (node.args.vararg, node.args.kwarg) if a)
            evaluated += [a.annotation for a in (*every, *extra) if a.annotation]
            evaluated += [node.returns] if node.returns else []
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            evaluated += node.args[1:2]
    for body in (tree.body, *(n.body for n in ast.walk(tree) if isinstance(n, ast.ClassDef))):
        for statement in body:
            if isinstance(statement, ast.AnnAssign) and not future:
                evaluated.append(statement.annotation)
            elif isinstance(statement, ast.Assign) and _has_none_union(statement.value):
                evaluated.append(statement.value)
    for expression in evaluated:
        for node in ast.walk(expression):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
                yield node, f"{ast.unparse(node)} is evaluated, which needs Python 3.10"
                break


def _has_none_union(node: ast.expr) -> bool:
    return any(
        isinstance(n, ast.BinOp)
        and isinstance(n.op, ast.BitOr)
        and any(isinstance(side, ast.Constant) and side.value is None for side in (n.left, n.right))
        for n in ast.walk(node)
    )


def _newer_names(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    guarded = _guarded(tree)
    for node in ast.walk(tree):
        if node in guarded:
            continue
        if isinstance(node, ast.ImportFrom) and node.module in _NEWER and not node.level:
            for alias in node.names:
                if version := _NEWER[node.module].get(alias.name):
                    yield node, f"{node.module}.{alias.name} is new in Python {version}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            newer = _NEWER.get(node.value.id, {})
            if version := newer.get(node.attr):
                yield node, f"{node.value.id}.{node.attr} is new in Python {version}"
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                if version := _NEWER_MODULES.get(name.partition(".")[0]):
                    yield node, f"{name} is new in Python {version}"


def _newer_keywords(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            for keyword in node.keywords:
                if version := _NEWER_KEYWORDS.get(name, {}).get(keyword.arg or ""):
                    yield node, f"{name}({keyword.arg}=...) is new in Python {version}"


# --- The public API -----------------------------------------------------------------------------------------


def public_api(modules: Iterable[Module], project: Project) -> Iterator[Finding]:
    """`__all__` of the package: there, readable, and made of names that exist."""
    init = next((m for m in modules if m.path == project.package_dir / "__init__.py"), None)
    if init is None:
        return
    names = public_names(init.path.read_text("utf-8"))
    if names is None:
        message = "there is no __all__ that can be read: the kernel promises nothing, its card lists nothing"
        way_out = '__all__ = ["..."] with the names that users may rely on'
        yield _fault("KG202", "warn", message, way_out, init.shown)
        return
    bound = _bound_names(init.tree)
    if "*" not in bound:
        missing = [name for name in names if name not in bound and not _is_submodule(project, name)]
        if missing:
            message = f"__all__ names {', '.join(missing)}, which the package does not define"
            yield _fault("KG202", "error", message, "define it, or take it out of __all__", init.shown)
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        message = f"__all__ names {', '.join(doubled)} twice"
        yield _fault("KG202", "warn", message, None, init.shown)


def _bound_names(tree: ast.Module) -> set[str]:
    """Names that a module's top level binds, branches included; "*" when it cannot be told."""
    bound: set[str] = set()
    functions = _inside_functions(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in functions:
            bound.add(node.id)
    return bound


def _is_submodule(project: Project, name: str) -> bool:
    """A submodule in `__all__` is importable though nothing binds it before `from package import *`."""
    folder = project.package_dir
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


# --- Layers -------------------------------------------------------------------------------------------------


def layers(modules: Iterable[Module], project: Project) -> Iterator[Finding]:
    """Classes that replace a model's layers: stateless, `forward` and two flags, reached by `.layers`."""
    every = list(modules)
    folder = project.package_dir
    own = [m for m in every if m.path == folder / "layers.py" or m.path.parent == folder / "layers"]
    if not own:
        return
    yield from _layers_reachable(every, folder)
    for module in own:
        local = {n.name for n in module.tree.body if isinstance(n, ast.ClassDef)}
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                for message, way_out, verdict in _layer_faults(node, local):
                    yield _fault("KG206", verdict, f"{node.name} {message}", way_out, module.at(node))


def _layers_reachable(modules: list[Module], folder: Path) -> Iterator[Finding]:
    init = next((m for m in modules if m.path == folder / "__init__.py"), None)
    if init is None:
        return
    if "layers" not in _bound_names(init.tree):
        message = "the package does not import its layers, so the loader cannot find them"
        yield _fault("KG206", "error", message, "from . import layers", init.shown)
        return
    names = public_names(init.path.read_text("utf-8"))
    if names is not None and "layers" not in names:
        message = "layers is not in __all__, so the card does not list them"
        yield _fault("KG206", "warn", message, 'add "layers" to __all__', init.shown)


def _layer_faults(node: ast.ClassDef, local: set[str]) -> Iterator[tuple[str, str | None, Verdict]]:
    """What the loader would refuse in a layer: see `_validate_layer` of the kernels package."""
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    if not bases & {"Module", *local} and not any(b for b in bases if b not in ("object",)):
        yield "is not a torch.nn.Module", "derive it from nn.Module, or name it with an underscore", "error"
        return
    for name, statement in _members(node):
        if name == "__init__":
            yield (
                "has a constructor; a layer has no state of its own",
                "read self's attributes in forward",
                "error",
            )
        elif name not in _MODULE_MEMBERS | _LAYER_FLAGS and not _is_dunder(name):
            what = (
                "the method"
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
                else "the member"
            )
            yield f"has {what} {name}; only forward and {_FLAGS_SAID} are allowed", _INTO_FUNCTION, "error"
    defined = {name for name, _ in _members(node)}
    if "forward" not in defined and bases == {"Module"}:
        yield "has no forward", None, "error"


_FLAGS_SAID = " and ".join(sorted(_LAYER_FLAGS))
_INTO_FUNCTION = "make it a function of the module"


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _members(node: ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    """Members that a class body adds; an annotation without a value adds none."""
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name, statement
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement
        elif (
            isinstance(statement, ast.AnnAssign)
            and statement.value
            and isinstance(statement.target, ast.Name)
        ):
            yield statement.target.id, statement
