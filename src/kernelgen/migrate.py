"""Bringing a kernel-builder project of an earlier year to the format of today.

Each step is a function from text to text that does nothing the second time. Comments, the order of keys and
blank lines stay (tomlkit). What can only be decided by a person (a licence, a redesigned interface) is asked
for or noted, never made up; the result of a migration of build.toml is accepted by the ecosystem's own parser
or not written.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from kernelgen import journal, update
from kernelgen.errors import KernelgenError
from kernelgen.journal import Change, File
from kernelgen.project import find_root, refuse_license

if TYPE_CHECKING:
    from collections.abc import Iterable

    import tomlkit
    from tomlkit.items import Table

WRITTEN_EDITION = 5
# What editions 1 and 2 meant by "universal": the backends that a kernel without compiled code may name.
_NOARCH_BACKENDS = ("cann", "cpu", "cuda", "metal", "neuron", "rocm", "xpu")
_CUDA_PACKAGES = frozenset({"nvidia-cutlass-dsl"})
_PINNED_INPUT = re.compile(r'github:huggingface/(?:kernel-builder|kernels)(?:[/?][^"\s;]*)?')
_IGNORED = ("build/", "result", "result-*", "_cmake_build/", "__pycache__/", "*.egg-info/")
_IGNORED_GENERATED = ("torch-ext/registration.h", "torch-ext/*/_ops.py", "metadata-*.json")
_DECORATORS = "custom_op|triton_op|register_kernel|register_fake|register_vmap|register_torch_dispatch"
# What create-pyproject writes, each known by words that a hand-written file of that name would not have.
_GENERATED = {
    "setup.py": ("_cmake_build", "build_kernel"),
    "pyproject.toml": ("kernels_ci",),
    "CMakeLists.txt": ("TORCH_EXTENSION_NAME", "include(${CMAKE_CURRENT_LIST_DIR}/cmake/"),
    "torch-ext/registration.h": ("REGISTER_EXTENSION", "TORCH_LIBRARY_EXPAND"),
}
_GENERATED_CMAKE = frozenset(
    [
        "utils.cmake",
        "kernel.cmake",
        "build-variants.cmake",
        "hipify.py",
        "compile-metal.cmake",
        "metallib_to_header.py",
        "get_gpu_lang.cmake",
        "get_gpu_lang.py",
        "add_build_metadata.py",
        "_ops.py.in",
    ]
)


@dataclass
class Migration:
    """What a migration does.

    Attributes:
        files: new texts by path, relative to the project; None removes a file.
        done: what was changed, a sentence each.
        notes: what is left to a person, with `file:line` where it has one.
    """

    files: dict[str, str | None] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def migrate(project: Path, *, license_id: str | None = None, dry_run: bool = False) -> Migration:
    """Migrate a project in its working tree; the changes are staged, and `update.abort` undoes them.

    Args:
        project: a folder with a build.toml, in git, its tracked files clean.
        license_id: the licence where build.toml has none.
        dry_run: change nothing.

    Returns:
        What was done, and what is left to do.

    Raises:
        KernelgenError: nothing was changed: the project is dirty, build.toml can't be read, or the licence is
            needed.
    """
    if license_id is not None:
        refuse_license(license_id, "--license")
    tree = update.worktree(find_root(project), "a migration")
    with journal.locked(tree):
        update.refuse_unready(tree)
        before = journal.read_commit(tree, "HEAD")
        migration = plan({path: file.data for path, file in before.items()}, license_id=license_id)
        if migration.files and not dry_run:
            changes = [_change(path, text, before) for path, text in migration.files.items()]
            journal.apply(tree, changes, {"migration": True})
    return migration


def plan(files: dict[str, bytes], *, license_id: str | None = None) -> Migration:
    """Work out a migration from a project's files.

    Args:
        files: the tracked files' bytes, by path.
        license_id: the licence where build.toml has none.

    Raises:
        KernelgenError: as for `migrate`.
    """
    if "build.toml" not in files:
        raise KernelgenError("there is no build.toml", way_out="`kernelgen adopt` takes other projects")
    migration = Migration()
    text = _decode("build.toml", files["build.toml"])
    new, done, notes = migrate_build(text, license_id=license_id)
    _note(migration, "build.toml", text, new, done)
    migration.notes += notes
    if "flake.nix" in files:
        text = _decode("flake.nix", files["flake.nix"])
        new, done = migrate_flake(text)
        _note(migration, "flake.nix", text, new, done)
        if _inputs_changed(text, new) and "flake.lock" in files:
            migration.notes.append("flake.lock: belongs to the old address; run `nix flake update`")
    python_name = _python_name(migration.files.get("build.toml") or text_of(files["build.toml"]))
    _remove_generated(files, python_name, migration)
    _migrate_sources(files, python_name, migration)
    _migrate_gitignore(files, migration)
    _look_around(files, migration)
    return migration


def migrate_build(text: str, *, license_id: str | None = None) -> tuple[str, list[str], list[str]]:
    """Migrate a build.toml of an older edition to the one that the template writes; edition 6 stays as it is.

    Args:
        text: the file.
        license_id: what to write where there is no licence.

    Returns:
        The new text, what was done, and what is left to a person.

    Raises:
        KernelgenError: it is no TOML, of an unknown edition, has no licence and none is given, or the
            ecosystem's parser does not take the result.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    from kernelgen.project import detect_edition

    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise KernelgenError("build.toml is not TOML", where="build.toml", detail=str(error)) from error
    edition = detect_edition(document.unwrap())
    if edition == 6:  # read as it is; the builder that the template pins takes 5
        refuse_unreadable(text)
        return text, [], []
    if edition > 6:
        raise KernelgenError(
            f"build.toml is of edition {edition}, which this kernelgen does not know",
            where="build.toml",
            way_out="upgrade kernelgen (`pip install -U kernelgen`)",
        )
    general = document.get("general")
    if general is None or "name" not in general:
        raise KernelgenError("build.toml has no [general] name", where="build.toml")
    step = _BuildSteps(document, general)
    step.rename_snake_case()
    step.kernels()
    step.noarch(edition)
    step.backends()
    step.cuda_bounds()
    step.python_depends()
    step.versions()
    step.name()
    step.version_and_license(license_id)
    if edition != WRITTEN_EDITION:
        step.edition(edition)
    new = tomlkit.dumps(document) if step.done else text
    refuse_unreadable(new)
    return new, step.done, step.notes


def refuse_unreadable(text: str) -> None:
    """Let the parser of the installed `kernels` judge a build.toml.

    Raises:
        KernelgenError: it does not take it.
    """
    from kernelgen.package import refused_by_builder

    with tempfile.TemporaryDirectory(prefix="kernelgen-migrate-") as folder:
        Path(folder, "build.toml").write_text(text, encoding="utf-8")
        if said := refused_by_builder(Path(folder)):
            raise KernelgenError(
                "the installed kernels package does not accept the migrated build.toml; nothing was changed",
                where="build.toml",
                detail=said,
                way_out="mend what it says by hand, then migrate again",
            )


def migrate_flake(text: str) -> tuple[str, list[str]]:
    """Bring a flake.nix to today's address, function and arguments; returns the text and what was done."""
    done = []

    def replace(pattern: str, new: str, sentence: str) -> None:
        nonlocal text
        changed = re.sub(pattern, new, text)
        if changed != text:
            text = changed
            done.append(sentence)

    replace(
        r"github:huggingface/kernel-builder(?:[/?][^\"\s;]*)?",
        "github:huggingface/kernels",
        "input: kernel-builder lives in huggingface/kernels now",
    )
    replace(r"\bgenFlakeOutputs\b", "genKernelFlakeOutputs", "function: genKernelFlakeOutputs")
    inherits = re.search(r"inherit[^;]*\bself\b[^;]*;|\bself\s*=\s*self\s*;", text)
    replace(
        r"\brev\s*=\s*(?:\([^;]*\)|[^;{}]*);",
        "" if inherits else "inherit self;",
        "argument: self takes the place of rev",
    )
    replace(r"(?<![A-Za-z])checkInputs(\s*=)", r"pythonCheckInputs\1", "argument: pythonCheckInputs")
    replace(
        r"(?<![A-Za-z])nativeCheckInputs(\s*=)",
        r"pythonNativeCheckInputs\1",
        "argument: pythonNativeCheckInputs",
    )
    replace(
        r"(torchVersions\s*=\s*)\[", r"\1_: [", "argument: torchVersions is a function of the default list"
    )
    return text, done


def wrap_op_names(text: str) -> tuple[str, bool]:
    """Put fixed operator names of Python registrations through `add_op_namespace_prefix`.

    Operators live in a namespace that is new in each build, so `@custom_op("relu::fwd")` would register
    elsewhere.

    Returns:
        The new text and whether it changed.
    """
    pattern = re.compile(rf"""(@(?:[\w.]+\.)?(?:{_DECORATORS})\(\s*)(["'])(?:\w+::)?(\w+)\2""")
    new = pattern.sub(r'\1add_op_namespace_prefix("\3")', text)
    if new == text:
        return text, False
    if not re.search(r"from \._ops import .*\badd_op_namespace_prefix\b", new):
        existing = re.search(r"(?m)^from \._ops import (?!\()(.+)$", new)
        if existing:
            new = f"{new[: existing.end()]}, add_op_namespace_prefix{new[existing.end() :]}"
        else:
            at = _after_imports(new)
            new = f"{new[:at]}from ._ops import add_op_namespace_prefix\n{new[at:]}"
    return new, True


def relative_imports(text: str, python_name: str, depth: int) -> tuple[str, bool]:
    """Make a package's imports of itself relative, since it is loaded under another name each time.

    Args:
        text: a module of the package.
        python_name: the package.
        depth: how many folders the module lies below the package's own.
    """
    dots = "." * (depth + 1)
    new = re.sub(rf"(?m)^(\s*)from {python_name}\.([\w.]+) import ", rf"\1from {dots}\2 import ", text)
    new = re.sub(rf"(?m)^(\s*)from {python_name} import ", rf"\1from {dots} import ", new)
    return new, new != text


def loader_calls(text: str, python_name: str) -> tuple[str, bool]:
    """Drop the package name that `get_local_kernel` took as its second argument before 0.14."""
    name = f"(?:{python_name}|{python_name.replace('_', '-')})"
    path = r"""(?:[^()"',]|"[^"]*"|'[^']*'|\([^()]*\))*?"""
    pattern = rf"""(get_local_kernel\({path}),\s*(?:package_name\s*=\s*)?(["']){name}\2"""
    new = re.sub(pattern, r"\1", text)
    return new, new != text


class _BuildSteps:
    """The steps over one build.toml; each changes the document where it must, and says so."""

    def __init__(self, document: tomlkit.TOMLDocument, general: Table) -> None:
        self.document = document
        self.general = general
        self.done: list[str] = []
        self.notes: list[str] = []

    def rename_snake_case(self) -> None:
        """`cuda_flags` of old documentation is `cuda-flags`, but in [torch-noarch] it is the other way."""
        for path, table in self._tables(self.document, ()):
            for key in [key for key in table if isinstance(key, str)]:
                noarch = path == ("torch-noarch",)
                wanted = key.replace("-", "_") if noarch else key.replace("_", "-")
                is_name = path == ("kernel",) or not (
                    path and path[0] in ("general", "kernel", "torch", "torch-noarch")
                )
                if key != wanted and not is_name and wanted not in table:
                    _rename_key(table, key, wanted)
                    self.done.append(f"{'.'.join(path)}: {key} is written {wanted}")

    def kernels(self) -> None:
        """Edition 1 had a `language`; a component is now for one `backend`."""
        kernels = self.document.get("kernel")
        if kernels is None:
            return
        for name in list(kernels):
            kernel = kernels[name]
            if "backend" in kernel:
                continue
            language = str(kernel.get("language", "cuda"))
            backend = "metal" if language == "metal" else "cuda"
            if "language" in kernel:
                _rename_key(kernel, "language", "backend", backend)
            else:
                _insert_first(kernel, "backend", backend)
            self.done.append(f"kernel.{name}: backend {backend}")
            rocm_archs = kernel.get("rocm-archs")
            if rocm_archs is not None:
                kernel.remove("rocm-archs")
            if language == "cuda-hipify":
                self._add_rocm(kernels, name, rocm_archs)

    def _add_rocm(self, kernels: Table, name: str, rocm_archs: Any) -> None:
        import tomlkit

        twin = f"{name}_rocm"
        if twin in kernels:
            raise KernelgenError(
                f"kernel.{name} needs a ROCm twin, and kernel.{twin} exists", where="build.toml"
            )
        table = tomlkit.table()
        table["backend"] = "rocm"
        for key, value in kernels[name].items():
            if key not in ("backend", "cuda-capabilities", "cuda-flags", "cuda-minver"):
                table[key] = value
        if rocm_archs is not None:
            table["rocm-archs"] = rocm_archs
        last = list(kernels)[-1]
        if not kernels[last].as_string().endswith("\n\n"):
            kernels[last].add(tomlkit.nl())
        kernels.append(twin, table)
        self.done.append(f"kernel.{twin}: the ROCm half of kernel.{name}, from the same sources")

    def noarch(self, edition: int) -> None:
        """Editions 1 and 2 said `universal`, edition 3 said nothing: both are [torch-noarch] now."""
        import tomlkit

        torch = self.document.get("torch")
        universal = bool(self.general.get("universal", False)) or bool((torch or {}).get("universal", False))
        for table, where in ((self.general, "general"), (torch, "torch")):
            if table is not None and "universal" in table:
                table.remove("universal")
                self.done.append(f"{where}: universal is gone")
        if universal and torch is not None:
            for key in [key for key in torch if key != "pyext"]:
                torch.remove(key)
            torch.display_name = "torch-noarch"  # what the header line says
            self.document._replace("torch", "torch-noarch", torch)
            self.done.append("[torch-noarch] takes the place of universal")
        frameworks = ("torch", "torch-noarch", "tvm-ffi")
        if (universal and torch is None) or (
            edition == 3 and not any(f in self.document for f in frameworks)
        ):
            self.document.append("torch-noarch", tomlkit.table())
            self.done.append("[torch-noarch]: a kernel without compiled code says so now")
        if universal and "backends" not in self.general:
            self.general["backends"] = list(_NOARCH_BACKENDS)
            self.done.append("general.backends: every backend that universal meant")
            self.notes.append("build.toml: narrow general.backends to those that the kernel runs on")

    def backends(self) -> None:
        """Since edition 3 the backends are listed."""
        if "backends" in self.general:
            return
        kernels = self.document.get("kernel", {})
        self.general["backends"] = sorted({str(kernel["backend"]) for kernel in kernels.values()})
        self.done.append("general.backends: those of the components")

    def cuda_bounds(self) -> None:
        """`cuda-minver` and `cuda-maxver` moved to a table of their own."""
        for old, new in (("cuda-minver", "minver"), ("cuda-maxver", "maxver")):
            if old in self.general:
                self._cuda()[new] = self.general[old]
                self.general.remove(old)
                self.done.append(f"general.{old} is general.cuda.{new}")

    def python_depends(self) -> None:
        """Packages for one backend moved to that backend's table."""
        depends = self.general.get("python-depends")
        mine = [str(name) for name in depends or () if str(name) in _CUDA_PACKAGES]
        if not mine:
            return
        rest = [str(name) for name in depends or () if str(name) not in _CUDA_PACKAGES]
        if rest:
            self.general["python-depends"] = rest
        else:
            self.general.remove("python-depends")
        self._cuda()["python-depends"] = mine
        self.done.append(f"general.python-depends: {', '.join(mine)} moved to general.cuda")

    def versions(self) -> None:
        """Version bounds are exactly two numbers."""
        places = [
            (self.document.get("torch"), "torch", ("minver", "maxver")),
            (self.general.get("cuda"), "general.cuda", ("minver", "maxver")),
            *((k, f"kernel.{n}", ("cuda-minver",)) for n, k in self.document.get("kernel", {}).items()),
        ]
        for table, where, keys in places:
            for key in keys:
                value = str((table or {}).get(key, ""))
                if table is not None and re.fullmatch(r"\d+(\.\d+)*", value) and value.count(".") != 1:
                    two = ".".join([*value.split("."), "0"][:2])
                    table[key] = two
                    self.done.append(f"{where}.{key}: {two}, exactly two numbers")

    def name(self) -> None:
        """Names have dashes; the module's name, with underscores, stays."""
        name = str(self.general["name"])
        new = name.replace("_", "-").lower()
        if new == name:
            return
        self.general["name"] = new
        self.done.append(f"general.name: {new}; the module stays {new.replace('-', '_')}")
        self.notes.append(f"build.toml: a Hub repository named after {name!r} may need a new one, {new!r}")

    def version_and_license(self, license_id: str | None) -> None:
        """Both are required since edition 4; a licence is never made up."""
        if "version" not in self.general:
            _insert_after(self.general, "name", "version", 1)
            self.done.append("general.version: 1")
            self.notes.append("build.toml: set general.version to that of your Hub branch if it is not v1")
        if "license" not in self.general:
            if license_id is None:
                raise KernelgenError(
                    "build.toml has no licence, and a kernel needs one",
                    where="build.toml [general] license",
                    way_out="pass --license with its SPDX identifier, for example Apache-2.0",
                )
            _insert_after(self.general, "version", "license", license_id)
            self.done.append(f"general.license: {license_id}")

    def edition(self, old: int) -> None:
        """Say the edition."""
        _insert_after(self.general, "version", "edition", WRITTEN_EDITION)
        self.done.append(f"general.edition: {WRITTEN_EDITION} (it was {old})")

    def _cuda(self) -> Any:
        import tomlkit

        if "cuda" not in self.general:
            table = tomlkit.table()
            self.general.add(tomlkit.nl())
            self.general.append("cuda", table)
        return self.general["cuda"]

    def _tables(self, table: Any, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Any]]:
        from collections.abc import MutableMapping

        yield path, table
        for key, value in list(table.items()):
            if isinstance(value, MutableMapping):
                yield from self._tables(value, (*path, key))


def text_of(data: bytes) -> str:
    """A file's text, whatever its bytes."""
    return data.decode("utf-8", "replace")


def _decode(path: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise KernelgenError(f"{path} is not UTF-8 text", where=path) from error


def _change(path: str, text: str | None, before: dict[str, File]) -> Change:
    mode = before[path].mode if path in before else "100644"
    return Change(path, None if text is None else File(mode, text.encode()))


def _note(migration: Migration, path: str, old: str, new: str, done: list[str]) -> None:
    if new != old:
        migration.files[path] = new
        migration.done += [f"{path}: {sentence}" for sentence in done]


def _python_name(build: str) -> str:
    match = re.search(r"""(?m)^\s*name\s*=\s*["']([^"']+)["']""", build)
    return match[1].replace("-", "_") if match else ""


def _inputs_changed(old: str, new: str) -> bool:
    return _PINNED_INPUT.findall(old) != _PINNED_INPUT.findall(new)


def _remove_generated(files: dict[str, bytes], python_name: str, migration: Migration) -> None:
    """Files that create-pyproject writes anew in each build stop it when they are committed."""
    doomed = [
        path
        for path, words in _GENERATED.items()
        if path in files and all(w in text_of(files[path]) for w in words)
    ]
    if "CMakeLists.txt" in doomed or "setup.py" in doomed:
        doomed += [f"cmake/{name}" for name in _GENERATED_CMAKE if f"cmake/{name}" in files]
    package = f"torch-ext/{python_name}"
    doomed += [
        path for path in (f"{package}/_ops.py",) if "add_op_namespace_prefix" in text_of(files.get(path, b""))
    ]
    doomed += [path for path in files if re.fullmatch(r"metadata-\w+\.json", path)]
    doomed += [
        path
        for path in files
        if path.startswith(f"{package}/{python_name}/") or path == f"{package}/compat.py"
    ]
    for path in sorted(set(doomed)):
        migration.files[path] = None
        migration.done.append(f"{path}: removed; it is generated in each build, or no longer allowed")
    leftover = "setup.py"
    if leftover in files and leftover not in doomed and "CUDAExtension" in text_of(files[leftover]):
        migration.notes.append(
            f"{leftover}: builds the same sources another way; remove it once kernelgen builds them"
        )


def _migrate_sources(files: dict[str, bytes], python_name: str, migration: Migration) -> None:
    for path, data in sorted(files.items()):
        if not path.endswith((".py", ".md")) or path in migration.files:
            continue
        text = new = text_of(data)
        package = f"torch-ext/{python_name}/"
        if path.startswith(package) and path.endswith(".py"):
            depth = len(PurePosixPath(path.removeprefix(package)).parts) - 1
            new, wrapped = wrap_op_names(new)
            if wrapped and depth:
                new = new.replace("from ._ops import", f"from {'.' * (depth + 1)}_ops import")
            new, relative = relative_imports(new, python_name, depth)
            sentences = [
                (wrapped, "operator names go through add_op_namespace_prefix"),
                (relative, "relative imports"),
            ]
        else:
            new, called = loader_calls(new, python_name)
            sentences = [(called, "get_local_kernel takes no package name")]
        if text.encode() == data:
            _note(migration, path, text, new, [sentence for yes, sentence in sentences if yes])


def _migrate_gitignore(files: dict[str, bytes], migration: Migration) -> None:
    text = text_of(files.get(".gitignore", b""))
    present = {line.strip().strip("/") for line in text.splitlines()}
    missing = [line for line in (*_IGNORED, *_IGNORED_GENERATED) if line.strip("/") not in present]
    if missing:
        start = text if not text or text.endswith("\n") else f"{text}\n"
        _note(
            migration,
            ".gitignore",
            text,
            start + "".join(f"{line}\n" for line in missing),
            ["what a build writes"],
        )


def _look_around(files: dict[str, bytes], migration: Migration) -> None:
    """Point at what a person has to decide."""
    looks = (
        (r"torch-universal|cxx98|\bbuild/torch\d", "an old variant name; see `kernelgen variants`"),
        (r"\bFunc\w*Repository\b|use_kernel_func_from_hub", "function kernels are gone; use layers"),
        (
            r"\bget_kernel\([^)]*(?:version\s*=\s*[\"'][<>=~]|revision\s*=\s*[\"']v?\d+\.)",
            "versions are whole numbers",
        ),
        (
            r"\bkernel-builder (?:validate|generate|generate-torch|clean)\b|\bbuild2cmake\b|\btoml2cmake\b",
            "a renamed command",
        ),
        (
            r"\bkernels (?:to-wheel|generate-readme|init|upload)\b",
            "a command that moved to kernel-builder, or is gone",
        ),
    )
    for path, data in sorted(files.items()):
        if path.endswith((".py", ".md", ".yml", ".yaml", ".toml", ".sh", ".nix")):
            for number, line in enumerate(text_of(data).splitlines(), 1):
                migration.notes += [f"{path}:{number}: {why}" for what, why in looks if re.search(what, line)]
    if any(path.startswith("build/") for path in files):
        migration.notes.append(
            "build/: build results are committed; remove them (`git rm -r --cached build`)"
        )
    tests = [
        text_of(data) for path, data in files.items() if path.startswith("tests/") and path.endswith(".py")
    ]
    if any("def test_" in text for text in tests) and not any("kernels_ci" in text for text in tests):
        migration.notes.append("tests/: no test has the marker kernels_ci, so `nix run .#ci-test` runs none")
    if "kernels.lock" in files and '"variants"' in text_of(files["kernels.lock"]):
        migration.notes.append("kernels.lock: of an old format; run `kernels lock` again")
    if "CARD.md" not in files:
        migration.notes.append("CARD.md: missing; the Hub page is made from it")


def _after_imports(text: str) -> int:
    """Where a module's imports end, as an offset."""
    end = 0
    for match in re.finditer(r"(?m)^(?:import|from) .*\n", text):
        line_end = match.end()
        if "(" in match[0] and ")" not in match[0]:
            close = text.find(")\n", line_end)
            line_end = close + 2 if close >= 0 else line_end
        end = line_end
    return end


def _rename_key(table: Any, old: str, new: str, value: Any = None) -> None:
    """Give a key another name, or value, in its place and with its comment."""
    # tomlkit keeps the position only through these methods of its containers, here and below.
    table.value._replace(old, new, table[old] if value is None else value)


def _insert_first(table: Any, key: str, value: Any) -> None:
    table.value._insert_at(0, key, value)


def _insert_after(table: Any, after: str, key: str, value: Any) -> None:
    """Add a key below another one."""
    keys = [None if found is None else found.key for found, _ in table.value.body]
    index = keys.index(after) + 1
    if index < len(keys):
        table.value._insert_at(index, key, value)
    else:
        table.append(key, value)
