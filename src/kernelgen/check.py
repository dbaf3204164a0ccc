"""Whether a kernel is fit to be published: its declaration, its sources, what was built, and how that runs.

Each rule has a code (`finding.RULES`) and judges one thing. What it judges is read from files; only the KG4xx
rules run the kernel, each variant in a process of its own. The ecosystem's judges decide where there is one:
kernel-builder's parsers and digests (in `kernels._rust`), kernel-abi-check, the loader, torch's schema parser
and opcheck.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from kernelgen import artefact, git, lint, package, runtime, template, variants
from kernelgen.errors import KernelgenError
from kernelgen.finding import RULES, Finding, Verdict, passed
from kernelgen.project import Project, data, examine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kernelgen.project import Problem
    from kernelgen.variants import Built


def check(
    root: Path,
    *,
    python: Path | str | None = None,
    only: Sequence[str] = (),
    run: bool = True,
    tell: Callable[[str], None] | None = None,
) -> list[Finding]:
    """Judge a project and everything in its `build/`.

    Args:
        root: the project.
        python: the interpreter that loads kernels; this one by default.
        only: names of variants; all that are built by default.
        run: also load and call the kernel.
        tell: told what is being judged, for a progress display.

    Returns:
        One finding or more of every rule that applies, in order of code, then of subject. A rule that found
        nothing says so with the verdict "ok".

    Raises:
        KernelgenError: no build.toml, or a variant in `only` that is not built.
    """
    say = tell or (lambda _what: None)
    say("build.toml")
    project, problems = examine(root.resolve())
    findings = _configuration(root, project, problems)
    if project is None:
        return findings
    say("sources")
    findings += sources(project)
    findings += managed_files(project)
    findings += lint.lint(project)
    chosen = _chosen(variants.built(project), only)
    findings += [_wanted(project, chosen)]
    for built in chosen:
        say(built.name)
        findings += artefact.judge(project, built)
    if run and chosen:
        findings += runtime.trials(project, chosen, python or sys.executable, say)
    return sorted(findings, key=lambda f: f.code)


def _chosen(built: list[Built], only: Sequence[str]) -> list[Built]:
    names = [b.name for b in built]
    for name in only:
        if name not in names:
            raise KernelgenError(
                f"build/{name} does not exist",
                detail=f"built: {', '.join(names) or 'nothing'}",
                way_out=f"kernelgen build --variant {name}",
            )
    return [b for b in built if not only or b.name in only]


# --- The declaration ----------------------------------------------------------------------------------------


def _configuration(root: Path, project: Project | None, problems: list[Problem]) -> list[Finding]:
    """Our reading of build.toml, then kernel-builder's."""
    found = [
        Finding(
            "KG101",
            RULES["KG101"],
            "warn" if p.warning else "error",
            f"{p.key}: {p.message}",
            p.way_out,
            f"build.toml:{p.line}" if p.line else "build.toml",
        )
        for p in problems
    ]
    if not found:
        found.append(passed("KG101", "every key is known, every value allowed"))
    return [*found, *_peer_reading(root, project)]


def _peer_reading(root: Path, project: Project | None) -> Iterator[Finding]:
    """What kernel-builder's own parser says; it refuses what is older than edition 4."""
    written = data("build_toml.toml")["written"]
    if project is not None and project.edition < written:
        grave: Verdict = "note" if project.edition == written - 1 else "warn"
        does = "converts it in memory" if grave == "note" else "refuses it"
        message = f"edition {project.edition} is old: kernel-builder {does}"
        yield Finding("KG102", RULES["KG102"], grave, message, "kernelgen update", "build.toml")
    elif said := package.refused_by_builder(root):
        yield Finding(
            "KG102", RULES["KG102"], "error", f"refused: {said.splitlines()[0]}", None, "build.toml"
        )
    else:
        yield passed("KG102", "kernel-builder's parser takes it")


def sources(project: Project) -> Iterator[Finding]:
    """Files that a build reads, but git does not have: Nix and everybody else would build without them."""
    marks = _conflict_marks(project.root)
    for place in marks:
        yield Finding(
            "KG105", RULES["KG105"], "error", "a merge is not finished", "decide, then git add", place
        )
    if not marks:
        yield passed("KG105", "none")
    listed = git.run("ls-files", "-z", "--cached", "--", ".", cwd=project.root, check=False)
    if listed.returncode:
        message = "the project is not in a git repository: Nix and publishing need one"
        yield Finding("KG103", RULES["KG103"], "warn", message, "git init && git add -A && git commit")
        return
    tracked = set(listed.stdout.decode("utf-8", "surrogateescape").split("\0"))
    needed = ["build.toml", *project.listed_files()]
    needed += [p.relative_to(project.root).as_posix() for _, p in package.shipped_files(project)]
    needed += [name for name in ("flake.nix", "CARD.md") if (project.root / name).is_file()]
    missing = [name for name in dict.fromkeys(needed) if name not in tracked]
    for name in missing:
        yield Finding("KG103", RULES["KG103"], "error", "not in git", f"git add {name}", name)
    if not missing:
        yield passed("KG103", f"{len(set(needed))} files")


def _conflict_marks(root: Path) -> tuple[str, ...]:
    from kernelgen import update

    return update.conflict_marks(root)


def managed_files(project: Project) -> Iterator[Finding]:
    """Files that an update rewrites and that a person has edited; only for projects of our own template."""
    from kernelgen import update

    answers = project.answers
    if not answers or not template.is_own(str(answers.get("_src_path", ""))) or not answers.get("_commit"):
        return
    try:
        source = template.materialise()
        rendered = update.render(source.path_or_url, str(answers["_commit"]), answers)
    except KernelgenError as error:
        yield Finding("KG104", RULES["KG104"], "note", f"not compared with the template: {error.what}")
        return
    edited = [
        path
        for path, entry in sorted(rendered.files.items())
        if not rendered.owned(path) and path != ".copier-answers.yml" and _differs(project.root / path, entry)
    ]
    for path in edited:
        message = "edited by hand; an update merges its own changes with yours"
        yield Finding("KG104", RULES["KG104"], "note", message, None, path)
    if not edited:
        yield passed("KG104", "as the template writes them")


def _differs(path: Path, entry: Any) -> bool:
    content = getattr(entry, "data", entry)
    return path.is_file() and isinstance(content, bytes) and path.read_bytes() != content


def _wanted(project: Project, built: Sequence[Built]) -> Finding:
    """Which of the variants that a compliant kernel has are there."""
    names = {b.name for b in built}
    wanted = [v.name for v in variants.wanted(project)]
    missing = [name for name in wanted if name not in names]
    if not built:
        message = "nothing is built: only the sources were judged"
        return Finding("KG106", RULES["KG106"], "note", message, "kernelgen build")
    if missing:
        count = f"{len(wanted) - len(missing)} of {len(wanted)} wanted ones"
        rest = f" and {len(missing) - 2} more" if len(missing) > 2 else ""
        message = f"{count} are built; missing: {', '.join(missing[:2])}{rest}"
        return Finding("KG106", RULES["KG106"], "note", message, "kernelgen build --all")
    return passed("KG106", f"all {len(wanted)} wanted ones are built")
