"""The bodies of ``/v1/conversations``."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from oxibonsai.server.openai.schemas.responses import Item, with_type
from oxibonsai.server.schemas.fields import Fields, Metadata

# OpenAI's limit of items that one request may add.
MOST_ITEMS = 20


class ConversationItems(Fields):
    """``POST /v1/conversations/{conversation_id}/items``."""

    items: list[Item] = Field(min_length=1, max_length=MOST_ITEMS)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, body: Any) -> Any:
        return _with_types(body)


class ConversationCreate(Fields):
    """``POST /v1/conversations``."""

    items: list[Item] | None = Field(None, max_length=MOST_ITEMS)
    metadata: Metadata | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, body: Any) -> Any:
        return _with_types(body)


def _with_types(body: Any) -> Any:
    """Normalize plain texts and messages without a type."""
    items = body.get("items") if isinstance(body, dict) else None
    return {**body, "items": [with_type(i) for i in items]} if isinstance(items, list) else body
