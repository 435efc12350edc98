"""Schemas that the operations of several APIs share."""

from __future__ import annotations

from oxibonsai.server.admin.openapi import Schema, object_with


def object_of(kind: str, *required: str) -> Schema:
    """Return an API object with an ``object`` member that names its kind."""
    return object_with("id", "object", *required, object={"const": kind}, id={"type": "string"})


def list_of(items: Schema) -> Schema:
    """Return a list that is given whole."""
    return object_with("object", "data", object={"const": "list"}, data=array_of(items))


def page_of(items: Schema) -> Schema:
    """Return a page of a list, with the cursors of the next one."""
    cursor: Schema = {"type": ["string", "null"]}
    return object_with(
        "object", "data", "first_id", "last_id", "has_more",
        object={"const": "list"}, data=array_of(items), has_more={"type": "boolean"},
        first_id=cursor, last_id=cursor,
    )  # fmt: skip


def array_of(items: Schema) -> Schema:
    """Return an array."""
    return {"type": "array", "items": items}


def deleted_object(kind: str) -> Schema:
    """Return the schema of the answer about a deleted object."""
    return object_with("id", "object", "deleted", object={"const": kind}, deleted={"const": True})


COUNT = object_with("input_tokens", input_tokens={"type": "integer"})
