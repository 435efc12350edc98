"""An OpenAI-style server with known delays, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


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
    # When each chunk with text was really written, in seconds since its request was read.
    written: list[list[float]] = field(default_factory=list)
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
                self.requests.append(json.loads(await reader.readexactly(length)))
                if len(self.requests) - 1 in self.failing or self.status != 200:
                    status = self.status if self.status != 200 else 503
                    _answer(writer, status, {"error": {"message": "queue is full"}})
                    continue
                self.under_way += 1
                self.most_under_way = max(self.most_under_way, self.under_way)
                try:
                    await self._stream(writer)
                finally:
                    self.under_way -= 1
                return
        finally:
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Connection: close\r\n\r\n: ping\n\n")
        _event(writer, {"choices": [{"delta": {"role": "assistant", "content": None}}]})
        began = time.perf_counter()
        written: list[float] = []
        self.written.append(written)
        for token in range(self.tokens):
            await asyncio.sleep(self.gap if token else self.ttft)
            # Line separators inside JSON must not look like ends of lines.
            _event(writer, {"choices": [{"delta": {"content": "a\u2028b"}}]})
            await writer.drain()
            written.append(time.perf_counter() - began)
        if self.ending == "error":
            _event(writer, {"error": {"message": "out of pages"}})
        if self.ending == "handed over":
            writer.write(b"data: [DONE]\n\n")
        if self.ending == "garbage":
            writer.write(b"data: {not json\n\n")
        if self.ending == "whole":
            _event(writer, {"choices": [{"delta": {}, "finish_reason": "stop"}]})
            if self.usage:
                # Two tokens in the first chunk, so that counting chunks would show.
                usage = {"prompt_tokens": 40, "completion_tokens": self.tokens + 1}
                usage["prompt_tokens_details"] = {"cached_tokens": 10}  # type: ignore[assignment]
                _event(writer, {"choices": [], "usage": usage})
            writer.write(b"data: [DONE]\n\n")
        await writer.drain()


async def _read_head(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return ""


def _event(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    writer.write(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n")


def _answer(writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status} Is\r\nContent-Length: {len(content)}\r\n\r\n".encode())
    writer.write(content)


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
