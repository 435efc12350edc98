"""One streamed chat request, timed where its client sits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx2

from oxibonsai.errors import OxiBonsaiError, RequestError


@dataclass(frozen=True)
class Sample:
    """One request. Times are seconds; those in `arrivals` and `duration` count from `sent`.

    Attributes:
        sent: Reading of the event loop's clock when the request was sent.
        arrivals: When each chunk with text, reasoning or a piece of a tool call arrived.
        duration: Until the end of the stream, or until it failed.
        output_tokens: The server's own count, or the number of chunks where it gave none.
        counted_by_server: Which of the two `output_tokens` is.
        prompt_tokens: The server's count, None where it gave none.
        cached_tokens: Those of the prompt that the server had kept, as it says.
        error: What went wrong, None for a whole answer.
    """

    sent: float
    arrivals: tuple[float, ...]
    duration: float
    output_tokens: int
    counted_by_server: bool
    prompt_tokens: int | None = None
    cached_tokens: int = 0
    error: str | None = None

    @property
    def ttft(self) -> float | None:
        """Time to the first usable token; a chunk with a role alone is not one."""
        return self.arrivals[0] if self.arrivals else None

    @property
    def gaps(self) -> tuple[float, ...]:
        """Inter-token latencies: between successive chunks, which may hold several tokens."""
        return tuple(later - earlier for earlier, later in pairwise(self.arrivals))

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first: (E2E - TTFT) / (output tokens - 1)."""
        if not self.arrivals or self.output_tokens < 2:
            return None
        return (self.duration - self.arrivals[0]) / (self.output_tokens - 1)


class _AnswerError(Exception):
    """The server answered, but not with a whole stream."""


class ChatClient:
    """Sends chat requests to one server; an async context manager.

    Proxies of the environment are not used: their time is not the server's.

    Args:
        url: The API's base, such as ``http://127.0.0.1:8080/v1``.
        api_key: Sent as a bearer token.
        timeout: Seconds after which a request counts as failed.
        transport: What carries the requests; None: connections to the server.

    Raises:
        RequestError: The URL is malformed.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        try:
            base = httpx2.URL(url.rstrip("/") + "/")
        except httpx2.InvalidURL as e:
            raise RequestError(f"{url!r} is no URL: {e}") from None
        self._timeout = timeout
        self._http = httpx2.AsyncClient(
            base_url=base,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx2.Timeout(timeout),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            transport=transport,
            trust_env=False,
        )

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def first_model(self) -> str:
        """Return the id of the first model that the server lists.

        Raises:
            OxiBonsaiError: The server can't be reached or lists none.
        """
        where = f"{self._http.base_url}models"
        try:
            answer = await self._http.get("models")
            if answer.status_code != 200:
                raise _AnswerError(_status_error(answer.status_code, answer.content))
            return str(answer.json()["data"][0]["id"])
        except (httpx2.HTTPError, _AnswerError) as e:
            raise OxiBonsaiError(f"{where} gave no list of models: {_describe(e)}") from e
        except (ValueError, LookupError, TypeError) as e:
            raise OxiBonsaiError(f"{where} lists no model; name one with --model") from e

    async def properties(self, model: str) -> dict[str, Any]:
        """Return llama-server's properties of a model, which lie beside the API.

        Raises:
            OxiBonsaiError: The server can't be reached or has none.
        """
        return await self._whole(
            "GET", self._http.base_url.join("../props").copy_set_param("model", model), None
        )

    async def whole_answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a chat completion that is not streamed.

        Raises:
            OxiBonsaiError: There is none.
        """
        return await self._whole("POST", self._http.base_url.join("chat/completions"), body)

    async def _whole(
        self, method: str, url: httpx2.URL, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        try:
            answer = await self._http.request(method, url, json=body)
            if answer.status_code != 200:
                raise _AnswerError(_status_error(answer.status_code, answer.content))
            found = answer.json()
            if not isinstance(found, dict):
                raise _AnswerError("it is no JSON object")
            return found
        except (httpx2.HTTPError, _AnswerError, ValueError) as e:
            raise OxiBonsaiError(f"{url} gave no answer: {_describe(e)}") from e

    async def chat(self, body: Mapping[str, Any]) -> Sample:
        """Stream one answer; failures come back as `Sample.error`, so that a run goes on."""
        stream = _Stream()
        clock = asyncio.get_running_loop().time
        sent = clock()
        error = None
        try:
            await asyncio.wait_for(self._read(body, stream, sent), self._timeout)
        except (asyncio.TimeoutError, httpx2.TimeoutException):
            error = f"no whole answer in {self._timeout:g} s"
        except (httpx2.HTTPError, _AnswerError) as e:
            error = _describe(e)
        return stream.sample(sent, clock() - sent, error)

    async def _read(self, body: Mapping[str, Any], stream: _Stream, sent: float) -> None:
        clock = asyncio.get_running_loop().time
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with self._http.stream("POST", "chat/completions", json=streamed) as answer:
            if answer.status_code != 200:
                raise _AnswerError(_status_error(answer.status_code, await answer.aread()))
            async for data in _events(answer.aiter_bytes()):
                if data == b"[DONE]":
                    # A server that gives a slot to someone else may end a stream in good order.
                    if not stream.finished:
                        raise _AnswerError("the stream ended without a finish_reason")
                    return
                stream.take(data, clock() - sent)
        raise _AnswerError("the stream ended without [DONE]")


@dataclass(frozen=True)
class _Usage:
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int = 0

    @classmethod
    def read(cls, usage: dict[str, Any]) -> _Usage:
        details = usage.get("prompt_tokens_details") or {}
        return cls(
            output_tokens=int(usage["completion_tokens"]),
            prompt_tokens=int(usage["prompt_tokens"]),
            cached_tokens=int(details.get("cached_tokens") or 0),
        )


class _Stream:
    """The contents of the chunks of one answer."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.usage = _Usage()
        self.finished = False

    def take(self, data: bytes, at: float) -> None:
        try:
            chunk = json.loads(data)
            if "error" in chunk:
                raise _AnswerError(f"error in the stream: {_message(chunk)}")
            if chunk.get("usage"):
                self.usage = _Usage.read(chunk["usage"])
            choices = chunk.get("choices") or []
            deltas = [choice.get("delta") or {} for choice in choices]
            self.finished |= any(choice.get("finish_reason") for choice in choices)
        except (ValueError, TypeError, AttributeError, LookupError) as e:
            raise _AnswerError(f"an event is no chunk: {data[:80]!r}") from e
        fields = ("content", "reasoning_content", "reasoning", "tool_calls")
        if any(delta.get(field) for delta in deltas for field in fields):
            self.arrivals.append(at)

    def sample(self, sent: float, duration: float, error: str | None) -> Sample:
        counted = self.usage.output_tokens
        return Sample(
            sent=sent,
            arrivals=tuple(self.arrivals),
            duration=duration,
            output_tokens=len(self.arrivals) if counted is None else counted,
            counted_by_server=counted is not None,
            prompt_tokens=self.usage.prompt_tokens,
            cached_tokens=self.usage.cached_tokens,
            error=error,
        )


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of a stream's events; our servers and their peers put each in one line."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def _status_error(status: int, content: bytes) -> str:
    try:
        return f"HTTP {status}: {_message(json.loads(content))}"
    except (ValueError, TypeError, AttributeError):
        return f"HTTP {status}"


def _message(answer: dict[str, Any]) -> str:
    error = answer.get("error", answer)
    return str(error.get("message") if isinstance(error, dict) else error)


def _describe(error: Exception) -> str:
    if isinstance(error, httpx2.HTTPError):
        return f"{type(error).__name__}: {error}".rstrip(": ")
    return str(error)
