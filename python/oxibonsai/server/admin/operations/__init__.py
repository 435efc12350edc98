"""Request and response schemas by endpoint name: one entry for each endpoint."""

from __future__ import annotations

from collections.abc import Mapping

from oxibonsai.server.admin.openapi import Operation
from oxibonsai.server.admin.operations.anthropic import ANTHROPIC
from oxibonsai.server.admin.operations.assistants import ASSISTANTS
from oxibonsai.server.admin.operations.llama_server import LLAMA_SERVER
from oxibonsai.server.admin.operations.ollama import OLLAMA
from oxibonsai.server.admin.operations.openai import OPENAI
from oxibonsai.server.admin.operations.server import SERVER

OPERATIONS: Mapping[str, Operation] = {
    **SERVER, **LLAMA_SERVER, **OPENAI, **ASSISTANTS, **ANTHROPIC, **OLLAMA,
}  # fmt: skip
