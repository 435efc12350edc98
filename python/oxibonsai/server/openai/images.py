"""``/v1/images/generations`` and ``/v1/images/edits``."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, request
from werkzeug.datastructures import FileStorage

from oxibonsai.diffusion.pixels import as_reference
from oxibonsai.diffusion.request import STEPS, ImageRequest
from oxibonsai.server.errors import ApiError
from oxibonsai.server.inputs import InputWatch
from oxibonsai.server.openai.image_answers import answer, stream
from oxibonsai.server.openai.schemas.images import EditForm, GenerationBody, ImageFields
from oxibonsai.server.server import Server
from oxibonsai.server.validation import as_body, check_model, read_body
from oxibonsai.vision.decoding import ImageLimits
from oxibonsai.vision.image_input import read_image

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
                asked = replace(asked, start=_picture(files[0]), strength=form.strength)
            else:
                # What waits for its turn holds pictures in the size in which a network looks at them.
                pictures = [as_reference(_picture(file), 1) for file in files]
                size = as_reference(pictures[0], _REFERENCE_PATCH).size
                asked = replace(_request(form, size), references=tuple(pictures))
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


def _picture(file: FileStorage) -> Any:
    with contextlib.closing(file):
        limits = ImageLimits()
        return read_image(file.stream.read(limits.max_bytes + 1), limits).image
