"""Creates and changes the objects of the Assistants API."""

from __future__ import annotations

import time
from typing import Any

from oxibonsai.output.tools import read_tools
from oxibonsai.server.openai.schemas.assistants import (
    AssistantChange,
    AssistantCreate,
    MessageCreate,
    RunFields,
    ThreadChange,
)
from oxibonsai.server.stores import Object

# A run that waits longer for tool outputs expires.
RUN_SECONDS = 600
ENDED = ("completed", "incomplete", "failed", "cancelled", "expired")

# Internal members of stored objects.
_HIDDEN = ("active_run", "server", "used")


def view(kept: Object) -> Object:
    """Return an object without its internal members."""
    return {k: v for k, v in kept.items() if k not in _HIDDEN}


def tokens(prompt: int, completion: int) -> Object:
    """Return a count of tokens."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def now() -> int:
    """Return Unix time in seconds."""
    return int(time.time())


def new_assistant(body: AssistantCreate) -> Object:
    """Return an assistant.

    Raises:
        RequestError: Its tools are invalid.
    """
    fields = body.model_dump(mode="json", by_alias=True)
    return _complete({"object": "assistant", "created_at": now(), **fields})


def changed_assistant(kept: Object, body: AssistantChange) -> Object:
    """Return an assistant with the given fields replaced.

    Raises:
        RequestError: Its tools are invalid.
    """
    return _complete({**kept, **body.model_dump(mode="json", by_alias=True, exclude_unset=True)})


def _complete(assistant: Object) -> Object:
    # Validated now, since otherwise every run would fail.
    read_tools(assistant["tools"])
    return {
        **assistant,
        "metadata": assistant["metadata"] or {},
        "response_format": assistant["response_format"] or "auto",
    }


def new_thread(body: ThreadChange) -> Object:
    """Return a thread."""
    return {
        "object": "thread",
        "created_at": now(),
        "metadata": body.metadata or {},
        "tool_resources": body.tool_resources or {},
    }


def new_message(thread_id: str, body: MessageCreate) -> Object:
    """Return a message that a client adds."""
    texts = [{"value": part.text, "annotations": []} for part in body.content]
    message = _message(thread_id, body.role, [{"type": "text", "text": t} for t in texts])
    return {
        **message,
        "status": "completed",
        "completed_at": now(),
        "metadata": body.metadata or {},
    }


def new_answer(run: Object) -> Object:
    """Return the message that a run generates."""
    ids = {"assistant_id": run["assistant_id"], "run_id": run["id"]}
    return {**_message(run["thread_id"], "assistant", []), **ids, "status": "in_progress"}


def _message(thread_id: str, role: str, content: list[Object]) -> Object:
    return {
        "object": "thread.message",
        "created_at": now(),
        "assistant_id": None,
        "thread_id": thread_id,
        "run_id": None,
        "status": "completed",
        "incomplete_details": None,
        "incomplete_at": None,
        "completed_at": None,
        "role": role,
        "content": content,
        "attachments": [],
        "metadata": {},
    }


def new_run(thread_id: str, assistant: Object, body: RunFields) -> Object:
    """Return a queued run; fields that the request leaves out are taken from the assistant."""
    given = body.model_dump(mode="json", by_alias=True, exclude_none=True)

    def chosen(name: str) -> object:
        return given[name] if name in given else assistant[name]

    return {
        "object": "thread.run",
        "created_at": now(),
        "assistant_id": assistant["id"],
        "thread_id": thread_id,
        "status": "queued",
        "started_at": None,
        "expires_at": now() + RUN_SECONDS,
        "cancelled_at": None,
        "failed_at": None,
        "completed_at": None,
        "required_action": None,
        "last_error": None,
        "incomplete_details": None,
        "model": chosen("model"),
        "instructions": chosen("instructions") or "",
        "tools": chosen("tools"),
        "temperature": chosen("temperature"),
        "top_p": chosen("top_p"),
        "response_format": chosen("response_format"),
        "metadata": body.metadata or {},
        "max_prompt_tokens": body.max_prompt_tokens,
        "max_completion_tokens": body.max_completion_tokens,
        "truncation_strategy": given.get("truncation_strategy", {"type": "auto"})
        | {"last_messages": (given.get("truncation_strategy") or {}).get("last_messages")},
        "tool_choice": given.get("tool_choice", "auto"),
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        # Assistants stored by an earlier version have no such field.
        "reasoning_effort": body.reasoning_effort or assistant.get("reasoning_effort"),
        "usage": None,
        "used": tokens(0, 0),
    }


def new_step(run: Object, details: Object) -> Object:
    """Return a step that begins."""
    return {
        "object": "thread.run.step",
        "created_at": now(),
        "run_id": run["id"],
        "assistant_id": run["assistant_id"],
        "thread_id": run["thread_id"],
        "type": details["type"],
        "status": "in_progress",
        "cancelled_at": None,
        "completed_at": None,
        "expired_at": None,
        "failed_at": None,
        "last_error": None,
        "step_details": details,
        "usage": None,
        "used": tokens(0, 0),
        "metadata": {},
    }


def ended_step(step: Object, status: str, **fields: Any) -> Object:
    """Return a step that is over, and what it took."""
    usage = step.get("used")  # stores of earlier versions have none
    return {**step, **fields, "status": status, f"{status}_at": now(), "usage": usage}
