#!/usr/bin/env python3
"""Cut a release: version, changelog, template bundle, commit and tag, all or nothing.

The changelog's Unreleased section becomes the release's; what an update will change in a project is added to
its Template part, from the two versions of the template themselves. The bundle gains a commit and a tag that
depend on nothing but the template's files, so that whoever cuts the release gets the same one. Nothing is
pushed.

Usage: release.py X.Y.Z [--date YYYY-MM-DD] [--dry-run]
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from kernelgen import git, template  # noqa: E402  (from this checkout, whatever is installed)
from kernelgen.errors import KernelgenError  # noqa: E402

BUNDLE = Path("src/kernelgen/data/template.bundle")
VERSIONS = {
    Path("pyproject.toml"): r'(?m)^version = "(.*)"$',
    Path("src/kernelgen/__init__.py"): r'(?m)^__version__ = "(.*)"$',
}
_UNRELEASED = "## Unreleased\n"
_EMPTY = f"{_UNRELEASED}\n### Tool\n\n### Template\n\n"


@dataclass(frozen=True)
class Release:
    """What a release writes: texts by path, and the bundle."""

    tag: str
    texts: dict[Path, str]
    bundle: bytes
    section: str


def prepare(root: Path, version: str, date: str) -> Release:
    """Work out a release without writing anything.

    Args:
        root: a checkout of kernelgen without uncommitted changes.
        version: X.Y.Z, above every released one.
        date: the day, for the changelog.

    Raises:
        KernelgenError: the version is not next, the changelog says nothing, or the tree is not clean.
    """
    tag = f"v{version}"
    _refuse_wrong_version(root, version)
    dirty = git.text("status", "--porcelain", cwd=root)
    if dirty:
        raise KernelgenError("the checkout has changes that are not committed", detail=dirty)
    texts = {path: _with_version(root, path, pattern, version) for path, pattern in VERSIONS.items()}
    with tempfile.TemporaryDirectory(prefix="kernelgen-release-") as folder:
        bundle, changes = _bundle(root, Path(folder), tag)
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    texts[Path("CHANGELOG.md")], section = _changelog(text, version, date, changes)
    return Release(tag, texts, bundle, section)


def carry_out(root: Path, release: Release) -> None:
    """Write a prepared release, commit it and tag it."""
    for path, text in release.texts.items():
        (root / path).write_text(text, encoding="utf-8")
    (root / BUNDLE).write_bytes(release.bundle)
    paths = [str(path) for path in (*release.texts, BUNDLE)]
    git.run("add", "--", *paths, cwd=root)
    git.run("commit", "-q", "-m", f"Release {release.tag}", "--", *paths, cwd=root)
    git.run("tag", "-a", release.tag, "-m", f"kernelgen {release.tag}", cwd=root)


def _refuse_wrong_version(root: Path, version: str) -> None:
    from packaging.version import Version

    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise KernelgenError(f"{version!r} is no version", way_out="write X.Y.Z")
    for tag in template.released_versions(root / BUNDLE):
        if Version(version) <= Version(tag):
            raise KernelgenError(f"{version} is not above {tag}, which is released")


def _with_version(root: Path, path: Path, pattern: str, version: str) -> str:
    text = (root / path).read_text(encoding="utf-8")
    match = re.search(pattern, text)
    if match is None:
        raise KernelgenError("no version to set", where=str(path))
    return text[: match.start(1)] + version + text[match.end(1) :]


def _bundle(root: Path, work: Path, tag: str) -> tuple[bytes, list[str] | None]:
    """The bundle with one version more, and what that version changes, a line a file; None for the first."""
    git.run("init", "-q", "--template=", "--initial-branch=main", cwd=work, hermetic=True)
    released = template.released_versions(root / BUNDLE)
    if released:
        git.run("fetch", "-q", str(root / BUNDLE), "refs/tags/*:refs/tags/*", cwd=work, hermetic=True)
    last = next(reversed(released), None)
    parent = released[last] if last else None
    template.commit_version(work, template.read_tree(root), tag, parent, len(released))
    changes = _changes(work, last, tag) if last else None
    # One thread, so that the same objects give the same bytes.
    create = ("-c", "pack.threads=1", "bundle", "create", "-q", "new.bundle", "--tags", "main")
    git.run(*create, cwd=work, hermetic=True)
    return (work / "new.bundle").read_bytes(), changes


def _changes(repository: Path, last: str, tag: str) -> list[str]:
    """The template's files that differ between two versions, as a project's owner knows them."""
    options = ("-r", "-M", "--name-status", "-z")
    fields = git.text("diff-tree", *options, last, tag, cwd=repository, hermetic=True).split("\0")[:-1]
    words = {"A": "new", "D": "gone", "M": "changed", "T": "changed"}
    owned = _owned(repository, tag)
    lines = []
    while fields:
        kind, path = fields.pop(0), _shown(fields.pop(0))
        if kind.startswith("R"):
            lines.append(f"moved: `{path}` to `{_shown(fields.pop(0))}`")
        else:
            new_only = kind == "M" and owned.match_file(path)
            lines.append(f"{'changed in new projects' if new_only else words[kind[0]]}: `{path}`")
    return sorted(line for line in lines if "`copier.yml`" not in line and "`includes/" not in line)


def _owned(repository: Path, tag: str) -> pathspec.GitIgnoreSpec:
    """What an update leaves to its owner, in the names of `_shown`."""
    import pathspec
    import yaml

    document = yaml.safe_load(git.text("show", f"{tag}:copier.yml", cwd=repository, hermetic=True))
    return pathspec.GitIgnoreSpec.from_lines(map(_shown, document.get("_skip_if_exists", [])))


def _shown(path: str) -> str:
    """A template's file as it is called in a project: `<op>` for the yields, `<name>` for the package."""
    shown = path.removeprefix("template/").removesuffix(".jinja")
    shown = re.sub(r"\{=% yield .*? %=\}.*?\{=% endyield %=\}", "<op>", shown)
    return re.sub(r"\{= _copier_conf\.answers_file =\}", ".copier-answers.yml", shown).replace(
        "{= python_name =}", "<name>"
    )


def _changelog(text: str, version: str, date: str, changes: list[str] | None) -> tuple[str, str]:
    """Close the Unreleased section; returns the whole changelog and the new section."""
    if _UNRELEASED not in text:
        raise KernelgenError("there is no section 'Unreleased'", where="CHANGELOG.md")
    head, rest = text.split(_UNRELEASED, 1)
    body, *older = re.split(r"(?m)^(?=## )", rest, maxsplit=1)
    parts = dict(re.findall(r"(?ms)^### (\w+)\n(.*?)(?=^### |\Z)", body))
    if parts.keys() != {"Tool", "Template"} or not any(part.strip() for part in parts.values()):
        raise KernelgenError(
            "the section 'Unreleased' needs the parts Tool and Template, and something in one",
            where="CHANGELOG.md",
        )
    if changes and not parts["Template"].strip():
        raise KernelgenError(
            "the template has changed, and the part Template does not say why",
            where="CHANGELOG.md",
            detail="\n".join(changes),
        )
    listed = "".join(f"  - {line}\n" for line in changes or ())
    update = f"- An update brings these files:\n{listed}" if changes else "- An update changes no file.\n"
    if changes is None:
        update = ""
    written = [parts["Template"].strip("\n"), update.strip("\n")]
    template_part = "\n".join(part for part in written if part)
    tool_part = parts["Tool"].strip("\n") or "- No change."
    section = f"## {version} ({date})\n\n### Tool\n\n{tool_part}\n\n### Template\n\n{template_part}\n"
    return f"{head}{_EMPTY}{section}" + (f"\n{older[0]}" if older else ""), section


def main() -> int:
    """Cut the release; a fault is one line and exit status 1, and nothing is written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", help="X.Y.Z")
    parser.add_argument("--date", default=datetime.datetime.now(datetime.timezone.utc).date().isoformat())
    parser.add_argument("--dry-run", action="store_true", help="show the changelog section, write nothing")
    arguments = parser.parse_args()
    try:
        release = prepare(ROOT, arguments.version, arguments.date)
        if not arguments.dry_run:
            carry_out(ROOT, release)
    except KernelgenError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(release.section)
    return 0


if __name__ == "__main__":
    sys.exit(main())
