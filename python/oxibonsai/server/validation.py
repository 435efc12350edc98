"""Request bodies as pydantic models; what is wrong with one is told in one sentence."""

from __future__ import annotations

from typing import Any, TypeVar

from flask import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from oxibonsai.output.messages import IMAGES, NO_IMAGES
from oxibonsai.server.errors import ApiError
from oxibonsai.server.settings import Settings
from oxibonsai.server.strict_json import read_object

Body = TypeVar("Body", bound=BaseModel)


def read_body(model: type[Body], request: Request) -> Body:
    """The request's JSON object as a ``model``.

    Raises:
        ApiError: It is no JSON object, or a field is wrong; the error names the field.
    """
    return as_body(model, read_object(request))


def as_body(model: type[Body], value: Any) -> Body:
    """A JSON value as a ``model``; see :func:`read_body`."""
    try:
        return model.model_validate(value)
    except ValidationError as e:
        errors = e.errors(include_url=False)
        # A union that a picture fails tells of its other members too.
        first = next(filter(_is_image, errors), errors[0])
        names = _names(value)
        if first["type"] == "missing":
            names.add(str(first["loc"][-1]))
        # A union tells which of its members it tried; the client knows only the field.
        parts = [str(p) for p in first["loc"] if isinstance(p, int) or p in names]
        param = ".".join(parts) or None
        reason = NO_IMAGES if _is_image(first) else first["msg"]
        raise ApiError(400, f"{param or 'the body'}: {reason}.", param=param) from None


def _is_image(error: ErrorDetails) -> bool:
    """Whether what is wrong is a part that is a picture."""
    if error["type"] == "union_tag_invalid":
        return error["ctx"]["tag"] in IMAGES
    is_kind = error["type"] == "literal_error" and error["loc"][-1] == "type"
    return is_kind and error["input"] in IMAGES


def check_model(model: str | None, settings: Settings) -> None:
    """ApiError 400 where a request has to name its model and does not; any name will do."""
    if model is None and settings.require_model:
        raise ApiError(400, "model: a request has to name its model.", param="model")


def _names(value: Any) -> set[str]:
    """Every key of a JSON value."""
    names: set[str] = set()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            names |= item.keys()
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return names
