"""Generation held to tool calls that can be read and that fit their schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.output.reasoning import ReasoningTags
from oxibonsai.output.tools.call_parser import ToolFormat
from oxibonsai.output.tools.lark import CallGrammar, Lark, literal, pattern
from oxibonsai.output.tools.request import Tool, ToolChoice
from oxibonsai.structured import Structure


def tool_structure(
    tool_format: ToolFormat,
    tools: Sequence[Tool],
    choice: ToolChoice,
    *,
    parallel: bool = True,
    reasoning: ReasoningTags | None = None,
    inside_reasoning: bool = False,
    special_tokens: Mapping[str, int] = MappingProxyType({}),
    answer: Structure | None = None,
) -> Structure | None:
    """Return the structure of a reply with these tools; None where it is free.

    Required and named: nothing but calls, behind an optional block of reasoning; named: one call.
    Auto: any text, but once the opening of a call is there, a call follows. Where an answer has to
    have a structure, auto is either nothing but calls or nothing but that, behind reasoning.

    Args:
        tool_format: Of the model.
        tools: On offer.
        choice: As the request has it.
        parallel: Allow more than one call.
        reasoning: Tags of a model that may think first; None: it does not.
        inside_reasoning: The prompt ends with an open tag.
        special_tokens: Of the vocabulary, text to id: a mark that is one is matched by its id.
        answer: What an answer without calls must match; a forced call leaves no room for one.

    Raises:
        RequestError: A schema that the format can't be held to, or a structure that can't stand
            beside calls.
    """
    if choice.mode == "none" or not tools:
        return None
    if choice.mode != "auto":
        answer = None
    if choice.mode == "named":
        tools, parallel = [t for t in tools if t.name == choice.name], False
    lark = Lark(special_tokens, beside_json=answer is not None)
    stated = None if answer is None else _answer(answer, tool_format)
    whole = tool_format.whole(lark, tools, forced=choice.mode != "auto", answer=stated)
    forced = choice.mode != "auto"
    if whole is not None:
        return Structure("lark", f"start: {whole}\n{lark.text()}", closes=forced)
    frame = _Frame(lark, tool_format, reasoning, inside_reasoning)
    calls = tool_format.grammar(lark, tools, parallel=parallel)
    several = parallel and calls.repeats
    if stated is not None:
        start = frame.calls_or(stated, calls, several)
    elif choice.mode == "auto":
        start = frame.auto(calls, several)
    else:
        start = frame.forced(calls, several)
    return Structure("lark", f"start: {start}\n{lark.text()}", closes=forced)


def _answer(structure: Structure, tool_format: ToolFormat) -> str:
    """Return an answer that is no call, as part of a grammar."""
    if structure.kind != "json_schema":
        raise RequestError(
            f"tools and a structure of kind {structure.kind} exclude each other:"
            ' send a JSON schema, or tool_choice "none"'
        )
    keys = tool_format.bare_keys
    if keys and not _is_never_a_call(json.loads(structure.text), keys):
        raise RequestError(
            "this model writes calls as JSON objects: beside tools, the schema of an answer has to"
            f" require a property other than {', '.join(keys)}"
        )
    return f"%json {structure.text}"


def _is_never_a_call(schema: Any, keys: Sequence[str]) -> bool:
    if not isinstance(schema, Mapping):
        return False
    required = schema.get("required", [])
    lists = schema.get("type") == "object" and isinstance(required, list)
    return lists and any(key not in keys for key in required)


class _Frame:
    """The text around the blocks of calls."""

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
        return self._behind_reasoning(self._blocks(opening, calls, several))

    def calls_or(self, answer: str, calls: CallGrammar, several: bool) -> str:
        opening = self._opening(calls)
        self._lark.rule("answer", answer)
        return self._behind_reasoning(f"({self._blocks(opening, calls, several)} | answer)")

    def _opening(self, calls: CallGrammar) -> str:
        """Return the beginning of a block where text may come instead; a bare format may leave it out."""
        opening = self._lark.mark(calls.opening)
        return f"({opening})?" if self._format.bare and opening else opening

    @staticmethod
    def _blocks(opening: str, calls: CallGrammar, several: bool) -> str:
        more = f"({literal(calls.separator) if calls.separator else ''} {opening} block)*"
        return f"{opening} block {more if several else ''}"

    def _behind_reasoning(self, start: str) -> str:
        if not self._reasoning:
            return start
        self._lark.rule("lines", r"/\n{1,2}/")
        inner = self._reasoning.removesuffix("?")
        optional = "?" if self._reasoning.endswith("?") else ""
        return f"({inner} lines?){optional} {start}"

    def auto(self, calls: CallGrammar, several: bool) -> str:
        opening = self._opening(calls)
        if self._format.bare:
            # White space on its own: behind it a call may come as well as a text.
            self._lark.rule("SPACE", r"/\s+/")
            self._lark.rule("TEXT", " & ".join([r"/\S(?s:.*)/", *self._no_text_is()]))
            return f"{self._reasoning} SPACE? ({opening} block | TEXT)?"
        self._lark.rule("TEXT", " & ".join(["/(?s:.+)/", *self._no_text_is()]))
        if self._lark.holds_special(calls.opening):
            # What stands in the opening before its first special token is text to the grammar.
            block = f"TEXT? {self._lark.mark(self._lark.from_special(calls.opening))} block"
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
        """Return patterns that a text which is no call and no reasoning does not match."""
        listed = self._format.openings if openings is None else openings
        refused = [f"(?s:.*){pattern(o)}(?s:.*)" for o in listed]
        if self._format.bare:
            keys = "|".join(self._format.bare_keys)
            refused.append(rf'\{{\s*"({keys})"(?s:.*)')
        if self._optional_tag is not None:
            refused.append(rf"\s*{pattern(self._optional_tag)}(?s:.*)")
        return [f"~/{r}/" for r in refused]
