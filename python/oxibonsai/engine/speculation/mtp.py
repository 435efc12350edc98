"""The model's own layer for multi-token prediction proposes (Gloeckle et al. 2024; DeepSeek V3)."""

from __future__ import annotations

import threading
from contextlib import suppress
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
from oxibonsai.errors import CapacityError, OxiBonsaiError
from oxibonsai.models.drafting import DraftingLayer

if TYPE_CHECKING:
    from oxibonsai.engine.engine import Engine

Rows = npt.NDArray[np.float32]

_CHUNK = 256  # rows of a pass


class MtpDraft:
    """Makes speculators from the layer of an engine's own model that predicts a further token.

    The layer reads the hidden states that the model's steps give for the tokens of a text. What a
    sequence finds in the prefix cache has none: there the layer begins later, and guesses worse for it.

    Args:
        engine: Whose texts are proposed.
        threshold: Proposing ends before a token to which the layer gives less probability.
        length: Tokens of a proposal; None: adapted to what is accepted.

    Raises:
        UnsupportedError: The model has no such layer.
    """

    def __init__(
        self, engine: Engine, *, threshold: float = 0.5, length: int | None = None
    ) -> None:
        self._log_threshold = check_threshold(threshold)
        Lookahead(length)  # refuses a bad length now
        self._length = length
        self.layer = DraftingLayer(engine.model)
        own = engine.cache.pools[0]
        pages = self.layer.new_pages(own.type, own.pages)
        self.cache = KvCache([pages], pages.pages * pages.page_bytes, keep=False)
        self.lock = threading.RLock()

    def speculator(
        self, *, length: int | None = None, threshold: float | None = None
    ) -> MtpSpeculator:
        """For one new sequence; see :class:`MakeSpeculator`."""
        log = self._log_threshold if threshold is None else check_threshold(threshold)
        return MtpSpeculator(self, Lookahead(self._length if length is None else length), log)

    def propose(self, wanted: list[tuple[Sequence, int]]) -> list[list[int]]:
        """Proposals for several sequences, whose tokens share the passes of the layer.

        Args:
            wanted: Sequences whose speculators are of this layer, and how many tokens each may get.

        Returns:
            Tokens for each; none where the layer fails.
        """
        drafts = [_Draft(self, sequence, most) for sequence, most in wanted]
        with self.lock:
            while growing := [d for d in drafts if d.guess.wants_more()]:
                ready = [d for d in growing if d.reserve()]
                results = self.run([d.rows for d in ready], outputs=True)
                for draft, (logits, state) in zip(ready, results, strict=True):
                    draft.extend(logits, state)
            for draft in drafts:
                draft.close()
        return [d.guess.tokens for d in drafts]

    def run(self, wanted: list[PendingRows], *, outputs: bool) -> list[tuple[Rows, Rows]]:
        """Compute rows of several sequences, whose tables have pages for them.

        Args:
            wanted: Their rows, which are none afterwards.
            outputs: Whether the last row of each gives a result.

        Returns:
            Logits [vocabulary] and hidden states [1, hidden] of each; nothing without outputs.
        """
        results: list[tuple[Rows, Rows]] = []
        batch, states, room = _core.Batch(), [], _CHUNK
        for rows in wanted:
            while rows.tokens:
                part, last = rows.take(room)
                add_span(batch, rows.table, part[0], part[1], int(outputs and last))
                states.append(part[2])
                room -= len(part[0])
                if room == 0 or (last and rows is wanted[-1]):
                    logits, hidden = self.layer.run(
                        batch, list(self.cache.pools), np.concatenate(states)
                    )
                    results.extend(zip(logits, np.split(hidden, len(hidden)), strict=True))
                    batch, states, room = _core.Batch(), [], _CHUNK
        return results


class PendingRows:
    """Tokens, each with the hidden states of the token before it, that the layer has yet to read.

    Attributes:
        table: Where the keys and values of the sequence lie.
        tokens: Those to read.
    """

    def __init__(self, table: PageTable, tokens: list[int], first: int, states: Rows) -> None:
        self.table = table
        self.tokens = tokens
        self._first = first
        self._states = states

    def take(self, most: int) -> tuple[tuple[list[int], int, Rows], bool]:
        """Tokens, the position of the first of them, and hidden states; and whether those were all."""
        count = min(most, len(self.tokens))
        part = (self.tokens[:count], self._first, self._states[:count])
        self.tokens, self._states = self.tokens[count:], self._states[count:]
        self._first += count
        return part, not self.tokens

    def reserve(self, cache: KvCache) -> None:
        """Take pages; CapacityError where there are too few."""
        reserve(cache, self.table, self._first, len(self.tokens))


class MtpSpeculator:
    """Follows one sequence.

    Attributes:
        log_threshold: A proposal ends before a token of a smaller log probability.
        table: Keys and values of the layer, those of position ``begin`` first.
    """

    def __init__(self, model: MtpDraft, lookahead: Lookahead, log_threshold: float) -> None:
        self.model = model
        self.lookahead = lookahead
        self.log_threshold = log_threshold
        self.table = PageTable()
        self._begin = self._read = self._next = -1  # none followed yet
        self._states: list[Rows] = []  # of positions from _read to _next - 1
        self._shifts = 0

    def follow(self, sequence: Sequence, first: int, states: Rows) -> None:
        """Take the hidden states of tokens that are part of the text.

        Args:
            sequence: Their sequence.
            first: The position of the first of them.
            states: float32 [rows, hidden].
        """
        if len(sequence.shifts) != self._shifts:  # another text from here on
            self.forget()
            self._shifts = len(sequence.shifts)
        if len(states) == 0:
            return
        if self._begin < 0 or first > self._next:
            self.forget()
            self._begin = self._read = self._next = first
        new = states[self._next - first :]
        if len(new) == 0:  # computed before, and again after a rejected proposal
            return
        self._states.append(new.copy())
        self._next += len(new)
        if self._next - self._read < _CHUNK:
            return
        with self.model.lock:
            try:
                rows = self.pending(sequence.tokens)
                rows.reserve(self.model.cache)
                self.model.run([rows], outputs=False)
            except OxiBonsaiError:
                self.forget()

    def pending(self, tokens: list[int]) -> PendingRows:
        """Return the rows that the layer can read now: hidden states of tokens whose next one is known."""
        states = np.concatenate(self._states) if self._states else np.empty((0, 0), np.float32)
        count = min(self._next, len(tokens) - 1) - self._read
        rows = PendingRows(
            self.table,
            tokens[self._read + 1 : self._read + 1 + count],
            self._read - self._begin,
            states[:count],
        )
        self._states = [states[count:]] if count < len(states) else []
        self._read += count
        return rows

    def is_ready(self, tokens: list[int]) -> bool:
        """Whether it has followed all of the text but its last token."""
        return self._begin >= 0 and self._next == len(tokens) - 1 and self._read < self._next

    @property
    def num_read(self) -> int:
        """Rows of the text in the table."""
        return self._read - self._begin

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """At most ``most`` tokens, fewer where the layer is unsure."""
        return self.model.propose([(sequence, most)])[0]

    def forget(self) -> None:
        """Begins anew with what comes next."""
        with self.model.lock:
            self.model.cache.release(self.table)
        self._begin = self._read = self._next = -1
        self._states = []

    def close(self) -> None:
        """Return back its pages."""
        self.forget()


class _Draft:
    """A proposal in the making.

    Attributes:
        guess: What is proposed so far.
        rows: What the layer reads next.
    """

    def __init__(self, model: MtpDraft, sequence: Sequence, most: int) -> None:
        speculator = sequence.speculator
        assert isinstance(speculator, MtpSpeculator)
        self._speculator = speculator
        self._model = model
        if not speculator.is_ready(sequence.tokens):
            most = 0
        most = min(most, speculator.lookahead.length)
        self.guess = Guess(sequence, most, speculator.log_threshold)
        self.rows = PendingRows(speculator.table, [], 0, np.empty((0, 0), np.float32))
        if self.guess.wants_more():
            self.rows = speculator.pending(sequence.tokens)
        self._end = speculator.num_read  # of what is text, and of the proposal

    def reserve(self) -> bool:
        """Take pages for the rows; without them the proposal ends here."""
        try:
            self.rows.reserve(self._model.cache)
        except CapacityError:
            self.guess.end()
            if not self.guess.tokens:  # rows of the text, which nobody has any more
                self._speculator.forget()
            return False
        return True

    def extend(self, logits: Rows, state: Rows) -> None:
        """Add the token that the layer gives, from whose own hidden states it goes on."""
        token = self.guess.extend(logits)
        if token is not None:
            self.rows = PendingRows(self._speculator.table, [token], self._end, state)
            self._end += 1

    def close(self) -> None:
        """Drop keys and values of the proposal: those of its tokens come with the model's states."""
        with suppress(OxiBonsaiError):
            self._model.cache.rewind(self._speculator.table, self._speculator.num_read)
