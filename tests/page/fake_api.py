"""The chat page in front of an API that says what a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flask import Flask, Response, jsonify, request
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.serving import WSGIRequestHandler, make_server

from oxibonsai.server.page import page


@dataclass
class Reply:
    """One answer: pieces of text, whole deltas or chunks; at None the stream waits for `go_on`."""

    pieces: list[str | dict[str, Any] | None] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "it broke"
    whole: bool = True  # False: the connection ends without a last chunk
    finish: str = "stop"
    usage: bool = True
    go_on: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)  # the client left the stream


@dataclass
class FakeApi:
    """Replies are used up one a request; a request beyond them is answered with "ok"."""

    replies: list[Reply] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    key: str | None = None
    models: list[str] = field(default_factory=lambda: ["bonsai-1.7b-q1", "smollm2-135m"])
    states: dict[str, str] = field(default_factory=dict)  # of a server that loads on demand
    context: int = 200
    vision: bool = False
    asked: list[str] = field(default_factory=list)  # the models whose properties were asked for
    url: str = ""

    def app(self) -> Flask:
        app = Flask("fake", static_folder=None)
        app.register_blueprint(page)

        @app.get("/v1/models")
        def models() -> Any:
            return self._refusal() or jsonify(data=[self._model(name) for name in self.models])

        @app.get("/props")
        def props() -> Any:
            if "model" not in request.args:
                return jsonify(role="router" if self.states else "model")
            self.asked.append(request.args["model"])
            params = {"temperature": 0.5, "top_k": 20, "max_tokens": -1, "samplers": ["top_k"]}
            return jsonify(
                default_generation_settings={"n_ctx": self.context, "params": params},
                modalities={"vision": self.vision},
            )

        @app.post("/models/<action>")
        def load(action: str) -> Any:
            name = request.get_json()["model"]
            self.states[name] = {"load": "loading", "unload": "unloaded"}[action]
            return jsonify(success=True)

        @app.post("/v1/chat/completions")
        def chat() -> Any:
            if refusal := self._refusal():
                return refusal
            self.requests.append(request.get_json())
            reply = self.replies.pop(0) if self.replies else Reply(["ok"])
            if reply.status != 200:
                return _error(reply.status, reply.message), reply.status, reply.headers
            return Response(_stream(reply), mimetype="text/event-stream")

        return app

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "status": {"value": self.states.get(name, "loaded")}}

    def _refusal(self) -> Any:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return _error(401, "no key"), 401
        return None


def _error(status: int, message: str) -> Response:
    return jsonify(error={"message": message, "type": "error", "code": status})


def _stream(reply: Reply) -> Iterator[bytes]:
    try:
        yield _event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        for piece in reply.pieces:
            while piece is None and not reply.go_on.wait(0.02):
                yield b": ping\n\n"  # by which a client that left is noticed
            if isinstance(piece, dict) and "choices" in piece:
                yield _event(piece)
                continue
            delta = {"content": piece} if isinstance(piece, str) else piece
            yield _event({"choices": [{"delta": delta or {}}]})
        if reply.whole:
            yield _event({"choices": [{"delta": {}, "finish_reason": reply.finish}]})
            usage = {"prompt_tokens": 11, "completion_tokens": 42, "total_tokens": 53}
            if reply.usage:
                yield _event(
                    {"choices": [], "usage": usage, "timings": {"predicted_per_second": 7.5}}
                )
            yield b"data: [DONE]\n\n"
    except GeneratorExit:
        reply.gone.set()
        raise


def _event(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


class _Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


@contextmanager
def serving(api: FakeApi, prefix: str = "") -> Iterator[FakeApi]:
    """Serves on a free port of the loopback, behind a prefix as a proxy would."""
    app: Any = api.app()
    if prefix:
        app = DispatcherMiddleware(Flask("nothing", static_folder=None), {prefix: app})
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Silent)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_port}{prefix}/"
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
