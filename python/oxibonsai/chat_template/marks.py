"""Where ``{% generation %}`` begins and ends in the text that a template makes."""

from __future__ import annotations

from contextvars import ContextVar

Span = tuple[int, int]  # the first character and the one after the last


class Marks:
    """The spans of one rendering.

    Attributes:
        written: Characters of the text so far.
        spans: Of the blocks that have ended.
    """

    def __init__(self) -> None:
        self.written = 0
        self.spans: list[Span] = []
        self._begun: list[int] = []

    def begin(self) -> None:
        """Record that a block begins here."""
        self._begun.append(self.written)

    def end(self) -> None:
        """Record that the last open block ends here."""
        self.spans.append((self._begun.pop(), self.written))


marks: ContextVar[Marks] = ContextVar("marks")  # of the rendering that runs in this thread


def begin() -> None:
    """Record the beginning of a block; the template calls this."""
    marks.get().begin()


def end() -> None:
    """Record the end of a block; the template calls this."""
    marks.get().end()
