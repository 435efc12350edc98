"""A model that needs no weights, and routes that behave as completions will."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from flask import Blueprint, Response, g, jsonify, request

from oxibonsai.server.app import create_app
from oxibonsai.server.backend import Backend, ModelInfo
from oxibonsai.server.http.client import ClientGoneError, watched
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
    """Ready when the file ``load_until`` is there; writes no texts and makes no vectors."""

    pool = None
    chat_template = None
    generates = False
    speculation = None
    ranks = False
    adapters = None

    def __init__(self, load_until: Path | None = None) -> None:
        self._load_until = load_until

    def load(self) -> None:
        for _ in _waiting_for(self._load_until):
            pass

    def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo("fake", 1_700_000_000, ("alias",), {"n_ctx": 64})]

    def close(self) -> None:
        pass


class Probe:
    """Routes that tell what happens to them."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._begun: list[str] = []
        self._cancelled: list[str] = []
        self._lifecycle = lifecycle

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

        @bp.get("/calls")
        def calls() -> Response:
            return jsonify(begun=self._begun, cancelled=self._cancelled)

        @bp.get("/slow")
        def slow() -> Response:
            self._begun.append(request.full_path)
            try:
                for _ in watched(_waiting(float(request.args["seconds"])), request.environ):
                    pass
            except ClientGoneError:
                self._cancelled.append(request.full_path)
                raise
            return jsonify("done")

        @bp.get("/stream")
        def stream() -> Response:
            count, gap = int(request.args["count"]), float(request.args["gap"])
            until = request.args.get("until")
            path = request.full_path
            self._begun.append(path)
            running = [True]

            def frames() -> Iterator[str | None]:
                for i in range(count):
                    yield from _waiting(gap)
                    yield frame({"i": i})
                yield from _waiting_for(Path(until) if until else None)
                yield frame("the end")
                running.clear()

            def close() -> None:
                if running:
                    running.clear()
                    self._cancelled.append(path)

            stopping = lambda: self._lifecycle.stopping  # noqa: E731
            return stream_response(frames(), close=close, stopping=stopping)

        return bp


def _waiting(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))
        yield None


def _waiting_for(file: Path | None) -> Iterator[None]:
    """Until a test has made the file, where there is one to wait for."""
    while file is not None and not file.exists():
        time.sleep(0.02)
        yield None


def make_fake_app(settings: Settings, backend: Backend, lifecycle: Lifecycle) -> Server:
    """The application, with the routes of :class:`Probe`."""
    app = create_app(settings, backend, lifecycle)
    app.register_blueprint(Probe(lifecycle).blueprint())
    return app
