"""A smaller model proposes what the larger one checks (Leviathan et al. 2023)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.engine.kv_cache import KvCache, PageTable
from oxibonsai.engine.sequence import Sequence
from oxibonsai.engine.speculation.lookahead import Lookahead
from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.sampling import Sampler, token_logprobs

if TYPE_CHECKING:
    from oxibonsai.engine.engine import Engine

_CHUNK = 256


class DraftModel:
    """Makes speculators from a second engine's model.

    Args:
        engine: Of the small model; its vocabulary must be the large one's.
        target: The engine whose texts are proposed.
        threshold: Proposing ends before a token to which the small model gives less probability.
        length: Tokens of a proposal; None: adapted to what is accepted.
    """

    def __init__(
        self, engine: Engine, target: Engine, *, threshold: float = 0.5, length: int | None = None
    ) -> None:
        if not 0.0 <= threshold <= 1.0:
            raise RequestError(f"the draft threshold is {threshold}; it must be from 0 to 1")
        Lookahead(length)  # refuses a bad length now
        if engine.tokenizer.vocabulary.texts != target.tokenizer.vocabulary.texts:
            raise RequestError(
                "the draft model has another vocabulary than the model: its proposals would mean "
                "something else; choose a draft of the same family"
            )
        self.lock = engine.lock  # sequences of several engines may use it
        self.model = engine.model
        self.cache: KvCache = engine.cache
        self.ctx_size = engine.ctx_size
        self.log_threshold = math.log(threshold) if threshold > 0.0 else -math.inf
        self._length = length

    def speculator(self) -> DraftSpeculator:
        """For one new sequence."""
        return DraftSpeculator(self, Lookahead(self._length))


class DraftSpeculator:
    """Follows one sequence with the small model.

    It draws with the sequence's own parameters and random numbers: where both models are of one mind,
    so are their draws.
    """

    def __init__(self, draft: DraftModel, lookahead: Lookahead) -> None:
        self._draft = draft
        self.lookahead = lookahead
        self._table = PageTable()
        self._computed: list[int] = []  # tokens with keys and values in the small model's cache

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """At most ``most`` tokens, fewer where the small model is unsure."""
        tokens = list(sequence.tokens)
        most = min(most, self.lookahead.length, self._draft.ctx_size - len(tokens))
        if most < 1:
            return []
        same = sequence.sampler
        sampler = Sampler(sequence.params, same.breakers, same.bad_words)
        sampler.restore(same.state())
        constraint = None if sequence.constraint is None else sequence.constraint.fork()
        history, step = list(sequence.history), sequence.num_generated
        proposed: list[int] = []
        while len(proposed) < most:
            if constraint is not None and (constraint.finished or constraint.forced()):
                break
            try:
                with self._draft.lock:
                    logits = self._run(tokens)
            except CapacityError:
                break
            mask = None if constraint is None else constraint.mask()
            banned = () if constraint is None else constraint.banned()
            token = sampler.choose(logits, history, step + len(proposed), mask=mask, banned=banned)
            if token_logprobs(logits, token, 0).logprob < self._draft.log_threshold:
                break
            proposed.append(token)
            tokens.append(token)
            history.append(token)
            if constraint is not None:
                constraint.accept(token)
        return proposed

    def _run(self, tokens: list[int]) -> npt.NDArray[np.float32]:
        """Logits after the last token; only what the cache lacks is computed."""
        same = min(len(self._computed), len(tokens) - 1)
        if self._computed[:same] != tokens[:same]:
            pairs = zip(self._computed, tokens, strict=False)
            same = next(i for i, (a, b) in enumerate(pairs) if a != b)
        cache = self._draft.cache
        cache.extend(self._table, len(tokens))
        for first in range(same, len(tokens), _CHUNK):
            part = tokens[first : first + _CHUNK]
            last = first + len(part) == len(tokens)
            batch = _core.Batch()
            batch.add(
                part,
                first=first,
                pages=self._table.pages,
                pool=self._table.pool,
                outputs=1 if last else 0,
            )
            logits = self._draft.model.run(batch, cache.pools)
        self._computed = list(tokens)
        row: npt.NDArray[np.float32] = logits[0]
        return row

    def close(self) -> None:
        """Gives back the small model's pages."""
        with self._draft.lock:
            self._draft.cache.release(self._table)
        self._computed = []
