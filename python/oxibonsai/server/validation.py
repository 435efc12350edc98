"""Request bodies as pydantic models; what is wrong with one is told in one sentence."""

from __future__ import annotations

from typing import Any, TypeVar

from flask import Request
from pydantic import BaseModel, ValidationError

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
        first = e.errors(include_url=False, include_context=False, include_input=False)[0]
        # A union tells which of its members it tried; the client knows only the field.
        parts = [str(p) for p in first["loc"] if isinstance(p, int) or p in _names(value)]
        param = ".".join(parts) or None
        field = param or "the body"
        raise ApiError(400, f"{field}: {first['msg']}.", param=param) from None


def check_model(model: str | None, settings: Settings) -> None:
    """ApiError 400 where a request has to name its model and does not; any name will do."""
    if model is None and settings.require_model:
        raise ApiError(400, "model: a request has to name its model.", param="model")


def _names(value: Any) -> set[str]:
    """Every key of a JSON value, and those that its top level lacks."""
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
