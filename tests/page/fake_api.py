"""The chat page in front of an API that says what a test tells it to."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from flask import Flask, Response, g, jsonify, request
from PIL import Image, ImageDraw
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.serving import WSGIRequestHandler, make_server

from oxibonsai.server.errors import register_errors
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.openai.kept_answers import KeptAnswers, kept_answers_blueprint
from oxibonsai.server.page import page


@dataclass
class Reply:
    """One answer: pieces of text, whole deltas or chunks; at None the stream waits for `go_on`."""

    pieces: list[str | dict[str, Any] | None] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "it broke"
    whole: bool = True  # False: the connection ends without a last chunk
    lost_after: int | None = None  # the connection ends after so many events, but not the answer
    finish: str = "stop"
    usage: bool = True
    go_on: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)  # it was cancelled


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
    tools: dict[str, str] = field(default_factory=dict)  # results by name, of MCP servers
    calls: list[dict[str, Any]] = field(default_factory=list)  # of tools
    call_waits: threading.Event | None = None  # for which a call waits
    asked: list[str] = field(default_factory=list)  # the models whose properties were asked for
    makes: dict[str, str] = field(default_factory=dict)  # by model: other than text
    drawings: list[dict[str, Any]] = field(
        default_factory=list
    )  # fields of the requests for pictures
    references: list[list[bytes]] = field(default_factory=list)  # the files of each
    draws: threading.Event | None = None  # for which a picture waits after its preview
    url: str = ""

    def app(self) -> Flask:
        app = Flask("fake", static_folder=None)
        app.register_blueprint(page)
        # The real thing: what goes on in the background and how it is joined.
        answers = KeptAnswers(Lifecycle())
        app.register_blueprint(kept_answers_blueprint(answers))
        register_errors(app)

        @app.before_request
        def check() -> Any:
            g.owner = "visitor"
            if (request.endpoint or "").startswith("kept_answers."):
                return self._refusal()
            return None

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

        @app.get("/tools")
        def tools() -> Any:
            return self._refusal() or jsonify([_tool(name) for name in self.tools])

        @app.post("/tools")
        def call() -> Any:
            if refusal := self._refusal():
                return refusal
            self.calls.append(request.get_json())
            if self.call_waits is not None:
                self.call_waits.wait(60)
            return jsonify(plain_text_response=self.tools[self.calls[-1]["tool"]])

        @app.post("/v1/images/generations")
        @app.post("/v1/images/edits")
        def draw() -> Any:
            if refusal := self._refusal():
                return refusal
            fields = request.get_json() if request.is_json else dict(request.form)
            self.drawings.append(fields)
            self.references.append([file.read() for file in request.files.getlist("image[]")])
            return Response(self._drawn(fields), mimetype="text/event-stream")

        @app.post("/v1/chat/completions")
        def chat() -> Any:
            if refusal := self._refusal():
                return refusal
            self.requests.append(request.get_json())
            reply = self.replies.pop(0) if self.replies else Reply(["ok"])
            if reply.status != 200:
                return _error(reply.status, reply.message), reply.status, reply.headers
            answer_id = f"chatcmpl-{len(self.requests)}"
            frames = _frames(reply, answer_id)
            key = g.owner, answer_id
            response = answers.begin(key, frames, close=frames.close, lease=nullcontext())
            if reply.lost_after is not None:
                response.response = list(islice(response.response, reply.lost_after))
            return response

        return app

    def _model(self, name: str) -> dict[str, Any]:
        makes = self.makes.get(name, "text")
        status = {"value": self.states.get(name, "loaded")}
        return {"id": name, "status": status, "architecture": {"output_modalities": [makes]}}

    def _drawn(self, fields: dict[str, Any]) -> Iterator[str]:
        seed = int(fields.get("seed", 7))
        facts = {"size": "64x48"}
        yield _event({"type": "image.partial_image", "b64_json": _picture(seed, "gray"), **facts})
        while self.draws is not None and not self.draws.wait(0.02):
            yield ": ping\n\n"  # by which a client that left is noticed
        picture = _picture(seed, "seagreen")
        yield _event({"type": "image.completed", "b64_json": picture, "seed": seed, **facts})

    def _refusal(self) -> Any:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return _error(401, "no key"), 401
        return None


def _picture(seed: int, colour: str) -> str:
    image = Image.new("RGB", (64, 48), colour)
    ImageDraw.Draw(image).ellipse((seed % 32, 8, seed % 32 + 24, 32), "gold")
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _tool(name: str) -> dict[str, Any]:
    function = {"name": name, "description": f"Does {name}.", "parameters": {"type": "object"}}
    return {
        "tool": name,
        "server": "tests",
        "definition": {"type": "function", "function": function},
    }


def _error(status: int, message: str) -> Response:
    return jsonify(error={"message": message, "type": "error", "code": status})


def _frames(reply: Reply, answer_id: str) -> Generator[str | None, None, None]:
    try:
        yield _chunk(answer_id, {"role": "assistant", "content": None})
        for piece in reply.pieces:
            while piece is None and not reply.go_on.wait(0.02):
                yield None
            if isinstance(piece, dict) and "choices" in piece:
                yield _event({"id": answer_id, **piece})
                continue
            delta = {"content": piece} if isinstance(piece, str) else piece
            yield _chunk(answer_id, delta or {})
        if reply.whole:
            yield _chunk(answer_id, {}, reply.finish)
            usage = {"prompt_tokens": 11, "completion_tokens": 42, "total_tokens": 53}
            if reply.usage:
                yield _event(
                    {"choices": [], "usage": usage, "timings": {"predicted_per_second": 7.5}}
                )
            yield "data: [DONE]\n\n"
    except GeneratorExit:
        reply.gone.set()
        raise


def _chunk(answer_id: str, delta: dict[str, Any], finish: str | None = None) -> str:
    return _event({"id": answer_id, "choices": [{"delta": delta, "finish_reason": finish}]})


def _event(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


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
