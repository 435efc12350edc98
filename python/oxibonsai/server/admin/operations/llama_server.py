"""Operations of llama-server's API."""

from __future__ import annotations

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.openapi import Operation, object_with
from oxibonsai.server.admin.operations.shapes import array_of
from oxibonsai.server.llama_server.schemas import (
    DetokenizeBody,
    ModelName,
    RerankBody,
    SlotAction,
    SlotFile,
    TokenizeBody,
)
from oxibonsai.server.openai.schemas.chat import ConversationFields
from oxibonsai.server.openai.schemas.completion import InfillBody, NativeCompletionBody

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
