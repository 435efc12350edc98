"""Texts to vectors."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np

from oxibonsai import _core
from oxibonsai.engine.batching import add_span, reserve
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.memory import default_ctx_size, default_kv_type, make_cache
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.pooling import Floats, Pooler, unit
from oxibonsai.engine.process_lock import ProcessLock
from oxibonsai.engine.slot_cache import SlotPlan
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.models import Model
from oxibonsai.tokenizer import Tokenizer

# Rows of one step, and texts at most; an encoder's text is never cut, so its step may be longer.
# Results don't depend on either.
_STEP_ROWS = 256
_STEP_TEXTS = 32
# Of recurrent state; fewer texts take part in a step where it needs more.
_SLOT_BYTES = 1 << 28


@dataclass
class _Text:
    """One text on its way through the model."""

    ids: list[int]
    pooler: Pooler
    index: int
    done: int = 0
    table: PageTable = field(default_factory=PageTable)


class Embedder:
    """Runs texts up to a model's final norm and pools their hidden states.

    It shares the model's packed weights and has a small cache of its own, which is made when it is
    first needed. Safe to call from several threads; calls take turns.

    Args:
        model: A decoder or an encoder.
        tokenizer: The model's own; None where the file has none: then only ids go in.
        ctx_size: Tokens of a text at most; None: the model's own, cut to suit the machine's memory.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer | None, *, ctx_size: int | None = None
    ) -> None:
        limit = model.config.max_position_embeddings
        self.ctx_size = default_ctx_size(model.config) if ctx_size is None else ctx_size
        if not 1 <= self.ctx_size <= limit:
            raise RequestError(f"ctx_size is {ctx_size}; this model takes 1 to {limit} positions")
        self._model = model
        self._tokenizer = tokenizer
        self._rows = _STEP_ROWS if model.config.causal else max(_STEP_ROWS, self.ctx_size)
        self._lock = ProcessLock()

    @property
    def dimensions(self) -> int:
        """Values of a vector that is not shortened."""
        return self._model.config.hidden_size

    def embed(
        self,
        texts: Items[str | Items[int]],
        *,
        pooling: str | None = None,
        normalize: bool = True,
        dimensions: int | None = None,
        truncate: int | None = None,
    ) -> Floats:
        """One vector a text: float32 [texts, dimensions]. A vector depends on its own text alone.

        Args:
            texts: Strings, framed with bos and eos as the model wants it, or lists of token ids,
                taken as they are.
            pooling: ``"last"``, ``"mean"``, ``"max"`` or ``"cls"``; None: what the model is made for.
            normalize: Scale each vector to length 1.
            dimensions: Keep only so many values of each vector, from the first on, and normalise
                those; for models that are trained for it (Matryoshka).
            truncate: Cut texts to so many tokens, eos of a framed string kept; None: a text that is
                too long is an error.

        Raises:
            RequestError: There are no texts; one is empty, too long or holds a wrong id; the pooling
                or the number of dimensions does not exist.
            FormatError: Texts are strings and the model's file has no tokenizer.
        """
        if isinstance(texts, str | bytes):
            raise RequestError(f"texts is one text, {texts!r}; give a list of texts")
        width = self.dimensions if dimensions is None else dimensions
        if isinstance(width, bool) or not isinstance(width, int):
            raise RequestError(f"dimensions is {dimensions!r}, not a number")
        if not 1 <= width <= self.dimensions:
            raise RequestError(f"dimensions is {width}; this model has 1 to {self.dimensions}")
        if truncate is not None and not 1 <= truncate <= self.ctx_size:
            raise RequestError(f"truncate is {truncate}; it is 1 to {self.ctx_size} tokens")
        if len(texts) == 0:
            raise RequestError("texts is empty: there is nothing to embed")
        chosen = self._model.config.pooling if pooling is None else pooling
        waiting = deque[_Text]()
        for index, text in enumerate(texts):
            ids = self._ids(index, text, truncate)
            waiting.append(_Text(ids, Pooler(chosen, len(ids)), index))
        result = np.empty((len(texts), width), dtype=np.float32)
        with self._lock:
            while waiting:
                self._step(self._next_step(waiting))
                while waiting and waiting[0].done == len(waiting[0].ids):
                    done = waiting.popleft()
                    self._cache.release(done.table)
                    vector = done.pooler.result()[:width]
                    result[done.index] = unit(vector) if normalize else vector
        return result

    @cached_property
    def _cache(self) -> KvCache:
        """Room for one text of full length, which is read in pieces, beside those of one step.

        An encoder keeps nothing between steps.
        """
        graph, size = self._model.hidden_graph, _core.PAGE_POSITIONS
        pages = -(-self.ctx_size // size) + -(-self._rows // size) + _STEP_TEXTS
        plan = None
        if graph.slot_entries:
            texts = _SLOT_BYTES // _core.slot_bytes(graph.slot_entries)
            plan = SlotPlan(min(max(texts, 1), _STEP_TEXTS))
        types = (default_kv_type(graph.paged_layers),)
        return make_cache(self._model, types, pages * size, keep=False, plan=plan)

    def _ids(self, index: int, text: str | Items[int], truncate: int | None) -> list[int]:
        """Token ids of a text, checked."""
        if isinstance(text, str):
            if self._tokenizer is None:
                raise FormatError(
                    f"{self._model.weights.checkpoint.path} has no tokenizer: give token ids, not text"
                )
            ids = self._tokenizer.encode(text) if text else []
            eos = self._tokenizer.eos_id if self._tokenizer.vocabulary.add_eos else None
        else:
            eos = None
            try:
                ids = [operator.index(i) for i in text]
            except TypeError as e:
                raise RequestError(
                    f"text {index} is neither a string nor a list of token ids: {e}"
                ) from e
        if not ids:
            raise RequestError(f"text {index} is empty: there is nothing to embed")
        if truncate is not None and len(ids) > truncate:
            ids = ids[:truncate] if eos is None else [*ids[: truncate - 1], eos]
        if len(ids) > self.ctx_size:
            raise RequestError(
                f"text {index} has {len(ids)} tokens, more than the {self.ctx_size} that fit: split it, or "
                "ask to truncate"
            )
        vocabulary = self._model.config.vocab_size
        for token in ids:
            if not 0 <= token < vocabulary:
                raise RequestError(
                    f"text {index} holds the token id {token}, outside the vocabulary of {vocabulary}"
                )
        return ids

    def _next_step(self, waiting: deque[_Text]) -> list[tuple[_Text, int]]:
        """Texts that run next, and how many of their tokens."""
        pieces: list[tuple[_Text, int]] = []
        room = self._rows
        slots = self._cache.slots
        texts = _STEP_TEXTS if slots is None else slots.plan.sequences
        for text in islice(waiting, texts):
            left = len(text.ids) - text.done
            # Without a causal mask the first tokens see the last ones: all go together.
            if room == 0 or (left > room and not self._model.config.causal):
                break
            pieces.append((text, min(left, room)))
            room -= pieces[-1][1]
        return pieces

    def _step(self, pieces: list[tuple[_Text, int]]) -> None:
        """One pass of the model; the states that the poolers want are added to them."""
        batch = _core.Batch()
        readers: list[Pooler] = []
        for text, count in pieces:
            now = range(text.done, text.done + count)
            reserve(self._cache, text.table, now.start, count)
            wanted = range(
                max(now.start, text.pooler.rows.start), min(now.stop, text.pooler.rows.stop)
            )
            readers += [text.pooler] * len(wanted)
            outputs = [p - now.start for p in wanted]
            add_span(batch, text.table, text.ids[now.start : now.stop], now.start, outputs)
            text.done = now.stop
        states = self._model.run_hidden(batch, self._cache.pools, self._cache.slot_memory)
        for pooler, row in zip(readers, states, strict=True):
            pooler.add(row)
