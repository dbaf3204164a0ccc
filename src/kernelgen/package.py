"""Objects -> build/<variant>/: link, judge, strip, `_ops.py`, `metadata.json`, digest, one atomic exchange.

The directory is written as kernel-builder's current release writes it: no compatibility sub-package, no
run-time search path, the digest last.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernelgen
from kernelgen import elf, git
from kernelgen.errors import KernelgenError
from kernelgen.graph import PLACEHOLDER, Plan, Unit
from kernelgen.project import Project, data
from kernelgen.toolchain import HostCompiler, user_cache, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Four neighbouring letters of the placeholder that are left after it was replaced mean that the compiler cut
# the text into immediates.
_FRAGMENTS = tuple(PLACEHOLDER[i : i + 4].encode() for i in range(len(PLACEHOLDER) - 3))
_SYMBOL_LIMITS = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")


@dataclass(frozen=True)
class Violation:
    """A symbol that would not load on an older machine."""

    symbol: str
    needs: str  # "GLIBC_2.34", "Python 3.12", "not the stable ABI of torch 2.11"
    limit: str  # "manylinux_2_28", "Python 3.9"

    def __str__(self) -> str:
        return f"{self.symbol}: {self.needs} ({self.limit})"


def resource(name: str) -> str:
    """The text of a data file of this package."""
    return (resources.files("kernelgen") / "data" / name).read_text("utf-8")


# -- what is linked in, made once per machine


def compat_archive(host: HostCompiler, standard: str = "20") -> Path:
    """The archive of compatibility objects for a compiler, from the user's cache or made now (about 2 s)."""
    texts = {name: resource(name) for name in ("compat.c", "compat.cpp")}
    identity = "\0".join((str(host.cxx), host.version, host.target, standard, *_STATIC, *texts.values()))
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    folder = user_cache() / "compat" / key
    archive = folder / "libkernelgen_compat.a"
    if archive.exists():
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        made = [*_compile_parts(host, standard, texts, Path(work)), *_static_members(host, Path(work))]
        temporary = Path(work) / "archive.a"
        run(["ar", "rcsD", temporary.name, *made], Path(work))
        temporary.replace(archive)
    return archive


def _compile_parts(host: HostCompiler, standard: str, texts: Mapping[str, str], work: Path) -> list[str]:
    from concurrent.futures import ThreadPoolExecutor

    jobs: list[tuple[str, list[str]]] = []
    common = ["-O2", "-fPIC", "-ffile-prefix-map=./=", "-w"]
    for name, text in texts.items():
        (work / name).write_text(text, "utf-8")
        flags = ["-x", "c", "-fno-builtin"] if name.endswith(".c") else [f"-std=gnu++{standard}"]
        for part in sorted(set(re.findall(r"\bPART_\w+", text))):
            out = f"{part}.o"
            jobs.append((out, [str(host.cxx), *flags, *common, f"-D{part}", "-c", name, "-o", out]))
    with ThreadPoolExecutor(max_workers=min(4, len(os.sched_getaffinity(0)))) as pool:
        list(pool.map(lambda job: run(job[1], work), jobs))
    return [out for out, _ in jobs]


# Files of the static libstdc++ that hold what is newer than GLIBCXX_3.4.24 and cannot be said in a header:
# numbers as text, std::filesystem, std::pmr. Red Hat's gcc-toolset links the same things statically.
_STATIC = (
    "floating_from_chars.o",
    "floating_to_chars.o",
    "fs_dir.o",
    "fs_ops.o",
    "fs_path.o",
    "memory_resource.o",
)


def _static_members(host: HostCompiler, work: Path) -> list[str]:
    archive = run([str(host.cxx), "-print-file-name=libstdc++.a"], work).strip()
    if not Path(archive).is_absolute():  # the compiler has no static library
        return []
    members = [m for m in _STATIC if m in run(["ar", "t", archive], work).split()]
    run(["ar", "x", archive, *members], work)
    return members


def stubs(host: HostCompiler, libraries: Sequence[str]) -> Path:
    """A folder of empty libraries with the right SONAMEs, for what is linked but not on this machine.

    Args:
        host: the compiler that makes them.
        libraries: what follows "lib" in each SONAME: "torch_cuda.so", "cudart.so.13".
    """
    folder = user_cache() / "stubs" / hashlib.sha256(" ".join(libraries).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    for library in libraries:
        path = folder / f"lib{library.split('.so')[0]}.so"
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=folder) as work:
                empty, out = Path(work) / "empty.c", Path(work) / "out.so"
                empty.write_text("", "utf-8")
                command = [str(host.cxx), "-shared", "-nostdlib", f"-Wl,-soname,lib{library}"]
                run([*command, "-x", "c", "empty.c", "-o", "out.so"], Path(work))
                out.replace(path)
    return folder


def stable_paths(host: HostCompiler) -> Path:
    """The library that is preloaded into nvcc, from the user's cache or made now."""
    text = resource("stable_paths.c")
    key = hashlib.sha256(f"{host.target}{text}".encode()).hexdigest()[:16]
    path = user_cache() / "compat" / f"libstable_paths-{key}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as work:
            (Path(work) / "s.c").write_text(text, "utf-8")
            command = [str(host.cxx), "-x", "c", "-O2", "-shared", "-fPIC", "-w", "s.c", "-o", "s.so", "-ldl"]
            run(command, Path(work))
            (Path(work) / "s.so").replace(path)
    return path


def run(command: Sequence[str], cwd: Path) -> str:
    """Run a build tool and return what it wrote.

    Raises:
        KernelgenError: it failed or is missing; its output is the detail.
    """
    try:
        done = subprocess.run(
            list(command),
            cwd=cwd,
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "0"},
        )
    except FileNotFoundError:
        raise KernelgenError(f"{command[0]} is not on the PATH", way_out="install binutils") from None
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    if done.returncode:
        raise KernelgenError(f"{Path(command[0]).name} failed", detail=text.strip()[-4000:])
    return text


# -- from objects to one library


@dataclass(frozen=True)
class Linked:
    """An extension that is linked, judged and stripped, in a scratch folder."""

    path: Path
    id: str
    violations: tuple[Violation, ...]


def link(project: Project, plan: Plan, mirror: Path, scratch: Path, *, debug: bool, compat: Path) -> Linked:
    """Link a plan's objects into its extension.

    The id is a hash of the objects and of the Python files that ship with them, so that two edits never share
    a namespace and equal sources always do.

    Args:
        project: whose Python package ships along.
        plan: the variant; its objects lie where its units say, seen from `mirror`.
        mirror: the folder that commands run in.
        scratch: an empty folder for what is made.
        debug: keep symbols.
        compat: the archive of compatibility objects.
    """
    objects = [_normalised(unit, mirror, scratch, i, debug=debug) for i, unit in enumerate(plan.units)]
    unique = _unique_id(project, plan, objects)
    full = plan.stem + unique
    for unit, path in zip(plan.units, objects, strict=True):
        _stamp(unit, path, unique, plan, mirror)
    out = scratch / f"{full}{'.so' if project.framework.kind == 'tvm-ffi' else '.abi3.so'}"
    script = scratch / "exports.map"
    exported = "__tvm_ffi_*" if project.framework.kind == "tvm-ffi" else f"PyInit_{full}"
    script.write_text(f"{{ global: {exported}; local: *; }};\n", "utf-8")
    if plan.host is None:
        raise KernelgenError(f"{plan.variant.name} has nothing to link with")
    command = [str(plan.host.cxx), "-shared", "-o", os.path.relpath(out, mirror)]
    command += [f"-Wl,--version-script={os.path.relpath(script, mirror)}", "-Wl,--build-id=none"]
    command += ["-Wl,-z,noexecstack,-z,relro,-z,now", *([] if debug else ["-Wl,-O1"])]
    command += ["-Wl,--no-undefined,--warn-unresolved-symbols"]
    command += [*(os.path.relpath(o, mirror) for o in objects), os.path.relpath(compat, mirror), *plan.link]
    _refuse_undefined(run(command, mirror), plan)
    violations = judge(out, stable_abi=_stable_abi(plan))
    if not debug:
        run(["strip", "--strip-all", str(out)], scratch)
        violations = (*violations, *(v for v in dynamic_violations(out) if v not in violations))
    return Linked(out, full, tuple(dict.fromkeys(violations)))


# What an extension may leave to Python and, where stubs were linked, to torch and CUDA.
_PYTHONS = re.compile(r"_?Py[A-Z_]")
_STUBBED = re.compile(r"\b(at|c10|caffe2|torch)::|^(_*cuda|aoti_torch_|torch_|c10_)")


def _refuse_undefined(output: str, plan: Plan) -> None:
    """Say now what the loader would say later: a symbol that nothing defines.

    Raises:
        KernelgenError: the linker found no definition of a symbol, and none can come at run time.
    """
    names = dict.fromkeys(re.findall(r"undefined reference to [`'](.+)'", output))
    real = plan.variant.backend == "cpu" and any(name.endswith("/lib") for name in plan.links)
    missing = [n for n in names if not _PYTHONS.match(n) and (real or not _STUBBED.search(n))]
    if missing:
        more = "".join(f"\n{name}" for name in missing[1:10]) or None
        raise KernelgenError(
            f"{missing[0]} is used, but no source that build.toml lists defines it",
            detail=more and f"and so are:{more}",
            way_out="list the file that defines it, or correct the declaration",
        )


def _stable_abi(plan: Plan) -> str | None:
    stable = plan.variant.kind == "torch-stable-abi" and plan.variant.version
    return ".".join(map(str, stable)) if stable else None


def _normalised(unit: Unit, mirror: Path, scratch: Path, number: int, *, debug: bool) -> Path:
    """A copy of an object without what differs from run to run (nvcc names a temporary file in it)."""
    source = mirror / unit.object
    out = scratch / f"{number}.o"
    if unit.rule == "nvcc" and not debug:
        run(
            ["objcopy", "--strip-unneeded", os.path.relpath(source, mirror), os.path.relpath(out, mirror)],
            mirror,
        )
    else:
        shutil.copyfile(source, out)
    return out


def _unique_id(project: Project, plan: Plan, objects: Sequence[Path]) -> str:
    """Twelve hexadecimal digits of what the variant is made of.

    The sources count beside the objects, so that an edit that compiles to the same code has an id of its own.
    """
    digest = hashlib.sha256(f"{plan.variant.name}\0{plan.link}\0{plan.archs}\0".encode())
    for unit, path in zip(plan.units, objects, strict=True):
        digest.update(f"{unit.source}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    for name in project.listed_files():
        digest.update(f"{name}\0".encode() + hashlib.sha256((project.root / name).read_bytes()).digest())
    digest.update(_python_digest(project))
    return digest.hexdigest()[:12]


def _python_digest(project: Project) -> bytes:
    digest = hashlib.sha256()
    for relative, path in shipped_files(project):
        digest.update(f"{relative}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def _stamp(unit: Unit, path: Path, unique: str, plan: Plan, mirror: Path) -> None:
    """Put the id where the placeholder is; where the compiler cut that up, compile again with the id."""
    content = path.read_bytes()
    stamped = content.replace(PLACEHOLDER.encode(), unique.encode())
    if any(fragment in stamped for fragment in _FRAGMENTS):
        program = plan.cuda.nvcc if unit.rule == "nvcc" and plan.cuda else plan.host and plan.host.cxx
        flags = [f.replace(PLACEHOLDER, unique) for f in unit.flags]
        run([str(program), *flags, "-c", unit.source, "-o", os.path.relpath(path, mirror)], mirror)
    elif stamped != content:
        path.write_bytes(stamped)


# -- judging


def judge(path: Path, stable_abi: str | None = None) -> tuple[Violation, ...]:
    """What kernel-abi-check finds in an extension that still has its symbol table.

    A stripped one always passes it: see `dynamic_violations`.
    """
    from kernel_abi_check import IncompatibleAbi3Symbol, ObjectFile

    limits = data("targets.toml")["manylinux"]
    file = ObjectFile(path)
    found = [
        Violation(s.name, f"{s.dep}_{s.version}", limits["policy"])
        for s in file.check_manylinux(limits["policy"])
    ]
    for entry in file.check_python_abi(limits["python"]):
        added = f"Python {entry.version_added}" if isinstance(entry, IncompatibleAbi3Symbol) else None
        found.append(
            Violation(entry.name, added or "not in Python's stable ABI", f"Python {limits['python']}")
        )
    if stable_abi:
        outside = f"torch {stable_abi}"
        unstable = elf.read(path).torch_symbols()
        found += [Violation(s, "not in torch's stable ABI", outside) for s in unstable]
    return tuple(dict.fromkeys(found))


def dynamic_violations(path: Path) -> tuple[Violation, ...]:
    """Symbol versions of the dynamic table above manylinux_2_28: what the run-time linker will ask for."""
    limits = data("targets.toml")["manylinux"]
    found = []
    for symbol, version in needed_versions(path):
        family, _, number = version.partition("_")
        if (
            family in _SYMBOL_LIMITS
            and re.fullmatch(r"[\d.]+", number)
            and _numbers(number) > _numbers(limits[family])
        ):
            found.append(Violation(symbol, version, limits["policy"]))
    return tuple(found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split("."))


def needed_versions(path: Path) -> Iterator[tuple[str, str]]:
    """Every undefined dynamic symbol that has a version, with that version."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        sections: dict[str, Any] = {s.name: s for s in ELFFile(file).iter_sections()}
        symbols, versions = sections.get(".dynsym"), sections.get(".gnu.version")
        needs = sections.get(".gnu.version_r")
        if not (symbols and versions and needs):
            return
        names = {}
        for _, auxiliaries in needs.iter_versions():
            for auxiliary in auxiliaries:
                names[auxiliary["vna_other"]] = auxiliary.name
        for number, symbol in enumerate(symbols.iter_symbols()):
            index = versions.get_symbol(number)["ndx"]
            if symbol["st_shndx"] == "SHN_UNDEF" and index in names:
                yield symbol.name, names[index]


# -- the variant's directory


def shipped_files(project: Project) -> list[tuple[str, Path]]:
    """The Python package's files that ship, by path inside the variant.

    Compiled variants ship .py and the extensions of `pyext` (never .pyi); noarch ones ship every file.
    """
    folder = project.package_dir
    noarch = project.framework.kind == "torch-noarch"
    wanted = {".py", *(f".{e.lstrip('.')}" for e in project.framework.pyext)} - {".pyi"}
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or "__pycache__" in parts or path.suffix in (".pyc", ".pyo"):
            continue
        if parts == ("_ops.py",) or parts[0] == "metadata.json":
            continue  # both are made here
        if noarch or path.suffix in wanted:
            found.append(("/".join(parts), path))
    return found


def noarch_id(project: Project, stem: str) -> str:
    """The id of a variant without a library: a hash of its files."""
    return stem + hashlib.sha256(_python_digest(project)).hexdigest()[:12]


def write_variant(
    project: Project,
    plan: Plan,
    full_id: str,
    library: Path | None,
    scratch: Path,
    *,
    provenance: Mapping[str, Any],
    namespace: str | None,
) -> Path:
    """Write a whole variant directory in `scratch` and exchange it with build/<variant>.

    Returns:
        build/<variant>, new.
    """
    folder = scratch / "variant"
    folder.mkdir()
    for relative, source in shipped_files(project):
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    (folder / "_ops.py").write_text(_ops_module(project, plan, full_id, namespace), "utf-8")
    if library:
        shutil.copyfile(library, folder / library.name)
        (folder / library.name).chmod(0o755)
    table = metadata(project, plan, full_id, provenance)
    (folder / "metadata.json").write_text(_json(table), "utf-8")
    digest = _digest(folder)
    table = _with_digest(table, digest)
    (folder / "metadata.json").write_text(_json(table), "utf-8")
    target = project.root / "build" / plan.variant.name
    exchange(folder, target)
    return target


def _ops_module(project: Project, plan: Plan, full_id: str, namespace: str | None) -> str:
    if plan.variant.kind == "noarch":
        text = resource("_ops_noarch.py.txt")
        if namespace:
            text = re.sub(r"^_NAMESPACE = .*$", f'_NAMESPACE = "{namespace}"', text, flags=re.MULTILINE)
        unique = full_id.removeprefix(plan.stem)
        return text.replace("@PYTHON_NAME@", project.python_name).replace("@UNIQUE@", unique)
    name = "_ops_tvm_ffi.py.txt" if plan.variant.kind == "tvm-ffi" else "_ops_torch.py.txt"
    return resource(name).replace("@ID@", full_id).replace("@NAMESPACE@", namespace or full_id)


def metadata(project: Project, plan: Plan, full_id: str, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """The table of metadata.json in kernel-builder's order of keys, without the digest."""
    backend = plan.variant.backend
    table: dict[str, Any] = {"name": project.name, "id": full_id, "version": project.version}
    depends = [
        {"repo-id": d.repo_id, **({"version": d.version} if d.revision is None else {"revision": d.revision})}
        for owner in ("general", backend)
        for d in project.kernel_depends.get(owner, ())
    ]
    minver = data("targets.toml")["kernels"]
    table["kernels-minver"] = minver["minver-kernel-depends"] if depends else minver["minver"]
    table["license"] = project.license
    for key in ("upstream", "source"):
        if value := getattr(project, key):
            table[key] = value
    names = [n for owner in ("general", backend) for n in project.python_depends.get(owner, ())]
    table["python-depends"] = list(dict.fromkeys(names))
    table["kernel-depends"] = depends
    table["backend"] = {"type": backend}
    if plan.archs and backend in ("cuda", "rocm"):
        table["backend"]["archs"] = sorted(set(plan.archs))  # as text: kernel-builder writes it so
    if provenance:
        table["provenance"] = dict(provenance)
    return table


def provenance(project: Project, inputs: Sequence[str]) -> dict[str, Any]:
    """Who built it, and from which commit; dirty when a tracked file of the project, or any input, differs.

    kernel-builder's field is the only one there is for a builder, and must be a version: kernelgen names
    itself in it.
    """
    table: dict[str, Any] = {"kernel-builder": {"version": f"kernelgen-{kernelgen.__version__}"}}
    with contextlib.suppress(KernelgenError):  # no git, no provenance
        head = git.run("rev-parse", "HEAD", cwd=project.root, check=False)
        if head.returncode == 0:
            status = git.text("status", "--porcelain=v1", "-z", "--no-renames", "--", ".", cwd=project.root)
            prefix = git.text("rev-parse", "--show-prefix", cwd=project.root)
            ours = {f"{prefix}{path}" for path in inputs}
            entries = [e for e in status.split("\0") if e]
            dirty = any(e[:2] != "??" or e[3:] in ours or _holds(e[3:], ours) for e in entries)
            table["kernel"] = {"commit": head.stdout.decode().strip(), "dirty": dirty}
    return table


def _holds(folder: str, paths: set[str]) -> bool:
    """Git reports an untracked folder by its own name, with a slash."""
    return folder.endswith("/") and any(p.startswith(folder) for p in paths)


def _json(table: Mapping[str, Any]) -> str:
    return json.dumps(table, indent=2, ensure_ascii=False) + "\n"


def _with_digest(table: dict[str, Any], digest: dict[str, Any]) -> dict[str, Any]:
    """The digest stands before the provenance."""
    made = {k: v for k, v in table.items() if k != "provenance"}
    made["digest"] = digest
    if "provenance" in table:
        made["provenance"] = table["provenance"]
    return made


def _digest(folder: Path) -> dict[str, Any]:
    rust = kernels_rust()
    digest = rust.Digest.hash_variant(rust.DigestAlgorithm.SHA256, folder)
    return {"algorithm": "sha256", "files": dict(sorted(digest.files.items()))}


def kernels_rust() -> Any:
    """`kernels._rust` without `kernels` itself, whose import loads torch."""
    if found := sys.modules.get("kernels._rust"):
        return found
    package = importlib.util.find_spec("kernels")
    for place in (package and package.submodule_search_locations) or ():
        for path in sorted(Path(place).glob("_rust*.so")):
            spec = importlib.util.spec_from_file_location("kernels._rust", path)
            if spec and spec.loader:
                module = importlib.util.module_from_spec(spec)
                sys.modules["kernels._rust"] = module
                spec.loader.exec_module(module)
                return module
    raise KernelgenError("the kernels package is incomplete", way_out="pip install -U kernels")


def refused_by_builder(root: Path) -> str | None:
    """Why kernel-builder's own parser does not take a project's build.toml; None when it does.

    It runs in a process of its own: the parser prints to stderr what it thinks of an older edition.
    """
    code = """
import sys
from kernelgen.package import kernels_rust
try:
    kernels_rust().Build.open(sys.argv[1])
except Exception as error:
    print(error)
"""
    command = [sys.executable, "-c", code, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise KernelgenError("kernel-builder's parser does not run", detail=done.stderr.strip())
    return done.stdout.strip() or None


# -- replacing a directory

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def exchange(new: Path, target: Path) -> None:
    """Put `new` in the place of `target`; when that fails, `target` is what it was.

    Two names are exchanged by one system call where the file system can, so that nobody ever sees anything
    but all old or all new. Elsewhere the old directory is moved beside `new` first: for a moment there is no
    target, and a process that is killed in it leaves none.
    """
    import ctypes

    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() and not target.is_symlink():
        new.rename(target)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    swap = getattr(libc, "renameat2", None)
    if swap and swap(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) == 0:
        return
    old = new.with_name("old")
    target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        old.rename(target)
        raise


def unpublishable(variant: Path) -> str | None:
    """Why a built variant must not be published, or None.

    It registers under a fixed namespace (see `--namespace`), or its library was built with `--debug`: both
    show in the directory itself, so nothing beside it needs to be kept.
    """
    try:
        json.loads((variant / "metadata.json").read_text("utf-8"))["id"]
        ops = (variant / "_ops.py").read_text("utf-8")
    except (OSError, ValueError, KeyError, TypeError):
        return "its metadata.json or _ops.py is missing or incomplete"
    # Where `_ops.py` names the namespace, it is the id of a library or made of the backend at import.
    fixed = re.search(r'^(?:ops = torch\.ops\.|_NAMESPACE = ")(\w+)', ops, re.MULTILINE)
    if fixed and f"from . import {fixed[1]}\n" not in ops:
        return f"it registers under the fixed namespace {fixed[1]!r}; build it again without --namespace"
    if any(_has_debug_information(path) for path in variant.glob("*.so")):
        return "it was built with --debug; build it again without"
    return None


def _has_debug_information(path: Path) -> bool:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            return ELFFile(file).get_section_by_name(".debug_info") is not None
    except (OSError, ELFError):
        return False


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically."""
    write_atomically(path, json.dumps(value, indent=1, ensure_ascii=False))
