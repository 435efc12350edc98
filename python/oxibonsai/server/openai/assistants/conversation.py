"""The conversation of a run, as the model reads it."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.chat import ChatRequest
from oxibonsai.server.described_json import described_json
from oxibonsai.server.errors import ApiError
from oxibonsai.server.paging import all_of, json_size
from oxibonsai.server.stores import Object, Store
from oxibonsai.structured import Structure


class Conversation:
    """The messages of a run's thread, followed by the steps of the run itself.

    Args:
        store: The store of threads, messages, runs and steps.
        owner: Owner of the run.
        run: The run; a new one is not in the store yet.
        more: Messages that are about to be added to the thread.
        most_bytes: The JSON of the messages that are read, from the newest; with ``truncation_strategy``
            ``auto``, those before them are left out, except the first one.

    Raises:
        ApiError: 400 if the messages are larger and none may be left out.
    """

    def __init__(
        self, store: Store, owner: str, run: Object, more: Sequence[Object], most_bytes: int
    ) -> None:
        self._run = run
        before = [_said(m) for m in reversed(more)]  # the newest first
        last = run["truncation_strategy"]["last_messages"]
        size = 0
        texts: dict[str, str] = {}
        for message in all_of(store.messages, owner, run["thread_id"], order="desc"):
            said = _said(message)
            size += json_size(said)
            if size > most_bytes:
                if not self._may_be_cut:
                    raise ApiError(
                        400, f"The messages of the thread take more than {most_bytes} bytes: begin a "
                        "new one, or raise --max-body-mb.", code="conversation_too_large",
                    )  # fmt: skip
                thread = run["thread_id"]
                first = store.messages.list(owner, parent=thread, limit=1, order="asc").data
                before += map(_said, first)
                break
            if message["run_id"] is not None and message["run_id"] == run.get("id"):
                texts[message["id"]] = said["content"]
            elif last is None or len(before) < last:
                before.append(said)
            else:
                break
        self._before = before[:last][::-1]
        self._own: list[Object] = []
        if "id" in run:
            for step in all_of(store.run_steps, owner, run["id"]):
                self._own += _step_messages(step, texts)

    @property
    def most_left_out(self) -> int:
        """How many messages may be dropped if they don't all fit into the context."""
        return max(0, len(self._before) - 1) if self._may_be_cut else 0

    @property
    def _may_be_cut(self) -> bool:
        return bool(self._run["truncation_strategy"]["type"] == "auto")

    def request(self, left_out: int = 0) -> ChatRequest:
        """Return the conversation for the model.

        Args:
            left_out: How many messages to drop after the first one, the oldest first; with
                :attr:`most_left_out` only the newest message is left.
        """
        run = self._run
        system = [{"role": "system", "content": run["instructions"]}] if run["instructions"] else []
        messages = [*system, *self._remaining(left_out), *self._own]
        if not any(m["role"] != "system" for m in messages):
            # An empty thread: chat templates need a user message.
            messages.append({"role": "user", "content": ""})
        return ChatRequest(
            messages=messages,
            continue_last=False,
            tools=[_without_none(t) for t in run["tools"]],
            tool_choice=_choice(run),
            parallel_tool_calls=run["parallel_tool_calls"],
            structure=_structure(run["response_format"]),
            reasoning_effort=run["reasoning_effort"],
        )

    def _remaining(self, left_out: int) -> list[Object]:
        if not left_out:
            return list(self._before)
        first, rest = self._before[0], self._before[1 + left_out :]
        if not rest:
            return self._before[-1:]
        if rest[0]["role"] != first["role"]:
            return [first, *rest]
        # Many templates require alternating roles.
        joined = {**first, "content": f"{first['content']}\n\n{rest[0]['content']}"}
        return [joined, *rest[1:]]


def _said(message: Object) -> Object:
    text = "\n".join(part["text"]["value"] for part in message["content"])
    return {"role": message["role"], "content": text}


def _step_messages(step: Object, texts: dict[str, str]) -> list[Object]:
    details = step["step_details"]
    if details["type"] == "message_creation":
        return [{"role": "assistant", "content": texts[details["message_creation"]["message_id"]]}]
    calls = details["tool_calls"]
    made = [
        {"id": c["id"], "type": "function", "function": {**c["function"], "output": None}}
        for c in calls
    ]
    outputs = [
        {"role": "tool", "tool_call_id": c["id"], "content": c["function"]["output"] or ""}
        for c in calls
    ]
    return [{"role": "assistant", "content": "", "tool_calls": made}, *outputs]


def _choice(run: Object) -> object:
    """Return the tool choice: a forced call is forced once, and not after its outputs."""
    choice = run["tool_choice"]
    if choice == "auto" or (choice != "none" and run["used"]["completion_tokens"]):
        return None
    return choice


def _structure(form: str | Object | None) -> Structure | None:
    if form is None or isinstance(form, str) or form["type"] == "text":
        return None
    if form["type"] == "json_object":
        return Structure.json_object()
    return described_json(form["json_schema"]["schema"], strict=form["json_schema"].get("strict"))


def _without_none(tool: Object) -> Object:
    function = {k: v for k, v in tool["function"].items() if v is not None}
    return {"type": "function", "function": function}
