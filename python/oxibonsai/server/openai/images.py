"""``/v1/images/generations`` and ``/v1/images/edits``, and how their images are sent."""

from __future__ import annotations

import base64
import contextlib
import io
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, jsonify, request
from werkzeug.datastructures import FileStorage

from oxibonsai.diffusion.pixels import as_reference
from oxibonsai.diffusion.request import STEPS, ImageRequest
from oxibonsai.server.access import acting_for, owner
from oxibonsai.server.errors import ApiError, as_api_error
from oxibonsai.server.http.client import POLL_SECONDS, ClientGoneError, client_is_gone
from oxibonsai.server.inputs import InputWatch, input_is_read
from oxibonsai.server.openai.schemas.files import EditForm, GenerationBody, ImageFields
from oxibonsai.server.server import Server
from oxibonsai.server.sse import frame, stream_response
from oxibonsai.server.validation import as_body, check_model, read_body
from oxibonsai.vision.decoding import ImageLimits
from oxibonsai.vision.image_input import read_image

if TYPE_CHECKING:
    from oxibonsai.diffusion.diffusion_pipeline import Step
    from oxibonsai.diffusion.pixels import Pixels
    from oxibonsai.diffusion.request import ImageRequest


_STORED_SECONDS = 3600


def answer(app: Server, wanted: list[ImageRequest], response_format: str) -> Response:
    """Return all images, once they are drawn; a client that leaves ends the work between two steps."""
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
    """Return events with previews, then with the image.

    Args:
        app: The application.
        kind: What events are called: ``image_generation`` or ``image_edit``.
        one: The image.
        previews: How many, evenly over the steps; none of the last step, which is the image.
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
    image = base64.b64encode(png).decode()
    head = {"type": kind, "b64_json": image, "created_at": int(time.time())}
    return {**head, **_facts(one), **more}


def _png(app: Server, one: ImageRequest, pixels: Pixels) -> bytes:
    from oxibonsai.diffusion.pixels import encode_png
    from oxibonsai.diffusion.request import png_texts, record_of

    return encode_png(pixels, png_texts(record_of(one, app.image_worker.name)))


def _stored(app: Server, png: bytes) -> str:
    """Return where an image can be fetched, with the same API key."""
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


_INTEGERS = ("n", "partial_images", "seed", "steps", "output_compression")
_MOST_INPUTS = 8
_REFERENCE_PATCH = 16


def images_blueprint(app: Server) -> Blueprint:
    """Return the routes."""
    bp = Blueprint("images", __name__)

    def respond(kind: str, fields: ImageFields, first: ImageRequest) -> Response:
        check_model(fields.model, app.settings)
        count = fields.n or 1
        app.image_worker.check(first, count)
        wanted = [replace(first, seed=first.seed + i) for i in range(count)]
        if not fields.stream:
            if fields.partial_images:
                raise ApiError(400, "partial_images: send stream, too.", param="partial_images")
            return answer(app, wanted, fields.response_format or "b64_json")
        if count > 1 or fields.response_format == "url":
            param = "n" if count > 1 else "response_format"
            raise ApiError(400, f"{param}: a stream has one picture, as b64_json.", param=param)
        return stream(app, kind, wanted[0], fields.partial_images or 0)

    @bp.post("/v1/images/generations")
    def generate() -> Response:
        body = read_body(GenerationBody, request)
        app.image_worker.require()
        return respond("image_generation", body, _request(body, app.image_worker.default_size))

    @bp.post("/v1/images/edits")
    def edit() -> Response:
        app.image_worker.require()
        request.max_content_length = app.settings.max_upload_bytes
        if request.mimetype != "multipart/form-data":
            raise ApiError(415, "Send multipart/form-data, with the fields image and prompt.")
        form = as_body(EditForm, _form_fields())
        files = [*request.files.getlist("image"), *request.files.getlist("image[]")]
        if not 1 <= len(files) <= _MOST_INPUTS:
            raise ApiError(
                400, f"image: send one to {_MOST_INPUTS} pictures, not {len(files)}.", param="image"
            )
        if form.strength is not None and len(files) > 1:
            raise ApiError(400, "strength: starts from one picture.", param="strength")
        with app.image_worker.reading(InputWatch().look):
            if form.strength is not None:
                asked = _request(form, app.image_worker.default_size)
                asked = replace(asked, start=_image(files[0]), strength=form.strength)
            else:
                # What waits for its turn holds images in the size in which a network looks at them.
                images = [as_reference(_image(file), 1) for file in files]
                size = as_reference(images[0], _REFERENCE_PATCH).size
                asked = replace(_request(form, size), references=tuple(images))
        return respond("image_edit", form, asked)

    return bp


def _request(fields: ImageFields, default_size: tuple[int, int]) -> ImageRequest:
    width, height = default_size
    if fields.size not in (None, "auto"):
        width, height = (int(side) for side in str(fields.size).split("x"))
    seed = secrets.randbits(31) if fields.seed is None else fields.seed
    return ImageRequest(
        fields.prompt, seed, width, height, fields.steps or STEPS, fields.rng or "mlx"
    )


def _form_fields() -> dict[str, Any]:
    """Return the form's texts as the types that JSON would have."""
    found: dict[str, Any] = {}
    for name, text in request.form.items():
        if name is None:
            raise ApiError(400, "A part of the form has no name.")
        found[name] = _value(name, text)
    for name in request.files:
        if name not in ("image", "image[]"):
            found[str(name)] = "a file"
    return found


def _value(name: str, text: str) -> Any:
    readers: dict[str, Callable[[str], Any]] = dict.fromkeys(_INTEGERS, int)
    readers |= {"strength": float, "guidance": float, "stream": _switch}
    with contextlib.suppress(ValueError):  # the schema says what is wrong with it
        return readers.get(name, str)(text[:40] if name in readers else text)
    return text


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _image(file: FileStorage) -> Any:
    with contextlib.closing(file):
        limits = ImageLimits()
        return read_image(file.stream.read(limits.max_bytes + 1), limits).image
