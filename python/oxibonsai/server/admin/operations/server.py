"""Operations of the server itself: health, metrics, the list of routes, the chat page."""

from __future__ import annotations

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.openapi import Operation, object_with

_STATUS = object_with("status", status={"const": "ok"})

SERVER = {
    "health.health": Operation("Health: the model is loaded", response=_STATUS, public=True),
    "health.livez": Operation("Liveness: the process runs", response=_STATUS, public=True),
    "health.readyz": Operation("Readiness: requests are accepted", response=_STATUS, public=True),
    "metrics.show": Operation(
        "Metrics for Prometheus", media_type="text/plain", needs=Feature.METRICS
    ),
    "openapi.openapi": Operation("This document", response=object_with("openapi", "paths")),
    "page.index": Operation("The chat page", media_type="text/html", public=True),
    "page.routes": Operation("The page of all routes", media_type="text/html", public=True),
    "page.asset": Operation("A file of the chat page", media_type="*/*", public=True),
    "page.font": Operation("A font of the chat page", media_type="*/*", public=True),
    "page.vendored": Operation(
        "A third-party script of the chat page", media_type="*/*", public=True
    ),
}
