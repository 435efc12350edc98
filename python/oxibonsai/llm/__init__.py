"""Whole requests from Python: ``LLM`` for batches, ``AsyncLLM`` for programs with an event loop."""

from oxibonsai.llm.batch import LLM
from oxibonsai.llm.chat_engine import ChatEngine, load
from oxibonsai.llm.coroutines import AsyncLLM
from oxibonsai.llm.outputs import (
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    Logprob,
    RequestOutput,
)

__all__ = [
    "LLM",
    "AsyncLLM",
    "ChatEngine",
    "CompletionOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "Logprob",
    "RequestOutput",
    "load",
]
