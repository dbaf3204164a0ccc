"""What a person sees: errors, progress and tables. Plain lines where the output is no terminal."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from kernelgen.errors import KernelgenError

VERDICTS = {"ok": "green", "pass": "green", "note": "cyan", "warn": "yellow", "error": "red", "fail": "red"}


def make(*, stderr: bool = False) -> Console:
    """A console that neither colours what it guesses nor breaks lines itself."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def show_error(error: KernelgenError) -> None:
    """Print what is wrong, where, and the way out, on standard error."""
    from rich.text import Text

    console = make(stderr=True)
    console.print(Text("error: ", style="bold red") + Text(error.what))
    if error.where:
        console.print(Text("   at: ", style="dim") + Text(error.where))
    if error.detail:
        console.print(Text(error.detail))
    if error.way_out:
        console.print(Text("  fix: ", style="bold green") + Text(error.way_out))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under headings; a cell that is a verdict has its colour."""
    from rich.table import Table
    from rich.text import Text

    console = make()
    if not console.is_terminal:
        console.width = 10_000  # a line a row, for grep and for logs
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        shown.add_column(heading, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(cell, style=VERDICTS.get(cell, "")) for cell in row))
    console.print(shown)


class Bar:
    """Shows work of more than a moment: a bar on a terminal, notes as lines anywhere."""

    def __init__(self, console: Console, progress: Progress | None) -> None:
        self._console = console
        self._progress = progress
        self._task: TaskID | None = None

    def advance(self, done: int, total: int | None, what: str) -> None:
        """`done` of `total` steps or bytes are done; `what` is the latest."""
        if self._progress is None:
            return
        if self._task is None:
            self._task = self._progress.add_task(what, total=total)
        self._progress.update(self._task, completed=done, total=total, description=what)

    def stop(self) -> None:
        """Take the bar away, so that a question can be asked."""
        if self._progress is not None:
            self._progress.stop()

    def note(self, text: str) -> None:
        """A line that the person should read."""
        self._console.print(text, markup=False)


@contextlib.contextmanager
def bar() -> Iterator[Bar]:
    """A `Bar` on standard error while the work goes on."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = make(stderr=True)
    if not console.is_terminal:
        yield Bar(console, None)
        return
    columns = (
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(console, progress)
