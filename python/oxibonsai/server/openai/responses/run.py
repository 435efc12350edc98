"""One response in the making: from an engine's answer to events, to the object that is kept."""

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

# Events that tell how long things took, where it is asked for; the last stands for every end.
_TIMED = ("response.output_text.delta", "response.completed")

ENDED = ("completed", "incomplete", "failed", "cancelled")


def new_response(request: ResponseRequest, model: str, params: SamplingParams) -> Object:
    """A response object that nothing has happened to yet."""
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
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
    """Follows an answer; iterate over :meth:`events`, then look at ``response``.

    Args:
        response: As :func:`new_response` made it; changed as the answer grows.
        tokenizer: Counts the tokens of thoughts.
        logprobs: Whether those of the answer's tokens are wanted.
        timed: Whether pieces of text and the last event tell how long they took.
        progress: Whether events tell how far the prompt is.
        always_completed: The last event of an answer that was cut is ``response.completed`` too, as
            llama-server has it; the response in it still says that it is incomplete.
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
        """Whether the last event has been given."""
        return self.response["status"] in ENDED

    def created(self) -> Event:
        """The first event, or the next where the work waits for its turn."""
        return self._emit("response.created")

    def queued(self) -> Event:
        """The response waits for a thread."""
        return self._emit("response.queued")

    def withdrawn(self) -> Event:
        """The last event of a response that was cancelled before its work began."""
        return self._last("cancelled")

    def events(
        self, generation: Generation, cancelled: Callable[[], bool]
    ) -> Iterator[Event | None]:
        """Events up to the last; None where nothing has come for a moment.

        What the engine raises becomes a response that failed. To stop early leaves the response in
        progress: see :meth:`end`.
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
        """The last events: all of the answer is there, or nobody wants the rest."""
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
        """The last events of a response that can't go on."""
        for event in self._writer.finish(complete=False):
            yield self._numbered(event)
        self.error = error
        told = as_api_error(error)
        code = "rate_limit_exceeded" if told.status == 429 else "server_error"
        self.response["error"] = {"code": code, "message": str(told)}
        yield self._last("failed")

    def _is_one_call_too_many(self, delta: Delta | None) -> bool:
        """Whether the model begins more calls than ``max_tool_calls``: the response ends before."""
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
        """Those of the tokens behind the latest piece; each piece asks, so that none are left over."""
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
