"""Tools for models whose chat template knows none: they are described in the conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from oxibonsai.chat_template import ChatTemplate
from oxibonsai.output.tools import GenericFormat, ToolFormat, detect_tool_format

Message = dict[str, Any]


def tool_format_of(template: ChatTemplate) -> ToolFormat | None:
    """Return the format in which a model writes calls; None: one of its own that is not read here."""
    found = detect_tool_format(template.source)
    return GenericFormat() if found is None and not template.knows_tools else found


def with_generic_tools(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, template: ChatTemplate
) -> list[Message]:
    """Return a conversation in which the tools and the results of calls are text.

    Args:
        messages: As templates take them.
        tools: On offer; None: none.
        template: It knows no tools.
    """
    if "'tool'" in template.source or '"tool"' in template.source:
        taken = list(messages)
    else:
        taken = _with_told_results(messages)
    if not tools:
        return taken
    instructions = GenericFormat.instructions(tools)
    if not template.takes_system:
        return _before_the_first_user(taken, instructions)
    if not taken or taken[0]["role"] != "system":
        return [{"role": "system", "content": instructions}, *taken]
    system = {**taken[0], "content": f"{taken[0]['content']}\n\n{instructions}"}
    return [system, *taken[1:]]


def _with_told_results(messages: Sequence[Message]) -> list[Message]:
    """Return a user's message with the results; what the user says next belongs to it."""
    taken: list[Message] = []
    telling = False
    for message in messages:
        if message["role"] == "tool":
            message = {"role": "user", "content": _told(message)}
            if telling:
                taken[-1] = _joined(taken[-1], message)
            else:
                taken.append(message)
            telling = True
            continue
        if telling and message["role"] == "user":
            taken[-1] = _joined(taken[-1], message)
        else:
            taken.append(message)
        telling = False
    return taken


def _before_the_first_user(messages: list[Message], text: str) -> list[Message]:
    said = {"role": "user", "content": text}
    for i, message in enumerate(messages):
        if message["role"] == "user":
            return [*messages[:i], _joined(said, message), *messages[i + 1 :]]
    return [said, *messages]


def _told(result: Message) -> str | list[Message]:
    """Return a result as the user tells it; images follow the name of their tool."""
    content = result["content"]
    told = {"tool": result.get("name")}
    if isinstance(content, str):
        return json.dumps({**told, "result": content}, ensure_ascii=False)
    return [*_parts(json.dumps(told, ensure_ascii=False)), *content]


def _joined(first: Message, second: Message) -> Message:
    """Return two messages as one; one with images has a list of parts."""
    before, behind = first["content"], second["content"]
    if isinstance(before, str) and isinstance(behind, str):
        return {**second, "content": f"{before}\n\n{behind}"}
    return {**second, "content": [*_parts(before), *_parts(behind)]}


def _parts(content: str | list[Message]) -> list[Message]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
