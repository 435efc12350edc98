"""A summary in place of a conversation, as clients carry it: opaque to them, but no secret."""

from __future__ import annotations

import base64
import json
from typing import Annotated, Literal

from pydantic import AfterValidator

from oxibonsai.server.schemas.fields import Fields


def packed(summary: str) -> str:
    """A summary as ``encrypted_content``. It is encoded, not encrypted: no key is lost with us."""
    return base64.urlsafe_b64encode(json.dumps({"summary": summary}).encode()).decode()


def unpacked(content: str) -> str:
    """The summary.

    Raises:
        ValueError: :func:`packed` has not made it.
    """
    try:
        summary = json.loads(base64.b64decode(content, altchars=b"-_", validate=True))["summary"]
    except (ValueError, TypeError, KeyError, RecursionError):
        summary = None
    if not isinstance(summary, str):
        raise ValueError("this server has made no such content")
    return summary


def _checked(content: str) -> str:
    unpacked(content)
    return content


class CompactionItem(Fields):
    """What ``/v1/responses/compact`` made of a conversation."""

    type: Literal["compaction"]
    id: str | None = None
    encrypted_content: Annotated[str, AfterValidator(_checked)]
