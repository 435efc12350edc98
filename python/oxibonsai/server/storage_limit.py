"""The limit of what an API key may store."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from flask import current_app

from oxibonsai.server.access import owner
from oxibonsai.server.server import Server

_View = TypeVar("_View", bound=Callable[..., Any])


def check_room() -> None:
    """Raise TooLargeError if the current request may store no object; before any work is done."""
    cast(Server, current_app).store.check_room(owner())


def stores_objects(view: _View) -> _View:
    """Mark a view that stores objects with every request: it needs room for them."""

    @wraps(view)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check_room()
        return view(*args, **kwargs)

    return cast(_View, checked)
