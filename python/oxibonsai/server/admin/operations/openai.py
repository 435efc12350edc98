"""Operations of OpenAI's API, Assistants among them."""

from __future__ import annotations

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.openapi import Operation, Schema, object_with
from oxibonsai.server.admin.operations.shapes import (
    COUNT,
    array_of,
    deleted_object,
    list_of,
    object_of,
    page_of,
)
from oxibonsai.server.openai.conversations import CompletionQuery
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
from oxibonsai.server.openai.schemas.completion import (
    CompletionBody,
    EmbeddingBody,
    NativeEmbeddingBody,
)
from oxibonsai.server.openai.schemas.files import BatchCreate, EditForm, GenerationBody, UploadForm
from oxibonsai.server.openai.schemas.responses import (
    ConversationCreate,
    ConversationItems,
    InputTokensRequest,
    ResponseRequest,
)
from oxibonsai.server.paging import PageQuery

_MODEL = object_of("model", "created", "owned_by")
_CHAT = object_of("chat.completion", "created", "model", "choices", "usage")
_COMPLETION = object_of("text_completion", "created", "model", "choices", "usage")
_EMBEDDINGS = list_of(object_with("object", "index", "embedding"))
_IMAGES = object_with("created", "data", data=array_of({"type": "object"}))
_EDIT: Schema = {
    "type": "object",
    "required": ["image", "prompt"],
    "properties": {
        "image": {"type": "string", "format": "binary"},
        **EditForm.model_json_schema()["properties"],
    },
}
_RESPONSE = object_of("response", "created_at", "status", "model", "output", "error", "usage")
_ITEM = object_with("id", "type")
_CONVERSATION = object_of("conversation", "created_at", "metadata")
_BATCH = object_of("batch", "endpoint", "input_file_id", "status", "created_at", "request_counts")
_FILE = object_of("file", "bytes", "created_at", "filename", "purpose")
_UPLOAD: Schema = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": UploadForm.model_json_schema()["properties"]["purpose"],
    },
}

OPENAI = {
    "models.list_models": Operation("List models", response=list_of(_MODEL)),
    "models.get_model": Operation("Get a model by its id or an alias", response=_MODEL),
    "chat.create_chat_completion": Operation(
        "Generate the next message of a conversation",
        body=ChatBody,
        response=_CHAT,
        streams=True,
        needs=Feature.GENERATION,
    ),
    "kept_answers.follow": Operation(
        "Join a streamed answer that was asked for with background",
        media_type="text/event-stream",
    ),
    "kept_answers.cancel": Operation(
        "End a streamed answer that was asked for with background",
        response=object_of("chat.completion", "cancelled"),
    ),
    "chat.count_tokens": Operation(
        "Count the tokens of a conversation",
        body=ConversationFields,
        response=COUNT,
        needs=Feature.GENERATION,
    ),
    "completions.create_completion": Operation(
        "Continue a text",
        body=CompletionBody,
        response=_COMPLETION,
        streams=True,
        needs=Feature.GENERATION,
    ),
    "embeddings.create_native_embeddings": Operation(
        "Embeddings of texts (llama-server's native API)",
        body=NativeEmbeddingBody,
        response=array_of(object_with("index", "embedding")),
    ),
    "embeddings.create_embeddings": Operation(
        "Embeddings of texts", body=EmbeddingBody, response=_EMBEDDINGS
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
        response=object_of("response.compaction", "created_at", "output", "usage"),
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
        "List stored responses", query=PageQuery, response=page_of(_RESPONSE)
    ),
    "responses.get": Operation("Get a stored response", response=_RESPONSE),
    "responses.delete": Operation("Delete a response", response=deleted_object("response")),
    "responses.cancel": Operation("Cancel a background response", response=_RESPONSE),
    "responses.input_items": Operation(
        "List the input items of a response", query=PageQuery, response=page_of(_ITEM)
    ),
    "stored_completions.list_completions": Operation(
        "List stored chat completions", query=CompletionQuery, response=page_of(_CHAT)
    ),
    "stored_completions.get": Operation("Get a stored chat completion", response=_CHAT),
    "stored_completions.change": Operation(
        "Change the metadata of a stored chat completion", body=MetadataChange, response=_CHAT
    ),
    "stored_completions.delete": Operation(
        "Delete a stored chat completion", response=deleted_object("chat.completion.deleted")
    ),
    "stored_completions.messages": Operation(
        "List the messages of a stored chat completion",
        query=PageQuery,
        response=page_of(object_with("id", "role", "content")),
    ),
    "conversations.create": Operation(
        "Create a conversation", body=ConversationCreate, response=_CONVERSATION
    ),
    "conversations.get": Operation("Get a conversation", response=_CONVERSATION),
    "conversations.change": Operation(
        "Change a conversation's metadata", body=MetadataChange, response=_CONVERSATION
    ),
    "conversations.delete": Operation(
        "Delete a conversation", response=deleted_object("conversation.deleted")
    ),
    "conversations.add_items": Operation(
        "Add items to a conversation", body=ConversationItems, response=page_of(_ITEM)
    ),
    "conversations.list_items": Operation(
        "List the items of a conversation", query=PageQuery, response=page_of(_ITEM)
    ),
    "conversations.get_item": Operation("Get an item of a conversation", response=_ITEM),
    "conversations.delete_item": Operation(
        "Delete an item of a conversation", response=_CONVERSATION
    ),
    "files.upload": Operation("Upload a file", form=_UPLOAD, response=_FILE),
    "files.list_files": Operation("List files", query=PageQuery, response=page_of(_FILE)),
    "files.get": Operation("Get a file's metadata", response=_FILE),
    "files.delete": Operation("Delete a file", response=deleted_object("file")),
    "files.content": Operation("Get a file's content", media_type="application/octet-stream"),
    "batches.create": Operation(
        "Answer the requests of a file in the background", body=BatchCreate, response=_BATCH
    ),
    "batches.list_batches": Operation("List batches", query=PageQuery, response=page_of(_BATCH)),
    "batches.get": Operation("Get a batch", response=_BATCH),
    "batches.cancel": Operation("Cancel a batch", response=_BATCH),
}


_ASSISTANT = object_of("assistant", "created_at", "model", "instructions", "tools", "metadata")
_THREAD = object_of("thread", "created_at", "metadata")
_THREAD_MESSAGE = object_of("thread.message", "created_at", "thread_id", "role", "content")
_RUN = object_of("thread.run", "created_at", "thread_id", "assistant_id", "status")
_STEP = object_of("thread.run.step", "created_at", "run_id", "thread_id", "status", "step_details")

ASSISTANTS = {
    "assistants.create": Operation(
        "Create an assistant", body=AssistantCreate, response=_ASSISTANT
    ),
    "assistants.list_assistants": Operation(
        "List assistants", query=PageQuery, response=page_of(_ASSISTANT)
    ),
    "assistants.get": Operation("Get an assistant", response=_ASSISTANT),
    "assistants.change": Operation(
        "Change an assistant", body=AssistantChange, response=_ASSISTANT
    ),
    "assistants.delete": Operation(
        "Delete an assistant", response=deleted_object("assistant.deleted")
    ),
    "threads.create": Operation("Create a thread", body=ThreadCreate, response=_THREAD),
    "threads.get": Operation("Get a thread", response=_THREAD),
    "threads.change": Operation("Change a thread", body=ThreadChange, response=_THREAD),
    "threads.delete": Operation("Delete a thread", response=deleted_object("thread.deleted")),
    "thread_messages.create": Operation(
        "Add a message", body=MessageCreate, response=_THREAD_MESSAGE
    ),
    "thread_messages.list_messages": Operation(
        "List messages", query=PageQuery, response=page_of(_THREAD_MESSAGE)
    ),
    "thread_messages.get": Operation("Get a message", response=_THREAD_MESSAGE),
    "thread_messages.change": Operation(
        "Change a message's metadata", body=MetadataChange, response=_THREAD_MESSAGE
    ),
    "thread_messages.delete": Operation(
        "Delete a message", response=deleted_object("thread.message.deleted")
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
    "runs.list_runs": Operation("List runs", query=PageQuery, response=page_of(_RUN)),
    "runs.get": Operation("Get a run", response=_RUN),
    "runs.change": Operation("Change a run's metadata", body=MetadataChange, response=_RUN),
    "runs.cancel": Operation("Cancel a run", response=_RUN),
    "runs.submit": Operation(
        "Submit tool outputs to a run", body=ToolOutputs, response=_RUN, streams=True
    ),
    "run_steps.steps": Operation("List run steps", query=PageQuery, response=page_of(_STEP)),
    "run_steps.step": Operation("Get a run step", response=_STEP),
}
