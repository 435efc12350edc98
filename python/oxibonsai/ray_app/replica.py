"""A replica: one engine, and the server's application on it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from a2wsgi import WSGIMiddleware
from ray import serve

from oxibonsai.errors import RequestError
from oxibonsai.ray_app.forwarded import AnswerHead, ForwardedRequest
from oxibonsai.ray_app.options import refusal
from oxibonsai.server.admin.logs import configure_logs
from oxibonsai.server.allocator import return_freed_memory
from oxibonsai.server.http.client import CLIENT_IS_GONE
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.state_lock import locked_state

if TYPE_CHECKING:
    from oxibonsai.server.settings import Settings

# Pieces of an answer that wait for a slow client; then its thread waits.
_PIECES_AHEAD = 64
_LOOK_SECONDS = 0.05
# The head, pieces of the body, and an empty one as the end.
_Pieces: TypeAlias = "asyncio.Queue[AnswerHead | bytes]"
_client_is_gone: contextvars.ContextVar[threading.Event] = contextvars.ContextVar("client_is_gone")


class EngineReplica:
    """Answers the requests that fronts forward; an actor of Ray Serve.

    Args:
        settings: Of the server. The model is loaded before this returns.

    Raises:
        RequestError: There are several replicas, and the store belongs to one.
        OxiBonsaiError: The model or the store can't be used.
    """

    def __init__(self, settings: Settings) -> None:
        from oxibonsai.server.app import create_app
        from oxibonsai.server.engine_backend import served_models
        from oxibonsai.server.stores.store import start_housekeeping

        configure_logs(settings)
        return_freed_memory()
        self._settings = settings
        self._lifecycle = Lifecycle()
        self._held = contextlib.ExitStack()
        # Ray's own configuration may ask for more replicas than the arguments do. The first has rank 0.
        if serve.get_replica_context().rank.rank > 0 and not settings.shared_store:
            raise RequestError(refusal(settings))
        self._held.enter_context(locked_state(settings))
        self._models = served_models(settings, self._lifecycle)
        self._held.callback(self._models.close)
        self._models.load()
        self._app = create_app(settings, self._models, self._lifecycle)
        self._held.callback(self._close_store)
        start_housekeeping(self._app.store, settings.retention_days * 86400)
        self._asgi = WSGIMiddleware(self._wsgi, workers=settings.threads_for_http)
        self._lifecycle.advance(Phase.READY)

    def check_health(self) -> None:
        """Check the replica; Ray calls this every few seconds and replaces a replica that raises."""
        if self._lifecycle.failed:
            raise RuntimeError("the engine has failed, or another server has taken the store")

    async def answer(self, request: ForwardedRequest) -> AsyncIterator[AnswerHead | bytes]:
        """Return the answer: its head, then pieces of its body as they are made.

        If the front or its client goes away, the work is cancelled at the next token.
        """
        pieces: _Pieces = asyncio.Queue(_PIECES_AHEAD)
        gone = threading.Event()
        _client_is_gone.set(gone)
        task = asyncio.create_task(self._run(request, pieces))
        try:
            head = await pieces.get()
            if isinstance(head, AnswerHead):
                yield head
                async for body in _joined(pieces):
                    yield body
            await task
        finally:
            gone.set()
            # The thread of the request ends when it has got rid of its next piece.
            while not task.done():
                while not pieces.empty():
                    pieces.get_nowait()
                await asyncio.wait([task], timeout=_LOOK_SECONDS)

    async def _run(self, request: ForwardedRequest, pieces: _Pieces) -> None:
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()  # a disconnect is told by another way
            sent = True
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                await pieces.put(AnswerHead(message["status"], list(message["headers"])))
            elif message.get("body"):
                await pieces.put(message["body"])

        try:
            await self._asgi(request.scope, receive, send)
        finally:
            await pieces.put(b"")  # the end

    def _wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        gone = _client_is_gone.get()
        environ[CLIENT_IS_GONE] = gone.is_set
        return _Watched(self._app(environ, start_response), gone)

    def _close_store(self) -> None:
        if self._app.peers is not None:
            self._app.peers.close()
        if self._app.mcp is not None:
            self._app.mcp.close()
        self._app.store.close()

    def __del__(self) -> None:
        """Wait for background responses and runs; Ray calls this when no request is left."""
        if not hasattr(self, "_asgi"):
            return
        self._lifecycle.advance(Phase.DRAINING)
        deadline = time.monotonic() + self._settings.drain_timeout
        while self._lifecycle.background and time.monotonic() < deadline:
            time.sleep(0.1)
        self._lifecycle.advance(Phase.STOPPED)
        self._held.close()


async def _joined(pieces: _Pieces) -> AsyncIterator[bytes]:
    """Return the body; pieces that wait together are one message of Ray's."""
    ended = False
    while not ended:
        parts = [await pieces.get()]
        while not pieces.empty():
            parts.append(pieces.get_nowait())
        bodies = [part for part in parts if isinstance(part, bytes)]
        ended = not bodies[-1]
        if body := b"".join(bodies):
            yield body


class _Watched:
    """A WSGI body that ends when the client is gone."""

    def __init__(self, body: Iterable[bytes], gone: threading.Event) -> None:
        self._body = body
        self._gone = gone

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._body:
            if self._gone.is_set():
                return
            yield piece

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            close()
