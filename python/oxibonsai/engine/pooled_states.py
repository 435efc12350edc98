"""Texts through a model: their hidden states, or these folded into one vector each."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from oxibonsai import _core
from oxibonsai.engine.batching import add_span, reserve
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.memory import default_ctx_size, default_kv_type, make_cache
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.pooling import Floats, Pooler, TokenStates
from oxibonsai.engine.process_lock import ProcessLock
from oxibonsai.engine.slot_cache import SlotPlan
from oxibonsai.errors import RequestError
from oxibonsai.models import TOKEN_TYPES, Model
from oxibonsai.models.passes import EMBED

# Rows of one step, and texts at most; an encoder's text is never cut, so its step may be longer.
# Results don't depend on either.
_STEP_ROWS = 256
_STEP_TEXTS = 32
# Of recurrent state; fewer texts take part in a step where it needs more.
_SLOT_BYTES = 1 << 28


class Ids(NamedTuple):
    """A text, or two that are read together.

    Attributes:
        tokens: All of its ids.
        first: How many of them are of the first of two texts; None: there is one.
    """

    tokens: list[int]
    first: int | None = None


@dataclass
class _Text:
    """One text on its way through the model."""

    ids: Ids
    pooler: Pooler | TokenStates
    index: int
    done: int = 0
    table: PageTable = field(default_factory=PageTable)

    @property
    def left(self) -> int:
        return len(self.ids.tokens) - self.done


class PooledStates:
    """Runs texts up to a model's final norm and pools their hidden states.

    It shares the model's packed weights and has a small cache of its own, which is made when it is
    first needed. Safe to call from several threads; calls take turns.

    Args:
        model: A decoder or an encoder.
        ctx_size: Tokens of a text at most; None: the model's own, cut to suit the machine's memory.

    Attributes:
        ctx_size: Tokens of a text at most.
    """

    def __init__(self, model: Model, ctx_size: int | None = None) -> None:
        limit = model.config.longest_text
        if ctx_size is None:
            ctx_size = default_ctx_size(model.config, model.weights.checkpoint)
        self.ctx_size = ctx_size
        if not 1 <= self.ctx_size <= limit:
            raise RequestError(f"ctx_size is {ctx_size}; this model takes 1 to {limit} positions")
        self._model = model
        self._rows = _STEP_ROWS if model.config.causal else max(_STEP_ROWS, self.ctx_size)
        self._lock = ProcessLock()

    def run(self, texts: Items[Ids], pooling: str, *, typed: bool = False) -> Floats:
        """Return one vector a text: float32 [texts, hidden]. A vector depends on its own text alone.

        Args:
            texts: Ids within the vocabulary, of 1 to ``ctx_size`` tokens each.
            pooling: ``"last"``, ``"mean"``, ``"max"`` or ``"cls"``.
            typed: The second of two texts has token type 1 in any model that has one; else in those
                whose tokenizers say so.

        Raises:
            RequestError: The pooling does not exist.
        """
        found = self._run(texts, [Pooler(pooling, len(ids.tokens)) for ids in texts], typed)
        return np.array(found, np.float32).reshape(len(texts), self._model.config.hidden_size)

    def token_states(self, texts: Items[Ids], *, typed: bool = False) -> list[Floats]:
        """Return the hidden states of each text: float32 [tokens, hidden]; arguments as of run()."""
        return self._run(texts, [TokenStates(len(ids.tokens)) for ids in texts], typed)

    def check(self, index: int, tokens: Items[int]) -> None:
        """Raise RequestError where a text is none that :meth:`run` takes; its number is for the message."""
        if not tokens:
            raise RequestError(f"text {index} is empty: there is nothing to read")
        if len(tokens) > self.ctx_size:
            raise RequestError(
                f"text {index} has {len(tokens)} tokens, more than the {self.ctx_size} that fit: split "
                "it, or ask to truncate"
            )
        vocabulary = self._model.config.vocab_size
        for token in tokens:
            if not 0 <= token < vocabulary:
                raise RequestError(
                    f"text {index} holds the token id {token}, outside the vocabulary of {vocabulary}"
                )

    def _run(
        self, texts: Items[Ids], poolers: Items[Pooler | TokenStates], typed: bool
    ) -> list[Floats]:
        waiting = deque(
            _Text(ids, own, i) for i, (ids, own) in enumerate(zip(texts, poolers, strict=True))
        )
        with self._lock:
            try:
                while waiting:
                    self._step(self._next_step(waiting), typed)
                    while waiting and waiting[0].left == 0:
                        self._cache.release(waiting.popleft().table)
            finally:  # after an error, what was begun
                for text in waiting:
                    self._cache.release(text.table)
        return [own.result() for own in poolers]

    @cached_property
    def _cache(self) -> KvCache:
        """Room for one text of full length, which is read in pieces, beside those of one step.

        An encoder keeps nothing between steps.
        """
        graph, size = self._model.graph_of(EMBED), _core.PAGE_POSITIONS
        pages = -(-self.ctx_size // size) + -(-self._rows // size) + _STEP_TEXTS
        plan = None
        if graph.slot_entries:
            texts = _SLOT_BYTES // _core.slot_bytes(graph.slot_entries)
            plan = SlotPlan(min(max(texts, 1), _STEP_TEXTS))
        types = (default_kv_type(graph.paged_layers),)
        return make_cache(self._model, types, pages * size, keep=False, plan=plan)

    def _next_step(self, waiting: deque[_Text]) -> list[tuple[_Text, int]]:
        """Return the texts that run next, and how many of their tokens."""
        pieces: list[tuple[_Text, int]] = []
        room = self._rows
        slots = self._cache.slots
        texts = _STEP_TEXTS if slots is None else slots.plan.sequences
        for text in islice(waiting, texts):
            left = text.left
            # Without a causal mask the first tokens see the last ones: all go together.
            if room == 0 or (left > room and not self._model.config.causal):
                break
            pieces.append((text, min(left, room)))
            room -= pieces[-1][1]
        return pieces

    def _step(self, pieces: list[tuple[_Text, int]], typed: bool) -> None:
        """Run one pass of the model, and give the poolers the states that they want."""
        batch = _core.Batch()
        readers: list[Pooler | TokenStates] = []
        for text, count in pieces:
            now = range(text.done, text.done + count)
            reserve(self._cache, text.table, now.start, count)
            wanted = range(
                max(now.start, text.pooler.rows.start), min(now.stop, text.pooler.rows.stop)
            )
            readers += [text.pooler] * len(wanted)
            outputs = [p - now.start for p in wanted]
            tokens = text.ids.tokens[now.start : now.stop]
            add_span(batch, text.table, tokens, now.start, outputs)
            text.done = now.stop
        model, cache = self._model, self._cache
        if typed or model.config.token_types > 1:
            batch.set_input(TOKEN_TYPES, _one_hot(pieces, model.token_types))
        states = model.run_hidden(batch, cache.pools, cache.slot_memory, typed=typed)
        for pooler, row in zip(readers, states, strict=True):
            pooler.add(row)


def _one_hot(pieces: list[tuple[_Text, int]], types: int) -> Floats:
    """Return the type of each row of a step, whose pieces are done: float32 [rows, types]."""
    chosen = [
        int(text.ids.first is not None and position >= text.ids.first)
        for text, count in pieces
        for position in range(text.done - count, text.done)
    ]
    rows = np.zeros((len(chosen), types), np.float32)
    rows[np.arange(len(chosen)), chosen] = 1.0
    return rows
