"""A project on disk: build.toml in any of its editions, the generator's answers, and the files they name.

build.toml is judged more strictly than kernel-builder does: every key has a kind (data/build_toml.toml), and
what kernel-builder's own check lets through (unknown Python dependencies, missing sources, capabilities that
do not exist) is reported with its key, its line, what is allowed and the nearest name.
"""

from __future__ import annotations

import functools
import re
import shlex
import sys
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kernelgen import yamltext
from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
SOURCE_SUFFIXES = {".cc", ".cpp", ".cxx", ".cu"}
_FRAMEWORKS = ("torch", "torch-noarch", "tvm-ffi")
_SUBTABLES = ("cuda", "hub", "neuron", "tpu", "xpu")
_GIT_SCHEMES = ("https", "http", "git", "ssh", "git+ssh", "git+https", "git+http")
_COMMON_LICENSES = (
    *("Apache-2.0", "MIT", "BSD-3-Clause", "BSD-2-Clause", "MPL-2.0", "ISC", "CC0-1.0"),
    *("GPL-2.0-or-later", "GPL-3.0-or-later", "LGPL-3.0-or-later", "AGPL-3.0-or-later"),
)
_TYPE_NAMES = {str: "a string", int: "a number", list: "a list", dict: "a table", bool: "true or false"}


@dataclass(frozen=True)
class Problem:
    """One fault of build.toml, placed."""

    key: str  # "kernel.relu.src"
    line: int  # 1-based; 0 when the place is unknown
    message: str
    way_out: str | None = None
    warning: bool = False  # true: the project builds, but its owner should look


@dataclass(frozen=True)
class KernelDepend:
    """Another Hub kernel that this one fetches, by version or by revision."""

    repo_id: str
    version: int | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Component:
    """One [kernel.<name>] table: sources compiled with the same flags for one backend."""

    name: str
    backend: str
    src: tuple[str, ...]
    depends: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    gpu_flags: tuple[str, ...] = ()  # cuda-flags, hip-flags or sycl-flags
    archs: tuple[str, ...] = ()  # cuda-capabilities or rocm-archs
    cuda_minver: str | None = None


@dataclass(frozen=True)
class Framework:
    """The [torch], [torch-noarch] or [tvm-ffi] table."""

    kind: str
    src: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    pyext: tuple[str, ...] = ("py", "pyi")
    minver: str | None = None
    maxver: str | None = None
    stable_abi: Mapping[str, str] = field(default_factory=dict)  # backend -> "2.11"
    cxx_flags: tuple[str, ...] = ()
    archs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # noarch: backend -> archs


@dataclass(frozen=True)
class Project:
    """A kernel project as declared; every path in it is relative to `root`, in POSIX form."""

    root: Path
    edition: int
    name: str
    version: int
    license: str
    backends: tuple[str, ...]
    framework: Framework
    components: tuple[Component, ...] = ()
    upstream: str | None = None
    source: str | None = None
    repo_id: str | None = None
    branch: str | None = None
    python_depends: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # "general" or backend
    kernel_depends: Mapping[str, tuple[KernelDepend, ...]] = field(default_factory=dict)
    cuda_minver: str | None = None
    cuda_maxver: str | None = None
    warnings: tuple[Problem, ...] = ()

    @classmethod
    def load(cls, path: Path | str = ".") -> Project:
        """Read and judge the project in `path`.

        Raises:
            KernelgenError: no build.toml, not TOML, or any fault in it; the first fault is the message, the
                others are its detail.
        """
        root = Path(path).resolve()
        project, problems = examine(root)
        errors = [p for p in problems if not p.warning]
        if errors or project is None:
            raise _as_error(root, errors)
        return project

    @property
    def python_name(self) -> str:
        """Name of the Python package: dashes become underscores."""
        return self.name.replace("-", "_")

    @property
    def ext_dir(self) -> str:
        """Folder of the binding and the package."""
        return "tvm-ffi-ext" if self.framework.kind == "tvm-ffi" else "torch-ext"

    @property
    def package_dir(self) -> Path:
        """The Python package that is shipped."""
        return self.root / self.ext_dir / self.python_name

    @property
    def answers(self) -> dict[str, Any]:
        """What the project was generated from; empty for a project that was written by hand."""
        return _answers(self.root)

    def components_for(self, backend: str) -> tuple[Component, ...]:
        """Components of a backend, in a stable order."""
        return tuple(c for c in self.components if c.backend == backend)

    def is_noarch(self, backend: str) -> bool:
        """Whether a backend ships Python only: declared so, or listed without a kernel table."""
        return self.framework.kind == "torch-noarch" or not self.components_for(backend)

    def listed_files(self, backend: str | None = None) -> tuple[str, ...]:
        """Every file that the compiler may see, sorted; of one backend or of all."""
        kernels = self.components if backend is None else self.components_for(backend)
        listed = {*self.framework.src, *(s for c in kernels for s in c.src)}
        return tuple(sorted(str(PurePosixPath(s)) for s in listed))


@functools.cache
def data(name: str) -> dict[str, Any]:
    """A table of kernelgen/data, parsed once; treat it as read-only."""
    table: dict[str, Any] = tomllib.loads((resources.files("kernelgen") / "data" / name).read_text("utf-8"))
    return table


def nearest(name: str, allowed: Iterator[str] | list[str] | tuple[str, ...] | set[str]) -> str | None:
    """The allowed name that was probably meant.

    >>> nearest("backend", ["backends", "name"])
    'backends'
    """
    import difflib

    found = difflib.get_close_matches(name.replace("_", "-"), sorted(allowed), n=1, cutoff=0.6)
    return found[0] if found else None


def examine(root: Path) -> tuple[Project | None, list[Problem]]:
    """Read build.toml and report every fault.

    Returns:
        The project (None when a fault prevents one) and all problems, warnings included.

    Raises:
        KernelgenError: there is no build.toml, or it is not TOML.
    """
    text = _read(root)
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        where = f"{root / 'build.toml'}:{line.group(1)}" if line else str(root / "build.toml")
        raise KernelgenError(f"build.toml is not valid TOML: {error}", where=where) from None
    reader = _Reader(root, text, raw)
    project = reader.read()
    return project, sorted(reader.problems, key=lambda p: (p.warning, p.line))


def find_root(path: Path, *marks: str) -> Path:
    """The same folder, if it is a project's; a folder inside a project is not taken for it.

    Args:
        path: the folder that a command was given, or runs in.
        marks: the files of which a root has one; build.toml by default.

    Raises:
        KernelgenError: there is no such folder, or it is no root; the way out names the root around it.
    """
    if not path.is_dir():
        raise KernelgenError(
            f"there is no folder {str(path.absolute())!r}", way_out="give a project's folder"
        )
    marks = marks or ("build.toml",)
    if any((path / mark).is_file() for mark in marks):
        return path
    folder = path.resolve()
    around = next((p for p in folder.parents if any((p / mark).is_file() for mark in marks)), None)
    hint = "go to a kernel project, or make one: kernelgen new PATH"
    if around:
        shown = shlex.quote(str(around))
        hint = f"run it in the project: cd {shown}, or pass -C {shown}"
    raise KernelgenError(f"there is no {' and no '.join(marks)} here", where=str(folder), way_out=hint)


def _read(root: Path) -> str:
    path = find_root(root) / "build.toml"
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise KernelgenError("build.toml is not UTF-8 text", where=str(path)) from None


def _as_error(root: Path, problems: list[Problem]) -> KernelgenError:
    first, *rest = problems
    where = f"{root / 'build.toml'}:{first.line}" if first.line else str(root / "build.toml")
    detail = "\n".join(f"also, line {p.line}: {p.key}: {p.message}" for p in rest[:10]) or None
    return KernelgenError(f"{first.key}: {first.message}", where=where, way_out=first.way_out, detail=detail)


def key_lines(text: str) -> dict[str, int]:
    """Line of every key and table header of a TOML text, by dotted path (a scan, not a parse)."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]", line):
            table = ".".join(part.strip().strip("\"'") for part in header.group(1).split("."))
            lines.setdefault(table, number)
        elif key := re.match(r"\s*([A-Za-z0-9_\-\"'. ]+?)\s*=", line):
            name = ".".join(part.strip().strip("\"'") for part in key.group(1).split("."))
            lines.setdefault(f"{table}.{name}" if table else name, number)
    return lines


def detect_edition(raw: Mapping[str, Any]) -> int:
    """The edition of a build.toml: what it says, else what its shape says.

    The shapes are those of kernel-builder's history: kernels without a backend are edition 1, no list of
    backends is 2, no version or license or no framework is 3, else 4.
    """
    general = raw.get("general", {})
    if not isinstance(general, dict):
        return int(data("build_toml.toml")["written"])
    if isinstance(general.get("edition"), int):
        return int(general["edition"])
    kernels = [k for k in _tables(raw.get("kernel")).values() if isinstance(k, dict)]
    if "backends" not in general:
        torch = raw.get("torch") if isinstance(raw.get("torch"), dict) else {}
        first = "universal" in (torch or {}) or any("backend" not in k for k in kernels)
        return 1 if first else 2
    complete = "version" in general and "license" in general and any(f in raw for f in _FRAMEWORKS)
    return 4 if complete or "torch-noarch" in raw else 3


def _tables(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class _Reader:
    """One pass over a parsed build.toml that collects problems and builds the project."""

    def __init__(self, root: Path, text: str, raw: dict[str, Any]) -> None:
        self.root, self.raw, self.problems = root, raw, list[Problem]()
        self._text = text.splitlines()
        self._lines = key_lines(text)
        self._format = data("build_toml.toml")

    # -- reporting

    def line(self, key: str, needle: object = None) -> int:
        """Line of a key, or of a value inside it; the nearest enclosing table when the key is absent."""
        place = key
        while place and place not in self._lines:
            place = place.rpartition(".")[0]
        number = self._lines.get(place, 0)
        if needle is not None and number:
            for offset, line in enumerate(self._text[number - 1 :]):
                if str(needle) in line:
                    return number + offset
        return number

    def add(
        self, key: str, message: str, way_out: str | None = None, *, at: object = None, warning: bool = False
    ) -> None:
        self.problems.append(Problem(key, self.line(key, at), message, way_out, warning))

    # -- the whole file

    def read(self) -> Project | None:
        edition = detect_edition(self.raw)
        editions = self._format["edition"]
        spec = editions.get(str(edition))
        if spec is None:
            written = self._format["written"]
            self.add(
                "general.edition",
                f"edition {edition} is none that this kernelgen knows (1 to {max(map(int, editions))})",
                f"set edition = {written}, or upgrade kernelgen",
                at=edition,
            )
            return None
        general = self._table("general", spec["general"], required=True)
        self._unknown_tables(spec)
        sub = {n: self._table(f"general.{n}", spec[n]) for n in _SUBTABLES if n in spec}
        framework = self._framework(edition, spec)
        components = self._components(edition, spec)
        if any(not p.warning for p in self.problems) or framework is None:
            return None
        project = self._project(edition, general, sub, framework, components)
        self._semantics(project)
        warnings = tuple(p for p in self.problems if p.warning)
        return replace(project, warnings=warnings)

    def _unknown_tables(self, spec: Mapping[str, Any]) -> None:
        known = {"general", "kernel", *(f for f in _FRAMEWORKS if f in spec)}
        for name in self.raw.keys() - known:
            meant = nearest(name, known)
            self.add(
                name,
                f"unknown table [{name}]; allowed: {', '.join(sorted(known))}",
                meant and f"did you mean [{meant}]?",
            )

    def _table(self, path: str, spec: Mapping[str, str], *, required: bool = False) -> dict[str, Any]:
        value: Any = self.raw
        for part in path.split("."):
            value = value.get(part, {} if not required else None) if isinstance(value, dict) else None
        if value is None:
            self.add(path, f"the table [{path}] is missing")
            return {}
        return self._check(path, value, spec)

    def _check(self, path: str, value: object, spec: Mapping[str, str]) -> dict[str, Any]:
        """Check a table's keys against their kinds."""
        if not isinstance(value, dict):
            self.add(path, f"must be a table, not {_said(value)}")
            return {}
        misspelt = set()
        for key in sorted(value.keys() - spec.keys()):
            meant = nearest(key, spec.keys() - value.keys())
            misspelt.add(meant)
            way_out = f"did you mean {meant!r}?" if meant else None
            self.add(f"{path}.{key}", f"unknown key; [{path}] takes: {', '.join(sorted(spec))}", way_out)
        for key, kind in spec.items():
            if kind.endswith("!") and key not in value and key not in misspelt:
                self.add(f"{path}.{key}", f"the key {key!r} is required in [{path}]")
        return {
            key: self._value(f"{path}.{key}", item, spec[key].rstrip("!"))
            for key, item in value.items()
            if key in spec
        }

    def _value(self, key: str, value: Any, kind: str) -> Any:
        check: Callable[[str, Any], None] = getattr(self, "_kind_" + kind.replace("-", "_"))
        before = len(self.problems)
        check(key, value)
        return value if len(self.problems) == before else None

    # -- kinds

    def _is(self, key: str, value: object, kind: type) -> bool:
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return True
        self.add(key, f"must be {_TYPE_NAMES[kind]}, not {_said(value)}")
        return False

    def _kind_string(self, key: str, value: Any) -> None:
        self._is(key, value, str)

    def _kind_bool(self, key: str, value: Any) -> None:
        self._is(key, value, bool)

    def _kind_table(self, key: str, value: Any) -> None:
        self._is(key, value, dict)

    def _kind_uint(self, key: str, value: Any) -> None:
        if self._is(key, value, int) and value < 0:
            self.add(key, f"must not be negative, is {value}")

    def _kind_name(self, key: str, value: Any) -> None:
        if self._is(key, value, str) and not NAME.fullmatch(value):
            rule = (
                "lower-case letters, digits and dashes, a letter first, no dash last, two characters or more"
            )
            fixed = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
            self.add(key, f"{value!r} is not a kernel name ({rule})", f"for example {fixed or 'my-kernel'!r}")

    def _kind_version(self, key: str, value: Any) -> None:
        if self._is(key, value, str) and not re.fullmatch(r"\d+\.\d+", value):
            self.add(key, f'{value!r} is not a version of two numbers, such as "12.8"', at=value)

    def _kind_git_url(self, key: str, value: Any) -> None:
        if not self._is(key, value, str):
            return
        scheme = re.match(r"([a-z+]+)://[^/\s]", value)
        scp = re.fullmatch(r"[^\s:/]+:[^/\s]\S*", value)
        if not (scheme and scheme.group(1) in _GIT_SCHEMES) and not (scp and not scheme):
            allowed = ", ".join(_GIT_SCHEMES)
            self.add(key, f"{value!r} is not a git address (schemes: {allowed}; or user@host:path)", at=value)

    def _kind_repo_id(self, key: str, value: Any) -> None:
        if self._is(key, value, str) and not re.fullmatch(r"[\w.-]+/[\w.-]+", value):
            self.add(key, f"{value!r} is not an owner/name", 'for example "acme/my-kernel"', at=value)

    def _kind_strings(self, key: str, value: Any) -> None:
        if self._is(key, value, list):
            for item in value:
                self._is(key, item, str)

    def _kind_paths(self, key: str, value: Any) -> None:
        if not self._is(key, value, list):
            return
        for item in value:
            if self._is(key, item, str):
                self._path(key, item)

    def _path(self, key: str, item: str) -> None:
        path = self.root / item
        if PurePosixPath(item).is_absolute() or ".." in PurePosixPath(item).parts:
            self.add(key, f"{item!r} must lie inside the project", at=item)
        elif any(c in item for c in "*?["):
            self.add(key, f"{item!r}: patterns are not expanded, list each file", at=item)
        elif not path.is_file():
            folder = path.parent if path.parent.is_dir() else self.root
            meant = nearest(path.name, {p.name for p in folder.iterdir()})
            shown = str(PurePosixPath(item).parent / meant) if meant else None
            self.add(key, f"the file {item!r} does not exist", shown and f"did you mean {shown!r}?", at=item)

    def _one_of(self, key: str, value: Any, allowed: list[str], what: str) -> None:
        if self._is(key, value, str) and value not in allowed:
            meant = nearest(value, allowed)
            names = ", ".join(allowed) or "none"
            self.add(
                key,
                f"unknown {what} {value!r}; allowed: {names}",
                meant and f"did you mean {meant!r}?",
                at=value,
            )

    def _kind_kernel_backend(self, key: str, value: Any) -> None:
        self._one_of(key, value, self._format["compiled-backends"], "backend")

    def _kind_language(self, key: str, value: Any) -> None:
        self._one_of(key, value, ["cuda", "cuda-hipify", "metal"], "language")

    def _kind_kernel_language(self, key: str, value: Any) -> None:
        if isinstance(value, str) and value.startswith("rust-"):
            self.add(key, f"{value!r}: kernelgen builds C++ only", "build it with kernel-builder", at=value)
        else:
            self._one_of(key, value, self._format["languages"], "language")

    def _kind_build_layout(self, key: str, value: Any) -> None:
        self._one_of(key, value, ["files"], "build layout")

    def _kind_backends(self, key: str, value: Any) -> None:
        if not self._is(key, value, list):
            return
        if not value:
            self.add(key, "is empty; name at least one backend", 'for example ["cpu", "cuda"]')
        for item in value:
            self._one_of(key, item, self._format["backends"], "backend")
        for item in {str(i) for i in value if value.count(i) > 1}:
            self.add(key, f"{item!r} is listed twice", at=item)

    def _kind_depends(self, key: str, value: Any) -> None:
        if self._is(key, value, list):
            for item in value:
                self._one_of(key, item, self._format["depends"], "dependency")

    def _kind_python_depends(self, key: str, value: Any) -> None:
        owner = key.split(".")[1] if key.count(".") == 2 else "general"
        allowed = list(self._format["python-depends"][owner])
        if owner == "general" and "backends" not in _tables(self.raw.get("general")):
            allowed += self._format["python-depends"]["cuda"]  # edition 2 kept both in one list
        if self._is(key, value, list):
            for item in value:
                self._one_of(key, item, allowed, "Python dependency")

    def _kind_kernel_depends(self, key: str, value: Any) -> None:
        if not self._is(key, value, list):
            return
        for item in value:
            if not self._is(key, item, dict):
                continue
            for extra in item.keys() - {"repo-id", "version", "revision"}:
                self.add(key, f"unknown key {extra!r}; allowed: repo-id, version, revision", at=extra)
            if "repo-id" not in item:
                self.add(key, "each dependency needs a repo-id")
            else:
                self._kind_repo_id(key, item["repo-id"])
            if ("version" in item) == ("revision" in item):
                self.add(key, "each dependency needs a version or a revision, and not both")
            elif "version" in item:
                self._kind_uint(key, item["version"])
            else:
                self._kind_string(key, item["revision"])

    def _kind_capabilities(self, key: str, value: Any) -> None:
        if not self._is(key, value, list):
            return
        if not value:
            self.add(key, "is empty; leave the key out for the default list")
        for item in value:
            if self._is(key, item, str) and not re.fullmatch(r"[1-9]\d{0,2}\.\d[af]?(\+PTX)?", item):
                self.add(
                    key, f'{item!r} is not a compute capability such as "9.0", "9.0a" or "8.0+PTX"', at=item
                )

    def _kind_rocm_archs(self, key: str, value: Any) -> None:
        if self._is(key, value, list):
            for item in value:
                if self._is(key, item, str) and not re.fullmatch(r"gfx[0-9a-f]{3,}", item):
                    self.add(key, f'{item!r} is not a ROCm architecture such as "gfx942"', at=item)
            known = data("targets.toml")["rocm"]
            named = {str(item) for item in value}
            # Python-only kernels may be for any GPU; their list is not compiled for
            if named and key.startswith("kernel.") and named.isdisjoint(known["archs"]):
                self.add(
                    key,
                    "ROCm kernels are built for none of these",
                    f"name one or more of {', '.join(known['archs'])}, or leave the key out for all of them",
                    warning=named <= set(known["old-archs"]),
                )

    def _kind_stable_abi(self, key: str, value: Any) -> None:
        if isinstance(value, dict):
            for backend, version in value.items():
                self._one_of(f"{key}.{backend}", backend, self._format["backends"], "backend")
                self._kind_version(f"{key}.{backend}", version)
        else:
            self._kind_version(key, value)

    # -- parts

    def _framework(self, edition: int, spec: Mapping[str, Any]) -> Framework | None:
        present = [f for f in _FRAMEWORKS if f in self.raw and f in spec]
        general = _tables(self.raw.get("general"))
        universal = edition < 3 and (
            general.get("universal") or _tables(self.raw.get("torch")).get("universal")
        )
        if universal or (edition <= 3 and not present):
            return Framework("torch-noarch")
        if len(present) != 1:
            said = " and ".join(f"[{f}]" for f in present) or "none"
            self.add(
                "general", f"exactly one of [torch], [torch-noarch], [tvm-ffi] is needed; there is {said}"
            )
            return None
        kind = present[0]
        table = self._check(kind, self.raw[kind], spec[kind])
        archs = {
            b: _strings(table, k)
            for b, k in (("cuda", "cuda_capabilities"), ("rocm", "rocm_archs"))
            if k in table
        }
        return Framework(
            kind=kind,
            src=_strings(table, "src"),
            include=_strings(table, "include"),
            pyext=_strings(table, "pyext") or ("py", "pyi"),
            minver=table.get("minver"),
            maxver=table.get("maxver"),
            stable_abi=self._stable_abi(table.get("stable-abi")),
            cxx_flags=_strings(table, "cxx-flags"),
            archs=archs,
        )

    def _stable_abi(self, value: object) -> dict[str, str]:
        if isinstance(value, str):
            return dict.fromkeys(self._format["backends"], value)
        return dict(value) if isinstance(value, dict) else {}

    def _components(self, edition: int, spec: Mapping[str, Any]) -> tuple[Component, ...]:
        raw = self.raw.get("kernel", {})
        if not isinstance(raw, dict):
            self.add("kernel", f"must hold tables [kernel.<name>], not {_said(raw)}")
            return ()
        components: list[Component] = []
        for name in sorted(raw):
            path, table = f"kernel.{name}", raw[name]
            if not isinstance(table, dict):
                self.add(path, f"must be a table [{path}], not {_said(table)}")
                continue
            backend = _backend(table, edition)
            extra = self._format["backend-keys"].get(backend, {})
            self._foreign_keys(path, table, backend)
            checked = self._check(path, table, {**spec["kernel"], **extra})
            components += _component(name, checked, edition)
        return tuple(components)

    def _foreign_keys(self, path: str, table: dict[str, Any], mine: str | None) -> None:
        """Say whose a key is that belongs to another backend, instead of calling it unknown."""
        if mine is None:
            return
        for backend, keys in self._format["backend-keys"].items():
            for key in keys.keys() & table.keys():
                if backend != mine:
                    said = f"is for backend {backend!r}, but this kernel's is {mine!r}"
                    self.add(f"{path}.{key}", said)
                    del table[key]

    def _project(
        self,
        edition: int,
        general: dict[str, Any],
        sub: dict[str, dict[str, Any]],
        framework: Framework,
        components: tuple[Component, ...],
    ) -> Project:
        cuda = sub.get("cuda", {})
        tables = {"general": general, **sub}
        backends = _strings(general, "backends") or _derived_backends(components, framework)
        return Project(
            root=self.root,
            edition=edition,
            name=general["name"],
            version=general.get("version", 0),
            license=general.get("license", ""),
            backends=backends,
            framework=framework,
            components=() if framework.kind == "torch-noarch" else components,
            upstream=general.get("upstream"),
            source=general.get("source"),
            repo_id=sub.get("hub", {}).get("repo-id"),
            branch=sub.get("hub", {}).get("branch"),
            python_depends=_python_depends(tables, self._format["python-depends"]),
            kernel_depends={n: _kernel_depends(t) for n, t in tables.items() if t.get("kernel-depends")},
            cuda_minver=cuda.get("minver") or general.get("cuda-minver"),
            cuda_maxver=cuda.get("maxver") or general.get("cuda-maxver"),
        )

    # -- what the parser alone cannot see

    def _semantics(self, project: Project) -> None:
        for component in project.components:
            key = f"kernel.{component.name}"
            if component.backend not in project.backends:
                self.add(
                    f"{key}.{_backend_key(project.edition)}",
                    f"{component.backend!r} is not among general.backends ({', '.join(project.backends)})",
                    f'add "{component.backend}" to general.backends',
                )
            if not any(
                PurePosixPath(s).suffix in SOURCE_SUFFIXES for s in component.src
            ) and component.backend in (
                "cpu",
                "cuda",
            ):
                self.add(f"{key}.src", "lists no source file to compile", at="src")
            self._includes(f"{key}.include", component.include)
        self._includes(f"{project.framework.kind}.include", project.framework.include)
        self._bounds("general.cuda", project.cuda_minver, project.cuda_maxver)
        self._bounds("torch", project.framework.minver, project.framework.maxver)
        init = project.package_dir / "__init__.py"
        if not init.is_file():
            shown = init.relative_to(project.root).as_posix()
            self.add("general.name", f"the Python package is missing: {shown}", f"create {shown}")
        elif (project.package_dir / project.python_name).exists():
            self.add(
                "general.name",
                f"{project.ext_dir}/{project.python_name} must not hold a folder of its own name",
            )
        self._advice(project)

    def _includes(self, key: str, include: tuple[str, ...]) -> None:
        for item in include:
            if PurePosixPath(item).is_absolute() or ".." in PurePosixPath(item).parts:
                self.add(key, f"{item!r} must lie inside the project", at=item)

    def _bounds(self, table: str, low: str | None, high: str | None) -> None:
        if low and high and _numbers(low) > _numbers(high):
            self.add(f"{table}.minver", f"minver {low} is above maxver {high}")

    def _advice(self, project: Project) -> None:
        if project.license and not _is_license(project.license):
            self.add(
                "general.license",
                f"{project.license!r} is not an SPDX licence",
                at=project.license,
                warning=True,
            )
        if project.repo_id is None:
            self.add("general.hub.repo-id", "is missing; publishing needs it", warning=True)
        if not (project.root / "CARD.md").is_file():
            self.add("general", "there is no CARD.md; the Hub page would be empty", warning=True)


def _said(value: object) -> str:
    return f"{_TYPE_NAMES.get(type(value), 'this')} ({value!r})" if not isinstance(value, dict) else "a table"


def _strings(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(table.get(key) or ())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split("."))


def _is_license(text: str) -> bool:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return text.lower() in ("other", "unknown")
    return True


def refuse_license(text: str, where: str) -> None:
    """Refuse what is no SPDX expression; `other` and `unknown` are the Hub's words for the rest.

    Raises:
        KernelgenError: with the nearest identifier, where there is one.
    """
    if _is_license(text):
        return
    near = _nearest_license(text)
    raise KernelgenError(
        f"{text!r} is no SPDX licence identifier",
        where=where,
        way_out=f"did you mean {near!r}?" if near else "for example Apache-2.0, MIT, BSD-3-Clause, or other",
    )


def _nearest_license(text: str) -> str | None:
    """The identifier that was probably meant: a common one of its family, or the nearest by spelling."""
    from difflib import get_close_matches

    from packaging.licenses._spdx import LICENSES

    said = re.sub(r"[^a-z0-9.]+", "-", text.lower()).removesuffix("-license")
    name = re.split(r"[^a-z]", said)[0]
    family = {known.lower(): known for known in _COMMON_LICENSES if known.lower().split("-")[0] == name}
    known = family or {str(about["id"]).lower(): str(about["id"]) for about in LICENSES.values()}
    found = get_close_matches(said, known, 1, cutoff=0.1 if family else 0.8)
    return known[found[0]] if found else None


def _derived_backends(components: tuple[Component, ...], framework: Framework) -> tuple[str, ...]:
    """Backends of editions 1 and 2, which have no list: those of the kernels; noarch ones ran on CUDA."""
    found = sorted({c.backend for c in components})
    return tuple(found) or (("cuda",) if framework.kind == "torch-noarch" else ())


def _backend_key(edition: int) -> str:
    return "backend" if edition < 6 else "language"


def _backend(table: Mapping[str, Any], edition: int) -> str | None:
    """The backend of a kernel table; edition 1 has it in another way, and a faulty table none."""
    said = table.get(_backend_key(edition))
    return said.removeprefix("cpp-") if edition > 1 and isinstance(said, str) else None


def _component(name: str, table: dict[str, Any], edition: int) -> list[Component]:
    if edition == 1:
        language = table.get("language") or "cuda"
        backends = {"cuda": ["cuda"], "metal": ["metal"], "cuda-hipify": ["cuda", "rocm"]}[language]
    else:
        backends = [str(_backend(table, edition))]
    made = []
    for backend in backends:
        archs = {"cuda": "cuda-capabilities", "rocm": "rocm-archs"}.get(backend, "")
        flags = {"cuda": "cuda-flags", "rocm": "hip-flags", "xpu": "sycl-flags"}.get(backend, "")
        made.append(
            Component(
                name=name if backend == backends[0] else f"{name}_{backend}",
                backend=backend,
                src=_strings(table, "src"),
                depends=_strings(table, "depends"),
                include=_strings(table, "include"),
                cxx_flags=_strings(table, "cxx-flags"),
                gpu_flags=_strings(table, flags),
                archs=_strings(table, archs),
                cuda_minver=table.get("cuda-minver"),
            )
        )
    return made


def _python_depends(
    tables: Mapping[str, dict[str, Any]], allowed: Mapping[str, list[str]]
) -> dict[str, tuple[str, ...]]:
    found = {n: _strings(t, "python-depends") for n, t in tables.items() if t.get("python-depends")}
    general = found.get("general", ())
    moved = tuple(d for d in general if d not in allowed["general"])  # edition 2: CUDA's were in one list
    if moved:
        found["general"] = tuple(d for d in general if d not in moved)
        found["cuda"] = (*found.get("cuda", ()), *moved)
    return found


def _kernel_depends(table: dict[str, Any]) -> tuple[KernelDepend, ...]:
    return tuple(
        KernelDepend(d["repo-id"], d.get("version"), d.get("revision")) for d in table["kernel-depends"]
    )


def _answers(root: Path) -> dict[str, Any]:
    path = root / ".copier-answers.yml"
    if not path.is_file():
        return {}
    loaded = yamltext.answers(path)
    return loaded if isinstance(loaded, dict) else {}
