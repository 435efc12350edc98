"""Builds the output items of a response incrementally, with their events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oxibonsai.mcp import CallResult
from oxibonsai.output import Delta, ToolCallDelta
from oxibonsai.server.openai.responses.hosted import HostedTool, ToolList
from oxibonsai.server.openai.responses.items import tool_error
from oxibonsai.server.stores import Object
from oxibonsai.server.stores.collection import new_id

Event = Object


class OutputWriter:
    """Sorts the deltas of replies into items: reasoning, messages, calls.

    Args:
        summary: Return reasoning as the summary of a reasoning item instead of its content. It is not
            actually summarized.
        hosted: The tools that the server calls, by the model's names for them.

    Attributes:
        items: The output so far; complete after :meth:`finish`.
        calls: The calls that the server has to make.
        waits_for_client: Whether the reply has a call that only the client can make or approve.
    """

    def __init__(
        self, *, summary: bool = False, hosted: Mapping[str, HostedTool] | None = None
    ) -> None:
        self.items: list[Object] = []
        self.calls: list[Object] = []
        self.waits_for_client = False
        self._summary = summary
        self._hosted = hosted or {}
        self._call_index: int | None = None
        self._is_open = False  # the last item
        self._is_empty = True  # the reply

    def feed(self, delta: Delta, logprobs: Sequence[Object] = ()) -> list[Event]:
        """Add a delta with the log-probabilities of its tokens; return the resulting events."""
        self._is_empty = False
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
        events = self._begin("message") if complete and self._is_empty else []
        events += self.end_reply(complete=complete)
        for item in self.calls:
            item["status"] = "incomplete"
            events.append(self._done(item))
        self.calls = []
        return events

    def end_reply(self, *, complete: bool) -> list[Event]:
        """End a reply; return the resulting events. The :attr:`calls` in it can then be made."""
        return self._close("completed" if complete else "incomplete")

    def begin_reply(self) -> None:
        """Begin another reply, after the calls of the last one were made."""
        self._is_empty = True
        self.waits_for_client = False

    def add_list(self, tools: ToolList) -> list[Event]:
        """Add the tools of an MCP server; return the resulting events."""
        item = {"id": new_id("mcpl_"), "type": "mcp_list_tools", **tools.fields}
        events = self._add({**item, "tools": []}, is_open=False)
        self.items[-1] = item
        ends = "completed" if tools.error is None else "failed"
        kinds = ("in_progress", ends)
        events += [self._of_item(f"response.mcp_list_tools.{kind}", item) for kind in kinds]
        return [*events, self._done(item)]

    def add_approved(self, asked: Object) -> list[Event]:
        """Add the call that an approval request asks for; return the resulting events."""
        events = self._begin_hosted(asked["server_label"], asked["name"], asked["id"])
        events += self._add_arguments(asked["arguments"])
        return events + self._close("completed")

    def add_result(self, item: Object, result: CallResult) -> list[Event]:
        """End one of the :attr:`calls`; return the resulting events."""
        self.calls = [call for call in self.calls if call is not item]
        if result.failed:
            item |= {"status": "failed", "error": tool_error(result.text)}
        else:
            item |= {"status": "completed", "output": result.text}
        return [self._of_item(f"response.mcp_call.{item['status']}", item), self._done(item)]

    def _feed_call(self, piece: ToolCallDelta) -> list[Event]:
        events: list[Event] = []
        is_call = self._is_open and self.items[-1]["type"] not in ("message", "reasoning")
        if not is_call or self._call_index != piece.index:
            events = self._close("completed")
            self._call_index = piece.index
            events += self._begin_call(piece)
        return events + self._add_arguments(piece.arguments)

    def _begin_call(self, piece: ToolCallDelta) -> list[Event]:
        assert piece.name is not None
        hosted = self._hosted.get(piece.name)
        if hosted is None:
            item: Object = {
                "id": new_id("fc_"),
                "type": "function_call",
                "status": "in_progress",
                "call_id": piece.id,
                "name": piece.name,
                "arguments": "",
            }
            self.waits_for_client = True
            return self._add(item)
        label, name = hosted.label, hosted.tool.tool
        if not hosted.needs_approval:
            return self._begin_hosted(label, name, None)
        item = {
            "id": new_id("mcpr_"),
            "type": "mcp_approval_request",
            "server_label": label,
            "name": name,
            "arguments": "",
        }
        # It is shown when it is complete: nobody shall approve a part of a call.
        self.items.append(item)
        self._is_open = True
        return []

    def _begin_hosted(self, label: str, name: str, approval_request_id: str | None) -> list[Event]:
        item: Object = {
            "id": new_id("mcp_"),
            "type": "mcp_call",
            "status": "in_progress",
            "approval_request_id": approval_request_id,
            "server_label": label,
            "name": name,
            "arguments": "",
            "output": None,
            "error": None,
        }
        return [*self._add(item), self._of_item("response.mcp_call.in_progress", item)]

    def _add_arguments(self, arguments: str) -> list[Event]:
        item = self.items[-1]
        item["arguments"] += arguments
        if not arguments or item["type"] == "mcp_approval_request":
            return []
        return [self._of_item(f"response.{item['type']}_arguments.delta", item, delta=arguments)]

    def _open(self, kind: str) -> bool:
        return self._is_open and bool(self.items[-1]["type"] == kind)

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

    def _add(self, item: Object, *, is_open: bool = True) -> list[Event]:
        self.items.append(item)
        self._is_open = is_open
        place = len(self.items) - 1
        return [self._event("response.output_item.added", output_index=place, item=copy_item(item))]

    def _close(self, status: str) -> list[Event]:
        if not self._is_open:
            return []
        self._is_open = False
        item = self.items[-1]
        if item["type"] == "mcp_approval_request":
            return self._close_approval_request(item, status)
        events: list[Event] = []
        if item["type"] in ("function_call", "mcp_call"):
            kind = f"response.{item['type']}_arguments.done"
            named = {"name": item["name"]} if item["type"] == "function_call" else {}
            events.append(self._of_item(kind, item, **named, arguments=item["arguments"]))
        else:
            (part,) = item[self._parts_name(item)]
            text: Object = {"text": part["text"]}
            if item["type"] == "message":
                text["logprobs"] = part["logprobs"]
            events.append(self._event(f"{self._text_event()}.done", **self._at(), **text))
            events.append(self._event(f"{self._part_event()}.done", **self._at(), part=dict(part)))
        if item["type"] == "mcp_call" and status == "completed":
            self.calls.append(item)
            return events
        if item["type"] != "reasoning":
            item["status"] = status
        return [*events, self._done(item)]

    def _close_approval_request(self, item: Object, status: str) -> list[Event]:
        self.items.pop()
        if status != "completed":
            return []
        self.waits_for_client = True
        return [*self._add(item, is_open=False), self._done(item)]

    def _done(self, item: Object) -> Event:
        place = self._place(item)
        return self._event("response.output_item.done", output_index=place, item=copy_item(item))

    def _of_item(self, kind: str, item: Object, **fields: object) -> Event:
        return self._event(kind, item_id=item["id"], output_index=self._place(item), **fields)

    def _place(self, item: Object) -> int:
        return next(i for i, one in enumerate(self.items) if one is item)

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
