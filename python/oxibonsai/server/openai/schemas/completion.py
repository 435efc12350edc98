"""The bodies of completions and embeddings, OpenAI's and llama-server's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from oxibonsai.server.openai.schemas.answer_fields import AnswerFields
from oxibonsai.server.openai.schemas.beam_search import BeamFields
from oxibonsai.server.openai.schemas.structure import StructureFields
from oxibonsai.server.sampling_fields import MOST_TOKENS, SamplingFields, SpeculationFields
from oxibonsai.server.schemas.fields import Checked, Fields, LoraScale
from oxibonsai.server.schemas.known import ContinuationRequest, VectorRequest

MOST_PROMPTS = 256
Mixed = Annotated[list[int | str], Field(max_length=MOST_TOKENS)]
Prompt = str | Mixed | dict[str, Any]
Prompts = Prompt | Annotated[list[Prompt], Field(max_length=4096)]


class CompletionBody(
    BeamFields,
    StructureFields,
    AnswerFields,
    SamplingFields,
    SpeculationFields,
    ContinuationRequest,
):
    """``POST /v1/completions``."""

    prompt: Prompts = Field(
        description="A text, token ids, or a list of these; n choices are generated for each."
    )
    max_tokens: int | None = Field(None, ge=-1)
    n_predict: int | None = Field(None, ge=-1, description="llama-server's name of max_tokens.")
    echo: bool | None = None
    suffix: str | None = Field(None, description="Not supported.")
    logprobs: int | None = Field(None, ge=0, le=20)
    prompt_logprobs: int | None = Field(
        None,
        ge=0,
        le=20,
        description="vLLM's: log-probabilities of the prompt's tokens and of the top tokens.",
    )
    truncate_prompt_tokens: int | None = Field(
        None, ge=-1, description="vLLM's: the last tokens of a longer prompt; -1: as many as fit."
    )

    @property
    def limit(self) -> int | None:
        """Maximum number of new tokens; None or -1: the server's default."""
        return self.n_predict if self.max_tokens is None else self.max_tokens


class NativeCompletionBody(StructureFields, AnswerFields, SamplingFields, SpeculationFields):
    """``POST /completion``."""

    prompt: Prompts = Field(description="As of /v1/completions; texts and ids may be mixed.")
    n_predict: int | None = Field(None, ge=-1)
    max_tokens: int | None = Field(None, ge=-1, description="The same.")
    n_probs: int | None = Field(None, ge=0, le=20)
    post_sampling_probs: bool | None = Field(
        None, description="n_probs are those after all sampling steps."
    )
    return_tokens: bool | None = None
    response_fields: list[str] | None = Field(None, max_length=64)
    lora: list[LoraScale] | None = Field(None, max_length=64)

    @property
    def limit(self) -> int | None:
        """Maximum number of new tokens; None or -1: the server's default."""
        return self.max_tokens if self.n_predict is None else self.n_predict


class InfillFile(Fields):
    """A file that the model should know of."""

    filename: str = "tmp"
    text: str


class InfillBody(NativeCompletionBody):
    """``POST /infill``."""

    prompt: str = Field("", description="Follows the prefix; the answer continues it.")
    input_prefix: str
    input_suffix: str
    input_extra: list[InfillFile] | None = Field(None, max_length=256)


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
