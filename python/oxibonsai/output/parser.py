"""From the text of a model to what a client sees: reasoning, answer, calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from oxibonsai.output.channels import ChannelSplitter
from oxibonsai.output.delta import Delta, ToolCall, ToolCallDelta
from oxibonsai.output.reasoning import ReasoningSplitter, ReasoningTags
from oxibonsai.output.tools.call_parser import CallParser, Event, ToolFormat
from oxibonsai.output.tools.call_writer import CallIds, CallWriter
from oxibonsai.output.tools.request import Tool


@dataclass
class Reply:
    """All of a reply so far.

    Attributes:
        content: The answer.
        reasoning_content: What the model thought before.
        tool_calls: Complete calls. A malformed one is text in the content.
        cut_call: The call that a limit of tokens broke off, with its arguments so far.
    """

    content: str = ""
    reasoning_content: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    cut_call: ToolCall | None = None


class OutputParser:
    """Takes the text of a reply in pieces and gives it back sorted.

    Args:
        tool_format: How the model writes calls; None leaves them in the content.
        tools: On offer; without any, nothing is a call.
        ids: Of the calls, by index.
        parallel: Take more than one call; further ones stay in the content.
        reasoning: Tags of the model; None leaves reasoning in the content.
        inside_reasoning: The prompt ends with an open tag (see ``starts_inside``).
        structured: An answer has a structure: a call counts at its beginning, or behind another.
        forced: Behind reasoning there is nothing but calls.
    """

    def __init__(
        self,
        tool_format: ToolFormat | None,
        tools: Sequence[Tool],
        *,
        ids: CallIds,
        parallel: bool = True,
        reasoning: ReasoningTags | None = None,
        inside_reasoning: bool = False,
        structured: bool = False,
        forced: bool = False,
    ) -> None:
        self._forced = forced
        self._splitter: ChannelSplitter | ReasoningSplitter | None = None
        if reasoning is not None and reasoning.answer:
            self._splitter = ChannelSplitter(inside=inside_reasoning)
        elif reasoning is not None:
            self._splitter = ReasoningSplitter(reasoning, inside=inside_reasoning)
        self._writer = CallWriter({t.name: t for t in tools}, ids, parallel=parallel)
        self._calls = (
            CallParser(tool_format, self._writer, first_only=structured)
            if tool_format and tools
            else None
        )
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._cut_call: ToolCall | None = None

    def feed(self, text: str) -> list[Delta]:
        """Take a piece of the text.

        Returns:
            What is new, in its order; the same, joined, for every way to cut the text.
        """
        reasoning, answer = self._splitter.feed(text) if self._splitter else ("", text)
        return self._deltas(reasoning, self._answer(answer))

    def finish(self, *, cut: bool = False) -> list[Delta]:
        """Return the text is over: what was held back.

        Args:
            cut: A limit of tokens ended it: a call that it broke off is no content.
        """
        reasoning, answer = self._splitter.finish() if self._splitter else ("", "")
        events = self._answer(answer)
        if self._calls is not None:
            self._cut_call = self._writer.begun if cut else None
            events += self._calls.finish(cut=cut)
        if cut and self._forced:
            # What was held back is the beginning of a call, even if it is too short to tell.
            events = [event for event in events if isinstance(event, ToolCallDelta)]
        return self._deltas(reasoning, events)

    @property
    def reply(self) -> Reply:
        """All that was returned so far, joined; of calls the complete ones."""
        content, reasoning = "".join(self._content), "".join(self._reasoning)
        return Reply(content, reasoning, list(self._writer.calls), self._cut_call)

    def finish_reason(self, reason: str) -> str:
        """Return ``tool_calls`` in place of ``stop`` where there is a complete call.

        Args:
            reason: Why the text ended: ``stop``, ``length`` or another one.
        """
        return "tool_calls" if reason == "stop" and self._writer.calls else reason

    def _answer(self, text: str) -> list[Event]:
        return self._calls.feed(text) if self._calls is not None else [text]

    def _deltas(self, reasoning: str, events: list[Event]) -> list[Delta]:
        deltas = [Delta(reasoning_content=reasoning)] if reasoning else []
        for event in events:
            if isinstance(event, ToolCallDelta):
                deltas.append(Delta(tool_call=event))
            elif event:
                deltas.append(Delta(content=event))
                self._content.append(event)
        self._reasoning.append(reasoning)
        return deltas
