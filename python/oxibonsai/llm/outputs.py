"""Results of requests, in vLLM's words."""

from __future__ import annotations

from dataclasses import dataclass, field

from oxibonsai.output import Reply


@dataclass(frozen=True)
class Logprob:
    """A token that could have come.

    Attributes:
        logprob: Natural logarithm of its probability.
        rank: 1 for the most likely token; None for one that is not among the most likely asked for.
        decoded_token: Its text.
    """

    logprob: float
    rank: int | None
    decoded_token: str | None


@dataclass
class CompletionOutput:
    """One text for a prompt.

    Attributes:
        index: Which of the samples of its prompt.
        text: What was generated so far; stop strings are no part of it.
        token_ids: Its ids, an end-of-text id included.
        cumulative_logprob: Sum of the tokens' log-probabilities, where they were asked for.
        logprobs: For each token the most likely ones and itself, by id, where they were asked for.
        finish_reason: ``"stop"``, ``"length"``, in a chat ``"tool_calls"``; None while it runs.
        stop_reason: The stop string or token id that ended it; None for the model's own end.
        seed: Of its draws.
        reply: In a chat: the answer, the reasoning and the tool calls apart.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    stop_reason: str | int | None
    seed: int
    reply: Reply | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """A prompt and what came of it.

    Attributes:
        request_id: Counts the requests of this object, as text.
        prompt: Its text; None where ids were given.
        prompt_token_ids: Its ids.
        outputs: One for each sample.
        finished: Whether all of them are.
        num_cached_tokens: Tokens of the prompt that were found in the cache.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int = 0


@dataclass(frozen=True)
class EmbeddingOutput:
    """The vector of a text."""

    embedding: list[float] = field(repr=False)


@dataclass(frozen=True)
class EmbeddingRequestOutput:
    """A text and its vector."""

    request_id: str
    outputs: EmbeddingOutput
