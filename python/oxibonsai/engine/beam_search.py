"""Beam search: the most likely texts that a bounded search finds."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from oxibonsai.engine.batching import make_batch, reads_images, reserve
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.scheduler import Chunk
from oxibonsai.engine.sequence import Options, Sequence
from oxibonsai.engine.text import TextOutput
from oxibonsai.errors import RequestError
from oxibonsai.sampling import SamplingParams
from oxibonsai.sampling.sampler import token_logprobs
from oxibonsai.vision import PlacedImage
from oxibonsai.vision.prompt_images import PromptImages

_CHUNK = 256
MOST_BEAMS = 64
_LARGEST_PENALTY = 32  # powers of a text's length stay finite
EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True)
class Beam:
    """A text that beam search has found.

    Attributes:
        tokens: Generated ids, an end-of-text id included.
        text: Their text; empty where the model has no tokenizer.
        score: Sum of log-probabilities, divided by the number of tokens to the length penalty.
        finish_reason: ``"stop"`` or ``"length"``.
    """

    tokens: list[int]
    text: str
    score: float
    finish_reason: str


@dataclass
class _Hypothesis:
    """A text that may go on: all of it but its last token has keys and values."""

    sequence: Sequence
    logprob: float = 0.0


def beam_search(
    engine: Engine,
    prompt: str | Items[int],
    *,
    width: int = 4,
    max_new_tokens: int = 64,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = False,
    stop_token_ids: Items[int] | None = None,
    n: int | None = None,
    images: tuple[PlacedImage, ...] = (),
    before_step: Callable[[], None] | None = None,
) -> list[Beam]:
    """Return the best texts that continue a prompt, best first.

    Beams share the pages of what they have in common and step as one batch; other sequences of the
    engine may step between.

    Args:
        engine: Runs it.
        prompt: Text, taken as it stands, or token ids.
        width: Texts kept at each step, 1 to 64.
        max_new_tokens: Tokens of a text at most.
        length_penalty: Exponent p of ``score = sum(log p(token)) / tokens**p``, -32 to 32.
        early_stopping: True: end with ``width`` finished texts. False: end when the best running text
            would not beat the worst finished one if it ended now. ``"never"``: only when it could not
            at any length (as in transformers' ``generate``).
        stop_token_ids: Tokens that end a text; None: the model's own.
        n: Texts to return; None: all ``width``.
        images: Images of the prompt, and the ids that stand for their rows, in order.
        before_step: Called before each step; what it raises ends the search.

    Raises:
        RequestError: An argument is out of range, or the prompt is refused.
        CapacityError: The cache has no room for the beams.
    """
    ids = engine.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    if not 1 <= width <= MOST_BEAMS:
        raise RequestError(f"width is {width}; it must be from 1 to {MOST_BEAMS}")
    if max_new_tokens < 1:
        raise RequestError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    if not abs(length_penalty) <= _LARGEST_PENALTY:
        raise RequestError(
            f"length_penalty is {length_penalty}; it must be from -{_LARGEST_PENALTY} to "
            f"{_LARGEST_PENALTY}"
        )
    if early_stopping not in (True, False, "never"):
        raise RequestError(f'early_stopping is {early_stopping!r}; it is True, False or "never"')
    if n is not None and not 1 <= n <= width:
        raise RequestError(f"n is {n}; it must be from 1 to the width, {width}")
    engine.model.check_decoder_only("beam search")
    ids = engine.check_prompt(ids)
    limit = min(max_new_tokens, engine.ctx_size - len(ids))
    if limit < 1:
        raise RequestError("the prompt fills the context: there is no room for a new token")
    ends = engine.eos_ids if stop_token_ids is None else frozenset(stop_token_ids)
    placed = engine.prompt_images(ids, images)
    first = Sequence(ids, SamplingParams(), Options(), images=placed)
    search = _Search(engine, first, width, limit, length_penalty, early_stopping, ends)
    return search.run(before_step)[: n or width]


class _Search:
    def __init__(
        self,
        engine: Engine,
        first: Sequence,
        width: int,
        limit: int,
        length_penalty: float,
        early_stopping: EarlyStopping,
        ends: frozenset[int],
    ) -> None:
        self._engine = engine
        self._width = width
        self._limit = limit
        self._penalty = length_penalty
        self._early_stopping = early_stopping
        self._ends = ends
        self._images = first.images
        self._running = [_Hypothesis(first)]
        self._finished: list[Beam] = []  # best first, at most `width`

    def run(self, before_step: Callable[[], None] | None) -> list[Beam]:
        """Search to the end; return all pages back."""
        try:
            for length in range(1, self._limit + 1):
                if before_step is not None:
                    before_step()
                self._extend(self._step(), length)
                if not self._running or self._done(length):
                    break
            for h in self._running:
                self._finish(h.sequence.generated, h.logprob, "length")
            return self._finished
        finally:
            self._release(self._running)

    def _step(self) -> npt.NDArray[np.float32]:
        """Return logits [beams, vocabulary] after the last token of every running text."""
        engine, cache = self._engine, self._engine.cache
        while True:
            chunks = [_next_chunk(h.sequence, self._images) for h in self._running]
            with engine.lock:
                for c in chunks:
                    reserve(cache, c.sequence.table, c.first, c.count)
                logits = engine.model.run(
                    make_batch(chunks), cache.pools, cache.slot_memory, images=reads_images(chunks)
                )
            for c in chunks:
                c.sequence.num_computed = c.first + c.count
            if chunks[0].reaches_end:
                return logits

    def _extend(self, logits: npt.NDArray[np.float32], length: int) -> None:
        """Choose the next texts among the continuations of all running ones."""
        candidates = []
        for i, row in enumerate(logits):
            # Twice the width, so that enough are left if as many as the width end here.
            for token, logprob in token_logprobs(row, 0, 2 * self._width).top:
                candidates.append((-(self._running[i].logprob + logprob), i, token))
        parents = len(self._running)
        for rank, (cost, i, token) in enumerate(sorted(candidates)[: 2 * self._width]):
            parent = self._running[i].sequence
            if token in self._ends:
                if rank < self._width:
                    self._finish([*parent.generated, token], -cost, "stop")
            elif len(self._running) - parents < self._width:
                self._running.append(_Hypothesis(self._child(parent, token), -cost))
        self._release(self._running[:parents])
        del self._running[:parents]

    def _child(self, parent: Sequence, token: int) -> Sequence:
        child = Sequence(parent.tokens, SamplingParams(), Options(), images=self._images)
        child.num_prompt_tokens = parent.num_prompt_tokens
        child.num_computed = parent.num_computed
        with self._engine.lock:
            child.table = self._engine.cache.fork(parent.table, parent.num_computed)
        child.append(token)
        return child

    def _release(self, hypotheses: list[_Hypothesis]) -> None:
        with self._engine.lock:
            for h in hypotheses:
                self._engine.cache.release(h.sequence.table)

    def _score(self, logprob: float, length: int) -> float:
        return logprob / math.pow(length, self._penalty)

    def _finish(self, tokens: list[int], logprob: float, reason: str) -> None:
        text = ""
        if self._engine.has_tokenizer:
            output = TextOutput(self._engine.tokenizer, ())
            for token in tokens:
                output.feed(token)
            output.finish()
            text = output.text
        beam = Beam(tokens, text, self._score(logprob, len(tokens)), reason)
        self._finished.append(beam)
        self._finished.sort(key=lambda b: -b.score)
        del self._finished[self._width :]

    def _done(self, length: int) -> bool:
        """Return whether no running text can still become one of the best."""
        if len(self._finished) < self._width:
            return False
        if self._early_stopping is True:
            return True
        # With a positive penalty a longer text scores better for the same sum.
        best_length = (
            self._limit if self._early_stopping == "never" and self._penalty > 0 else length
        )
        best = self._score(max(h.logprob for h in self._running), best_length)
        return self._finished[-1].score >= best


def _next_chunk(sequence: Sequence, images: PromptImages | None) -> Chunk:
    """Return a text's next chunk; rows of an image that see each other are not divided."""
    first = sequence.num_computed
    end = first + min(sequence.num_waiting, _CHUNK)
    if images is not None:
        end = images.chunk_end(first, end)
    return Chunk(sequence, first, end - first)
