"""Request bodies of llama-server's own routes: slots, tokens, models and rankings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from oxibonsai.server.schemas.fields import Checked, Fields
from oxibonsai.server.schemas.known import EveryRequest, Unsupported


class SlotAction(Fields):
    """The query parameters of ``POST /slots/{id}``."""

    action: Literal["save", "restore", "erase"]


class SlotFile(Fields):
    """The body of ``POST /slots/{id}``; ``erase`` needs none."""

    filename: str = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$",
        description="File in the folder of --slot-save-path; letters, digits, dot, dash, underscore.",
    )


class TokenizeBody(Checked):
    """``POST /tokenize``: ``content`` as llama-server has it, or ``prompt`` as vLLM."""

    model_config = ConfigDict(extra="ignore", strict=True)

    content: str | None = None
    add_special: bool = False
    prompt: str | None = Field(None, description="vLLM's: with the count of tokens in the answer.")
    add_special_tokens: bool = Field(True, description="Of a prompt: put a bos before it.")
    parse_special: bool = True
    with_pieces: bool = False

    @model_validator(mode="after")
    def _one_text(self) -> TokenizeBody:
        if (self.content is None) == (self.prompt is None):
            raise ValueError("send content, or prompt in its place")
        return self


class DetokenizeBody(Checked):
    """``POST /detokenize``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    tokens: list[int]


class Document(Fields):
    """A text to rank, as an object."""

    text: str


class RerankBody(EveryRequest):
    """``POST /v1/rerank``: ``documents`` as Jina and Cohere have it, or ``texts`` as TEI."""

    query: str = Field(min_length=1)
    documents: list[str | Document] | None = None
    texts: list[str] | None = None
    model: str | None = None
    top_n: int | None = Field(None, ge=1, description="Only so many of the best. Default: all.")
    return_documents: bool | None = Field(None, description="Jina's: with each document's text.")
    return_text: bool | None = Field(None, description="TEI's: the same.")
    max_tokens_per_doc: Annotated[Any, Unsupported("cut the documents")] = None
    max_chunks_per_doc: Annotated[Any, Unsupported("cut the documents")] = None
    rank_fields: Annotated[Any, Unsupported("put the fields into the text")] = None
    truncate: Annotated[Any, Unsupported("cut the texts", False)] = None
    truncation_direction: Annotated[Any, Unsupported("cut the texts")] = None
    raw_scores: Annotated[Any, Unsupported("scores are the model's own", True)] = None


class ToolCallBody(Checked):
    """``POST /tools``."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tool: str = Field(description="The tool's name in GET /tools.")
    params: dict[str, Any] = Field(default_factory=dict, description="Its arguments.")
    stream: Annotated[Any, Unsupported("a tool's result comes whole", False)] = None


class ModelName(Fields):
    """``POST /models/load`` and ``/models/unload``."""

    model: str
