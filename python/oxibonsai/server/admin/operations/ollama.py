"""Operations of Ollama's API."""

from __future__ import annotations

from oxibonsai.server.admin.features import Feature
from oxibonsai.server.admin.openapi import Operation, object_with
from oxibonsai.server.ollama.schemas import (
    OllamaChat,
    OllamaEmbed,
    OllamaEmbeddings,
    OllamaGenerate,
    OllamaPull,
    OllamaShow,
)

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
