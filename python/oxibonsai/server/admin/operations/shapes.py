"""Schemas that the operations of several APIs share, and operations of the server itself."""

from __future__ import annotations

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.openapi import Operation, Schema, object_with


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


_STATUS = object_with("status", status={"const": "ok"})
_HEALTH = object_with(
    "status",
    status={"const": "ok"},
    circuits={
        "type": "object",
        "additionalProperties": {"enum": ["half_open", "open"]},
        "description": "Models whose circuit is not closed: they kept failing.",
    },
)

SERVER = {
    "health.health": Operation("Health: the model is loaded", response=_HEALTH, public=True),
    "health.livez": Operation("Liveness: the process runs", response=_STATUS, public=True),
    "health.readyz": Operation("Readiness: requests are accepted", response=_STATUS, public=True),
    "metrics.show": Operation(
        "Metrics for Prometheus", media_type="text/plain", needs=Feature.METRICS
    ),
    "openapi.openapi": Operation("This document", response=object_with("openapi", "paths")),
    "page.index": Operation("The chat page", media_type="text/html", public=True),
    "page.routes": Operation("The page of all routes", media_type="text/html", public=True),
    "page.asset": Operation("A file of the chat page", media_type="*/*", public=True),
    "page.preview": Operation(
        "The frame of the chat page's previews", media_type="text/html", public=True
    ),
    "page.font": Operation("A font of the chat page", media_type="*/*", public=True),
    "page.vendored": Operation(
        "A third-party script of the chat page", media_type="*/*", public=True
    ),
}
