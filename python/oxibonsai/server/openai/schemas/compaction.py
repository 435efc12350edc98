"""The compaction item: a conversation summary that is opaque to clients, but not encrypted."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Literal

from pydantic import AfterValidator

from oxibonsai.server.schemas.fields import Fields


def packed(summary: str) -> str:
    """Return a summary as ``encrypted_content``; it is encoded, not encrypted."""
    return base64.urlsafe_b64encode(json.dumps({"summary": summary}).encode()).decode()


def unpacked(content: str) -> str:
    """Return the summary.

    Raises:
        ValueError: It was not made by :func:`packed`.
    """
    try:
        summary = json.loads(base64.b64decode(content, altchars=b"-_", validate=True))["summary"]
    except (ValueError, TypeError, KeyError, RecursionError):
        summary = None
    if not isinstance(summary, str):
        raise ValueError("this content was not made by this server")
    return summary


def _checked(content: str) -> str:
    unpacked(content)
    return content


class CompactionItem(Fields):
    """The result of ``/v1/responses/compact``."""

    type: Literal["compaction"]
    id: str | None = None
    encrypted_content: Annotated[str, AfterValidator(_checked)]
