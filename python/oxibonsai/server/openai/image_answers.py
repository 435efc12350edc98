"""Drawn pictures as answers: one JSON object, links to stored files, or a stream with previews."""

from __future__ import annotations

import base64
import io
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flask import Response, jsonify, request

from oxibonsai.server.access import acting_for, owner
from oxibonsai.server.errors import ApiError, as_api_error
from oxibonsai.server.http.disconnect import POLL_SECONDS, ClientGoneError, client_is_gone
from oxibonsai.server.inputs import input_is_read
from oxibonsai.server.server import Server
from oxibonsai.server.sse import frame, stream_response

if TYPE_CHECKING:
    from oxibonsai.diffusion.diffusion_pipeline import Step
    from oxibonsai.diffusion.pixels import Pixels
    from oxibonsai.diffusion.request import ImageRequest

_STORED_SECONDS = 3600


def answer(app: Server, wanted: list[ImageRequest], response_format: str) -> Response:
    """All pictures, once they are drawn; the client's leaving ends the work between two steps."""
    environ = request.environ
    input_is_read()

    def look() -> None:
        if client_is_gone(environ):
            raise ClientGoneError("the client closed its connection")
        _check_running(app)

    data = []
    for one in wanted:
        png = _png(app, one, app.image_worker.draw(one, look))
        if response_format == "url":
            data.append({"url": _stored(app, png), "seed": one.seed})
        else:
            data.append({"b64_json": base64.b64encode(png).decode(), "seed": one.seed})
    return jsonify({"created": int(time.time()), "data": data, **_facts(wanted[0])})


def stream(app: Server, kind: str, one: ImageRequest, previews: int) -> Response:
    """Events with previews, then with the picture.

    Args:
        app: The application.
        kind: What events are called: ``image_generation`` or ``image_edit``.
        one: The picture.
        previews: How many, evenly over the steps; none of the last step, which is the picture.
    """
    events: queue.Queue[dict[str, Any] | Exception | None] = queue.Queue()
    cancelled = threading.Event()
    shown = {max(1, one.steps * i // (previews + 1)) for i in range(1, previews + 1)}
    shown.discard(one.steps)
    count = iter(range(previews))
    who = owner()

    def look() -> None:
        if cancelled.is_set():
            raise ClientGoneError("the client closed its connection")
        _check_running(app)

    def on_step(step: Step) -> None:
        if step.index + 1 in shown:
            png = _png(app, one, app.image_worker.preview(step))
            events.put(_event(f"{kind}.partial_image", one, png, partial_image_index=next(count)))

    def draw() -> None:
        try:
            with acting_for(who):  # a thread of its own, without the request
                png = _png(app, one, app.image_worker.draw(one, look, on_step))
            events.put(_event(f"{kind}.completed", one, png, seed=one.seed))
            events.put(None)
        except Exception as e:
            events.put(e)

    return stream_response(
        _frames(events, threading.Thread(target=draw, name="picture", daemon=True).start),
        close=cancelled.set,
        stopping=lambda: app.lifecycle.stopping,
    )


def _frames(
    events: queue.Queue[dict[str, Any] | Exception | None], begin: Callable[[], None]
) -> Iterator[str | None]:
    begin()
    while True:
        try:
            event = events.get(timeout=POLL_SECONDS)
        except queue.Empty:
            yield None
            continue
        if event is None:
            return
        if isinstance(event, Exception):
            raise as_api_error(event)
        yield frame(event, event["type"])


def _check_running(app: Server) -> None:
    if app.lifecycle.stopping:
        raise ApiError(
            503, "The server was stopped before the picture was complete.", code="stopped"
        )


def _facts(one: ImageRequest) -> dict[str, Any]:
    return {
        "background": "opaque",
        "output_format": "png",
        "quality": "auto",
        "size": f"{one.width}x{one.height}",
    }


def _event(kind: str, one: ImageRequest, png: bytes, **more: Any) -> dict[str, Any]:
    picture = base64.b64encode(png).decode()
    head = {"type": kind, "b64_json": picture, "created_at": int(time.time())}
    return {**head, **_facts(one), **more}


def _png(app: Server, one: ImageRequest, pixels: Pixels) -> bytes:
    from oxibonsai.diffusion.png import encode_png
    from oxibonsai.diffusion.record import png_texts, record_of

    return encode_png(pixels, png_texts(record_of(one, app.image_worker.name)))


def _stored(app: Server, png: bytes) -> str:
    """Where a picture can be fetched, with the same API key."""
    now = int(time.time())
    body = {
        "object": "file",
        "bytes": 0,
        "created_at": now,
        "filename": "image.png",
        "purpose": "vision",
        "status": "processed",
        "expires_at": now + _STORED_SECONDS,
    }
    stored = app.store.files.upload(owner(), body, io.BytesIO(png))
    return f"{request.host_url}v1/files/{stored['id']}/content"
