"""A smaller model proposes what the larger one checks (Leviathan et al. 2023)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.engine.batching import add_span, reserve
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.sequence import Sequence, Wanted
from oxibonsai.engine.speculation.proposals import Guess, Limits
from oxibonsai.errors import CapacityError, RequestError

Row = npt.NDArray[np.float32]

_CHUNK = 256  # rows of a pass


class DraftModel:
    """Makes speculators from a second engine's model.

    Args:
        engine: Of the small model; its vocabulary must be the large one's.
        target: The engine whose texts are proposed.
        threshold: Proposing ends before a token to which the small model gives less probability.
        length: Tokens of a proposal; None: as many as make decoding fastest.
        least: Shorter proposals are dropped.
    """

    def __init__(
        self,
        engine: Engine,
        target: Engine,
        *,
        threshold: float = 0.5,
        length: int | None = None,
        least: int = 0,
    ) -> None:
        self._limits = Limits(length, least, threshold)
        if engine.tokenizer.vocabulary.texts != target.tokenizer.vocabulary.texts:
            raise RequestError(
                "the draft model has another vocabulary than the model: its proposals would mean "
                "something else; choose a draft of the same family"
            )
        self.lock = engine.lock  # sequences of several engines may use it
        self.model = engine.model
        self.cache: KvCache = engine.cache
        self.ctx_size = engine.ctx_size

    def speculator(
        self, *, length: int | None = None, threshold: float | None = None
    ) -> DraftSpeculator:
        """Make a speculator for one new sequence; see :class:`MakeSpeculator`."""
        return DraftSpeculator(self, self._limits.of_request(length, threshold))

    def propose(self, wanted: list[Wanted]) -> list[list[int]]:
        """Propose tokens for several sequences, which share the passes of the small model.

        Args:
            wanted: Of speculators of this model.

        Returns:
            Tokens for each; none where the small model fails.
        """
        drafts = [_Draft(self, one) for one in wanted]
        while growing := [d for d in drafts if d.guess.wants_more()]:
            with self.lock:
                ready = [d for d in growing if d.reserve()]
                rows = self._run(ready)
            for draft, row in zip(ready, rows, strict=True):
                draft.remember()
                draft.extend(row)
        return [d.guess.tokens for d in drafts]

    def _run(self, drafts: list[_Draft]) -> list[Row]:
        """Return the logits after the last token of each; only what the cache lacks is computed."""
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
        limits: Of its proposals.
        table: State in the small model's cache.
        computed: Tokens that it covers.
    """

    def __init__(self, model: DraftModel, limits: Limits) -> None:
        self.model = self.shared = model
        self.reader = None
        self.limits = limits
        self.lookahead = limits.lookahead()
        self.table = PageTable()
        self.computed: list[int] = []

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """Propose at most ``most`` tokens, fewer where the small model is unsure."""
        return self.model.propose([Wanted(sequence, most, self)])[0]

    def close(self) -> None:
        """Return back the state in the small model's cache."""
        with self.model.lock:
            self.model.cache.release(self.table)
        self.computed = []


class _Draft:
    """A proposal in the making.

    Attributes:
        guess: What is proposed so far.
        tokens: The context of the sequence and the proposal.
        computed: How many of them the state in the small model's cache covers.
    """

    def __init__(self, model: DraftModel, wanted: Wanted) -> None:
        sequence, most, speculator = wanted
        assert isinstance(speculator, DraftSpeculator)
        self._speculator = speculator
        self._model = model
        self.tokens = list(sequence.tokens)
        most = min(most, speculator.lookahead.length, model.ctx_size - len(self.tokens))
        self.guess = Guess(sequence, most, speculator.limits.log_threshold)
        self.computed = min(len(speculator.computed), len(self.tokens) - 1)
        if speculator.computed[: self.computed] != self.tokens[: self.computed]:
            pairs = zip(speculator.computed, self.tokens, strict=False)
            self.computed = next(i for i, (a, b) in enumerate(pairs) if a != b)

    @property
    def table(self) -> PageTable:
        """State in the small model's cache."""
        return self._speculator.table

    def reserve(self) -> bool:
        """Take pages and a slot for all tokens; without them the proposal ends here."""
        cache = self._model.cache
        try:
            if not self.guess.tokens:
                self.computed = cache.rewind(self.table, self.computed)
                self._speculator.computed = self.tokens[: self.computed]
            reserve(cache, self.table, self.computed, len(self.tokens) - self.computed)
            if len(self.guess.tokens) == 1:  # whether that is right, nobody knows yet
                cache.back_up(self.table)
        except CapacityError:
            self.guess.end()
            return False
        return True

    def remember(self) -> None:
        """Note that all tokens are computed now."""
        self.computed = len(self.tokens)
        self._speculator.computed = list(self.tokens)

    def extend(self, logits: Row) -> None:
        """Add the token that the small model gives, or end the proposal where it is unsure."""
        token = self.guess.extend(logits)
        if token is not None:
            self.tokens.append(token)
