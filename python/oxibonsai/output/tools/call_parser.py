"""Calls inside a streamed text: what all formats have in common.

A format says how a call begins and reads it character by character, so that the cuts between the
pieces of a text make no difference. A text that begins like a call and is none goes back to the
content, and reading goes on with the character that did not fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar

from oxibonsai.output.delta import ToolCallDelta
from oxibonsai.output.stop import StopScanner
from oxibonsai.output.tools.call_writer import CallWriter
from oxibonsai.output.tools.json_scan import Malformed
from oxibonsai.output.tools.lark import CallGrammar, Lark
from oxibonsai.output.tools.request import Tool

# Gets characters from its yields; ends behind the last one of a block of calls.
CallReader = Generator[None, str, None]
Event = str | ToolCallDelta


class ToolFormat(ABC):
    """How a family of models writes calls.

    Attributes:
        name: In messages and options.
        openings: Texts that a block of calls begins with.
        bare_keys: The text itself may be a call, a JSON object that begins with one of these keys.
        marks: All fixed texts of the format that may be special tokens: decode them as text.
        id_length: Letters of a call's id, where the templates of the format want a number of them.
        one_call_a_message: The templates of the format refuse a message with several calls.
        arguments_as_text: They want arguments as JSON text, not as an object.
        no_content_beside_calls: They leave calls out of a message that has content.
        joins_reasoning: They refuse a message with calls that has reasoning and content.
    """

    name: str
    openings: tuple[str, ...]
    bare_keys: ClassVar[tuple[str, ...]] = ()
    marks: tuple[str, ...]
    id_length: ClassVar[int | None] = None
    one_call_a_message: ClassVar[bool] = False
    arguments_as_text: bool = False
    no_content_beside_calls: bool = False
    joins_reasoning: ClassVar[bool] = False

    @property
    def bare(self) -> bool:
        """Whether the text itself may begin with a call, without an opening."""
        return bool(self.bare_keys)

    @abstractmethod
    def read(self, writer: CallWriter, opening: str) -> CallReader:
        """Read a block of calls from behind its opening; raises Malformed where it is none."""

    @abstractmethod
    def grammar(self, lark: Lark, tools: Sequence[Tool], *, parallel: bool) -> CallGrammar:
        """Add the rule ``block``: one or more calls, from behind their opening."""

    def spell(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str | None:
        """Call as the model writes them, for templates that don't; None where all do."""
        return None

    def whole(
        self, lark: Lark, tools: Sequence[Tool], *, forced: bool, answer: str | None
    ) -> str | None:
        """Return a whole reply of a format whose calls are no blocks in a text; None for all others.

        Args:
            lark: Takes the rules.
            tools: On offer.
            forced: There is nothing but a call, behind reasoning.
            answer: What an answer without calls must match.
        """
        return None


class CallParser:
    """Splits a streamed text into content and calls.

    White space around calls belongs to neither, except that what came before a call parts the
    content before it from the content behind it. Time is linear in the text.

    Args:
        tool_format: Of the model.
        writer: Takes the calls.
        first_only: Behind content nothing is a call: a JSON string may hold the text of one.
    """

    def __init__(
        self, tool_format: ToolFormat, writer: CallWriter, *, first_only: bool = False
    ) -> None:
        self._format = tool_format
        self._first_only = first_only
        self._writer = writer
        self._events: list[Event] = []
        self._openings = StopScanner(tool_format.openings)
        self._reader: CallReader | None = None
        self._raw: list[str] = []  # of the call that is being read
        self._space: list[str] = []  # that a call may follow
        self._behind_call = False
        self._has_content = False
        if tool_format.bare:
            self._start("")

    def feed(self, text: str) -> list[Event]:
        """Take a piece of the text; return content and pieces of calls in their order."""
        position = 0
        while position < len(text):
            if self._reader is not None:
                position = self._read(self._reader, text, position)
                continue
            shown, position = self._openings.scan(text, position)
            self._content(shown)
            opening = self._openings.hit
            if opening is None:
                continue
            self._openings.reset()
            if self._first_only and self._has_content:
                self._content(opening)
            else:
                self._start(opening)
        return self._take()

    def finish(self, *, cut: bool = False) -> list[Event]:
        """Return the text is over: what was held back.

        Args:
            cut: It would have gone on: a call that it broke off is left out. Else it is content.
        """
        if self._reader is not None:
            # Without an opening or a name it may be anything.
            is_call = self._writer.begun is not None or self._raw[:1] != [""]
            if cut and is_call:
                self._reader, self._behind_call = None, True
            else:
                self._give_back()
        self._content(self._openings.flush())
        if not self._behind_call:
            self._events.extend(self._space)
        return self._take()

    def _start(self, opening: str) -> None:
        self._raw = [opening]
        self._reader = self._format.read(self._writer, opening)
        next(self._reader)

    def _read(self, reader: CallReader, text: str, position: int) -> int:
        """Return characters to the reader; return the index of the first that it has not taken."""
        for i in range(position, len(text)):
            calls = len(self._writer.calls)
            try:
                reader.send(text[i])
                over = False
            except StopIteration:
                over = True
            except Malformed:
                self._give_back()
                return i
            self._raw.append(text[i])
            self._events.extend(self._writer.deltas)
            self._writer.deltas.clear()
            if len(self._writer.calls) > calls:
                self._raw, self._behind_call = [], True
                if not self._has_content:
                    self._space = []
            if over:
                self._reader = None
                return i + 1
        return len(text)

    def _give_back(self) -> None:
        self._writer.deltas.clear()
        self._writer.abandon()
        self._reader = None
        self._content("".join(self._raw))

    def _content(self, text: str) -> None:
        if self._behind_call:
            text = text.lstrip()
        body = text.rstrip()
        if not body:
            self._space.append(text)
            return
        self._events.append("".join(self._space) + body)
        self._space = [text[len(body) :]]
        self._behind_call, self._has_content = False, True

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return merged(events)


def merged(events: list[Event]) -> list[Event]:
    """Return the neighbours of one kind as one; empty ones left out."""
    kept: list[Event] = []
    for _, group in groupby(events, key=lambda e: -1 if isinstance(e, str) else e.index):
        same = list(group)
        first = same[0]
        joined = "".join(e if isinstance(e, str) else e.arguments for e in same)
        if isinstance(first, ToolCallDelta):
            kept.append(ToolCallDelta(first.index, first.id, first.name, joined))
        elif joined:
            kept.append(joined)
    return kept
