"""Following a text by the hidden states that the model's steps give for its tokens."""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from collections.abc import Sequence as Items
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import KvPages
from oxibonsai.engine.batching import add_span, reserve
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.sequence import Sequence, Wanted
from oxibonsai.engine.speculation.proposals import Guess, Limits
from oxibonsai.errors import CapacityError, OxiBonsaiError, UnsupportedError

Rows = npt.NDArray[np.float32]
# Takes a batch of rows, and their states, into the cache; see StatesDrafter.run.
Run: TypeAlias = Callable[[_core.Batch, Rows], Items[tuple[Rows, Rows]]]

_CHUNK = 256  # rows of a pass
_RECENT = 64  # at least as many as a proposal has tokens: a snapshot may lie before the last one


def own_pages(engine: Engine, make: Callable[[str, int], KvPages]) -> KvPages:
    """Return pages of a drafter's own keys and values, of the type and number of an engine's.

    Args:
        engine: Whose texts are proposed.
        make: Makes pages of a type, so many.

    Raises:
        UnsupportedError: The engine's model keeps none.
    """
    if not engine.cache.pools:
        raise UnsupportedError(
            "drafters that read hidden states are for models with attention, and this one keeps no keys "
            "and values: speculate by n-grams or with a draft model"
        )
    own = engine.cache.pools[0]
    return make(own.type, own.pages)


class StatesDrafter(ABC):
    """A drafter that proposes tokens from hidden states, for all sequences of an engine.

    What a sequence finds in the prefix cache has no hidden states: so with every snapshot of the model's
    state the drafter's own is kept, its keys and values and the last hidden states. Without recurrent state
    there are no snapshots: the drafter begins behind what was found, and guesses worse for it.

    Args:
        engine: Whose texts are proposed.
        name: What its keys and values depend on beside the model.
        pages: Of the drafter's own keys and values.
        taps: Which hidden states it reads, see :meth:`Model.run_with_hidden_states`.
        ahead: Whether it reads a token's hidden states together with the token after it.
        longest: Tokens that a proposal may have; None: any number.
        limits: Of proposals, where a request states no others.

    Attributes:
        name: As given.
        taps: As given.
        ahead: As given.
        longest: As given.
        cache: Of keys and values.
        lock: Held while the cache is used: sequences of several engines may have one drafter.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        pages: KvPages,
        taps: tuple[int, ...],
        *,
        ahead: bool,
        longest: int | None,
        limits: Limits,
    ) -> None:
        self.name = name
        self.taps = taps
        self.ahead = ahead
        self.longest = longest
        store = engine.cache.store
        budget = pages.pages * pages.page_bytes
        self.cache = KvCache([pages], budget, keep=store is not None, store=store)
        self.lock = threading.RLock()
        self._limits = limits

    def speculator(
        self, *, length: int | None = None, threshold: float | None = None
    ) -> StatesSpeculator:
        """Make a speculator for one new sequence; see :class:`MakeSpeculator`."""
        return StatesSpeculator(self, self._limits.of_request(length, threshold))

    @abstractmethod
    def run(self, batch: _core.Batch, states: Rows) -> Items[tuple[Rows, Rows]]:
        """Take rows of texts into the cache.

        Args:
            batch: Their tokens; the ones after them where the drafter reads ahead.
            states: float32 [rows, taps * hidden].

        Returns:
            What the drafter gives for each row that wants an output.
        """

    @abstractmethod
    def propose(self, wanted: list[Wanted]) -> list[list[int]]:
        """Return proposals for several sequences, which share passes.

        Args:
            wanted: Of speculators of this drafter.

        Returns:
            Tokens for each; none where the drafter fails.
        """

    def read(
        self, wanted: Items[PendingRows], *, outputs: bool = False, run: Run | None = None
    ) -> list[tuple[Rows, Rows]]:
        """Take all rows of several texts into the cache, which has room for them.

        Args:
            wanted: The rows, which are none afterwards.
            outputs: Whether the last row of each gives a result.
            run: Takes a batch of them; None: :meth:`run`.

        Returns:
            What ``run`` gives for the last row of each; nothing without outputs.
        """
        run = run or self.run
        results: list[tuple[Rows, Rows]] = []
        batch, states, room = _core.Batch(), [], _CHUNK
        for rows in wanted:
            while rows.tokens:
                tokens, first, part = rows.take(room)
                add_span(batch, rows.table, tokens, first, int(outputs and not rows.tokens))
                states.append(part)
                room -= len(tokens)
                if room == 0:
                    results.extend(run(batch, np.concatenate(states)))
                    batch, states, room = _core.Batch(), [], _CHUNK
        if states:
            results.extend(run(batch, np.concatenate(states)))
        return results


class PendingRows:
    """Rows of a text that a drafter has yet to read.

    Attributes:
        table: Where the keys and values of the sequence lie.
        tokens: Those of the rows.
    """

    def __init__(self, table: PageTable, tokens: list[int], first: int, states: Rows) -> None:
        self.table = table
        self.tokens = tokens
        self._first = first
        self._states = states

    def take(self, most: int) -> tuple[list[int], int, Rows]:
        """Take at most so many rows: their tokens, the position of the first, and hidden states."""
        count = min(most, len(self.tokens))
        part = (self.tokens[:count], self._first, self._states[:count])
        self.tokens, self._states = self.tokens[count:], self._states[count:]
        self._first += count
        return part

    def reserve(self, cache: KvCache) -> None:
        """Take pages; CapacityError where there are too few."""
        reserve(cache, self.table, self._first, len(self.tokens))


class StatesSpeculator:
    """Follows one sequence for a drafter.

    Attributes:
        table: Keys and values of the drafter, those of position ``begin`` first.
        limits: Of its proposals.
    """

    def __init__(self, drafter: StatesDrafter, limits: Limits) -> None:
        self.shared = self._drafter = drafter
        self.reader = self
        self.limits = limits
        self.lookahead = limits.lookahead()
        self.table = PageTable()
        self._begin = self._read = self._next = -1  # none followed yet
        self._states: list[Rows] = []  # of positions from _read to _next - 1
        self._recent: Rows | None = None  # of the last positions, up to _next - 1
        self._shifts = 0

    @property
    def taps(self) -> tuple[int, ...]:
        """Which hidden states the drafter reads."""
        return self._drafter.taps

    def follow(self, sequence: Sequence, first: int, states: Rows) -> None:
        """Take the hidden states of tokens that are part of the text.

        Args:
            sequence: Their sequence.
            first: The position of the first of them.
            states: float32 [rows, taps * hidden].
        """
        if len(sequence.shifts) != self._shifts:  # another text from here on
            self.forget()
            self._shifts = len(sequence.shifts)
        if len(states) == 0:
            return
        if self._begin < 0 or first > self._next:
            self.forget()
            self._begin = self._read = self._next = first
            if first > 0:
                self._resume(sequence, first)
        new = states[self._next - first :]
        if len(new) == 0:  # computed before, and again after a rejected proposal
            return
        self._states.append(new.copy())
        self._next += len(new)
        if self._drafter.cache.keep:
            old = new[:0] if self._recent is None else self._recent
            self._recent = np.concatenate([old, new])[-_RECENT:]
        if self._next - self._read < _CHUNK:
            return
        with self._drafter.lock:
            try:
                rows = self.pending(sequence.tokens)
                rows.reserve(self._drafter.cache)
                self._drafter.read([rows])
            except OxiBonsaiError:
                self.forget()

    def keep(self, sequence: Sequence, position: int) -> None:
        """Keep the drafter's state at a snapshot of the model's."""
        cache, ahead, recent = self._drafter.cache, int(self._drafter.ahead), self._recent
        back, end = self._next - position, position - ahead
        if self._begin != 0 or recent is None or not 0 <= back <= len(recent) - ahead or end < 1:
            return
        with self._drafter.lock:
            try:
                rows = self.pending(sequence.tokens, end)
                rows.reserve(cache)
                self._drafter.read([rows])
            except OxiBonsaiError:
                self.forget()
                return
            tokens, root = self._known_by(sequence)
            cache.remember(self.table, tokens, end, root)
            last = len(recent) - back
            held = recent[last - ahead : last].tobytes()
            cache.keep_snapshot(self.table, tokens, end, root, held)

    def _resume(self, sequence: Sequence, position: int) -> None:
        """Take up the drafter's state at a snapshot of the model's, where there is one."""
        tokens, root = self._known_by(sequence)
        ahead = int(self._drafter.ahead)
        with self._drafter.lock:
            try:
                found = self._drafter.cache.find_at(tokens, position - ahead, root)
            except CapacityError:
                return
            if found is None:
                return
            self.table, held = found
        self._begin, self._read = 0, position - ahead
        if ahead:
            self._recent = np.frombuffer(held, np.float32)[None, :]
            self._states = [self._recent]

    def _known_by(self, sequence: Sequence) -> tuple[list[int], bytes]:
        """Return the tokens that the drafter's rows are known by, and what else they depend on.

        One that reads ahead has at each position the token of the next one; the first token is part of
        the rest.
        """
        ahead = int(self._drafter.ahead)
        tokens = sequence.cache_ids
        others = (self._drafter.name, sequence.cache_root, list(tokens[:ahead]))
        return list(tokens[ahead:]), hashlib.blake2b(repr(others).encode()).digest()

    def pending(self, tokens: list[int], end: int | None = None) -> PendingRows:
        """Return the rows that the drafter can read now, which count as read from then on.

        Args:
            tokens: The text.
            end: Only those of earlier positions; None: all.
        """
        states = np.concatenate(self._states) if self._states else np.empty((0, 0), np.float32)
        ahead = int(self._drafter.ahead)
        known = self._next if end is None else end
        count = max(min(known, len(tokens) - ahead) - self._read, 0)
        first = self._read + ahead
        rows = PendingRows(
            self.table, tokens[first : first + count], self._read - self._begin, states[:count]
        )
        self._states = [states[count:]] if count < len(states) else []
        self._read += count
        return rows

    def is_ready(self, tokens: list[int]) -> bool:
        """Return whether it has followed all of the text but its last token."""
        return self._begin >= 0 and self._next == len(tokens) - 1

    @property
    def num_read(self) -> int:
        """Rows of the text in the table."""
        return self._read - self._begin

    def propose(self, sequence: Sequence, most: int) -> list[int]:
        """Propose at most ``most`` tokens, fewer where the drafter is unsure."""
        return self._drafter.propose([Wanted(sequence, most, self)])[0]

    def forget(self) -> None:
        """Begin anew with what comes next."""
        with self._drafter.lock:
            self._drafter.cache.release(self.table)
        self._begin = self._read = self._next = -1
        self._states, self._recent = [], None

    def close(self) -> None:
        """Return back its pages."""
        self.forget()


class Draft:
    """A proposal in the making, from hidden states.

    Attributes:
        guess: What is proposed so far.
        speculator: Of the sequence.
        last: The last token of the text.
    """

    def __init__(self, drafter: StatesDrafter, wanted: Wanted) -> None:
        sequence, most, speculator = wanted
        assert isinstance(speculator, StatesSpeculator)
        self.speculator = speculator
        self._drafter = drafter
        self.last = sequence.tokens[-1]
        self._tokens = sequence.tokens
        if not speculator.is_ready(sequence.tokens):
            most = 0
        most = min(most, speculator.lookahead.length, drafter.longest or most)
        self.guess = Guess(sequence, most, speculator.limits.log_threshold)

    def pending(self) -> PendingRows:
        """Return the rows of the text that are to be read first."""
        return self.speculator.pending(self._tokens)

    def reserve(self, rows: PendingRows) -> bool:
        """Take pages for rows; without them the proposal ends here."""
        try:
            rows.reserve(self._drafter.cache)
        except CapacityError:
            self.guess.end()
            if not self.guess.tokens:  # rows of the text, which nobody has any more
                self.speculator.forget()
            return False
        return True

    def close(self) -> None:
        """Drop keys and values of the proposal: those of its tokens come with the model's states."""
        with suppress(OxiBonsaiError):
            self._drafter.cache.rewind(self.speculator.table, self.speculator.num_read)
