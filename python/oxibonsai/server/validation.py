"""Validates request bodies with pydantic models; reports an error as one sentence."""

from __future__ import annotations

import difflib
from typing import Any, TypeVar

from flask import Request, g
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from oxibonsai.output.messages import IMAGES
from oxibonsai.output.tools import ONLY_FUNCTIONS
from oxibonsai.server.errors import ApiError
from oxibonsai.server.schemas.known import UNSUPPORTED
from oxibonsai.server.settings import Settings
from oxibonsai.server.strict_json import read_object

_NO_IMAGES = (
    "image input is not supported here: /v1/chat/completions, /v1/responses and /v1/messages take "
    "pictures"
)

_LONGEST_NAME = 80  # of a field that is looked for among ours

Body = TypeVar("Body", bound=BaseModel)


def read_body(model: type[Body], request: Request, *, untyped: bool = False) -> Body:
    """Return the request's JSON object as a ``model``; the name in its ``model`` field chooses the engines.

    Args:
        model: What the body is.
        request: The request.
        untyped: As for :func:`~oxibonsai.server.strict_json.read_object`.

    Raises:
        ApiError: The body is not a JSON object, or a field is invalid; the error names the field.
    """
    value = read_object(request, untyped=untyped)
    name = value.get("model")
    g.model_name = name if isinstance(name, str) else None
    body = as_body(model, value)
    g.lora = getattr(body, "lora", None)
    return body


def as_body(model: type[Body], value: Any) -> Body:
    """Return a JSON value as a ``model``; see :func:`read_body`."""
    try:
        return model.model_validate(value)
    except ValidationError as e:
        error = _telling(e.errors(include_url=False), value)
        path = _path(error, value)
        if _is_tool(error) and path[-1] != "type":
            path.append("type")  # by which a tool is one of a union
        param = ".".join(path) or None
        raise ApiError(400, _sentence(error, param, model), param=param) from None


def _sentence(error: ErrorDetails, param: str | None, model: type[BaseModel]) -> str:
    if error["type"] == UNSUPPORTED:
        return f"{param} is not supported: {error['msg']}."
    if error["type"] == "extra_forbidden":
        name = str(error["loc"][-1])[:_LONGEST_NAME]
        near = difflib.get_close_matches(name, model.model_fields, 1, 0.75)
        hint = f"; did you mean {near[0]}?" if near else "."
        return f"{param}: there is no such field{hint}"
    return f"{param or 'the body'}: {_reason(error)}."


def _telling(errors: list[ErrorDetails], value: Any) -> ErrorDetails:
    """Return the most informative of the errors."""
    # An image part also produces errors for the other members of its union.
    image = next(filter(_is_image, errors), None)
    if image is not None:
        return image
    # Of a list with too many items nothing else has been looked at.
    too_long = next((e for e in errors if e["type"] == "too_long"), None)
    if too_long is not None:
        return too_long
    # Of a union, the member that the value matches best: its error is nested deepest.
    first = _path(errors[0], value)
    same_field = [e for e in errors if _path(e, value)[: len(first)] == first]
    return max(same_field, key=lambda e: len(_path(e, value)))


def _path(error: ErrorDetails, value: Any) -> list[str]:
    """Return the path of the error in the client's value, without the names of union members."""
    path: list[str] = []
    for i, part in enumerate(error["loc"]):
        inside = isinstance(value, dict) and part in value
        is_missing = error["type"] == "missing" and i == len(error["loc"]) - 1
        if is_missing and inside and path and value[part] is not None:
            path.pop()  # the key exists: the previous part was the tag of a union
        if inside or is_missing or isinstance(part, int):
            path.append(str(part))
        if inside:
            value = value[part]
        elif isinstance(part, int):
            value = value[part] if isinstance(value, list) and part < len(value) else None
    return path


def _reason(error: ErrorDetails) -> str:
    if _is_image(error):
        return _NO_IMAGES
    if _is_tool(error):
        kind = error["ctx"]["tag"] if error["type"] == "union_tag_invalid" else error["input"]
        return f"it is {str(kind)[:_LONGEST_NAME]!r}, but {ONLY_FUNCTIONS}"
    # Our own message, without pydantic's prefix.
    return str(error["ctx"]["error"]) if error["type"] == "value_error" else error["msg"]


def _is_image(error: ErrorDetails) -> bool:
    """Return whether the error is about an image part."""
    if error["type"] == "union_tag_invalid":
        return error["ctx"]["tag"] in IMAGES
    is_kind = error["type"] == "literal_error" and error["loc"][-1] == "type"
    return is_kind and error["input"] in IMAGES


def _is_tool(error: ErrorDetails) -> bool:
    """Return whether the error is about the kind of a tool on offer."""
    place = error["loc"]
    if error["type"] == "union_tag_invalid":
        return len(place) == 2 and place[0] == "tools"
    return error["type"] == "literal_error" and place[0] == "tools" and place[-1] == "type"


def check_model(model: str | None, settings: Settings) -> None:
    """Raise ApiError 400 if the request must name a model and does not; any name is accepted."""
    if model is None and settings.require_model:
        raise ApiError(400, "model: the request must name a model.", param="model")
