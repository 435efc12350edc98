"""One choice of a response, read incrementally."""

from __future__ import annotations

from collections.abc import Iterator

from oxibonsai.engine import Sequence
from oxibonsai.output import Delta, OutputParser, Reply


class Choice:
    """One choice of a response.

    Attributes:
        index: Its index in the response.
        sequence: Its tokens, log-probabilities, counts and times.
    """

    def __init__(self, index: int, sequence: Sequence, parser: OutputParser | None) -> None:
        self.index = index
        self.sequence = sequence
        self._parser = parser
        self._shown = self._measured = self._characters = 0
        self._flushed = False

    @property
    def reply(self) -> Reply:
        """The reply, as far as its deltas have been read."""
        if self._parser is not None:
            return self._parser.reply
        text = self.sequence.text_output
        return Reply("" if text is None else "".join(text.pieces[: self._shown]))

    @property
    def shown_characters(self) -> int:
        """Number of characters of the model's text that have been read."""
        text = self.sequence.text_output
        if text is None:
            return 0
        while self._measured < self._shown:
            self._characters += len(text.pieces[self._measured])
            self._measured += 1
        return self._characters

    @property
    def finish_reason(self) -> str | None:
        """``stop``, ``length`` or ``tool_calls``; None while it runs."""
        reason = self.sequence.finish_reason
        if reason is None or self._parser is None:
            return reason
        return self._parser.finish_reason(reason)

    @property
    def ended(self) -> bool:
        """Whether all its output has been read."""
        return self._flushed

    def new_deltas(self) -> Iterator[Delta]:
        """Yield new deltas since the last call, merged into one where several pieces are waiting.

        With log-probabilities the pieces stay separate, each with those of its own tokens.
        """
        # Read first: the last pieces may arrive between this check and the next line.
        over = self.sequence.times.finished is not None
        output = self.sequence.text_output
        pieces = [] if output is None else output.pieces[self._shown :]
        if len(pieces) > 1 and not self.sequence.params.logprobs:
            self._shown += len(pieces) - 1
            pieces = ["".join(pieces)]
        for text in pieces:
            self._shown += 1
            if self._parser is None:
                yield Delta(content=text)
            else:
                yield from self._parser.feed(text)
        if over and not self._flushed:
            self._flushed = True
            if self._parser is not None:
                yield from self._parser.finish(cut=self.sequence.finish_reason == "length")
