"""A smaller model proposes what the larger one checks (Leviathan et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.engine.batching import add_span, reserve
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.sequence import Sequence
from oxibonsai.engine.speculation.lookahead import Lookahead
from oxibonsai.errors import CapacityError, OxiBonsaiError, RequestError
from oxibonsai.sampling import Sampler, token_logprobs

if TYPE_CHECKING:
    from oxibonsai.engine.engine import Engine

Row = npt.NDArray[np.float32]

_CHUNK = 256  # rows of a pass


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

    def propose(self, wanted: list[tuple[Sequence, int]]) -> list[list[int]]:
        """Proposals for several sequences, whose tokens share the passes of the small model.

        Args:
            wanted: Sequences whose speculators are of this model, and how many tokens each may get.

        Returns:
            Tokens for each; none where the small model fails.
        """
        drafts = [_Draft(self, sequence, most) for sequence, most in wanted]
        while growing := [d for d in drafts if d.begin_pass()]:
            with self.lock:
                ready = [d for d in growing if d.reserve()]
                rows = self._run(ready)
            for draft, row in zip(ready, rows, strict=True):
                draft.remember()
                draft.extend(row)
        return [d.proposed for d in drafts]

    def _run(self, drafts: list[_Draft]) -> list[Row]:
        """Logits after the last token of each; only what the cache lacks is computed."""
        rows: list[Row] = []
        batch, room = _core.Batch(), _CHUNK
        for draft in drafts:
            first, end = draft.computed, len(draft.tokens)
            while first < end:
                part = draft.tokens[first : first + room]
                outputs = 1 if first + len(part) == end else 0
                add_span(batch, draft.table, part, first, outputs)
                first += len(part)
                room -= len(part)
                if room == 0 or (first == end and draft is drafts[-1]):
                    rows.extend(self.model.run(batch, self.cache.pools, self.cache.slot_memory))
                    batch, room = _core.Batch(), _CHUNK
        return rows


class DraftSpeculator:
    """Follows one sequence with the small model.

    It draws with the sequence's own parameters and random numbers: where both models agree, so do
    their draws.

    Attributes:
        model: The small model, which proposes for several sequences at once.
        table: State in the small model's cache.
        computed: Tokens that it covers.
    """

    def __init__(self, model: DraftModel, lookahead: Lookahead) -> None:
        self.model = model
        self.lookahead = lookahead
        self.table = PageTable()
        self.computed: list[int] = []

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """At most ``most`` tokens, fewer where the small model is unsure."""
        return self.model.propose([(sequence, most)])[0]

    def close(self) -> None:
        """Gives back the state in the small model's cache."""
        with self.model.lock:
            self.model.cache.release(self.table)
        self.computed = []


class _Draft:
    """A proposal in the making.

    Attributes:
        tokens: The context of the sequence and the proposal.
        computed: How many of them the state in the small model's cache covers.
        proposed: The proposal so far.
    """

    def __init__(self, model: DraftModel, sequence: Sequence, most: int) -> None:
        speculator = sequence.speculator
        assert isinstance(speculator, DraftSpeculator)
        self._speculator = speculator
        self._model = model
        self.tokens = list(sequence.tokens)
        self.proposed: list[int] = []
        self._most = min(most, speculator.lookahead.length, model.ctx_size - len(self.tokens))
        same = sequence.sampler
        self._sampler = Sampler(sequence.params, same.breakers, same.bad_words)
        self._sampler.restore(same.state())
        constraint = sequence.constraint
        self._constraint = None if constraint is None else constraint.fork()
        self._history, self._step = list(sequence.history), sequence.num_generated
        self.computed = min(len(speculator.computed), len(self.tokens) - 1)
        if speculator.computed[: self.computed] != self.tokens[: self.computed]:
            pairs = zip(speculator.computed, self.tokens, strict=False)
            self.computed = next(i for i, (a, b) in enumerate(pairs) if a != b)

    @property
    def table(self) -> PageTable:
        """State in the small model's cache."""
        return self._speculator.table

    def begin_pass(self) -> bool:
        """Whether one more token is to be proposed."""
        c = self._constraint
        if len(self.proposed) >= self._most:
            return False
        with self._dropped_on_error():
            return c is None or not (c.finished or c.forced())
        return False

    def reserve(self) -> bool:
        """Takes pages and a slot for all tokens; without them the proposal ends here."""
        cache = self._model.cache
        try:
            if not self.proposed:
                self.computed = cache.rewind(self.table, self.computed)
                self._speculator.computed = self.tokens[: self.computed]
            reserve(cache, self.table, self.computed, len(self.tokens) - self.computed)
            if len(self.proposed) == 1:  # whether that is right, nobody knows yet
                cache.back_up(self.table)
        except CapacityError:
            self._most = 0
            return False
        return True

    def remember(self) -> None:
        """All tokens are computed now."""
        self.computed = len(self.tokens)
        self._speculator.computed = list(self.tokens)

    def extend(self, logits: Row) -> None:
        """Adds the token that the small model gives, or ends the proposal where it is unsure."""
        c = self._constraint
        with self._dropped_on_error():
            token = self._sampler.choose(
                logits,
                self._history,
                self._step + len(self.proposed),
                mask=None if c is None else c.mask(),
                banned=() if c is None else c.banned(),
            )
            if token_logprobs(logits, token, 0).logprob < self._model.log_threshold:
                self._most = 0
                return
            for tokens in (self.proposed, self.tokens, self._history):
                tokens.append(token)
            if c is not None:
                c.accept(token)

    @contextmanager
    def _dropped_on_error(self) -> Iterator[None]:
        """There may be no way on behind what is proposed; the text may never get there."""
        try:
            yield
        except OxiBonsaiError:
            self._most = 0
            self.proposed.clear()
