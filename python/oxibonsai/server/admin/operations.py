"""What every endpoint takes and answers, by the endpoint's name: one row for each."""

from __future__ import annotations

from collections.abc import Mapping

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.openapi import Operation, Schema, object_with
from oxibonsai.server.anthropic.schemas import CountRequest, MessageRequest
from oxibonsai.server.llama_server.schemas import (
    DetokenizeBody,
    SlotAction,
    SlotFile,
    TokenizeBody,
)
from oxibonsai.server.openai.paging import PageQuery
from oxibonsai.server.openai.schemas.assistants import (
    AssistantChange,
    AssistantCreate,
    MessageCreate,
    MetadataChange,
    RunCreate,
    ThreadAndRunCreate,
    ThreadChange,
    ThreadCreate,
    ToolOutputs,
)
from oxibonsai.server.openai.schemas.chat import ChatBody, ConversationFields
from oxibonsai.server.openai.schemas.completion import CompletionBody, NativeCompletionBody
from oxibonsai.server.openai.schemas.embeddings import EmbeddingBody, NativeEmbeddingBody
from oxibonsai.server.openai.schemas.files import UploadForm
from oxibonsai.server.openai.schemas.responses import InputTokensRequest, ResponseRequest


def _object(kind: str, *required: str) -> Schema:
    """An object of the API that says what it is."""
    return object_with("id", "object", *required, object={"const": kind}, id={"type": "string"})


def _list_of(items: Schema) -> Schema:
    return object_with("object", "data", object={"const": "list"}, data=_array(items))


def _page_of(items: Schema) -> Schema:
    """A part of a list, with the ids that lead to the next one."""
    cursor: Schema = {"type": ["string", "null"]}
    return object_with(
        "object", "data", "first_id", "last_id", "has_more",
        object={"const": "list"}, data=_array(items), has_more={"type": "boolean"},
        first_id=cursor, last_id=cursor,
    )  # fmt: skip


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _deleted(kind: str) -> Schema:
    return object_with("id", "object", "deleted", object={"const": kind}, deleted={"const": True})


_STATUS = object_with("status", status={"const": "ok"})
_COUNT = object_with("input_tokens", input_tokens={"type": "integer"})
_MODEL = _object("model", "created", "owned_by")
_CHAT = _object("chat.completion", "created", "model", "choices", "usage")
_COMPLETION = _object("text_completion", "created", "model", "choices", "usage")
_EMBEDDINGS = _list_of(object_with("object", "index", "embedding"))
_MESSAGE = object_with(
    "id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "usage",
    type={"const": "message"}, role={"const": "assistant"}, content=_array({"type": "object"}),
)  # fmt: skip
_RESPONSE = _object("response", "created_at", "status", "model", "output", "error", "usage")
_ITEM = object_with("id", "type")
_FILE = _object("file", "bytes", "created_at", "filename", "purpose")
_ASSISTANT = _object("assistant", "created_at", "model", "instructions", "tools", "metadata")
_THREAD = _object("thread", "created_at", "metadata")
_THREAD_MESSAGE = _object("thread.message", "created_at", "thread_id", "role", "content")
_RUN = _object("thread.run", "created_at", "thread_id", "assistant_id", "status")
_STEP = _object("thread.run.step", "created_at", "run_id", "thread_id", "status", "step_details")
_UPLOAD: Schema = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": UploadForm.model_json_schema()["properties"]["purpose"],
    },
}

_SERVER = {
    "health.health": Operation("Whether the model is loaded", answer=_STATUS, public=True),
    "health.livez": Operation("Whether the process lives", answer=_STATUS, public=True),
    "health.readyz": Operation("Whether requests may come", answer=_STATUS, public=True),
    "metrics.show": Operation(
        "Metrics for Prometheus", media_type="text/plain", needs=Feature.METRICS
    ),
    "openapi.openapi": Operation("This document", answer=object_with("openapi", "paths")),
    "page.index": Operation("The chat page", media_type="text/html", public=True),
    "page.asset": Operation("A file of the chat page", media_type="*/*", public=True),
    "page.vendored": Operation(
        "A script of the chat page that another project made", media_type="*/*", public=True
    ),
    "models.list_models": Operation("The models that are served", answer=_list_of(_MODEL)),
    "models.get_model": Operation("One model, by its id or an alias", answer=_MODEL),
    "props.props": Operation("What the server runs with", answer=object_with("total_slots")),
    "slots.list_slots": Operation(
        "What the slots do",
        answer=_array(object_with("id", "is_processing")),
        needs=Feature.SLOTS,
    ),
    "lora.list_adapters": Operation(
        "The adapters that are added to the model",
        answer=_array(object_with("id", "path", "scale")),
    ),
    "lora.set_scales": Operation("Refused: scales are fixed when the server starts"),
    "slots.act": Operation(
        "Save, restore or erase what the cache holds of a slot's text",
        body=SlotFile,
        query=SlotAction,
        answer=object_with("id_slot"),
        needs=Feature.SAVED_SLOTS,
    ),
}
_GENERATION = {
    "chat.create_chat_completion": Operation(
        "Answer a conversation", body=ChatBody, answer=_CHAT, streams=True, needs=Feature.TEXTS
    ),
    "chat.count_tokens": Operation(
        "Count the tokens of a conversation",
        body=ConversationFields,
        answer=_COUNT,
        needs=Feature.TEXTS,
    ),
    "completions.create_completion": Operation(
        "Continue a text",
        body=CompletionBody,
        answer=_COMPLETION,
        streams=True,
        needs=Feature.TEXTS,
    ),
    "native_completion.create_native_completion": Operation(
        "Continue a text, for llama-server's clients",
        body=NativeCompletionBody,
        answer={"type": ["object", "array"]},
        streams=True,
        needs=Feature.TEXTS,
    ),
    "embeddings.create_native_embeddings": Operation(
        "Vectors of texts, for llama-server's clients",
        body=NativeEmbeddingBody,
        answer=_array(object_with("index", "embedding")),
    ),
    "embeddings.create_embeddings": Operation(
        "Vectors of texts", body=EmbeddingBody, answer=_EMBEDDINGS
    ),
    "tokens.tokenize": Operation(
        "Tokens of a text", body=TokenizeBody, answer=object_with("tokens")
    ),
    "tokens.detokenize": Operation(
        "Text of tokens", body=DetokenizeBody, answer=object_with("content")
    ),
    "tokens.apply_template": Operation(
        "The prompt of a conversation",
        body=ConversationFields,
        answer=object_with("prompt"),
        needs=Feature.TEXTS,
    ),
    "messages.create": Operation(
        "Answer a conversation, for Anthropic's clients",
        body=MessageRequest,
        answer=_MESSAGE,
        streams=True,
        failure="AnthropicError",
        needs=Feature.TEXTS,
    ),
    "messages.count_tokens": Operation(
        "Count the tokens of a conversation",
        body=CountRequest,
        answer=_COUNT,
        failure="AnthropicError",
        needs=Feature.TEXTS,
    ),
}
_STORED = {
    "responses.count_tokens": Operation(
        "Count the tokens of an answer's prompt",
        body=InputTokensRequest,
        answer=object_with(
            "object",
            "input_tokens",
            object={"const": "response.input_tokens"},
            input_tokens={"type": "integer"},
        ),
        needs=Feature.TEXTS,
    ),
    "responses.compact": Operation(
        "Make a conversation short",
        body=InputTokensRequest,
        answer=_object("response.compaction", "created_at", "output", "usage"),
        needs=Feature.TEXTS,
    ),
    "responses.create": Operation(
        "Answer, and keep the answer",
        body=ResponseRequest,
        answer=_RESPONSE,
        streams=True,
        needs=Feature.TEXTS,
    ),
    "responses.list_responses": Operation(
        "The kept answers", query=PageQuery, answer=_page_of(_RESPONSE)
    ),
    "responses.get": Operation("One kept answer", answer=_RESPONSE),
    "responses.delete": Operation("Forget an answer", answer=_deleted("response")),
    "responses.cancel": Operation("End an answer that is being written", answer=_RESPONSE),
    "responses.input_items": Operation(
        "What an answer was asked", query=PageQuery, answer=_page_of(_ITEM)
    ),
    "files.upload": Operation("Keep a file", form=_UPLOAD, answer=_FILE),
    "files.list_files": Operation("The kept files", query=PageQuery, answer=_page_of(_FILE)),
    "files.get": Operation("What is known about a file", answer=_FILE),
    "files.delete": Operation("Forget a file", answer=_deleted("file")),
    "files.content": Operation("A file's bytes", media_type="application/octet-stream"),
}
_ASSISTANTS = {
    "assistants.create": Operation("Make one", body=AssistantCreate, answer=_ASSISTANT),
    "assistants.list_assistants": Operation("All", query=PageQuery, answer=_page_of(_ASSISTANT)),
    "assistants.get": Operation("One", answer=_ASSISTANT),
    "assistants.change": Operation("Change one", body=AssistantChange, answer=_ASSISTANT),
    "assistants.delete": Operation("Forget one", answer=_deleted("assistant.deleted")),
    "threads.create": Operation("Begin a thread", body=ThreadCreate, answer=_THREAD),
    "threads.get": Operation("A thread", answer=_THREAD),
    "threads.change": Operation("Change a thread", body=ThreadChange, answer=_THREAD),
    "threads.delete": Operation("Forget a thread", answer=_deleted("thread.deleted")),
    "thread_messages.create": Operation("Say", body=MessageCreate, answer=_THREAD_MESSAGE),
    "thread_messages.list_messages": Operation(
        "What was said", query=PageQuery, answer=_page_of(_THREAD_MESSAGE)
    ),
    "thread_messages.get": Operation("A message", answer=_THREAD_MESSAGE),
    "thread_messages.change": Operation(
        "Change a message's metadata", body=MetadataChange, answer=_THREAD_MESSAGE
    ),
    "thread_messages.delete": Operation(
        "Forget a message", answer=_deleted("thread.message.deleted")
    ),
    "runs.create_thread_and_run": Operation(
        "Begin a thread and answer it",
        body=ThreadAndRunCreate,
        answer=_RUN,
        streams=True,
        needs=Feature.TEXTS,
    ),
    "runs.create": Operation(
        "Answer a thread", body=RunCreate, answer=_RUN, streams=True, needs=Feature.TEXTS
    ),
    "runs.list_runs": Operation("A thread's runs", query=PageQuery, answer=_page_of(_RUN)),
    "runs.get": Operation("A run", answer=_RUN),
    "runs.change": Operation("Change a run's metadata", body=MetadataChange, answer=_RUN),
    "runs.cancel": Operation("End a run", answer=_RUN),
    "runs.submit": Operation(
        "Give a run what its calls gave", body=ToolOutputs, answer=_RUN, streams=True
    ),
    "run_steps.steps": Operation("A run's steps", query=PageQuery, answer=_page_of(_STEP)),
    "run_steps.step": Operation("A step", answer=_STEP),
}

OPERATIONS: Mapping[str, Operation] = {**_SERVER, **_GENERATION, **_STORED, **_ASSISTANTS}
