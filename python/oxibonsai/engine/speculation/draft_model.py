"""A smaller model proposes what the larger one checks (Leviathan et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.engine.batching import add_span, reserve
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.sequence import Sequence
from oxibonsai.engine.speculation.guess import Guess, check_threshold
from oxibonsai.engine.speculation.lookahead import Lookahead
from oxibonsai.errors import CapacityError, RequestError

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
        self._log_threshold = check_threshold(threshold)
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
        self._length = length

    def speculator(
        self, *, length: int | None = None, threshold: float | None = None
    ) -> DraftSpeculator:
        """For one new sequence; see :class:`MakeSpeculator`."""
        log = self._log_threshold if threshold is None else check_threshold(threshold)
        return DraftSpeculator(self, Lookahead(self._length if length is None else length), log)

    def propose(self, wanted: list[tuple[Sequence, int]]) -> list[list[int]]:
        """Proposals for several sequences, whose tokens share the passes of the small model.

        Args:
            wanted: Sequences whose speculators are of this model, and how many tokens each may get.

        Returns:
            Tokens for each; none where the small model fails.
        """
        drafts = [_Draft(self, sequence, most) for sequence, most in wanted]
        while growing := [d for d in drafts if d.guess.wants_more()]:
            with self.lock:
                ready = [d for d in growing if d.reserve()]
                rows = self._run(ready)
            for draft, row in zip(ready, rows, strict=True):
                draft.remember()
                draft.extend(row)
        return [d.guess.tokens for d in drafts]

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
        log_threshold: A proposal ends before a token of a smaller log probability.
        table: State in the small model's cache.
        computed: Tokens that it covers.
    """

    def __init__(self, model: DraftModel, lookahead: Lookahead, log_threshold: float) -> None:
        self.model = model
        self.lookahead = lookahead
        self.log_threshold = log_threshold
        self.table = PageTable()
        self.computed: list[int] = []

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """At most ``most`` tokens, fewer where the small model is unsure."""
        return self.model.propose([(sequence, most)])[0]

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

    def __init__(self, model: DraftModel, sequence: Sequence, most: int) -> None:
        speculator = sequence.speculator
        assert isinstance(speculator, DraftSpeculator)
        self._speculator = speculator
        self._model = model
        self.tokens = list(sequence.tokens)
        most = min(most, speculator.lookahead.length, model.ctx_size - len(self.tokens))
        self.guess = Guess(sequence, most, speculator.log_threshold)
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
        """All tokens are computed now."""
        self.computed = len(self.tokens)
        self._speculator.computed = list(self.tokens)

    def extend(self, logits: Row) -> None:
        """Add the token that the small model gives, or end the proposal where it is unsure."""
        token = self.guess.extend(logits)
        if token is not None:
            self.tokens.append(token)
