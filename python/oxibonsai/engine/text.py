"""The text of a sequence while it is generated: whole characters, ended by stop strings."""

from __future__ import annotations

from oxibonsai.output import StopScanner
from oxibonsai.tokenizer import StreamDecoder, Tokenizer


class TextOutput:
    """Turns generated tokens into text that is safe to show.

    Args:
        tokenizer: The model's.
        stops: Strings that end the text and are not part of it.
        visible: Control tokens whose text is part of the output.

    Attributes:
        pieces: The text that is safe to show so far, as it came.
    """

    def __init__(
        self, tokenizer: Tokenizer, stops: tuple[str, ...], visible: frozenset[int] = frozenset()
    ) -> None:
        self._decoder = StreamDecoder(tokenizer, continues=True, visible=visible)
        self._scanner = StopScanner(stops) if stops else None
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        """Everything that is safe to show so far."""
        return "".join(self.pieces)

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended the text; None while there is none."""
        return None if self._scanner is None else self._scanner.hit

    def feed(self, token: int, *, may_stop: bool = True) -> None:
        """Take the next token; stop strings count only where they may stop the text."""
        self._add(self._decoder.feed(token), may_stop)

    def finish(self) -> None:
        """Show what was held back: nothing more will come."""
        self._add(self._decoder.flush(), True)
        rest = "" if self._scanner is None else self._scanner.flush()
        if rest:
            self.pieces.append(rest)

    def _add(self, piece: str, may_stop: bool) -> None:
        if self._scanner is not None and may_stop:
            piece = self._scanner.feed(piece)
        if piece:
            self.pieces.append(piece)
