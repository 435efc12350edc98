"""Ways to an MCP server: a program's pipes, or streamable HTTP."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, TextIO

import anyio
import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from oxibonsai.mcp.config import HttpServer, ServerConfig, StdioServer

_MOST_BODY_BYTES = 16 * 2**20
_CONNECT_SECONDS = 10.0
_LONGEST_LINE = 500  # of what a program writes to stderr


@asynccontextmanager
async def open_transport(
    config: ServerConfig, ended: anyio.Event, said: Callable[[str], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """Start or reach a server; yield the streams of messages from it and to it.

    Args:
        config: The server.
        ended: Set when no more messages can come.
        said: Called with each line that a program writes to stderr, in a thread.
    """
    async with AsyncExitStack() as stack:
        if isinstance(config, StdioServer):
            reads, writes = await stack.enter_async_context(_program(config, said))
        else:
            client = await stack.enter_async_context(_http_client(config))
            way = streamable_http_client(config.url, http_client=client)
            reads, writes = await stack.enter_async_context(way)
        yield _EndingStream(reads, ended), writes


@asynccontextmanager
async def _program(config: StdioServer, said: Callable[[str], None]) -> AsyncIterator[Any]:
    # Beside env it gets the few variables that mcp names (HOME, PATH ...), so no keys of this process.
    parameters = StdioServerParameters(
        command=config.command, args=list(config.args), env=dict(config.env), cwd=config.cwd
    )
    async with AsyncExitStack() as stack:
        with _lines(said) as stderr:
            streams = await stack.enter_async_context(stdio_client(parameters, errlog=stderr))
        yield streams


@contextmanager
def _lines(said: Callable[[str], None]) -> Iterator[TextIO]:
    """Open a file for a program's stderr; a thread reads it until the last program that has it ends."""
    reading, writing = os.pipe()

    def read() -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as file:
            while line := file.readline(_LONGEST_LINE):
                if line.strip():
                    said(line.strip())

    threading.Thread(target=read, name="mcp-stderr", daemon=True).start()
    with os.fdopen(writing, "w") as file:
        yield file


def _http_client(config: HttpServer) -> httpx2.AsyncClient:
    # mcp follows redirects inside the server's own origin alone.
    return httpx2.AsyncClient(
        headers=dict(config.headers),
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=config.timeout + _CONNECT_SECONDS),
        transport=_BoundedTransport(),
    )


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """Ends responses that are too large, but for streams of events, whose events mcp bounds."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > _MOST_BODY_BYTES:
                raise httpx2.ReadError(f"the answer is larger than {_MOST_BODY_BYTES // 2**20} MiB")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _EndingStream:
    """A stream of messages that tells when it has ended."""

    def __init__(self, stream: Any, ended: anyio.Event) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended.set()
            raise

    def __aiter__(self) -> _EndingStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> _EndingStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()
