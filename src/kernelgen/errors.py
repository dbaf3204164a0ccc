"""The one error that kernelgen shows: what is wrong, where, and the way out."""

from __future__ import annotations


class KernelgenError(Exception):
    """A fault that its reader can act on.

    Everything below the command line raises this and nothing else for bad input, missing tools and failed
    commands; the command line prints it without a traceback. Any other exception is a defect of kernelgen.
    """

    def __init__(
        self, what: str, *, where: str | None = None, way_out: str | None = None, detail: str | None = None
    ) -> None:
        """Describe a fault.

        Args:
            what: one sentence, with the offending value in it.
            where: a file, `file:line`, key or argument.
            way_out: what to type or change next.
            detail: lines shown as they are (a caret under a schema, a compiler's first error).
        """
        super().__init__(what)
        self.what = what
        self.where = where
        self.way_out = way_out
        self.detail = detail

    def __str__(self) -> str:
        """All four parts, one after the other, for logs and for tests."""
        parts = [self.what]
        if self.where:
            parts.append(f"at {self.where}")
        if self.detail:
            parts.append(self.detail)
        if self.way_out:
            parts.append(self.way_out)
        return "\n".join(parts)
