"""Operations of Anthropic's API."""

from __future__ import annotations

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.openapi import Operation, object_with
from oxibonsai.server.admin.operations.shapes import COUNT, array_of
from oxibonsai.server.anthropic.schemas import BatchCreate as MessageBatchCreate
from oxibonsai.server.anthropic.schemas import BatchQuery, CountRequest, MessageRequest

_MESSAGE = object_with(
    "id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "usage",
    type={"const": "message"}, role={"const": "assistant"}, content=array_of({"type": "object"}),
)  # fmt: skip
_MESSAGE_BATCH = object_with(
    "id", "type", "processing_status", "request_counts", "created_at", "results_url",
    type={"const": "message_batch"},
)  # fmt: skip

ANTHROPIC = {
    "messages.create": Operation(
        "Generate the next message of a conversation (Anthropic's API)",
        body=MessageRequest,
        response=_MESSAGE,
        streams=True,
        failure="AnthropicError",
        needs=Feature.GENERATION,
    ),
    "messages.count_tokens": Operation(
        "Count the tokens of a conversation",
        body=CountRequest,
        response=COUNT,
        failure="AnthropicError",
        needs=Feature.GENERATION,
    ),
    "message_batches.create": Operation(
        "Answer many messages in the background (Anthropic's API)",
        body=MessageBatchCreate,
        response=_MESSAGE_BATCH,
        failure="AnthropicError",
    ),
    "message_batches.list_batches": Operation(
        "List batches of messages",
        query=BatchQuery,
        response=object_with("data", "has_more", data=array_of(_MESSAGE_BATCH)),
        failure="AnthropicError",
    ),
    "message_batches.get": Operation(
        "Get a batch of messages", response=_MESSAGE_BATCH, failure="AnthropicError"
    ),
    "message_batches.cancel": Operation(
        "Cancel a batch of messages", response=_MESSAGE_BATCH, failure="AnthropicError"
    ),
    "message_batches.delete": Operation(
        "Delete a batch of messages that has ended",
        response=object_with("id", "type", type={"const": "message_batch_deleted"}),
        failure="AnthropicError",
    ),
    "message_batches.results": Operation(
        "The results of a batch of messages, one JSON object per line",
        media_type="application/x-jsonl",
        failure="AnthropicError",
    ),
}
