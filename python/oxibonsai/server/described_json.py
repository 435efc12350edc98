"""JSON schemas of answers, as requests give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from flask import current_app, has_app_context

from oxibonsai.server.schemas.request_warnings import warn
from oxibonsai.server.server import Server
from oxibonsai.structured import Structure


def described_json(
    schema: Mapping[str, Any] | bool | str, *, strict: bool | None = None
) -> Structure:
    """Return the structure of an answer that a schema describes; warn of keywords that it leaves out.

    Args:
        schema: The schema.
        strict: Refuse such keywords.

    Raises:
        RequestError: The schema is malformed or, if strict, not enforced.
    """
    open_objects = has_app_context() and cast(Server, current_app).settings.open_objects
    structure = Structure.described_json(schema, strict=strict is True, open_objects=open_objects)
    for place, keyword in structure.left_out:
        warn(
            f"the JSON schema's keyword {keyword!r} at {place or 'its root'} is not enforced while the "
            "text is generated; a whole answer is checked for it"
        )
    return structure
