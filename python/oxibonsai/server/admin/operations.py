"""Request and response schemas by endpoint name: one entry for each endpoint."""

from __future__ import annotations

from collections.abc import Mapping

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.openapi import Operation, Schema, object_with
from oxibonsai.server.anthropic.schemas import BatchCreate as MessageBatchCreate
from oxibonsai.server.anthropic.schemas import BatchQuery, CountRequest, MessageRequest
from oxibonsai.server.llama_server.schemas import (
    DetokenizeBody,
    ModelName,
    RerankBody,
    SlotAction,
    SlotFile,
    TokenizeBody,
)
from oxibonsai.server.ollama.schemas import (
    OllamaChat,
    OllamaEmbed,
    OllamaEmbeddings,
    OllamaGenerate,
    OllamaPull,
    OllamaShow,
)
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
from oxibonsai.server.openai.schemas.batches import BatchCreate
from oxibonsai.server.openai.schemas.chat import ChatBody, ConversationFields
from oxibonsai.server.openai.schemas.completion import (
    CompletionBody,
    InfillBody,
    NativeCompletionBody,
)
from oxibonsai.server.openai.schemas.conversations import ConversationCreate, ConversationItems
from oxibonsai.server.openai.schemas.embeddings import EmbeddingBody, NativeEmbeddingBody
from oxibonsai.server.openai.schemas.files import UploadForm
from oxibonsai.server.openai.schemas.images import EditForm, GenerationBody
from oxibonsai.server.openai.schemas.responses import InputTokensRequest, ResponseRequest
from oxibonsai.server.openai.stored_completions import CompletionQuery
from oxibonsai.server.paging import PageQuery


def _object(kind: str, *required: str) -> Schema:
    """An API object with an ``object`` member that names its kind."""
    return object_with("id", "object", *required, object={"const": kind}, id={"type": "string"})


def _list_of(items: Schema) -> Schema:
    return object_with("object", "data", object={"const": "list"}, data=_array(items))


def _page_of(items: Schema) -> Schema:
    """A page of a list, with the cursors of the next one."""
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
_SUCCESS = object_with("success", success={"const": True})
_COUNT = object_with("input_tokens", input_tokens={"type": "integer"})
_MODEL = _object("model", "created", "owned_by")
_CHAT = _object("chat.completion", "created", "model", "choices", "usage")
_COMPLETION = _object("text_completion", "created", "model", "choices", "usage")
_EMBEDDINGS = _list_of(object_with("object", "index", "embedding"))
_IMAGES = object_with("created", "data", data=_array({"type": "object"}))
_EDIT: Schema = {
    "type": "object",
    "required": ["image", "prompt"],
    "properties": {
        "image": {"type": "string", "format": "binary"},
        **EditForm.model_json_schema()["properties"],
    },
}
_MESSAGE = object_with(
    "id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "usage",
    type={"const": "message"}, role={"const": "assistant"}, content=_array({"type": "object"}),
)  # fmt: skip
_RESPONSE = _object("response", "created_at", "status", "model", "output", "error", "usage")
_ITEM = object_with("id", "type")
_CONVERSATION = _object("conversation", "created_at", "metadata")
_BATCH = _object("batch", "endpoint", "input_file_id", "status", "created_at", "request_counts")
_MESSAGE_BATCH = object_with(
    "id", "type", "processing_status", "request_counts", "created_at", "results_url",
    type={"const": "message_batch"},
)  # fmt: skip
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
    "props.version": Operation("The version of this server", response=object_with("version")),
    "tokens.tokenizer_info": Operation(
        "Special tokens and chat template", response=object_with("tokenizer_class", "chat_template")
    ),
    "models.list_models": Operation("List models", response=_list_of(_MODEL)),
    "router.load": Operation("Load a model in the background", body=ModelName, response=_SUCCESS),
    "router.unload": Operation(
        "Unload a model once its requests are answered", body=ModelName, response=_SUCCESS
    ),
    "router.download": Operation(
        "Download a model in the background and serve it", body=ModelName, response=_SUCCESS
    ),
    "router.remove": Operation(
        "Take a downloaded model off the list", query=ModelName, response=_SUCCESS
    ),
    "router.events": Operation(
        "What happens to the models, as events", media_type="text/event-stream"
    ),
    "models.get_model": Operation("Get a model by its id or an alias", response=_MODEL),
    "props.props": Operation("Properties of the server", response=object_with("total_slots")),
    "slots.list_slots": Operation(
        "State of the slots",
        response=_array(object_with("id", "is_processing")),
        needs=Feature.SLOTS,
    ),
    "lora.list_adapters": Operation(
        "List the LoRA adapters",
        response=_array(object_with("id", "name", "path", "scale")),
    ),
    "lora.set_scales": Operation(
        "Set the scales of adapters for requests that choose none", response=_SUCCESS
    ),
    "slots.act": Operation(
        "Save, restore or erase a slot's cached state",
        body=SlotFile,
        query=SlotAction,
        response=object_with("id_slot"),
        needs=Feature.SAVED_SLOTS,
    ),
}
_GENERATION = {
    "chat.create_chat_completion": Operation(
        "Generate the next message of a conversation",
        body=ChatBody,
        response=_CHAT,
        streams=True,
        needs=Feature.GENERATION,
    ),
    "chat.count_tokens": Operation(
        "Count the tokens of a conversation",
        body=ConversationFields,
        response=_COUNT,
        needs=Feature.GENERATION,
    ),
    "completions.create_completion": Operation(
        "Continue a text",
        body=CompletionBody,
        response=_COMPLETION,
        streams=True,
        needs=Feature.GENERATION,
    ),
    "native_completion.create_native_completion": Operation(
        "Continue a text (llama-server's native API)",
        body=NativeCompletionBody,
        response={"type": ["object", "array"]},
        streams=True,
        needs=Feature.GENERATION,
    ),
    "native_completion.infill": Operation(
        "Fill the gap between two texts (llama-server's API)",
        body=InfillBody,
        response={"type": ["object", "array"]},
        streams=True,
        needs=Feature.GENERATION,
    ),
    "embeddings.create_native_embeddings": Operation(
        "Embeddings of texts (llama-server's native API)",
        body=NativeEmbeddingBody,
        response=_array(object_with("index", "embedding")),
    ),
    "embeddings.create_embeddings": Operation(
        "Embeddings of texts", body=EmbeddingBody, response=_EMBEDDINGS
    ),
    "rerank.rerank": Operation(
        "Documents by how well they fit a query",
        body=RerankBody,
        response={"type": ["object", "array"]},
        needs=Feature.RANKING,
    ),
    "images.generate": Operation(
        "Generate pictures from a prompt",
        body=GenerationBody,
        response=_IMAGES,
        streams=True,
        needs=Feature.IMAGES,
    ),
    "images.edit": Operation(
        "Generate pictures from a prompt and other pictures",
        form=_EDIT,
        response=_IMAGES,
        streams=True,
        needs=Feature.IMAGES,
    ),
    "tokens.tokenize": Operation(
        "Tokenize a text", body=TokenizeBody, response=object_with("tokens")
    ),
    "tokens.detokenize": Operation(
        "Convert tokens to text", body=DetokenizeBody, response=object_with("content")
    ),
    "tokens.apply_template": Operation(
        "Render a conversation with the chat template",
        body=ConversationFields,
        response=object_with("prompt"),
        needs=Feature.GENERATION,
    ),
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
        response=_COUNT,
        failure="AnthropicError",
        needs=Feature.GENERATION,
    ),
}
_STORED = {
    "responses.count_tokens": Operation(
        "Count the tokens of a response's prompt",
        body=InputTokensRequest,
        response=object_with(
            "object",
            "input_tokens",
            object={"const": "response.input_tokens"},
            input_tokens={"type": "integer"},
        ),
        needs=Feature.GENERATION,
    ),
    "responses.compact": Operation(
        "Summarize a conversation",
        body=InputTokensRequest,
        response=_object("response.compaction", "created_at", "output", "usage"),
        needs=Feature.GENERATION,
    ),
    "responses.create": Operation(
        "Create a response",
        body=ResponseRequest,
        response=_RESPONSE,
        streams=True,
        needs=Feature.GENERATION,
    ),
    "responses.list_responses": Operation(
        "List stored responses", query=PageQuery, response=_page_of(_RESPONSE)
    ),
    "responses.get": Operation("Get a stored response", response=_RESPONSE),
    "responses.delete": Operation("Delete a response", response=_deleted("response")),
    "responses.cancel": Operation("Cancel a background response", response=_RESPONSE),
    "responses.input_items": Operation(
        "List the input items of a response", query=PageQuery, response=_page_of(_ITEM)
    ),
    "stored_completions.list_completions": Operation(
        "List stored chat completions", query=CompletionQuery, response=_page_of(_CHAT)
    ),
    "stored_completions.get": Operation("Get a stored chat completion", response=_CHAT),
    "stored_completions.change": Operation(
        "Change the metadata of a stored chat completion", body=MetadataChange, response=_CHAT
    ),
    "stored_completions.delete": Operation(
        "Delete a stored chat completion", response=_deleted("chat.completion.deleted")
    ),
    "stored_completions.messages": Operation(
        "List the messages of a stored chat completion",
        query=PageQuery,
        response=_page_of(object_with("id", "role", "content")),
    ),
    "conversations.create": Operation(
        "Create a conversation", body=ConversationCreate, response=_CONVERSATION
    ),
    "conversations.get": Operation("Get a conversation", response=_CONVERSATION),
    "conversations.change": Operation(
        "Change a conversation's metadata", body=MetadataChange, response=_CONVERSATION
    ),
    "conversations.delete": Operation(
        "Delete a conversation", response=_deleted("conversation.deleted")
    ),
    "conversations.add_items": Operation(
        "Add items to a conversation", body=ConversationItems, response=_page_of(_ITEM)
    ),
    "conversations.list_items": Operation(
        "List the items of a conversation", query=PageQuery, response=_page_of(_ITEM)
    ),
    "conversations.get_item": Operation("Get an item of a conversation", response=_ITEM),
    "conversations.delete_item": Operation(
        "Delete an item of a conversation", response=_CONVERSATION
    ),
    "files.upload": Operation("Upload a file", form=_UPLOAD, response=_FILE),
    "files.list_files": Operation("List files", query=PageQuery, response=_page_of(_FILE)),
    "files.get": Operation("Get a file's metadata", response=_FILE),
    "files.delete": Operation("Delete a file", response=_deleted("file")),
    "files.content": Operation("Get a file's content", media_type="application/octet-stream"),
}
_BATCHES = {
    "batches.create": Operation(
        "Answer the requests of a file in the background", body=BatchCreate, response=_BATCH
    ),
    "batches.list_batches": Operation("List batches", query=PageQuery, response=_page_of(_BATCH)),
    "batches.get": Operation("Get a batch", response=_BATCH),
    "batches.cancel": Operation("Cancel a batch", response=_BATCH),
    "message_batches.create": Operation(
        "Answer many messages in the background (Anthropic's API)",
        body=MessageBatchCreate,
        response=_MESSAGE_BATCH,
        failure="AnthropicError",
    ),
    "message_batches.list_batches": Operation(
        "List batches of messages",
        query=BatchQuery,
        response=object_with("data", "has_more", data=_array(_MESSAGE_BATCH)),
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
_ASSISTANTS = {
    "assistants.create": Operation(
        "Create an assistant", body=AssistantCreate, response=_ASSISTANT
    ),
    "assistants.list_assistants": Operation(
        "List assistants", query=PageQuery, response=_page_of(_ASSISTANT)
    ),
    "assistants.get": Operation("Get an assistant", response=_ASSISTANT),
    "assistants.change": Operation(
        "Change an assistant", body=AssistantChange, response=_ASSISTANT
    ),
    "assistants.delete": Operation("Delete an assistant", response=_deleted("assistant.deleted")),
    "threads.create": Operation("Create a thread", body=ThreadCreate, response=_THREAD),
    "threads.get": Operation("Get a thread", response=_THREAD),
    "threads.change": Operation("Change a thread", body=ThreadChange, response=_THREAD),
    "threads.delete": Operation("Delete a thread", response=_deleted("thread.deleted")),
    "thread_messages.create": Operation(
        "Add a message", body=MessageCreate, response=_THREAD_MESSAGE
    ),
    "thread_messages.list_messages": Operation(
        "List messages", query=PageQuery, response=_page_of(_THREAD_MESSAGE)
    ),
    "thread_messages.get": Operation("Get a message", response=_THREAD_MESSAGE),
    "thread_messages.change": Operation(
        "Change a message's metadata", body=MetadataChange, response=_THREAD_MESSAGE
    ),
    "thread_messages.delete": Operation(
        "Delete a message", response=_deleted("thread.message.deleted")
    ),
    "runs.create_thread_and_run": Operation(
        "Create a thread and run it",
        body=ThreadAndRunCreate,
        response=_RUN,
        streams=True,
        needs=Feature.GENERATION,
    ),
    "runs.create": Operation(
        "Run a thread", body=RunCreate, response=_RUN, streams=True, needs=Feature.GENERATION
    ),
    "runs.list_runs": Operation("List runs", query=PageQuery, response=_page_of(_RUN)),
    "runs.get": Operation("Get a run", response=_RUN),
    "runs.change": Operation("Change a run's metadata", body=MetadataChange, response=_RUN),
    "runs.cancel": Operation("Cancel a run", response=_RUN),
    "runs.submit": Operation(
        "Submit tool outputs to a run", body=ToolOutputs, response=_RUN, streams=True
    ),
    "run_steps.steps": Operation("List run steps", query=PageQuery, response=_page_of(_STEP)),
    "run_steps.step": Operation("Get a run step", response=_STEP),
}

_OLLAMA_ANSWER = object_with("model", "created_at", "done", done={"type": "boolean"})
_OLLAMA = {
    "ollama_generate.chat": Operation(
        "Generate the next message of a conversation (Ollama's API)",
        body=OllamaChat,
        response=_OLLAMA_ANSWER,
        failure="OllamaError",
        needs=Feature.GENERATION,
    ),
    "ollama_generate.generate": Operation(
        "Continue a text (Ollama's API)",
        body=OllamaGenerate,
        response=_OLLAMA_ANSWER,
        failure="OllamaError",
        needs=Feature.GENERATION,
    ),
    "ollama_embed.embed": Operation(
        "Embeddings of texts (Ollama's API)",
        body=OllamaEmbed,
        response=object_with("model", "embeddings"),
        failure="OllamaError",
    ),
    "ollama_embed.embeddings": Operation(
        "Embedding of a text (Ollama's older API)",
        body=OllamaEmbeddings,
        response=object_with("embedding"),
        failure="OllamaError",
    ),
    "ollama_models.version": Operation(
        "The version of this server", response=object_with("version"), failure="OllamaError"
    ),
    "ollama_models.tags": Operation(
        "List models (Ollama's API)", response=object_with("models"), failure="OllamaError"
    ),
    "ollama_models.running": Operation(
        "List loaded models", response=object_with("models"), failure="OllamaError"
    ),
    "ollama_models.show": Operation(
        "Facts about a model",
        body=OllamaShow,
        response=object_with("details", "model_info", "capabilities"),
        failure="OllamaError",
    ),
    "ollama_models.pull": Operation(
        "Download a model and serve it",
        body=OllamaPull,
        response=object_with("status"),
        failure="OllamaError",
    ),
}

OPERATIONS: Mapping[str, Operation] = {
    **_SERVER, **_GENERATION, **_STORED, **_BATCHES, **_ASSISTANTS, **_OLLAMA,
}  # fmt: skip
