"""Converts items of the Responses API to messages of the chat API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from oxibonsai.mcp import CallResult, model_name
from oxibonsai.server.openai.responses.hosted import approval_requests
from oxibonsai.server.openai.schemas.responses import Item, MessageItem, unpacked
from oxibonsai.server.stores import Object
from oxibonsai.server.stores.collection import new_id

_PREFIXES = {
    "message": "msg_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "reasoning": "rs_",
    "compaction": "cmp_",
    "mcp_list_tools": "mcpl_",
    "mcp_call": "mcp_",
    "mcp_approval_request": "mcpr_",
    "mcp_approval_response": "mcpa_",
}
_WITH_STATUS = ("message", "function_call", "function_call_output", "mcp_call")

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
    pairs = [(item.id, _stored(item, new_id(_PREFIXES[item.type]))) for item in given]
    made = [new for _, new in pairs]
    # An approval among them refers to its request by the id that it had.
    ids = {old: new["id"] for old, new in pairs if old}
    for new in made:
        asked = new.get("approval_request_id")
        if asked in ids:
            new["approval_request_id"] = ids[asked]
    return made


def _stored(item: Item, item_id: str) -> Object:
    given = {**item.model_dump(), "id": item_id}
    fields = {k: v for k, v in given.items() if v is not None}
    body = {"id": item_id, "status": "completed", **fields}
    if isinstance(item, MessageItem):
        body["content"] = [_complete(part) for part in body["content"]]
    elif body["type"] not in _WITH_STATUS:
        del body["status"]
    return body


def _complete(part: Object) -> Object:
    return {**part, "annotations": []} if part["type"] == "output_text" else part


def chat_messages(instructions: str | None, items: Sequence[Object]) -> list[Object]:
    """Return a conversation for the chat template.

    Reasoning and calls are merged into the assistant message that they belong to; consecutive system
    and developer messages are merged into one, since most templates accept only one.
    """
    messages: list[Object] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    asked = approval_requests(items)
    for item in items:
        for message in _messages(item, asked):
            last = messages[-1] if messages else None
            if last is not None and _joins(last, message):
                _join(last, message)
            else:
                messages.append(message)
    return messages


def _messages(item: Mapping[str, Any], asked: Mapping[str, Object]) -> Iterator[Object]:
    """Yield the messages of an item; ``asked`` are the approval requests of the conversation by id."""
    kind = item["type"]
    if kind == "mcp_call":
        if item.get("error") is not None:
            yield from _hosted_call(item, CallResult(error_text(item["error"]), failed=True))
        elif item.get("output") is not None:  # else it was not made
            yield from _hosted_call(item, CallResult(item["output"]))
    elif kind == "mcp_approval_response":
        # An approved call follows as an mcp_call.
        request = asked.get(item["approval_request_id"])
        if request is not None and not item["approve"]:
            reason = f": {item['reason']}" if item.get("reason") else "."
            result = CallResult(f"The user declined this call{reason}", failed=True)
            yield from _hosted_call(request, result)
    elif kind not in ("mcp_list_tools", "mcp_approval_request"):
        yield _message(item)


def _hosted_call(item: Mapping[str, Any], result: CallResult) -> Iterator[Object]:
    name = model_name(item["server_label"], item["name"])
    yield _call(item["id"], name, item["arguments"])
    yield {"role": "tool", "tool_call_id": item["id"], "content": result.message}


def tool_error(text: str) -> Object:
    """Return the error of an ``mcp_call``."""
    content = [{"type": "text", "text": text}]
    return {"type": "mcp_tool_execution_error", "content": content}


def error_text(error: str | Mapping[str, Any]) -> str:
    """Return the text of an error, whether :func:`tool_error` made it or another service."""
    if isinstance(error, str):
        return error
    content = error.get("content", error.get("message"))
    parts = content if isinstance(content, list) else [content]
    found = [part.get("text") if isinstance(part, dict) else part for part in parts]
    texts = [text for text in found if isinstance(text, str)]
    return "\n".join(texts) if len(texts) == len(found) else json.dumps(error, ensure_ascii=False)


def _message(item: Mapping[str, Any]) -> Object:
    kind = item["type"]
    if kind == "function_call":
        return _call(item["call_id"], item["name"], item["arguments"])
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


def _call(call_id: str, name: str, arguments: str) -> Object:
    call = {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


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
