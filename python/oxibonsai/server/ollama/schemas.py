"""Request bodies of Ollama's API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, create_model

from oxibonsai.sampling import PARAMETERS
from oxibonsai.server.sampling_fields import MOST_STOPS
from oxibonsai.server.schemas.fields import MOST_MESSAGES, MOST_TOOLS, Checked
from oxibonsai.server.schemas.known import NoEffect, Unsupported

Schema = dict[str, Any]
_ONE = Unsupported("the text is sampled from all tokens", 1, 1.0)


class OllamaFields(Checked):
    """A part of a request: JSON types are checked strictly, unknown fields are rejected."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


_NUMBERS = {p.request[0]: p.number for p in PARAMETERS.values() if p.ollama}
if TYPE_CHECKING:
    _Numbers = OllamaFields
else:
    _Numbers = create_model(
        "OllamaNumbers",
        __base__=OllamaFields,
        **{name: (number | None, None) for name, number in _NUMBERS.items()},
    )


class OllamaOptions(_Numbers):
    """``options``: sampling parameters, and how a model is loaded."""

    seed: int | None = None
    num_predict: int | None = Field(None, ge=-2, description="-1 and -2: no limit.")
    num_ctx: int | None = Field(
        None, ge=1, description="Context size; no more than the model was loaded with."
    )
    stop: str | list[str] | None = Field(None, max_length=MOST_STOPS)
    tfs_z: Annotated[Any, _ONE] = None
    penalize_newline: Annotated[Any, Unsupported("newlines are tokens like any other", True)] = None
    logits_all: NoEffect = None
    num_keep: NoEffect = None
    # Where and how a model is held; no text depends on it.
    numa: NoEffect = None
    num_batch: NoEffect = None
    num_gpu: NoEffect = None
    main_gpu: NoEffect = None
    low_vram: NoEffect = None
    f16_kv: NoEffect = None
    vocab_only: NoEffect = None
    use_mmap: NoEffect = None
    use_mlock: NoEffect = None
    embedding_only: NoEffect = None
    num_thread: NoEffect = None

    def sampling(self) -> dict[str, Any]:
        """Return the sampling parameters that are given, by field of SamplingFields."""
        fields = self.model_dump(exclude_none=True)
        known = {"seed", "stop", *_NUMBERS}
        return {name: value for name, value in fields.items() if name in known}


class OllamaRequest(OllamaFields):
    """Fields of every request to a model."""

    model: str = Field(min_length=1)
    keep_alive: float | Annotated[str, Field(max_length=64)] | None = Field(
        None,
        description="How long the model stays loaded: seconds, or 5m; 0: unload, -1: for ever.",
    )
    options: OllamaOptions | None = None


class OllamaGeneration(OllamaRequest):
    """Fields of requests that generate text."""

    stream: bool | None = Field(None, description="Default: true.")
    format: Literal["", "json"] | Schema | None = Field(None, description="json, or a JSON schema.")
    think: bool | Literal["low", "medium", "high", "max"] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    truncate: Annotated[Any, Unsupported("shorten the conversation", False)] = None
    shift: Annotated[Any, Unsupported("the text ends where the context is full", False)] = None


class OllamaFunctionCall(Checked):
    """A tool call of an earlier answer."""

    model_config = ConfigDict(strict=True, extra="ignore")

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class OllamaToolCall(Checked):
    """An item of ``tool_calls``."""

    model_config = ConfigDict(strict=True, extra="ignore")

    id: str | None = None
    function: OllamaFunctionCall


class OllamaMessage(OllamaFields):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = Field(None, description="Base64.")
    tool_calls: list[OllamaToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaChat(OllamaGeneration):
    """``POST /api/chat``."""

    messages: list[OllamaMessage] | None = Field(None, max_length=MOST_MESSAGES)
    tools: list[dict[str, Any]] | None = Field(None, max_length=MOST_TOOLS)


class OllamaGenerate(OllamaGeneration):
    """``POST /api/generate``."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: Annotated[
        Any,
        Unsupported("start the server with --chat-template, or send raw and the whole text", ""),
    ] = None
    context: list[int] | None = None
    raw: bool | None = None
    images: list[str] | None = Field(None, description="Base64.")
    width: Annotated[Any, Unsupported("POST /v1/images/generations makes pictures", 0)] = None
    height: Annotated[Any, Unsupported("POST /v1/images/generations makes pictures", 0)] = None
    steps: Annotated[Any, Unsupported("POST /v1/images/generations makes pictures", 0)] = None


class OllamaEmbed(OllamaRequest):
    """``POST /api/embed``."""

    input: str | list[str]
    truncate: bool | None = Field(None, description="Default: true.")
    dimensions: int | None = Field(None, ge=1)


class OllamaEmbeddings(OllamaRequest):
    """``POST /api/embeddings``, the older form."""

    prompt: str


class OllamaShow(OllamaFields):
    """``POST /api/show``; clients send the name as ``name``, too."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None


class OllamaPull(OllamaFields):
    """``POST /api/pull``."""

    model: str | None = None
    name: str | None = None
    stream: bool | None = Field(None, description="Default: true.")
    insecure: Annotated[Any, Unsupported("name an address with https://", False)] = None
