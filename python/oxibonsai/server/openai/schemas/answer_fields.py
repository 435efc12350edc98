"""The fields of chat completions and completions that say how the answer comes."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from oxibonsai.server.schemas.fields import Checked

MOST_CHOICES = 128


class StreamOptions(Checked):
    """``stream_options``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    include_usage: bool | None = None


class AnswerFields(Checked):
    """Fields about the form of the response."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str | None = Field(None, description="Ignored: one model is served.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    timings_per_token: bool | None = Field(None, description="Timings in every chunk.")
    return_progress: bool | None = Field(None, description="Progress of the prompt in the stream.")
    verbose: bool | None = Field(None, description="Add __verbose with the prompt.")
    id_slot: int | None = Field(
        None,
        ge=-1,
        description="The preferred slot, used if it is free; it doesn't change the output.",
    )
    cache_prompt: bool | None = Field(
        None,
        description="Accepted for llama-server's clients; the cache doesn't change the output.",
    )
    cache_salt: str | None = Field(
        None,
        min_length=1,
        max_length=1024,
        description="Share the prefix cache only with requests that have the same one, as vLLM does.",
    )

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)
