"""Request and response schemas by endpoint name: one entry for each endpoint."""

from __future__ import annotations

from collections.abc import Mapping

from oxibonsai.server.admin.openapi import Operation
from oxibonsai.server.admin.operations.compatible import ANTHROPIC, LLAMA_SERVER, OLLAMA
from oxibonsai.server.admin.operations.openai import ASSISTANTS, OPENAI
from oxibonsai.server.admin.operations.shapes import SERVER

OPERATIONS: Mapping[str, Operation] = {
    **SERVER, **LLAMA_SERVER, **OPENAI, **ASSISTANTS, **ANTHROPIC, **OLLAMA,
}  # fmt: skip
