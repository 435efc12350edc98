"""Texts without end: what stays in the context when it is full."""

from __future__ import annotations

from dataclasses import dataclass

from oxibonsai.errors import RequestError


@dataclass(frozen=True)
class ContextShift:
    """The first tokens stay (attention sinks, Xiao et al. 2023), and a window of the last ones.

    What is between them is left out, and the rest is read again as a text of its own: its result is
    that of the shorter text, down to the byte. Reading again costs, for each new token, at most the
    time of ``(sinks + window) / (context - sinks - window)`` tokens of a prompt.

    Attributes:
        sinks: First tokens to keep; 0 or more.
        window: Last tokens to keep; None: half of what the sinks leave of the context.
    """

    sinks: int = 4
    window: int | None = None

    def __post_init__(self) -> None:
        if self.sinks < 0:
            raise RequestError(f"sinks is {self.sinks}; it must be 0 or more")
        if self.window is not None and self.window < 1:
            raise RequestError(f"window is {self.window}; it must be at least 1")

    def window_of(self, ctx_size: int) -> int:
        """Return how many of the last tokens to keep in a context of this size."""
        window = (ctx_size - self.sinks) // 2 if self.window is None else self.window
        if window < 1 or self.sinks + window >= ctx_size:
            raise RequestError(
                f"a context shift that keeps {self.sinks} first and {window} last tokens does not "
                f"fit the context of {ctx_size}: keep fewer or raise --ctx-size"
            )
        return window


@dataclass(frozen=True)
class Shifted:
    """A context shift that happened.

    Attributes:
        num_generated: Tokens generated before it.
        dropped: Tokens of the context that were left out.
    """

    num_generated: int
    dropped: int
