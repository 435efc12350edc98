"""Generation held to tool calls that can be read and that fit their schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from oxibonsai.output.reasoning import ReasoningTags
from oxibonsai.output.tools.call_parser import ToolFormat
from oxibonsai.output.tools.lark import CallGrammar, Lark, literal, pattern
from oxibonsai.output.tools.request import Tool, ToolChoice
from oxibonsai.structured import Structure

# Keys that a call as a bare JSON object may begin with.
_BARE_CALL = r'\{\s*"(name|arguments|parameters|id|type)"(?s:.*)'


def tool_structure(
    tool_format: ToolFormat,
    tools: Sequence[Tool],
    choice: ToolChoice,
    *,
    parallel: bool = True,
    reasoning: ReasoningTags | None = None,
    inside_reasoning: bool = False,
    special_tokens: Mapping[str, int] = MappingProxyType({}),
) -> Structure | None:
    """What a reply with these tools has to look like; None where it is free.

    Required and named: nothing but calls, behind an optional block of reasoning; named: one call.
    Auto: any text, but once the opening of a call is there, a call follows.

    Args:
        tool_format: Of the model.
        tools: On offer.
        choice: As the request has it.
        parallel: Allow more than one call.
        reasoning: Tags of a model that may think first; None: it does not.
        inside_reasoning: The prompt ends with an open tag.
        special_tokens: Of the vocabulary, text to id: a mark that is one is matched by its id.

    Raises:
        RequestError: A schema that the format can't be held to.
    """
    if choice.mode == "none" or not tools:
        return None
    if choice.mode == "named":
        tools, parallel = [t for t in tools if t.name == choice.name], False
    lark = Lark(special_tokens)
    frame = _Frame(lark, tool_format, reasoning, inside_reasoning)
    calls = tool_format.grammar(lark, tools, parallel=parallel)
    several = parallel and calls.repeats
    start = frame.auto(calls, several) if choice.mode == "auto" else frame.forced(calls, several)
    return Structure.lark(f"start: {start}\n{lark.text()}")


class _Frame:
    """What stands around the blocks of calls."""

    def __init__(
        self,
        lark: Lark,
        tool_format: ToolFormat,
        reasoning: ReasoningTags | None,
        inside: bool,
    ) -> None:
        self._lark = lark
        self._format = tool_format
        self._optional_tag = reasoning.open if reasoning and not inside else None
        self._reasoning = ""
        if reasoning is not None:
            self._add_reasoning(reasoning, inside)
            self._reasoning = "reasoning" if inside else "reasoning?"

    def forced(self, calls: CallGrammar, several: bool) -> str:
        opening = "" if self._format.bare else self._lark.mark(calls.opening)
        more = f"({literal(calls.separator) if calls.separator else ''} {opening} block)*"
        start = f"{opening} block {more if several else ''}"
        if not self._reasoning:
            return start
        self._lark.rule("lines", r"/\n{1,2}/")
        inner = self._reasoning.removesuffix("?")
        optional = "?" if self._reasoning.endswith("?") else ""
        return f"({inner} lines?){optional} {start}"

    def auto(self, calls: CallGrammar, several: bool) -> str:
        opening = self._lark.mark(calls.opening)
        if self._format.bare:
            # White space on its own: behind it a call may come as well as a text.
            self._lark.rule("SPACE", r"/\s+/")
            self._lark.rule("TEXT", " & ".join([r"/\S(?s:.*)/", *self._no_text_is()]))
            return f"{self._reasoning} SPACE? (({opening})? block | TEXT)?"
        self._lark.rule("TEXT", " & ".join(["/(?s:.+)/", *self._no_text_is()]))
        if self._lark.is_special(calls.opening):
            block = f"TEXT? {opening} block"
        else:
            before = f"/(?s:.*){pattern(calls.opening)}/"
            others = [o for o in self._format.openings if o != calls.opening]
            self._lark.rule("to_call[lazy]", " & ".join([before, *self._no_text_is(others)]))
            block = "to_call block"
        rest = f"({block})* TEXT?" if several else f"({block} | TEXT)?"
        return f"{self._reasoning} {rest}"

    def _add_reasoning(self, tags: ReasoningTags, inside: bool) -> None:
        if self._lark.is_special(tags.close):
            self._lark.rule("THOUGHT", "/(?s:.+)/")
            opening = "" if inside else self._lark.mark(tags.open)
            self._lark.rule("reasoning", f"{opening} THOUGHT? {self._lark.mark(tags.close)}")
        else:
            # A bound on white space: where only a call may follow, it could go on for ever.
            opening = "" if inside else r"[ \n]{0,2}" + pattern(tags.open)
            self._lark.rule("reasoning[lazy]", f"/{opening}(?s:.*){pattern(tags.close)}/")

    def _no_text_is(self, openings: Sequence[str] | None = None) -> list[str]:
        """What a text that is no call and no reasoning does not match."""
        listed = self._format.openings if openings is None else openings
        refused = [f"(?s:.*){pattern(o)}(?s:.*)" for o in listed]
        if self._format.bare:
            refused.append(_BARE_CALL)
        if self._optional_tag is not None:
            refused.append(rf"\s*{pattern(self._optional_tag)}(?s:.*)")
        return [f"~/{r}/" for r in refused]
