"""The body of ``POST /v1/batches``."""

from __future__ import annotations

from typing import Literal

from oxibonsai.server.openai.schemas.files import ExpiresAfter
from oxibonsai.server.schemas.fields import Fields, Metadata

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]


class BatchCreate(Fields):
    """A file of requests to one route."""

    input_file_id: str
    endpoint: Endpoint
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
