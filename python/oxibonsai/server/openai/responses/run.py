"""A response in progress: converts the engine's output to events and to the response object."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Container, Generator, Iterator

from oxibonsai.mcp import CallResult
from oxibonsai.output import Delta
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.errors import as_api_error
from oxibonsai.server.generation import Generation
from oxibonsai.server.openai.logprobs import ShownTokens, chat_form
from oxibonsai.server.openai.responses.output import Event, OutputWriter, copy_item
from oxibonsai.server.openai.responses.replies import MOST_REPLIES, Replies
from oxibonsai.server.openai.schemas.responses import ResponseRequest
from oxibonsai.server.openai.timings import PromptProgress, timings
from oxibonsai.server.stores import Object
from oxibonsai.server.stores.collection import new_id

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
    """Follows the replies of a response; iterate over :meth:`events`, then read ``response``.

    Args:
        response: Made by :func:`new_response`; updated during generation.
        replies: What generates them; the caller begins and closes it.
        listed: Labels of MCP servers whose tools the conversation lists already.
        logprobs: Whether log-probabilities were requested.
        timed: Whether text deltas and the last event have timings.
        progress: Whether events report the progress of the prompt.
        always_completed: The last event of an incomplete response is ``response.completed`` too, as in
            llama-server; the status in the response object is still ``incomplete``.
    """

    def __init__(
        self,
        response: Object,
        replies: Replies,
        *,
        listed: Container[str] = (),
        logprobs: bool = False,
        timed: bool = False,
        progress: bool = False,
        always_completed: bool = False,
    ) -> None:
        self.response = response
        self._replies = replies
        self._listed = listed
        self._logprobs = logprobs
        self._timed = timed
        self._progress = progress
        self._always_completed = always_completed
        self._calls = 0  # of earlier replies, and those that were approved
        self._calls_in_reply = 0
        self._enough = False  # calls
        self._is_cut = False  # between two replies
        summary = response["reasoning"]["summary"] is not None
        self._writer = OutputWriter(summary=summary, hosted=replies.hosted.by_name)
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

    def events(self, cancelled: Callable[[], bool]) -> Generator[Event | None, None, None]:
        """Yield all events up to the last; None when there was no output for a while.

        If the engine raises an error, the response fails. If iteration is stopped early, the response
        stays in progress: see :meth:`end`.
        """
        self.response["status"] = "in_progress"
        yield self._emit("response.in_progress")
        try:
            goes_on = yield from self._beginning(cancelled)
            while goes_on:
                goes_on = yield from self._reply(cancelled)
        except Exception as e:
            yield from self.fail(e)
            return
        yield from self.end(cancelled=cancelled())

    def _beginning(self, cancelled: Callable[[], bool]) -> Generator[Event | None, None, bool]:
        """Yield the events before the first reply; return whether it can begin."""
        replies = self._replies
        for tools in replies.hosted.lists:
            if tools.label not in self._listed:
                yield from self._all_numbered(self._writer.add_list(tools))
        if not replies.approved:
            return True
        for asked in replies.approved:
            yield from self._all_numbered(self._writer.add_approved(asked))
        self._calls = len(replies.approved)
        yield from self._make_calls(cancelled)
        if cancelled():
            return False
        replies.follow(self._writer.items, may_call=self._may_call())
        return True

    def _reply(self, cancelled: Callable[[], bool]) -> Generator[Event | None, None, bool]:
        """Yield the events of a reply and its calls; return whether another reply follows."""
        generation, writer = self._replies.generation, self._writer
        assert generation is not None
        writer.begin_reply()
        self._shown, self._calls_in_reply = None, 0
        progress = PromptProgress(generation) if self._progress else None
        for _, delta in generation.stream():
            for report in progress.new_reports() if progress else ():
                yield self._emit("response.in_progress", prompt_progress=report)
            if cancelled() or self._is_one_call_too_many(delta):
                break
            if delta is None:
                yield None
                continue
            for event in writer.feed(delta, self._new_logprobs(generation)):
                yield self._numbered(event | self._timings(generation, event["type"]))
        if cancelled() or self._status() != "completed":
            return False
        yield from self._all_numbered(writer.end_reply(complete=True))
        self._calls += self._calls_in_reply
        if not writer.calls:
            return False
        self._replies.close()  # its place is free while the tools run
        yield from self._make_calls(cancelled)
        if cancelled() or writer.waits_for_client:
            return False
        most = self.response["max_output_tokens"]
        self._is_cut = most is not None and self._replies.tokens >= most
        if self._is_cut:
            return False
        self._enough = False
        self._replies.follow(writer.items, may_call=self._may_call())
        return True

    def _make_calls(self, cancelled: Callable[[], bool]) -> Iterator[Event | None]:
        for item in list(self._writer.calls):
            if cancelled():
                return
            call = self._replies.hosted.call(item["server_label"], item["name"], item["arguments"])
            result: CallResult | None = None
            with contextlib.closing(call):
                for result in call:
                    if result is None:
                        if cancelled():
                            return
                        yield None
            assert result is not None
            yield from self._all_numbered(self._writer.add_result(item, result))

    def _may_call(self) -> bool:
        most = self.response["max_tool_calls"]
        is_last = self._replies.count + 1 >= MOST_REPLIES
        return not is_last and (most is None or self._calls < most)

    def _status(self) -> str:
        """Return how the response stands where the last reply ended."""
        generation = self._replies.generation
        choices = generation.choices if generation is not None else []
        reason = choices[0].finish_reason if choices else None
        if self._enough:
            return "completed"
        if reason is None:
            return "cancelled"
        return "incomplete" if reason == "length" or self._is_cut else "completed"

    def end(self, *, cancelled: bool) -> Iterator[Event]:
        """Yield the last events, when generation has ended or is cancelled."""
        status = "cancelled" if cancelled else self._status()
        if status == "incomplete":
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        yield from self._all_numbered(self._writer.finish(complete=status == "completed"))
        self.response["usage"] = self._replies.usage()
        generation = self._replies.generation
        told = self._timings(generation, _TIMED[-1]) if generation is not None else {}
        yield self._last(status, **told)

    def fail(self, error: Exception) -> Iterator[Event]:
        """Yield the last events of a response that failed."""
        yield from self._all_numbered(self._writer.finish(complete=False))
        self.error = error
        told = as_api_error(error)
        code = "rate_limit_exceeded" if told.status == 429 else "server_error"
        self.response["error"] = {"code": code, "message": str(told)}
        yield self._last("failed")

    def _is_one_call_too_many(self, delta: Delta | None) -> bool:
        """Return whether the model starts a call beyond ``max_tool_calls``; the reply ends before it."""
        call, most = delta and delta.tool_call, self.response["max_tool_calls"]
        if call:
            self._enough = most is not None and self._calls + call.index >= most
            self._calls_in_reply = call.index + (not self._enough)
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

    def _all_numbered(self, events: list[Event]) -> Iterator[Event]:
        yield from map(self._numbered, events)

    def _numbered(self, event: Event) -> Event:
        event["sequence_number"] = self._number
        self._number += 1
        return event

    def _new_logprobs(self, generation: Generation) -> list[Object]:
        """Return log-probabilities of the tokens since the last delta; called for each delta."""
        if not self._logprobs:
            return []
        if self._shown is None:
            self._shown = ShownTokens(generation.choices[0], self._replies.tokenizer)
        return chat_form(self._shown.take(), self._replies.tokenizer)
