"""Compaction of a conversation: the user's messages, and the model's summary of everything else."""

from __future__ import annotations

import time
from collections.abc import Sequence

from oxibonsai.server.openai.schemas.compaction import packed
from oxibonsai.server.openai.schemas.responses import (
    InputTokensRequest,
    MessageItem,
    ReasoningField,
    TextField,
    TextPart,
)
from oxibonsai.server.stores import Object
from oxibonsai.server.stores.collection import new_id

_ASKED = (
    "Summarize our conversation so far, so that it can go on from your summary alone: what is "
    "wanted, what was found and decided, names and numbers that matter, and what is still open. "
    "Answer with the summary only."
)
_MOST_TOKENS = 1024


def summary_request(
    request: InputTokensRequest, items: Sequence[Object]
) -> tuple[InputTokensRequest, list[Object]]:
    """Return the request for a summary, and the conversation with the instruction appended."""
    part = TextPart(type="input_text", text=_ASKED)
    asked = MessageItem(type="message", role="user", content=[part])
    plain = {
        "truncation": "auto",
        "tools": [],
        "tool_choice": "auto",
        "text": TextField(),
        "reasoning": ReasoningField(effort="none"),
    }
    return request.model_copy(update=plain), [*items, asked.model_dump()]


def summary_tokens(ctx_size: int) -> int:
    """Maximum length of a summary in tokens, which is reserved in the context."""
    return max(1, min(_MOST_TOKENS, ctx_size // 4))


def compacted(items: Sequence[Object], response: Object) -> Object:
    """Return the response body of ``/v1/responses/compact``.

    Args:
        items: The conversation.
        response: The model's response to :func:`summary_request`.
    """
    messages = [item for item in response["output"] if item["type"] == "message"]
    summary = "".join(part["text"] for message in messages for part in message["content"])
    item = {"id": new_id("cmp_"), "type": "compaction", "encrypted_content": packed(summary)}
    said = [i for i in items if i["type"] == "message" and i["role"] == "user"]
    return {
        "id": new_id("resp_"),
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*said, item],
        "usage": response["usage"],
    }
