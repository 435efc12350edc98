"""The form fields of an upload."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from oxibonsai.server.schemas.fields import Fields

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]


class ExpiresAfter(Fields):
    """When a file expires."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=2_592_000)


class UploadForm(Fields):
    """The form fields other than the file."""

    purpose: Purpose
    expires_after: ExpiresAfter | None = None
