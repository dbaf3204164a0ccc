"""A built variant, judged by its files: name, layout, metadata, digest, what its compiled files ask for."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelgen import elf, package, variants
from kernelgen.errors import KernelgenError
from kernelgen.finding import Finding, Verdict, passed
from kernelgen.project import data
from kernelgen.toolchain import arch_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelgen.project import Project
    from kernelgen.variants import Built

_TORCH_LIBRARIES = ("libc10.so", "libtorch.so", "libtorch_cpu.so")
_BACKEND_LIBRARIES = {
    "cuda": ("libtorch_cuda.so", "libc10_cuda.so", r"libcudart\.so\.\d+", r"libcuda\.so\.1"),
    "rocm": ("libtorch_hip.so", "libc10_hip.so", r"libamdhip64\.so\.\d+"),
    "xpu": (
        "libtorch_xpu.so",
        "libc10_xpu.so",
        r"libsycl\.so\.\d+",
        r"libdnnl\.so\.\d+",
        r"lib(svml|irng|imf|intlc)\.so(\.\d+)?",
    ),
}


@dataclass(frozen=True)
class Judged:
    """A variant directory while it is judged."""

    project: Project
    built: Built
    metadata: dict[str, Any]

    @property
    def path(self) -> Path:
        """The directory."""
        return self.built.path

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.built.name

    @property
    def backend(self) -> str:
        """By the metadata; empty when they do not say."""
        backend = self.metadata.get("backend")
        return str(backend.get("type", "")) if isinstance(backend, dict) else ""

    @property
    def noarch(self) -> bool:
        """Whether it is Python alone."""
        return self.built.variant is not None and self.built.variant.kind == "noarch"

    @property
    def tvm_ffi(self) -> bool:
        """Whether its operators are tvm-ffi's."""
        return self.built.variant is not None and self.built.variant.kind == "tvm-ffi"

    def libraries(self) -> list[Path]:
        """Its compiled files."""
        return sorted(p for p in self.path.rglob("*.so") if p.is_file())

    def ok(self, code: str, message: str) -> Finding:
        """A rule that it keeps."""
        return passed(code, message, self.name)

    def fault(
        self,
        code: str,
        message: str,
        way_out: str | None = None,
        *,
        verdict: Verdict = "error",
        at: Path | str = "",
    ) -> Finding:
        """A rule that it breaks; `at` is a file in it."""
        place = f"build/{self.name}"
        if at:
            inside = at.relative_to(self.path).as_posix() if isinstance(at, Path) else at
            place += f"/{inside}"
        return Finding(code, self.name, verdict, message, way_out, place)


def judge(project: Project, built: Built) -> list[Finding]:
    """Judge one variant directory by its files.

    Args:
        project: whose it is.
        built: the directory.

    Returns:
        Findings of the KG3xx rules.
    """
    metadata, refused = _metadata(built.path)
    variant = Judged(project, built, metadata)
    findings = [*_name(variant), *_layout(variant)]
    if refused:
        findings.append(variant.fault("KG303", refused, _REBUILD, at="metadata.json"))
    else:
        findings += [*_metadata_faults(variant), *_digest(variant)]
    if not variant.noarch:
        findings += _binaries(variant)
    return findings


_REBUILD = "kernelgen build"


def _metadata(path: Path) -> tuple[dict[str, Any], str | None]:
    """The table of metadata.json, and why the loader would not take it."""
    file = path / "metadata.json"
    if not file.is_file():
        return {}, "is missing, so the loader does not see the variant"
    try:
        table = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        return {}, f"is not JSON: {error}"
    try:
        package.kernels_rust().Metadata.read_from_file(file)
    except ValueError as error:
        return {}, f"the loader refuses it: {_reason(error)}"
    return table, None


def trouble(path: Path) -> str | None:
    """Why the loader would not take a variant's metadata.json; None when it does."""
    return _metadata(path)[1]


def _reason(error: Exception) -> str:
    """The last line of an error chain of Rust, which says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _name(variant: Judged) -> Iterator[Finding]:
    parsed = variant.built.variant
    if parsed is None:
        known = {v.name for v in variants.wanted(variant.project)}
        try:
            variants.check_name(variant.name, variants.wanted(variant.project))
            meant = None
        except KernelgenError as error:
            meant = error.way_out
        expected = meant or f"they look like {min(known, default='torch213-cxx11-cpu-x86_64-linux')}"
        yield variant.fault("KG301", "not a variant's name: the loader passes it over", expected)
    elif variant.metadata and parsed.backend != variant.backend:
        message = f"named for {parsed.backend}, but its metadata says {variant.backend}"
        yield variant.fault("KG301", message, _REBUILD)
    elif parsed.backend not in variant.project.backends:
        message = f"{parsed.backend} is not among general.backends"
        yield variant.fault("KG301", message, "remove it: kernelgen clean --release", verdict="warn")
    else:
        yield variant.ok("KG301", "as the loader reads it")


def _layout(variant: Judged) -> Iterator[Finding]:
    """The files that the loader needs, and those that a variant must not have."""
    needed = [name for name in ("__init__.py", "_ops.py") if not (variant.path / name).is_file()]
    faults = [variant.fault("KG302", "is missing", _REBUILD, at=name) for name in needed]
    own = variant.project.python_name
    if (variant.path / own / "__init__.py").exists():
        message = (
            "a package of its own name inside: builders before August 2026 wrote it, loaders do not want it"
        )
        faults.append(variant.fault("KG302", message, _REBUILD, at=own))
    bytecode = [p for p in variant.path.rglob("*") if p.suffix in (".pyc", ".pyo")]
    if bytecode:
        message = f"{len(bytecode)} files of bytecode"
        faults.append(
            variant.fault("KG302", message, "kernelgen clean --release", verdict="warn", at=bytecode[0])
        )
    faults += _extension_faults(variant)
    yield from faults
    if not faults:
        yield variant.ok("KG302", "as the loader and the Hub expect it")


def _extension_faults(variant: Judged) -> Iterator[Finding]:
    libraries = variant.libraries()
    if variant.noarch:
        for path in libraries:
            yield variant.fault("KG302", "a compiled file in a variant for every machine", at=path)
        return
    identity = variant.built.id
    if identity is None:
        return
    wanted = variant.path / (f"{identity}.so" if variant.tvm_ffi else f"{identity}.abi3.so")
    if not wanted.is_file():
        there = ", ".join(p.name for p in libraries) or "none"
        message = f"there is no {wanted.name}, which its metadata names; compiled files: {there}"
        yield variant.fault("KG302", message, _REBUILD)
    ops = variant.path / "_ops.py"
    if ops.is_file() and identity not in ops.read_text("utf-8", errors="replace"):
        yield variant.fault("KG302", f"does not bind {identity}", _REBUILD, at="_ops.py")


def _metadata_faults(variant: Judged) -> Iterator[Finding]:
    """Metadata that the loader takes, but that says other things than build.toml."""
    table, project = variant.metadata, variant.project
    faults = []
    for key, wanted in (("name", project.name), ("version", project.version), ("license", project.license)):
        if table.get(key) != wanted:
            faults.append(f"{key} is {table.get(key)!r}, but build.toml says {wanted!r}")
    stem = f"_{project.python_name}_{variant.backend}_"
    identity = str(table.get("id"))
    if not re.fullmatch(rf"{re.escape(stem)}\w+", identity):
        faults.append(f"id is {identity!r}; a published one begins with {stem} and ends in what is unique")
    declared = [*project.python_depends.get("general", ()), *project.python_depends.get(variant.backend, ())]
    if sorted(table.get("python-depends", [])) != sorted(declared):
        faults.append(f"python-depends is {table.get('python-depends')}, but build.toml says {declared}")
    for message in faults:
        yield variant.fault("KG303", message, _REBUILD, at="metadata.json")
    provenance = table.get("provenance")
    kernel = provenance.get("kernel") if isinstance(provenance, dict) else None
    if isinstance(kernel, dict) and kernel.get("dirty"):
        message = "built from sources that were not committed: the loader warns, publishing refuses"
        yield variant.fault("KG303", message, "commit, then build again", verdict="note", at="metadata.json")
    elif not faults:
        yield variant.ok("KG303", f"id {identity}")


def _digest(variant: Judged) -> Iterator[Finding]:
    rust = package.kernels_rust()
    expected = rust.Metadata.read_from_file(variant.path / "metadata.json").digest
    if expected is None:
        message = "there is none: nobody can verify what was published"
        yield variant.fault("KG304", message, _REBUILD, at="metadata.json")
        return
    actual = rust.Digest.hash_variant(expected.algorithm, variant.path)
    try:
        expected.validate(actual)
    except rust.DigestValidationError as error:
        for violation in error.violations:
            yield variant.fault("KG304", str(violation), _REBUILD)
    else:
        yield variant.ok("KG304", f"{len(actual.files)} files")


# --- Compiled files -----------------------------------------------------------------------------------------


def _binaries(variant: Judged) -> Iterator[Finding]:
    for path in variant.libraries():
        try:
            library = elf.read(path)
        except KernelgenError as error:
            yield variant.fault("KG305", error.what, at=path)
            continue
        for code, rule in _BINARY_RULES.items():
            faults = list(rule(variant, path, library))
            yield from faults or [variant.ok(code, _BINARY_OK[code])]


def _abi(variant: Judged, path: Path, library: elf.Library) -> Iterator[Finding]:
    """Symbols that an older system, Python or torch lacks; of stripped libraries too."""
    parsed = variant.built.variant
    if parsed and library.machine != parsed.machine:
        message = f"is for {library.machine}, the variant for {parsed.machine}"
        yield variant.fault("KG305", message, at=path)
        return
    found = [*package.judge(path), *package.dynamic_violations(path), *_python_violations(library)]
    for violation in dict.fromkeys(found):
        way_out = "build it with kernelgen build, which links what older systems lack"
        yield variant.fault("KG305", str(violation), way_out, at=path)
    if parsed and parsed.kind == "torch-stable-abi":
        for symbol in library.torch_symbols():
            message = f"{symbol} is not in torch's stable ABI"
            yield variant.fault("KG305", message, "use torch/csrc/stable headers alone", at=path)


def _python_violations(library: elf.Library) -> list[package.Violation]:
    """Undefined dynamic Python symbols, shown to kernel-abi-check as static ones, which it reads."""
    names = tuple(name for name in library.undefined if name.startswith(("Py", "_Py")))
    if not names:
        return []
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
        stand_in = Path(folder) / "undefined.o"
        stand_in.write_bytes(elf.object_with_undefined(names))
        return list(package.judge(stand_in))


def _dependencies(variant: Judged, path: Path, library: elf.Library) -> Iterator[Finding]:
    """Libraries that neither the system policy nor torch brings."""
    allowed = [
        re.escape(name) for name in (*data("targets.toml")["manylinux"]["libraries"], *_TORCH_LIBRARIES)
    ]
    allowed += _BACKEND_LIBRARIES.get(variant.backend, ())
    if variant.tvm_ffi:
        allowed.append(r"libtvm_ffi\.so")
    for name in library.needed:
        if not any(re.fullmatch(pattern, name) for pattern in allowed):
            message = f"needs {name}, which neither the system policy nor torch brings"
            yield variant.fault("KG306", message, "link it statically, or do without", at=path)
    parsed = variant.built.variant
    if parsed and parsed.backend == "cuda" and parsed.compute:
        for name in library.needed:
            runtime = re.fullmatch(r"libcudart\.so\.(\d+)", name)
            if runtime and int(runtime[1]) != parsed.compute[0]:
                message = f"needs {name}, but is named for CUDA {parsed.compute[0]}.{parsed.compute[1]}"
                yield variant.fault("KG306", message, _REBUILD, at=path)


def _search_path(variant: Judged, path: Path, library: elf.Library) -> Iterator[Finding]:
    if library.search_path is not None:
        message = f"looks for libraries in {library.search_path}, folders of the machine that built it"
        yield variant.fault("KG307", message, "patchelf --remove-rpath, or kernelgen build", at=path)


def _stack(variant: Judged, path: Path, library: elf.Library) -> Iterator[Finding]:
    if library.executable_stack:
        message = "asks for an executable stack, which hardened systems refuse"
        yield variant.fault("KG308", message, "link with -Wl,-z,noexecstack", at=path)
    if library.text_relocations:
        yield variant.fault("KG308", "has text relocations", "compile with -fPIC", at=path)


def _symbols(variant: Judged, path: Path, library: elf.Library) -> Iterator[Finding]:
    """Names that one process shares among all libraries that have them."""
    if library.shared:
        message = (
            f"{len(library.shared)} GNU unique symbols: two versions would share them ({library.shared[0]})"
        )
        way_out = "compile with -fno-gnu-unique (nvcc: -Xcompiler -fno-gnu-unique)"
        yield variant.fault("KG309", message, way_out, verdict="warn", at=path)
    identity = variant.built.id
    extension = not variant.tvm_ffi and identity and path.stem.startswith(identity)
    if extension and f"PyInit_{identity}" not in library.exported:
        message = f"does not export PyInit_{identity}, so Python cannot import it"
        way_out = "REGISTER_EXTENSION(TORCH_EXTENSION_NAME) in the binding"
        yield variant.fault("KG309", message, way_out, at=path)


def _architectures(variant: Judged, path: Path, library: elf.Library) -> Iterator[Finding]:
    """The capabilities that the metadata promises, against the device code that is there."""
    if variant.backend != "cuda":
        return
    claimed = {str(arch) for arch in variant.metadata.get("backend", {}).get("archs", ())}
    present = set(library.architectures)
    for arch in sorted(claimed, key=arch_order):
        base = re.sub(r"[af]?(\+PTX)?$", "", arch)
        if ("sm", base) not in present:
            yield variant.fault(
                "KG310", f"no code for {arch}, which its metadata promises", _REBUILD, at=path
            )
        elif arch.endswith("+PTX") and ("ptx", base) not in present:
            yield variant.fault("KG310", f"no PTX for {arch}, which its metadata promises", _REBUILD, at=path)
    known = {re.sub(r"[af]?(\+PTX)?$", "", arch) for arch in claimed}
    extra = sorted((a for kind, a in present if kind == "sm" and a not in known), key=arch_order)
    if extra:
        message = (
            f"code for {', '.join(extra)}, which its metadata does not name: the loader refuses those GPUs"
        )
        yield variant.fault("KG310", message, _REBUILD, verdict="warn", at=path)


_BINARY_RULES: dict[str, Callable[[Judged, Path, elf.Library], Iterator[Finding]]] = {
    "KG305": _abi,
    "KG306": _dependencies,
    "KG307": _search_path,
    "KG308": _stack,
    "KG309": _symbols,
    "KG310": _architectures,
}
_BINARY_OK = {
    "KG305": "manylinux_2_28, Python 3.9",
    "KG306": "only what the system policy and torch bring",
    "KG307": "none",
    "KG308": "neither executable nor relocated",
    "KG309": "none is shared between libraries",
    "KG310": "as the metadata says",
}
