"""An OpenAI-style server with known delays: behind a socket in a thread, or in its caller's loop."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

_REFUSAL = {"error": {"message": "queue is full"}}


@dataclass
class FakeServer:
    """What it does is set by its fields; what it was asked is kept in `requests`."""

    ttft: float = 0.0  # seconds before the first chunk with text, after the one with a role
    gap: float = 0.0  # seconds between chunks with text
    tokens: int = 5
    usage: bool = True
    status: int = 200
    failing: frozenset[int] = frozenset()  # numbers of chat requests that get a 503
    ending: str = (
        "whole"  # or "cut", "error", "garbage", "handed over": what follows the last chunk
    )
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await _read_head(reader):
                self.headers.append(head)
                if head.startswith("GET /v1/models "):
                    _answer(writer, 200, {"data": [{"id": "fake-model"}]})
                    continue
                length = next(
                    int(line.split(":")[1])
                    for line in head.splitlines()
                    if line.lower().startswith("content-length:")
                )
                status, events = self.answer(await reader.readexactly(length))
                if status != 200:
                    _answer(writer, status, _REFUSAL)
                    continue
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
                writer.write(b"Connection: close\r\n\r\n")
                async for event in events:
                    writer.write(event)
                    await writer.drain()
                return
        finally:
            writer.close()

    def answer(self, body: bytes) -> tuple[int, AsyncGenerator[bytes]]:
        """The status of a chat request, and the events of its stream."""
        self.requests.append(json.loads(body))
        if self.status == 200 and len(self.requests) - 1 not in self.failing:
            return 200, self._events()
        return self.status if self.status != 200 else 503, _nothing()

    async def _events(self) -> AsyncGenerator[bytes]:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            yield b": ping\n\n"
            yield _event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
            for token in range(self.tokens):
                await asyncio.sleep(self.gap if token else self.ttft)
                # Line separators inside JSON must not look like ends of lines.
                yield _event({"choices": [{"delta": {"content": "a\u2028b"}}]})
            for last in self._last():
                yield last
        finally:
            self.under_way -= 1

    def _last(self) -> Iterator[bytes]:
        if self.ending == "error":
            yield _event({"error": {"message": "out of pages"}})
        if self.ending == "handed over":
            yield b"data: [DONE]\n\n"
        if self.ending == "garbage":
            yield b"data: {not json\n\n"
        if self.ending == "whole":
            yield _event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
            if self.usage:
                # Two tokens in the first chunk, so that counting chunks would show.
                usage = {"prompt_tokens": 40, "completion_tokens": self.tokens + 1}
                usage["prompt_tokens_details"] = {"cached_tokens": 10}  # type: ignore[assignment]
                yield _event({"choices": [], "usage": usage})
            yield b"data: [DONE]\n\n"


async def _read_head(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return ""


async def _nothing() -> AsyncGenerator[bytes]:
    for event in ():
        yield event


def _event(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


def _answer(writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status} Is\r\nContent-Length: {len(content)}\r\n\r\n".encode())
    writer.write(content)


class InProcess(httpx2.AsyncBaseTransport):
    """Carries requests to a server in the same event loop, without a connection."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        status, events = self._server.answer(await request.aread())
        if status != 200:
            return httpx2.Response(status, json=_REFUSAL)
        return httpx2.Response(200, stream=_Stream(events))


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in self._events:
            yield event

    async def aclose(self) -> None:
        await self._events.aclose()


@contextmanager
def running(server: FakeServer) -> Iterator[FakeServer]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(server.handle, "127.0.0.1", 0)

    async def stop() -> None:
        listener.close()
        handlers = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    listener = asyncio.run_coroutine_threadsafe(start(), loop).result()
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
