"""One text in the making: its tokens, its pages, its sampler."""

from __future__ import annotations

from oxibonsai.sampling import Sampler, SamplingParams


class Sequence:
    """State of a request inside the engine.

    Attributes:
        tokens: Prompt, then generated tokens.
        num_prompt_tokens: How many of them are the prompt.
        num_computed: How many have keys and values in the cache.
        pages: Page table.
        finish_reason: None while it runs; ``"stop"`` at the end of the text, ``"length"`` at a limit.
    """

    def __init__(self, prompt: list[int], params: SamplingParams) -> None:
        self.tokens = list(prompt)
        self.num_prompt_tokens = len(prompt)
        self.num_computed = 0
        self.pages: list[int] = []
        self.params = params
        self.sampler = Sampler(params)
        self.finish_reason: str | None = None

    @property
    def num_generated(self) -> int:
        """Tokens after the prompt."""
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def generated(self) -> list[int]:
        """Tokens after the prompt."""
        return self.tokens[self.num_prompt_tokens :]

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.finish_reason is not None
