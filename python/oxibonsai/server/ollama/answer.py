"""Format responses of ``/api/chat`` and ``/api/generate``, and errors: lines of JSON, or one object."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from flask import Response, jsonify

from oxibonsai.output import Delta
from oxibonsai.server.errors import as_api_error, error_response
from oxibonsai.server.generation import Generation
from oxibonsai.server.openai.logprobs import ShownTokens, chat_form
from oxibonsai.server.response_choice import Choice
from oxibonsai.server.sse import compact
from oxibonsai.tokenizer import Tokenizer

_NANOSECONDS = 1e9


class OllamaAnswer:
    """The response to one request.

    Args:
        model: The name that the client used.
        generation: The running generation.
        tokenizer: Of the model.
        arrived: When the request arrived, in seconds of ``time.perf_counter``.
        chat: Whether to answer with a message, not a text.
        logprobs: Whether to return log-probabilities.
        context: Return all tokens, for the next request; these are the prompt's.
    """

    def __init__(
        self,
        model: str,
        generation: Generation,
        tokenizer: Tokenizer,
        *,
        arrived: float,
        chat: bool,
        logprobs: bool = False,
        context: list[int] | None = None,
    ) -> None:
        self._model = model
        self._generation = generation
        self._tokenizer = tokenizer
        self._arrived = arrived
        self._chat = chat
        self._logprobs = logprobs
        self._context = context
        self._shown: ShownTokens | None = None

    def lines(self) -> Iterator[str | None]:
        """Yield the stream; None when there was no output for a while."""
        for index, delta in self._generation.stream():
            if index < 0:
                yield None
            elif delta is not None and (delta.content or delta.reasoning_content):
                yield self._line(self._piece(delta))
            elif delta is None:
                calls = tool_calls(self._generation.choices[index])
                if calls:
                    yield self._line(self._part("", "", calls))
                yield self._line({**self._part("", ""), **self._end()})

    def whole(self) -> dict[str, Any]:
        """Return the whole response, after the generation has ended."""
        choice = self._generation.choices[0]
        reply = choice.reply
        part = self._part(reply.content, reply.reasoning_content, tool_calls(choice))
        if self._logprobs:
            part["logprobs"] = self._new_logprobs(choice)
        return {**self._head(), **part, **self._end()}

    def _piece(self, delta: Delta) -> dict[str, Any]:
        part = self._part(delta.content, delta.reasoning_content)
        if self._logprobs:
            part["logprobs"] = self._new_logprobs(self._generation.choices[0])
        return {**part, "done": False}

    def _new_logprobs(self, choice: Choice) -> list[dict[str, Any]]:
        if self._shown is None:
            self._shown = ShownTokens(choice, self._tokenizer)
        return chat_form(self._shown.take(), self._tokenizer)

    def _part(
        self, content: str, thinking: str, calls: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        thoughts = {"thinking": thinking} if thinking else {}
        if not self._chat:
            return {"response": content, **thoughts}
        message: dict[str, Any] = {"role": "assistant", "content": content, **thoughts}
        return {"message": message | ({"tool_calls": calls} if calls else {})}

    def _head(self) -> dict[str, Any]:
        return {"model": self._model, "created_at": timestamp()}

    def _line(self, part: dict[str, Any]) -> str:
        return compact({**self._head(), "done": False, **part}) + "\n"

    def _end(self) -> dict[str, Any]:
        """Return the members of the last object: durations in nanoseconds, and counts."""
        choice = self._generation.choices[0]
        sequence = choice.sequence
        times = sequence.times
        now = time.perf_counter() if times.finished is None else times.finished
        started = times.started if times.started is not None else now
        first = times.first_token if times.first_token is not None else now
        end: dict[str, Any] = {
            "done": True,
            "done_reason": "length" if choice.finish_reason == "length" else "stop",
            "total_duration": _nanoseconds(time.perf_counter() - self._arrived),
            "load_duration": _nanoseconds(self._generation.arrived - self._arrived),
            "prompt_eval_count": self._generation.prompt_tokens,
            "prompt_eval_duration": _nanoseconds(first - started),
            "eval_count": sequence.num_generated,
            "eval_duration": _nanoseconds(now - first),
        }
        if self._context is not None:
            end["context"] = [*self._context, *sequence.generated]
        return end


def tool_calls(choice: Choice) -> list[dict[str, Any]]:
    """Return the tool calls of a reply, with arguments as objects."""
    return [
        {"id": c.id, "function": {"name": c.name, "arguments": _object(c.arguments)}}
        for c in choice.reply.tool_calls
    ]


def timestamp(seconds: float | None = None) -> str:
    """Return a time as Ollama writes it; None: now."""
    at = datetime.fromtimestamp(time.time() if seconds is None else seconds, timezone.utc)
    return at.isoformat().replace("+00:00", "Z")


def _object(text: str) -> dict[str, Any]:
    """Return the arguments of a call; those of a call that was cut are no JSON and left out."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _nanoseconds(seconds: float) -> int:
    return max(0, int(seconds * _NANOSECONDS))


def ollama_error(error: Exception) -> Response:
    """Return the HTTP response for an error: the usual status and headers with Ollama's body."""
    response = error_response(error)
    if response.status_code >= 400:
        response.set_data(jsonify(error=str(as_api_error(error))).get_data())
    return response


def error_line(error: Exception) -> str:
    """Return the line that ends a failed stream."""
    return compact({"error": str(as_api_error(error))}) + "\n"
