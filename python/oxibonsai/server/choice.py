"""One answer to a request as its stream gives it."""

from __future__ import annotations

from collections.abc import Iterator

from oxibonsai.engine import Sequence
from oxibonsai.output import Delta, OutputParser, Reply


class Choice:
    """One of the answers to a request.

    Attributes:
        index: Its place among them.
        sequence: Tokens, log-probabilities, counts, times.
    """

    def __init__(self, index: int, sequence: Sequence, parser: OutputParser | None) -> None:
        self.index = index
        self.sequence = sequence
        self._parser = parser
        self._shown = self._measured = self._characters = 0
        self._flushed = False

    @property
    def reply(self) -> Reply:
        """All that the stream has given so far."""
        if self._parser is not None:
            return self._parser.reply
        text = self.sequence.text_output
        return Reply("" if text is None else "".join(text.pieces[: self._shown]))

    @property
    def shown_characters(self) -> int:
        """Length of the model's text that the stream has taken so far."""
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
        """Whether everything that it will give has been given."""
        return self._flushed

    def news(self) -> Iterator[Delta]:
        """What has come since the last call, pieces that came together as one.

        With log-probabilities each piece comes by itself, with those of its own tokens.
        """
        # Asked first: the last pieces may come between the end and the look at the pieces.
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
