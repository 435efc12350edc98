"""A model that needs no weights, and routes that behave as completions will."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from flask import Blueprint, Response, g, jsonify, request

from oxibonsai.server.app import create_app
from oxibonsai.server.backend import Backend, ModelInfo
from oxibonsai.server.http.disconnect import ClientGoneError, watched
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.server import Server
from oxibonsai.server.settings import Settings
from oxibonsai.server.sse import frame, stream_response
from oxibonsai.server.strict_json import read_object

MakeApp = Callable[..., Server]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class FakeBackend:
    """Ready after ``load_seconds``; writes no texts and makes no vectors."""

    pool = None
    chat_template = None
    generates = False
    speculate = None
    ranks = False

    def __init__(self, load_seconds: float = 0.0) -> None:
        self._load_seconds = load_seconds

    def load(self) -> None:
        time.sleep(self._load_seconds)

    def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo("fake", 1_700_000_000, ("alias",), {"n_ctx": 64})]

    def close(self) -> None:
        pass


class Probe:
    """Routes that count what happens to them."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.cancelled = 0
        self._lifecycle = lifecycle
        self._lock = threading.Lock()

    def cancel(self) -> None:
        with self._lock:
            self.cancelled += 1

    def blueprint(self) -> Blueprint:
        bp = Blueprint("probe", __name__)

        @bp.post("/echo")
        def echo() -> Response:
            return jsonify(owner=g.owner, body=read_object(request))

        @bp.post("/size")
        def size() -> Response:
            return jsonify(size=len(request.get_data()))

        @bp.get("/big")
        def big() -> Response:
            return Response(b"x" * 2**24, mimetype="application/octet-stream")

        @bp.get("/cancelled")
        def cancelled() -> Response:
            return jsonify(cancelled=self.cancelled)

        @bp.get("/slow")
        def slow() -> Response:
            try:
                for _ in watched(_waiting(float(request.args["seconds"])), request.environ):
                    pass
            except ClientGoneError:
                self.cancel()
                raise
            return jsonify("done")

        @bp.get("/stream")
        def stream() -> Response:
            count, gap = int(request.args["count"]), float(request.args["gap"])
            running = [True]

            def frames() -> Iterator[str | None]:
                for i in range(count):
                    yield from _waiting(gap)
                    yield frame({"i": i})
                running.clear()

            def close() -> None:
                if running:
                    running.clear()
                    self.cancel()

            stopping = lambda: self._lifecycle.stopping  # noqa: E731
            return stream_response(frames(), close=close, stopping=stopping)

        return bp


def _waiting(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))
        yield None


def make_fake_app(settings: Settings, backend: Backend, lifecycle: Lifecycle) -> Server:
    """The application, with the routes of :class:`Probe`."""
    app = create_app(settings, backend, lifecycle)
    app.register_blueprint(Probe(lifecycle).blueprint())
    return app
