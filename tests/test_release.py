"""scripts/release.py, on a copy of a checkout: what it writes, that it is the same twice, what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import toy_template

from kernelgen import git, template

ROOT = Path(__file__).parents[1]
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Tool\n\n- {0}\n\n### Template\n\n{1}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the tool's own files with the toy template in it."""
    return make_checkout(tmp_path / "checkout")


def make_checkout(root: Path) -> Path:
    for path in ("scripts/release.py", "src/kernelgen/__init__.py", "src/kernelgen/git.py",
                 "src/kernelgen/template.py", "src/kernelgen/errors.py", "pyproject.toml"):  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text((ROOT / path).read_text())
    (root / "src/kernelgen/data").mkdir()
    (root / ".gitignore").write_text("__pycache__/\n")
    toy_template.write(root, toy_template.files("v0.2.0"))
    (root / "CHANGELOG.md").write_text(CHANGELOG.format("First.", "- First.\n"))
    git.run("init", "-q", "--initial-branch=main", cwd=root, hermetic=True)
    commit(root)
    return root


def commit(root: Path) -> None:
    git.run("add", "-A", cwd=root, hermetic=True)
    git.run("commit", "-qm", "work", cwd=root, hermetic=True)


def release(root: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/release.py", *args, "--date", "2026-12-01"],
        cwd=root,
        env=git.environment(hermetic=True),
        capture_output=True,
        text=True,
        check=False,
    )


def second_version(root: Path) -> None:
    for path in ("template/tools/lint.cfg", "template/NOTES.txt.jinja"):
        (root / path).unlink()
    toy_template.write(root, toy_template.files("v0.3.0"))
    (root / "template/NOTES.txt.jinja").unlink()


def test_two_releases(checkout: Path, tmp_path: Path) -> None:
    done = release(checkout, "0.1.0")
    assert (done.returncode, done.stderr) == (0, "")
    assert git.text("status", "--porcelain", cwd=checkout, hermetic=True) == ""
    assert git.text("log", "-1", "--format=%s", cwd=checkout, hermetic=True) == "Release v0.1.0"
    assert git.text("describe", cwd=checkout, hermetic=True) == "v0.1.0"
    bundle = checkout / "src/kernelgen/data/template.bundle"
    assert list(template.released_versions(bundle)) == ["v0.1.0"]
    first = "## 0.1.0 (2026-12-01)\n\n### Tool\n\n- First.\n\n### Template\n\n- First.\n"
    assert done.stdout == first

    second_version(checkout)
    text = (checkout / "CHANGELOG.md").read_text().replace("### Tool\n", "### Tool\n\n- Faster.\n", 1)
    (checkout / "CHANGELOG.md").write_text(text)
    commit(checkout)
    refused = release(checkout, "0.2.0")
    assert refused.returncode == 1
    assert (
        "the part Template does not say why\nat CHANGELOG.md\nchanged in new projects: `README.md`\n"
        in refused.stderr
    )
    (checkout / "CHANGELOG.md").write_text(text.replace("### Template\n", "### Template\n\n- Wider.\n", 1))
    commit(checkout)
    done = release(checkout, "0.2.0")
    assert (done.returncode, done.stderr) == (0, "")
    section = """\
## 0.2.0 (2026-12-01)

### Tool

- Faster.

### Template

- Wider.
- An update brings these files:
  - changed in new projects: `README.md`
  - changed in new projects: `csrc/<op>.cu`
  - gone: `NOTES.txt`
  - moved: `tools/lint.cfg` to `config/style.cfg`
"""
    assert done.stdout == section
    changelog = (checkout / "CHANGELOG.md").read_text()
    assert changelog.startswith(
        f"# Changelog\n\n## Unreleased\n\n### Tool\n\n### Template\n\n{section}\n## 0.1.0 (2026"
    )
    assert '\nversion = "0.2.0"\n' in (checkout / "pyproject.toml").read_text()
    assert '__version__ = "0.2.0"' in (checkout / "src/kernelgen/__init__.py").read_text()
    assert list(template.released_versions(bundle)) == ["v0.1.0", "v0.2.0"]

    # The same files give the same bundle, byte for byte.
    again = make_checkout(tmp_path / "again")
    assert release(again, "0.1.0").returncode == 0
    second_version(again)
    (again / "CHANGELOG.md").write_text(CHANGELOG.format("x", "- x\n"))
    commit(again)
    assert release(again, "0.2.0").returncode == 0
    assert (again / "src/kernelgen/data/template.bundle").read_bytes() == bundle.read_bytes()


def test_refusals_write_nothing(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n")
    assert "not committed" in release(checkout, "0.1.0").stderr
    commit(checkout)
    assert "no section 'Unreleased'" in release(checkout, "0.1.0").stderr
    assert "'1.0' is no version" in release(checkout, "1.0").stderr
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.format("x", "- x\n"))
    commit(checkout)
    shown = release(checkout, "0.1.0", "--dry-run")
    assert shown.stdout.startswith("## 0.1.0 (2026-12-01)\n")
    assert git.text("tag", cwd=checkout, hermetic=True) == ""
    assert git.text("status", "--porcelain", cwd=checkout, hermetic=True) == ""
    assert release(checkout, "0.1.0").returncode == 0
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.format("x", "- x\n"))
    commit(checkout)
    assert "0.0.9 is not above v0.1.0" in release(checkout, "0.0.9").stderr
