"""The bodies of ``/v1/embeddings`` and ``/embedding``."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from oxibonsai.server.openai.schemas.completion import Prompts
from oxibonsai.server.schemas.fields import Checked
from oxibonsai.server.schemas.known import VectorRequest


class NativeEmbeddingBody(Checked):
    """``POST /embedding``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    content: Prompts | None = None
    input: Prompts | None = Field(
        None, description="Alternative name; takes precedence over content."
    )


class EmbeddingBody(VectorRequest):
    """``POST /v1/embeddings``."""

    input: Prompts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, ge=1)
    pooling: Literal["mean", "cls", "last", "max"] | None = Field(
        None, description="Pooling. Default: the server's, or the model's own."
    )
    normalize: bool | None = Field(None, description="Default: vectors of length 1.")
    truncate_prompt_tokens: int | None = Field(
        None, ge=-1, description="vLLM's: the first tokens of a longer text; -1: as many as fit."
    )
