"""Builds the output items of a response incrementally, with their events."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.output import Delta, ToolCallDelta
from oxibonsai.server.stores import Object
from oxibonsai.server.stores.collection import new_id

Event = Object


class OutputWriter:
    """Sorts the deltas of a reply into items: reasoning, a message, function calls.

    Args:
        summary: Return reasoning as the summary of a reasoning item instead of its content. It is not
            actually summarized.

    Attributes:
        items: The output so far; complete after :meth:`finish`.
    """

    def __init__(self, *, summary: bool = False) -> None:
        self.items: list[Object] = []
        self._summary = summary
        self._call_index: int | None = None
        self._finished = False

    def feed(self, delta: Delta, logprobs: Sequence[Object] = ()) -> list[Event]:
        """Add a delta with the log-probabilities of its tokens; return the resulting events."""
        if delta.tool_call is not None:
            return self._feed_call(delta.tool_call)
        kind = "message" if delta.content else "reasoning"
        events = [] if self._open(kind) else self._close("completed") + self._begin(kind)
        item = self.items[-1]
        (part,) = item[self._parts_name(item)]
        part["text"] += delta.content or delta.reasoning_content
        event: Event = {"delta": delta.content or delta.reasoning_content}
        if kind == "message":
            event["logprobs"] = list(logprobs)
            part["logprobs"] += logprobs
        return [*events, self._event(f"{self._text_event()}.delta", **self._at(), **event)]

    def finish(self, *, complete: bool) -> list[Event]:
        """End the output; return the resulting events.

        Args:
            complete: Whether the model completed it; else the last item is incomplete.
        """
        # Without any output there is one empty message.
        events = self._begin("message") if complete and not self.items else []
        events += self._close("completed" if complete else "incomplete")
        self._finished = True
        return events

    def _feed_call(self, piece: ToolCallDelta) -> list[Event]:
        events: list[Event] = []
        if not self._open("function_call") or self._call_index != piece.index:
            events = self._close("completed")
            self._call_index = piece.index
            item: Object = {
                "id": new_id("fc_"),
                "type": "function_call",
                "status": "in_progress",
                "call_id": piece.id,
                "name": piece.name,
                "arguments": "",
            }
            events += self._add(item)
        if piece.arguments:
            item = self.items[-1]
            item["arguments"] += piece.arguments
            kind = "response.function_call_arguments.delta"
            events.append(
                self._event(kind, item_id=item["id"], output_index=len(self.items) - 1,
                            delta=piece.arguments)
            )  # fmt: skip
        return events

    def _open(self, kind: str) -> bool:
        if not self.items or self.items[-1]["type"] != kind:
            return False
        # A reasoning item has no status of its own.
        return bool(self.items[-1].get("status", "in_progress") == "in_progress")

    def _begin(self, kind: str) -> list[Event]:
        if kind == "message":
            item: Object = {
                "id": new_id("msg_"),
                "type": "message",
                "status": "in_progress",
                "role": "assistant",
                "content": [],
            }
            part: Object = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        else:
            item = {"id": new_id("rs_"), "type": "reasoning", "summary": []}
            item |= {} if self._summary else {"content": []}
            part = {"type": "summary_text" if self._summary else "reasoning_text", "text": ""}
        events = self._add(item)
        item[self._parts_name(item)].append(part)
        return [*events, self._event(f"{self._part_event()}.added", **self._at(), part=dict(part))]

    def _add(self, item: Object) -> list[Event]:
        self.items.append(item)
        place = len(self.items) - 1
        return [self._event("response.output_item.added", output_index=place, item=copy_item(item))]

    def _close(self, status: str) -> list[Event]:
        if not self.items or self._finished:
            return []
        item = self.items[-1]
        events: list[Event] = []
        place = len(self.items) - 1
        if item["type"] == "function_call":
            kind = "response.function_call_arguments.done"
            events.append(
                self._event(kind, item_id=item["id"], output_index=place, name=item["name"],
                            arguments=item["arguments"])
            )  # fmt: skip
        else:
            (part,) = item[self._parts_name(item)]
            text: Object = {"text": part["text"]}
            if item["type"] == "message":
                text["logprobs"] = part["logprobs"]
            events.append(self._event(f"{self._text_event()}.done", **self._at(), **text))
            events.append(self._event(f"{self._part_event()}.done", **self._at(), part=dict(part)))
        if item["type"] != "reasoning":
            item["status"] = status
        done = self._event("response.output_item.done", output_index=place, item=copy_item(item))
        return [*events, done]

    def _at(self) -> Object:
        item = self.items[-1]
        index = "summary_index" if self._parts_name(item) == "summary" else "content_index"
        return {"item_id": item["id"], "output_index": len(self.items) - 1, index: 0}

    def _parts_name(self, item: Object) -> str:
        return "summary" if item["type"] == "reasoning" and self._summary else "content"

    def _part_event(self) -> str:
        is_summary = self._parts_name(self.items[-1]) == "summary"
        return "response.reasoning_summary_part" if is_summary else "response.content_part"

    def _text_event(self) -> str:
        if self.items[-1]["type"] == "message":
            return "response.output_text"
        return "response.reasoning_summary_text" if self._summary else "response.reasoning_text"

    @staticmethod
    def _event(kind: str, **fields: object) -> Event:
        return {"type": kind, **fields}


def copy_item(item: Object) -> Object:
    """Return a snapshot of the item, whose lists will be extended."""
    return {k: [dict(p) for p in v] if isinstance(v, list) else v for k, v in item.items()}
