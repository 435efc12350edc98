"""What the model of a run is asked."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.chat import ChatRequest
from oxibonsai.server.paging import all_of
from oxibonsai.server.stores import Object, Store
from oxibonsai.structured import Structure


def chat_request(store: Store, owner: str, run: Object, more: Sequence[Object] = ()) -> ChatRequest:
    """The conversation of a run.

    Args:
        store: Of threads, messages, runs and steps.
        owner: Whose.
        run: What it is about; a new one is not in the store yet.
        more: Messages that the thread is about to get.
    """
    said = all_of(store.messages, owner, run["thread_id"])
    before = [m for m in [*said, *more] if m["run_id"] != run.get("id") or m["run_id"] is None]
    last = run["truncation_strategy"]["last_messages"]
    before = before if last is None else before[-last:]
    messages = [{"role": "system", "content": run["instructions"]}] if run["instructions"] else []
    messages += [{"role": m["role"], "content": _text(m)} for m in before]
    if "id" in run:
        texts = {m["id"]: _text(m) for m in said}
        for step in all_of(store.run_steps, owner, run["id"]):
            messages += _step_messages(step, texts)
    if not any(m["role"] != "system" for m in messages):
        # An empty thread: the model begins, and templates want somebody to answer.
        messages.append({"role": "user", "content": ""})
    effort = run["reasoning_effort"]
    return ChatRequest(
        messages=messages,
        tools=[_without_none(t) for t in run["tools"]],
        tool_choice=_choice(run),
        parallel_tool_calls=run["parallel_tool_calls"],
        structure=_structure(run["response_format"]),
        enable_thinking=None if effort is None else effort not in ("none", "minimal"),
        template_options={} if effort is None else {"reasoning_effort": effort},
    )


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
    """A call that is forced is forced once: behind its outputs the model is free."""
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
    function = {k: v for k, v in tool["function"].items() if v is not None and k != "strict"}
    return {"type": "function", "function": function}
