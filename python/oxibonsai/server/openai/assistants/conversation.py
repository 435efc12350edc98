"""The conversation of a run, as the model reads it."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.chat import ChatRequest
from oxibonsai.server.paging import all_of
from oxibonsai.server.stores import Object, Store
from oxibonsai.structured import Structure


class Conversation:
    """The messages of a run's thread, followed by the steps of the run itself.

    Args:
        store: The store of threads, messages, runs and steps.
        owner: Owner of the run.
        run: The run; a new one is not in the store yet.
        more: Messages that are about to be added to the thread.
    """

    def __init__(self, store: Store, owner: str, run: Object, more: Sequence[Object] = ()) -> None:
        said = all_of(store.messages, owner, run["thread_id"])
        before = [m for m in [*said, *more] if m["run_id"] != run.get("id") or m["run_id"] is None]
        last = run["truncation_strategy"]["last_messages"]
        before = before if last is None else before[-last:]
        self._run = run
        self._before = [{"role": m["role"], "content": _text(m)} for m in before]
        self._own: list[Object] = []
        if "id" in run:
            texts = {m["id"]: _text(m) for m in said}
            for step in all_of(store.run_steps, owner, run["id"]):
                self._own += _step_messages(step, texts)

    @property
    def most_left_out(self) -> int:
        """How many messages may be dropped if they don't all fit into the context."""
        if self._run["truncation_strategy"]["type"] != "auto":
            return 0
        return max(0, len(self._before) - 1)

    def request(self, left_out: int = 0) -> ChatRequest:
        """The conversation for the model.

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


def _text(message: Object) -> str:
    return "\n".join(part["text"]["value"] for part in message["content"])


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
    """The tool choice: a forced call is forced once, and not after its outputs."""
    choice = run["tool_choice"]
    if choice == "auto" or (choice != "none" and run["used"]["completion_tokens"]):
        return None
    return choice


def _structure(form: str | Object | None) -> Structure | None:
    if form is None or isinstance(form, str) or form["type"] == "text":
        return None
    if form["type"] == "json_object":
        return Structure.json_object()
    return Structure.described_json(form["json_schema"]["schema"])


def _without_none(tool: Object) -> Object:
    function = {k: v for k, v in tool["function"].items() if v is not None}
    return {"type": "function", "function": function}
