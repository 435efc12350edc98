"""Operations of the APIs beside OpenAI's: Anthropic's, Ollama's and llama-server's."""

from __future__ import annotations

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.openapi import Operation, object_with
from oxibonsai.server.admin.operations.shapes import COUNT, array_of, list_of
from oxibonsai.server.anthropic.schemas import BatchCreate as MessageBatchCreate
from oxibonsai.server.anthropic.schemas import BatchQuery, CountRequest, MessageRequest
from oxibonsai.server.llama_server.schemas import (
    DetokenizeBody,
    ModelName,
    RerankBody,
    SlotAction,
    SlotFile,
    TokenizeBody,
    ToolCallBody,
)
from oxibonsai.server.ollama.schemas import (
    OllamaChat,
    OllamaEmbed,
    OllamaEmbeddings,
    OllamaGenerate,
    OllamaPull,
    OllamaShow,
)
from oxibonsai.server.openai.schemas.chat import ConversationFields
from oxibonsai.server.openai.schemas.completion import InfillBody, NativeCompletionBody

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


_OLLAMA_ANSWER = object_with("model", "created_at", "done", done={"type": "boolean"})

OLLAMA = {
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


_SUCCESS = object_with("success", success={"const": True})

LLAMA_SERVER = {
    "props.version": Operation("The version of this server", response=object_with("version")),
    "tokens.tokenizer_info": Operation(
        "Special tokens and chat template", response=object_with("tokenizer_class", "chat_template")
    ),
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
    "tools.list_tools": Operation(
        "List the tools of MCP servers",
        response=array_of(object_with("tool", "display_name", "type", "definition", "server")),
    ),
    "tools.call_tool": Operation(
        "Call a tool of an MCP server", body=ToolCallBody, response={"type": "object"}
    ),
    "tools.list_servers": Operation(
        "List the MCP servers and how they stand",
        response=list_of(object_with("object", "name", "status", "error", "tools")),
    ),
    "props.props": Operation("Properties of the server", response=object_with("total_slots")),
    "slots.list_slots": Operation(
        "State of the slots",
        response=array_of(object_with("id", "is_processing")),
        needs=Feature.SLOTS,
    ),
    "lora.list_adapters": Operation(
        "List the LoRA adapters",
        response=array_of(object_with("id", "name", "path", "scale")),
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
    "rerank.rerank": Operation(
        "Documents by how well they fit a query",
        body=RerankBody,
        response={"type": ["object", "array"]},
        needs=Feature.RANKING,
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
}
