"""Giving a project that kernelgen did not make its answers file, so that updates work from then on.

What the project says itself is read (build.toml of any edition, setup.py, registrations in C++ and Python);
what it does not say is asked for. Nothing of the project changes except what is told to: the answers file is
written, and files of the template that are asked for are added, or merged where the project has its own.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernelgen import discover, git, journal, merge, template, update
from kernelgen.errors import KernelgenError
from kernelgen.journal import Change
from kernelgen.project import find_root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kernelgen.project import Project

# What the template can declare; a project may build for more.
BACKENDS = ("cpu", "cuda")
_SOURCES = (".cpp", ".cc", ".cxx", ".cu", ".h", ".hpp", ".cuh")
_SKIPPED = ("build/", "third_party/", "3rdparty/", "tests/", "benchmarks/", ".")


@dataclass
class Examination:
    """What a project says about itself.

    Attributes:
        kind: "kernel-builder" (it has a build.toml) or "setuptools".
        answers: by the names of the template's questions.
        origins: where each answer was found.
        missing: what has to be asked, and why it was not found.
        notes: what a person should look at.
    """

    kind: str
    answers: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def found(self, name: str, value: Any, origin: str) -> None:
        """Record an answer."""
        self.answers[name] = value
        self.origins[name] = origin


@dataclass(frozen=True)
class Adoption:
    """What was written, and what the template has besides.

    Attributes:
        examination: what was found.
        version: the template version that the project now follows.
        added, merged: files of the template that were taken, as told.
        conflicts: of the merged ones, those that need a person.
        not_taken: files that the template has and the project lacks.
        different: files that both have, with other contents.
        diff: with `dry_run`, the whole change.
    """

    examination: Examination
    version: str
    added: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    conflicts: tuple[merge.Conflict, ...] = ()
    not_taken: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    diff: str = ""


def examine(project: Path, data: Mapping[str, Any] | None = None) -> Examination:
    """Find a project's answers; writes nothing.

    Args:
        project: its folder, in git.
        data: answers that are known; they stand, and what they answer is not looked for.

    Returns:
        The answers, and what is missing.

    Raises:
        KernelgenError: the project can't be adopted, with the reason.
    """
    tree = update.worktree(project, "adopting")
    if (project / update.ANSWERS).exists():
        raise KernelgenError(
            "the project has an answers file already", way_out="`kernelgen update` works here"
        )
    files = {p: f.data for p, f in journal.read_commit(tree, "HEAD").items() if f.mode != "120000"}
    if "build.toml" in files:
        examination = _from_build_toml(project, files)
    elif "setup.py" in files:
        examination = _from_setup_py(files)
    else:
        raise KernelgenError(
            "this is no kernel project: there is neither a build.toml nor a setup.py",
            where=str(project),
            way_out="`kernelgen new` starts one",
        )
    _find_repository(tree, examination)
    if "ops" not in (data or {}):
        _find_operators(files, examination)
    for name, value in (data or {}).items():
        examination.found(name, value, "given")
        examination.missing.pop(name, None)
    _normalise(examination)
    return examination


def adopt(
    project: Path,
    *,
    data: Mapping[str, Any] | None = None,
    take: Sequence[str] = (),
    branch: str | None = None,
    dry_run: bool = False,
    source: str | None = None,
) -> Adoption:
    """Write a project's answers file, and take files of the template where told to.

    The changes are left staged; until they are committed `update.abort` undoes them.

    Args:
        project: a project in git, its tracked files clean.
        data: answers, over what is found.
        take: patterns as in .gitignore: files of the template to add, or to merge with the project's own.
        branch: make and switch to this branch first.
        dry_run: change nothing; the result has the diff.
        source: another template than kernelgen's.

    Raises:
        KernelgenError: nothing was changed: something has to be answered first, or the project can't be
            adopted.
    """
    tree = update.worktree(find_root(project, "build.toml", "setup.py"), "adopting")
    with journal.locked(tree):
        update.refuse_unready(tree)
        examination = examine(project, data)
        if examination.missing:
            raise KernelgenError(
                f"adopting needs {', '.join(examination.missing)}",
                where=str(project),
                detail="\n".join(f"{name}: {why}" for name, why in examination.missing.items()),
                way_out="give each: " + " ".join(_flag(name) for name in examination.missing),
            )
        origin = template.source(source)
        rendered = update.render(origin.path_or_url, origin.ref, examination.answers)
        ours = journal.read_commit(tree, "HEAD")
        result = _take(ours, rendered, take)
        result.files[update.ANSWERS] = rendered.files[update.ANSWERS]
        adoption = _adoption(examination, ours, rendered, result)
        if dry_run:
            return replace(adoption, diff=merge.unified_diff(ours, result.files))
        if branch:
            git.run("switch", "-q", "-c", branch, cwd=project)
        stages = {conflict.path: conflict.stages for conflict in result.conflicts}
        changed = sorted(path for path, file in result.files.items() if ours.get(path) != file)
        update.refuse_in_the_way(tree, ours, result.files)
        changes = [Change(path, result.files[path], stages.get(path)) for path in changed]
        journal.apply(tree, changes, {"adopted": adoption.version})
        return adoption


def _flag(name: str) -> str:
    examples = {
        "repo_id": "OWNER/NAME",
        "license": "Apache-2.0",
        "ops": """'["name(Tensor x) -> Tensor"]'""",
        "kernel_name": "NAME",
    }
    return f"--data {name}={examples[name]}"


def _from_build_toml(project: Path, files: dict[str, bytes]) -> Examination:
    from kernelgen.project import examine as read

    declared, problems = read(project)
    errors = [problem for problem in problems if not problem.warning]
    if declared is None:
        raise KernelgenError(
            "build.toml can't be read",
            where=str(project / "build.toml"),
            detail="\n".join(f"line {problem.line}: {problem.message}" for problem in errors),
            way_out="mend it, then adopt",
        )
    if declared.framework.kind == "tvm-ffi":
        raise KernelgenError(
            "the template writes torch bindings, and this kernel has tvm-ffi ones",
            where=str(project / "build.toml"),
            way_out="`kernelgen build` builds it as it is",
        )
    backends = [backend for backend in declared.backends if backend in BACKENDS]
    if not backends:
        named = ", ".join(declared.backends) or "no backend"
        raise KernelgenError(
            f"the template knows cpu and cuda, and this kernel is for {named}",
            where=str(project / "build.toml"),
            way_out="`kernelgen build` builds it as it is",
        )
    examination = Examination("kernel-builder")
    here = "build.toml"
    examination.found("kernel_name", declared.name.replace("_", "-"), here)
    examination.found("backends", backends, here)
    if rest := [backend for backend in declared.backends if backend not in BACKENDS]:
        examination.notes.append(f"build.toml: {', '.join(rest)} stay yours; the template knows cpu and cuda")
    examination.found("version", declared.version or 1, here)
    if declared.repo_id:
        examination.found("repo_id", declared.repo_id, here)
    if declared.license:
        examination.found("license", declared.license, here)
    _find_abi(declared, examination)
    package = f"{declared.ext_dir}/{declared.python_name}"
    has_layers = any(
        path.startswith(f"{package}/layers/") or path == f"{package}/layers.py" for path in files
    )
    examination.found("layers", has_layers, f"{package}/layers" if has_layers else package)
    if declared.framework.kind == "torch-noarch":
        examination.notes.append("no compiled code: take no file of csrc/ and torch-ext/ from the template")
    if declared.edition < 5:
        examination.notes.append(
            f"build.toml: of edition {declared.edition}; `kernelgen migrate` brings it to 5"
        )
    return examination


def _find_abi(declared: Project, examination: Examination) -> None:
    stable = {declared.framework.stable_abi.get(b) for b in examination.answers["backends"]} - {None}
    if len(stable) == 1 and all(b in declared.framework.stable_abi for b in examination.answers["backends"]):
        examination.found("abi", "stable", "build.toml")
        examination.found("stable_abi", str(stable.pop()), "build.toml")
    else:
        examination.found("abi", "full", "build.toml")


def _from_setup_py(files: dict[str, bytes]) -> Examination:
    """A setuptools project: constants of the setup call, and which extension classes it uses."""
    text = files["setup.py"].decode("utf-8", "replace")
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise KernelgenError("setup.py is not Python", where=f"setup.py:{error.lineno}") from error
    used = {n.id for n in ast.walk(module) if isinstance(n, ast.Name)}
    used |= {n.attr for n in ast.walk(module) if isinstance(n, ast.Attribute)}
    if not used & {"CUDAExtension", "CppExtension"}:
        raise KernelgenError(
            "setup.py builds no torch extension (CUDAExtension or CppExtension), and there is no build.toml",
            where="setup.py",
            way_out="`kernelgen new` starts a kernel project",
        )
    examination = Examination("setuptools")
    keywords = _setup_keywords(module)
    name = keywords.get("name") or _pyproject_name(files)
    if name:
        kernel = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        examination.found("kernel_name", kernel, "setup.py")
    else:
        examination.missing["kernel_name"] = "setup.py does not say its name as a plain string"
    if keywords.get("license"):
        examination.found("license", keywords["license"], "setup.py")
    backends = [b for b, cls in (("cpu", "CppExtension"), ("cuda", "CUDAExtension")) if cls in used]
    examination.found("backends", backends, "setup.py")
    examination.found("abi", "full", "setup.py")
    examination.notes.append(
        "setup.py: still builds the project as before; for `kernelgen build` take build.toml and the binding "
        "from the template (--take) and list your sources there"
    )
    return examination


def _setup_keywords(module: ast.Module) -> dict[str, str]:
    """The string arguments of setup(), names of module constants resolved."""
    constants = {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "setup":
            for keyword in node.keywords:
                value = keyword.value
                said = (
                    value.value
                    if isinstance(value, ast.Constant)
                    else constants.get(getattr(value, "id", ""))
                )
                if keyword.arg and isinstance(said, str):
                    found[keyword.arg] = said
    return found


def _pyproject_name(files: dict[str, bytes]) -> str | None:
    import tomlkit

    if "pyproject.toml" not in files:
        return None
    name = (
        tomlkit.parse(files["pyproject.toml"].decode("utf-8", "replace"))
        .unwrap()
        .get("project", {})
        .get("name")
    )
    return str(name) if name else None


def _find_repository(tree: journal.Worktree, examination: Examination) -> None:
    """The Hub repository: the remote if it is on the Hub."""
    if "repo_id" not in examination.answers:
        said = git.run("remote", "get-url", "origin", cwd=tree.project, check=False).stdout
        remote = said.decode(errors="replace").strip()
        match = re.search(
            r"(?:huggingface\.co|hf\.co)[:/](?:kernels/|models/)?([\w.-]+/[\w.-]+?)(?:\.git)?/?$", remote
        )
        if match:
            examination.found("repo_id", match[1], "the remote origin")
        else:
            examination.missing["repo_id"] = "neither build.toml nor the remote says the Hub repository"
    if "license" not in examination.answers:
        examination.missing["license"] = "no licence is declared, and none is made up"


def _find_operators(files: dict[str, bytes], examination: Examination) -> None:
    """Read the registrations, and have each schema judged."""
    from kernelgen import schema

    texts = {
        path: data.decode("utf-8", "replace") for path, data in files.items() if not path.startswith(_SKIPPED)
    }
    cpp = {path: text for path, text in texts.items() if path.endswith(_SOURCES)}
    others = tuple(cpp.values())
    operators = [
        (path, o) for path, text in sorted(cpp.items()) for o in discover.cpp_operators(text, others)
    ]
    python = {path: text for path, text in texts.items() if path.endswith(".py") and path != "setup.py"}
    operators += [(path, o) for path, text in sorted(python.items()) for o in discover.python_operators(text)]
    found: dict[str, str] = {}
    problems = []
    for path, operator in operators:
        where = f"{path}:{operator.line}"
        if operator.schema is None:
            problems.append(f"{operator.name} ({where}): {operator.reason}")
            continue
        try:
            text = schema.parse(operator.schema).text
        except KernelgenError as error:
            problems.append(f"{operator.name} ({where}): {error.what}")
            continue
        if text not in found:
            found[text] = where
        if operator.reason:
            examination.notes.append(f"{where}: {operator.name} is {operator.reason}; look at the schema")
    if problems:
        examination.missing["ops"] = "; ".join(problems)
    elif not found:
        examination.missing["ops"] = "no operator is registered in the C++ and Python sources"
    else:
        examination.found("ops", list(found), ", ".join(dict.fromkeys(found.values())))


def _normalise(examination: Examination) -> None:
    """Spell the licence as SPDX does, and judge what the template will be given."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    from kernelgen import schema

    answers = examination.answers
    if "license" in answers:
        try:
            answers["license"] = canonicalize_license_expression(str(answers["license"]))
        except InvalidLicenseExpression:
            del answers["license"]
            examination.missing["license"] = f"{examination.origins['license']}: not an SPDX identifier"
    if "ops" in answers and "kernel_name" in answers:
        schema.validate(
            [schema.parse(text) for text in answers["ops"]],
            kernel_name=answers["kernel_name"],
            backends=answers["backends"],
            abi=answers["abi"],
        )


def _take(ours: merge.Tree, rendered: update.Rendered, patterns: Sequence[str]) -> merge.Merged:
    """Add the template's files that were asked for; merge those that the project has too, if not owned."""
    from pathspec import GitIgnoreSpec

    wanted = GitIgnoreSpec.from_lines(patterns)
    theirs = {p: f for p, f in rendered.files.items() if p != update.ANSWERS and wanted.match_file(p)}
    if patterns and not theirs:
        raise KernelgenError(
            f"the template has no file like {', '.join(patterns)}",
            detail="\n".join(sorted(rendered.files)),
            where="--take",
        )
    labels = merge.Labels("yours", "the template")
    return merge.merge({}, ours, theirs, owned=rendered.owned, labels=labels)


def _adoption(
    examination: Examination, ours: merge.Tree, rendered: update.Rendered, result: merge.Merged
) -> Adoption:
    written = {path for path, file in result.files.items() if ours.get(path) != file} - {update.ANSWERS}
    rest = rendered.files.keys() - written - {update.ANSWERS}
    version = update.written_answers(rendered.files)["_commit"]
    return Adoption(
        examination,
        str(version),
        added=tuple(sorted(written - ours.keys())),
        merged=tuple(sorted(written & ours.keys())),
        conflicts=tuple(result.conflicts),
        not_taken=tuple(sorted(rest - ours.keys())),
        different=tuple(sorted(p for p in rest & ours.keys() if ours[p] != rendered.files[p])),
    )
