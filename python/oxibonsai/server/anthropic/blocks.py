"""Builds the content blocks of a message incrementally, with their events."""

from __future__ import annotations

import hashlib
import json

from oxibonsai.output import Delta, ToolCallDelta
from oxibonsai.server.stores import Object

Event = Object


class BlockWriter:
    """Sorts the deltas of a reply into blocks: thinking, text, tool use.

    Args:
        omit_thoughts: Leave thinking blocks empty, except for their signature.

    Attributes:
        blocks: The content so far; complete after :meth:`finish`.
    """

    def __init__(self, *, omit_thoughts: bool = False) -> None:
        self.blocks: list[Object] = []
        self._omit_thoughts = omit_thoughts
        self._signature = hashlib.sha256()
        self._arguments = ""
        self._call_index: int | None = None
        self._open = False

    def feed(self, delta: Delta) -> list[Event]:
        """Add a delta; return the resulting events."""
        if delta.tool_call is not None:
            return self._feed_call(delta.tool_call)
        if delta.content:
            events = self._enter("text", {"type": "text", "text": ""})
            self.blocks[-1]["text"] += delta.content
            return [*events, self._delta("text_delta", "text", delta.content)]
        events = self._enter("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        self._signature.update(delta.reasoning_content.encode())
        if self._omit_thoughts:
            return events
        self.blocks[-1]["thinking"] += delta.reasoning_content
        return [*events, self._delta("thinking_delta", "thinking", delta.reasoning_content)]

    def finish(self) -> list[Event]:
        """End the content; return the resulting events."""
        return self._leave()

    def _feed_call(self, piece: ToolCallDelta) -> list[Event]:
        events: list[Event] = []
        if (
            not self._open
            or self.blocks[-1]["type"] != "tool_use"
            or piece.index != self._call_index
        ):
            self._call_index = piece.index
            use: Object = {
                "type": "tool_use",
                "id": piece.id,
                "name": piece.name,
                "input": {},
                "caller": {"type": "direct"},
            }
            events = [*self._leave(), *self._enter("tool_use", use)]
        if piece.arguments:
            self._arguments += piece.arguments
            events.append(self._delta("input_json_delta", "partial_json", piece.arguments))
        return events

    def _enter(self, kind: str, block: Object) -> list[Event]:
        if self._open and self.blocks[-1]["type"] == kind:
            return []
        events = self._leave()
        self.blocks.append(block)
        self._open = True
        start = {"type": "content_block_start", "index": len(self.blocks) - 1}
        return [*events, {**start, "content_block": dict(block)}]

    def _leave(self) -> list[Event]:
        if not self._open:
            return []
        self._open = False
        block = self.blocks[-1]
        events = []
        if block["type"] == "thinking":
            # Clients send it back as it is; it is only a hash of the text.
            block["signature"] = self._signature.hexdigest()
            events = [self._delta("signature_delta", "signature", block["signature"])]
        if block["type"] == "tool_use":
            block["input"] = _object(self._arguments)
            self._arguments = ""
        return [*events, {"type": "content_block_stop", "index": len(self.blocks) - 1}]

    def _delta(self, kind: str, field: str, piece: str) -> Event:
        delta = {"type": kind, field: piece}
        return {"type": "content_block_delta", "index": len(self.blocks) - 1, "delta": delta}


def _object(text: str) -> Object:
    """Return the arguments of a call; empty if they are incomplete."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
