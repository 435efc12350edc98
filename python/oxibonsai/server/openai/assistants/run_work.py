"""One round of a run: converts the model's output to messages, steps and events."""

from __future__ import annotations

import logging
from typing import Any

from oxibonsai.chat import PreparedPrompt
from oxibonsai.output import Delta, ToolCallDelta
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.errors import as_api_error
from oxibonsai.server.generation import Generation
from oxibonsai.server.openai.assistants.objects import (
    ended_step,
    new_answer,
    new_step,
    now,
    tokens,
    view,
)
from oxibonsai.server.openai.background_tasks import BackgroundTask
from oxibonsai.server.stores import NoSuchObjectError, Object, Store
from oxibonsai.server.submitter import Submitter

_log = logging.getLogger("oxibonsai.server")


class _CancelledError(Exception):
    """Cancellation of the run was requested."""


class RunWork:
    """Generates the next message of a run; every change is stored before its event is published.

    Args:
        store: The store of threads, messages, runs and steps.
        owner: Owner of the run.
        run: The stored run.
        task: Publishes the events.
    """

    def __init__(self, store: Store, owner: str, run: Object, task: BackgroundTask) -> None:
        self._store = store
        self._owner = owner
        self._run = run
        self._task = task
        # Tokens of earlier rounds, of this one, and those of this one that its steps have reported.
        self._before = run["used"]
        self._generation: Generation | None = None
        self._reported = tokens(0, 0)
        self._message: Object | None = None
        self._message_step: Object | None = None
        self._calls_step: Object | None = None
        self._text = ""
        self._held = ""

    def __call__(
        self, submitter: Submitter, prepared: PreparedPrompt, params: SamplingParams
    ) -> None:
        """Run the round to its end; errors are recorded in the run."""
        try:
            try:
                self._change_run("in_progress", started_at=self._run["started_at"] or now())
                if reason := self._limit(prepared):
                    self._change_run("incomplete", incomplete_details={"reason": reason})
                    return
                with submitter.prompt(prepared, params) as generation:
                    self._generation = generation
                    self._follow(generation)
            except NoSuchObjectError:
                raise
            except _CancelledError:
                self._leave("cancelled", reason="run_cancelled")
                self._change_run("cancelled", cancelled_at=now())
            except Exception as e:
                self._fail(e)
        except NoSuchObjectError:
            # The thread was deleted, and the run with it.
            _log.debug("run %s ended with its thread", self._run["id"])

    def _limit(self, prepared: PreparedPrompt) -> str | None:
        """Return the name of the token limit over all rounds that is used up; None if there is none."""
        prompt, made = self._run["max_prompt_tokens"], self._run["max_completion_tokens"]
        if prompt is not None and self._before["prompt_tokens"] + len(prepared.ids) > prompt:
            return "max_prompt_tokens"
        if made is not None and self._before["completion_tokens"] >= made:
            return "max_completion_tokens"
        return None

    def _follow(self, generation: Generation) -> None:
        for _, delta in generation.stream():
            if self._task.cancelled:
                break
            if delta is not None:
                self._feed(delta)
        choice = generation.choices[0] if generation.choices else None
        if self._task.cancelled or choice is None:
            raise _CancelledError
        if choice.finish_reason == "tool_calls":
            self._require([call.message_form for call in choice.reply.tool_calls])
        elif choice.finish_reason == "length":
            self._leave("completed", reason="max_tokens")
            details = {"incomplete_details": {"reason": "max_completion_tokens"}}
            self._change_run("incomplete", completed_at=now(), **details)
        else:
            self._leave("completed")
            self._change_run("completed", completed_at=now())

    def _feed(self, delta: Delta) -> None:
        if delta.tool_call is not None:
            self._feed_call(delta.tool_call)
        elif delta.content:
            # Whitespace around calls is not a message.
            self._held += delta.content
            if self._message is not None or not self._held.isspace():
                self._feed_text(self._held)
                self._held = ""

    def _feed_text(self, text: str) -> None:
        if self._message is None:
            created = self._store.messages.create(
                self._owner, new_answer(self._run), parent=self._run["thread_id"]
            )
            self._message, self._text = created, ""
            details = {"message_id": created["id"]}
            step = {"type": "message_creation", "message_creation": details}
            self._message_step = self._begin_step(step)
            self._emit("thread.message.created", created)
            self._emit("thread.message.in_progress", created)
        self._text += text
        block = {"index": 0, "type": "text", "text": {"value": text, "annotations": []}}
        delta = {"content": [block]}
        self._emit(
            "thread.message.delta",
            {"id": self._message["id"], "object": "thread.message.delta", "delta": delta},
        )

    def _feed_call(self, piece: ToolCallDelta) -> None:
        if self._calls_step is None:
            self._end_message()
            self._calls_step = self._begin_step({"type": "tool_calls", "tool_calls": []})
        call: Object = {"index": piece.index, "type": "function"}
        function: Object = {"arguments": piece.arguments}
        if piece.id is not None:
            call["id"] = piece.id
            function |= {"name": piece.name, "output": None}
        details = {"type": "tool_calls", "tool_calls": [{**call, "function": function}]}
        self._emit(
            "thread.run.step.delta",
            {
                "id": self._calls_step["id"],
                "object": "thread.run.step.delta",
                "delta": {"step_details": details},
            },
        )

    def _require(self, calls: list[Object]) -> None:
        """Make the run wait for the outputs of these calls."""
        assert self._calls_step is not None
        self._end_message()
        waiting = [{**c, "function": {**c["function"], "output": None}} for c in calls]
        details = {"type": "tool_calls", "tool_calls": waiting}
        used = self._unreported()
        self._store.run_steps.change(
            self._owner,
            self._calls_step["id"],
            lambda s: {**s, "step_details": details, "used": _sum(s["used"], used)},
        )
        action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": calls}}
        self._change_run("requires_action", required_action=action)

    def _begin_step(self, details: Object) -> Object:
        step = new_step(self._run, details)
        step = self._store.run_steps.create(self._owner, step, parent=self._run["id"])
        self._emit("thread.run.step.created", step)
        self._emit("thread.run.step.in_progress", step)
        return step

    def _leave(
        self, status: str, *, reason: str | None = None, error: Object | None = None
    ) -> None:
        """End the open message and steps when the round ends without waiting for tool outputs.

        Args:
            status: Final status of the message's step.
            reason: Why the message is incomplete.
            error: The error of failed steps.
        """
        self._end_message(status, reason, error)
        if self._calls_step is not None:
            broken = {"code": "server_error", "message": "The call is incomplete."}
            status = "cancelled" if status == "cancelled" else "failed"
            self._end_step(
                self._calls_step, status, None if status == "cancelled" else error or broken
            )
            self._calls_step = None

    def _end_message(
        self, status: str = "completed", reason: str | None = None, error: Object | None = None
    ) -> None:
        if self._message is None or self._message_step is None:
            return
        content = [{"type": "text", "text": {"value": self._text, "annotations": []}}]
        fields: Object = {"status": "completed", "completed_at": now()}
        if reason is not None:
            fields = {"status": "incomplete", "incomplete_at": now()}
            fields["incomplete_details"] = {"reason": reason}
        changed = self._store.messages.change(
            self._owner, self._message["id"], lambda m: {**m, **fields, "content": content}
        )
        self._message = None
        self._emit(f"thread.message.{changed['status']}", changed)
        self._end_step(self._message_step, status, error)

    def _end_step(self, step: Object, status: str, error: Object | None) -> None:
        used = self._unreported()
        ended = self._store.run_steps.change(
            self._owner,
            step["id"],
            lambda s: ended_step({**s, "used": _sum(s["used"], used)}, status, last_error=error),
        )
        self._emit(f"thread.run.step.{status}", ended)

    def _change_run(self, status: str, **fields: Any) -> None:
        usage = _sum(self._before, self._this_round())
        ended = status not in ("in_progress", "requires_action")

        def edit(run: Object) -> Object:
            if run["status"] == "cancelling" and not ended:
                raise _CancelledError
            return {**run, **fields, "status": status, "used": usage,
                    "usage": usage if ended else None}  # fmt: skip

        self._run = self._store.runs.change(self._owner, self._run["id"], edit)
        self._emit(f"thread.run.{status}", self._run)

    def _fail(self, error: Exception) -> None:
        told = as_api_error(error)
        code = "server_error" if told.status >= 500 else "invalid_prompt"
        last = {"code": "rate_limit_exceeded" if told.status == 429 else code, "message": str(told)}
        step_code = "server_error" if code == "invalid_prompt" else last["code"]
        self._leave("failed", reason="run_failed", error={**last, "code": step_code})
        self._change_run("failed", failed_at=now(), last_error=last)

    def _this_round(self) -> Object:
        if self._generation is None or not self._generation.choices:
            return tokens(0, 0)  # the prompt has not been processed
        return tokens(self._generation.prompt_tokens, self._generation.completion_tokens)

    def _unreported(self) -> Object:
        """Return tokens since the end of the last step."""
        so_far, told = self._this_round(), self._reported
        self._reported = so_far
        return {name: so_far[name] - told[name] for name in so_far}

    def _emit(self, name: str, data: Object) -> None:
        self._task.publish({"event": name, "data": view(data)})


def _sum(one: Object, other: Object) -> Object:
    return {name: one[name] + other[name] for name in one}
