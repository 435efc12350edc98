"""How tokens are chosen: one validated record of a request's sampling fields."""

from __future__ import annotations

import math
from dataclasses import dataclass

from oxibonsai.errors import RequestError


@dataclass(frozen=True)
class SamplingParams:
    """Choice of tokens for one sequence. Neutral values do nothing.

    Attributes:
        max_tokens: New tokens at most; None: until the context is full.
        temperature: Logits are divided by it; 0: the most likely token, always.
        top_k: Keep the k most likely tokens; 0: all.
        top_p: Keep the smallest set of most likely tokens with at least this mass; 1: all.
        min_p: Keep tokens with at least this share of the top probability; 0: all.
        repetition_penalty: Divides positive logits of tokens seen before and multiplies negative
            ones; 1: none (Keskar et al. 2019).
        repetition_window: How many last tokens count as seen; -1: all.
        seed: Of the draws, 0 <= seed < 2**64; None: a new one for each request.
        ignore_eos: Go on past the end of the text.
    """

    max_tokens: int | None = None
    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_window: int = 64
    seed: int | None = None
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        self._require("max_tokens", self.max_tokens is None or self.max_tokens >= 1, "at least 1")
        self._require("temperature", 0.0 <= self.temperature < math.inf, "0 or more")
        self._require("top_k", self.top_k >= 0, "0 (all) or more")
        self._require("top_p", 0.0 < self.top_p <= 1.0, "above 0 and at most 1")
        self._require("min_p", 0.0 <= self.min_p <= 1.0, "from 0 to 1")
        self._require(
            "repetition_penalty", 0.0 < self.repetition_penalty < math.inf, "a number above 0"
        )
        self._require("repetition_window", self.repetition_window >= -1, "-1 (all) or more")
        self._require("seed", self.seed is None or 0 <= self.seed < 2**64, "from 0 to 2**64 - 1")

    def _require(self, name: str, holds: bool, range_text: str) -> None:
        if not holds:
            raise RequestError(f"{name} is {getattr(self, name)!r}; it must be {range_text}")


GREEDY = SamplingParams(temperature=0.0)
