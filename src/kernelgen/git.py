"""Running git: one place that decides whose configuration counts."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from kernelgen.errors import KernelgenError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Kept because they say how to reach a remote, where to stop looking for a repository or who commits; every
# other GIT_* (GIT_DIR and GIT_INDEX_FILE of a hook above all) would point git at somebody else's repository.
_KEPT = (
    *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_CEILING_DIRECTORIES", "GIT_EXEC_PATH"),
    *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
)
_IDENTITY = {
    "GIT_AUTHOR_NAME": "kernelgen",
    "GIT_AUTHOR_EMAIL": "kernelgen@localhost",
    "GIT_COMMITTER_NAME": "kernelgen",
    "GIT_COMMITTER_EMAIL": "kernelgen@localhost",
}
_HERMETIC = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, **_IDENTITY}


def environment(*, hermetic: bool = False) -> dict[str, str]:
    """The environment for a git process.

    Args:
        hermetic: ignore the user's and the system's configuration and bring an identity. For repositories
            that are kernelgen's own; in a person's repository their configuration holds (filters, line ends,
            safe.directory).

    Returns:
        Variables, English messages included, since some are read back.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k in _KEPT}
    return {**kept, **(_HERMETIC if hermetic else {}), "LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0"}


def run(
    *args: str,
    cwd: Path,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    hermetic: bool = False,
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run git and keep its output.

    Args:
        args: the arguments after `git`.
        cwd: the folder to run in.
        stdin: what git reads, nothing by default.
        env: variables on top of `environment`.
        hermetic: see `environment`.
        check: raise on a non-zero exit status.

    Returns:
        The finished process; output is bytes, as file names and contents are.

    Raises:
        KernelgenError: git is not installed, or failed and `check` is set.
    """
    try:
        done = subprocess.run(
            ["git", *args],
            cwd=cwd,
            input=stdin if stdin is not None else b"",
            capture_output=True,
            env={**environment(hermetic=hermetic), **(env or {})},
            check=False,
        )
    except FileNotFoundError as error:
        raise KernelgenError("git is not on the PATH", way_out="install git 2.34 or later") from error
    if check and done.returncode:
        raise KernelgenError(
            f"git {args[0]} failed with status {done.returncode}",
            where=str(cwd),
            detail=done.stderr.decode(errors="replace").strip() or None,
        )
    return done


def text(*args: str, cwd: Path, hermetic: bool = False, env: Mapping[str, str] | None = None) -> str:
    """The standard output of a git command, decoded and without the last newline."""
    return (
        run(*args, cwd=cwd, hermetic=hermetic, env=env).stdout.decode("utf-8", "surrogateescape").rstrip("\n")
    )


def to_commit(command: str, *, cwd: Path) -> str:
    """A command that commits, as a way out: after those that tell git who commits, where it does not know."""
    idents = ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT")
    if not any(run("var", ident, cwd=cwd, check=False).returncode for ident in idents):
        return command
    set_them = 'git config --global user.name "Your Name" && git config --global user.email you@example.org'
    return f"{set_them} && {command}"
