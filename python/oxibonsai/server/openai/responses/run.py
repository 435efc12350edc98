"""A response in progress: converts the engine's output to events and to the response object."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from oxibonsai.output import Delta
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.errors import as_api_error
from oxibonsai.server.generation import Generation
from oxibonsai.server.openai.logprobs import ShownTokens, chat_form
from oxibonsai.server.openai.responses.output import Event, OutputWriter, copy_item
from oxibonsai.server.openai.schemas.responses import ResponseRequest
from oxibonsai.server.openai.timings import PromptProgress, reasoning_tokens, timings
from oxibonsai.server.stores import Object
from oxibonsai.server.stores.collection import new_id
from oxibonsai.tokenizer import Tokenizer

# Events that have timings if requested; the last one stands for every final event.
_TIMED = ("response.output_text.delta", "response.completed")

ENDED = ("completed", "incomplete", "failed", "cancelled")


def new_response(request: ResponseRequest, model: str, params: SamplingParams) -> Object:
    """Return the response object before generation starts."""
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "conversation": request.conversation and {"id": request.conversation.id},
        "status": "queued" if request.background else "in_progress",
        "background": bool(request.background),
        "error": None,
        "incomplete_details": None,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "model": model,
        "output": [],
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": _reasoning(request),
        "safety_identifier": request.safety_identifier,
        "service_tier": "default",
        "store": request.store is not False,
        "temperature": params.temperature,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "text": request.text.model_dump(by_alias=True, exclude_none=True),
        "tool_choice": _tool_choice(request),
        "tools": [t.model_dump() for t in request.tools],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": request.truncation or "disabled",
        "usage": None,
        "user": request.user,
        "metadata": request.metadata or {},
    }


def _reasoning(request: ResponseRequest) -> Object:
    field = request.reasoning
    if field is None:
        return {"effort": None, "summary": None}
    return {"effort": field.effort, "summary": field.summary or field.generate_summary}


def _tool_choice(request: ResponseRequest) -> str | Object:
    choice = request.tool_choice
    return choice if isinstance(choice, str) else choice.model_dump()


class ResponseRun:
    """Follows a generation; iterate over :meth:`events`, then read ``response``.

    Args:
        response: Made by :func:`new_response`; updated during generation.
        tokenizer: Counts reasoning tokens.
        logprobs: Whether log-probabilities were requested.
        timed: Whether text deltas and the last event have timings.
        progress: Whether events report the progress of the prompt.
        always_completed: The last event of an incomplete response is ``response.completed`` too, as in
            llama-server; the status in the response object is still ``incomplete``.
    """

    def __init__(
        self,
        response: Object,
        tokenizer: Tokenizer,
        *,
        logprobs: bool = False,
        timed: bool = False,
        progress: bool = False,
        always_completed: bool = False,
    ) -> None:
        self.response = response
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._timed = timed
        self._progress = progress
        self._always_completed = always_completed
        self._enough = False
        summary = response["reasoning"]["summary"] is not None
        self._writer = OutputWriter(summary=summary)
        self._shown: ShownTokens | None = None
        self._number = 0
        self.error: Exception | None = None

    @property
    def ended(self) -> bool:
        """Whether the last event has been produced."""
        return self.response["status"] in ENDED

    def created(self) -> Event:
        """Return the first event."""
        return self._emit("response.created")

    def queued(self) -> Event:
        """Return the event of a background response that waits for a thread."""
        return self._emit("response.queued")

    def withdrawn(self) -> Event:
        """Return the last event of a response that was cancelled before it was started."""
        return self._last("cancelled")

    def events(
        self, generation: Generation, cancelled: Callable[[], bool]
    ) -> Iterator[Event | None]:
        """Yield all events up to the last; None when there was no output for a while.

        If the engine raises an error, the response fails. If iteration is stopped early, the response
        stays in progress: see :meth:`end`.
        """
        self.response["status"] = "in_progress"
        yield self._emit("response.in_progress")
        progress = PromptProgress(generation) if self._progress else None
        try:
            for _, delta in generation.stream():
                for report in progress.new_reports() if progress else ():
                    yield self._emit("response.in_progress", prompt_progress=report)
                if cancelled() or self._is_one_call_too_many(delta):
                    break
                if delta is None:
                    yield None
                    continue
                for event in self._writer.feed(delta, self._new_logprobs(generation)):
                    yield self._numbered(event | self._timings(generation, event["type"]))
        except Exception as e:
            yield from self.fail(e)
            return
        yield from self.end(generation, cancelled=cancelled())

    def end(self, generation: Generation, *, cancelled: bool) -> Iterator[Event]:
        """Yield the last events, when generation has ended or is cancelled."""
        reason = generation.choices[0].finish_reason if generation.choices else None
        status = "incomplete" if reason == "length" and not self._enough else "completed"
        if cancelled or (reason is None and not self._enough):
            status = "cancelled"
        if status == "incomplete":
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        for event in self._writer.finish(complete=status == "completed"):
            yield self._numbered(event)
        self.response["usage"] = self._usage(generation)
        yield self._last(status, **self._timings(generation, _TIMED[-1]))

    def fail(self, error: Exception) -> Iterator[Event]:
        """Yield the last events of a response that failed."""
        for event in self._writer.finish(complete=False):
            yield self._numbered(event)
        self.error = error
        told = as_api_error(error)
        code = "rate_limit_exceeded" if told.status == 429 else "server_error"
        self.response["error"] = {"code": code, "message": str(told)}
        yield self._last("failed")

    def _is_one_call_too_many(self, delta: Delta | None) -> bool:
        """Return whether the model starts a call beyond ``max_tool_calls``; the response ends before it."""
        call, most = delta and delta.tool_call, self.response["max_tool_calls"]
        self._enough = bool(call and most is not None and call.index >= most)
        return self._enough

    def _timings(self, generation: Generation, kind: str) -> Event:
        if not self._timed or kind not in _TIMED or not generation.choices:
            return {}
        return {"timings": timings(generation, generation.choices[0])}

    def _last(self, status: str, **more: object) -> Event:
        self.response["status"] = status
        self.response["completed_at"] = int(time.time()) if status == "completed" else None
        if status == "incomplete" and self._always_completed:
            status = "completed"
        return self._emit(f"response.{status}", **more)

    def _emit(self, kind: str, **more: object) -> Event:
        self.response["output"] = [copy_item(i) for i in self._writer.items]
        return self._numbered({"type": kind, "response": dict(self.response), **more})

    def _numbered(self, event: Event) -> Event:
        event["sequence_number"] = self._number
        self._number += 1
        return event

    def _new_logprobs(self, generation: Generation) -> list[Object]:
        """Return log-probabilities of the tokens since the last delta; called for each delta."""
        if not self._logprobs:
            return []
        if self._shown is None:
            self._shown = ShownTokens(generation.choices[0], self._tokenizer)
        return chat_form(self._shown.take(), self._tokenizer)

    def _usage(self, generation: Generation) -> Object:
        reasoning = reasoning_tokens(generation, self._tokenizer)
        given, made = generation.prompt_tokens, generation.completion_tokens
        return {
            "input_tokens": given,
            "input_tokens_details": {
                "cached_tokens": generation.cached_tokens,
                "cache_write_tokens": 0,
            },
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": given + made,
        }
