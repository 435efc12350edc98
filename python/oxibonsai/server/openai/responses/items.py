"""Converts items of the Responses API to messages of the chat API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oxibonsai.server.openai.schemas.responses import Item, MessageItem, unpacked
from oxibonsai.server.stores import Object
from oxibonsai.server.stores.collection import new_id

_PREFIXES = {
    "message": "msg_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "reasoning": "rs_",
    "compaction": "cmp_",
}


_NO_TEXT = ("input_image", "input_file")


def stored_items(given: Iterable[Item]) -> list[Object]:
    """Return the input as it is stored and listed: complete items, each with a unique id."""
    stored: dict[str, Object] = {}
    for item in given:
        # A duplicate id could not be a cursor of the list.
        item_id = new_id(_PREFIXES[item.type]) if not item.id or item.id in stored else item.id
        stored[item_id] = _stored(item, item_id)
    return list(stored.values())


def new_items(given: Iterable[Item]) -> list[Object]:
    """Return the items as a conversation keeps them; each has a new id, since it may be in several."""
    return [_stored(item, new_id(_PREFIXES[item.type])) for item in given]


def _stored(item: Item, item_id: str) -> Object:
    given = {**item.model_dump(), "id": item_id}
    fields = {k: v for k, v in given.items() if v is not None}
    body = {"id": item_id, "status": "completed", **fields}
    if isinstance(item, MessageItem):
        body["content"] = [_complete(part) for part in body["content"]]
    elif body["type"] in ("reasoning", "compaction"):
        del body["status"]
    return body


def _complete(part: Object) -> Object:
    return {**part, "annotations": []} if part["type"] == "output_text" else part


def chat_messages(instructions: str | None, items: Iterable[Object]) -> list[Object]:
    """Return a conversation for the chat template.

    Reasoning and calls are merged into the assistant message that they belong to; consecutive system
    and developer messages are merged into one, since most templates accept only one.
    """
    messages: list[Object] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    for item in items:
        message = _message(item)
        last = messages[-1] if messages else None
        if last is not None and _joins(last, message):
            _join(last, message)
        else:
            messages.append(message)
    return messages


def _message(item: Mapping[str, Any]) -> Object:
    kind = item["type"]
    if kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"type": "function", "id": item["call_id"], "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        return {
            "role": "tool",
            "tool_call_id": item["call_id"],
            "content": _content(item["output"]),
        }
    if kind == "reasoning":
        thoughts = _text(item.get("content") or item["summary"])
        return {"role": "assistant", "content": "", "reasoning_content": thoughts}
    if kind == "compaction":
        summary = unpacked(item["encrypted_content"])
        return {"role": "assistant", "content": f"Summary of the conversation so far:\n{summary}"}
    return {"role": item["role"], "content": _content(item["content"])}


def _content(parts: str | list[Object]) -> str | list[Object]:
    """Return one text; with images or documents, parts as of the chat API."""
    if isinstance(parts, str) or all(part["type"] not in _NO_TEXT for part in parts):
        return _text(parts)
    return [
        part if part["type"] in _NO_TEXT else {"type": "text", "text": _text([part])}
        for part in parts
    ]


def _text(parts: str | list[Object]) -> str:
    if isinstance(parts, str):
        return parts
    return "\n".join(p["refusal"] if p["type"] == "refusal" else p["text"] for p in parts)


_AUTHORITIES = ("system", "developer")


def _joins(last: Object, message: Object) -> bool:
    if isinstance(message["content"], list) or isinstance(last["content"], list):
        return False  # with images
    if message["role"] in _AUTHORITIES:
        return last["role"] in _AUTHORITIES
    if message["role"] != "assistant" or last["role"] != "assistant":
        return False
    # Two consecutive texts stay separate messages, and reasoning starts a new one.
    begins = message.get("reasoning_content") or (message["content"] and last["content"])
    return not begins and not (message["content"] and last.get("tool_calls"))


def _join(last: Object, message: Object) -> None:
    if message["role"] in _AUTHORITIES:
        last["role"] = "system"
        last["content"] += "\n\n" + message["content"]
        return
    last["content"] += message["content"]
    if "tool_calls" in message:
        last.setdefault("tool_calls", []).extend(message["tool_calls"])
