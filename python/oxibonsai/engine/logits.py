"""Logits of whole texts, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.engine.batching import make_batch, reads_images, reserve
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.scheduler import Chunk
from oxibonsai.engine.sequence import Sequence
from oxibonsai.models import Model

Rows = npt.NDArray[np.float32]
_CHUNK = 256  # rows of a step without logits


class WholeTexts:
    """Runs several texts side by side, without choosing tokens.

    Args:
        model: Runs them.
        cache: Gives them pages and slots, which they hold until the last block has been taken.
        lock: Held for one step at a time.
    """

    def __init__(self, model: Model, cache: KvCache, lock: AbstractContextManager[None]) -> None:
        self._model = model
        self._cache = cache
        self._lock = lock

    def iter_logits(
        self, sequences: list[Sequence], chunk_size: int, first: int = 0
    ) -> Iterator[tuple[int, int, Rows]]:
        """Yield (sequence, first position, rows [n, vocabulary]) in order.

        With recurrent state, no more texts run at once than there are slots for; the others follow.
        Behind an encoder, positions are counted from the decoder's first token.

        Args:
            sequences: The texts, checked.
            chunk_size: Rows of a block; an image whose rows see each other is not cut, and makes it
                shorter or longer.
            first: Position from which on logits are wanted.
        """
        slots = self._cache.slots
        beside = (len(sequences) or 1) if slots is None else slots.plan.sequences
        for i in range(0, len(sequences), beside):
            yield from self._run_group(sequences[i : i + beside], i, chunk_size, first)

    def _run_group(
        self, sequences: list[Sequence], offset: int, size: int, first: int
    ) -> Iterator[tuple[int, int, Rows]]:
        longest = max(len(s.tokens) - s.encoded for s in sequences)
        try:
            self._encode([s for s in sequences if s.encoded])
            for start, end in _cuts(sequences, 0, first, _CHUNK):
                self._step(sequences, start, end, all_rows=False)
            for start, end in _cuts(sequences, first, longest, size):
                chunks, rows = self._step(sequences, start, end, all_rows=True)
                row = 0
                for c in chunks:
                    yield offset + sequences.index(c.sequence), start, rows[row : row + c.count]
                    row += c.count
        finally:
            with self._lock:
                for s in sequences:
                    self._cache.release(s.table)

    def _encode(self, sequences: list[Sequence]) -> None:
        """Run the prompts of sequences through the encoder, each whole."""
        for s in sequences:
            with self._lock:
                reserve(self._cache, s.table, 0, s.encoded)
                self._model.encode(make_batch([Chunk(s, 0, s.encoded)]), self._cache.pools)

    def _step(
        self, sequences: list[Sequence], start: int, end: int, *, all_rows: bool
    ) -> tuple[list[Chunk], Rows]:
        """Run positions start .. end - 1 of every text that has them."""
        live = [s for s in sequences if len(s.tokens) > s.encoded + start]
        chunks = [
            Chunk(s, s.encoded + start, min(end, len(s.tokens) - s.encoded) - start) for s in live
        ]
        cache = self._cache
        with self._lock:
            for c in chunks:
                reserve(cache, c.sequence.table, c.first, c.count)
            batch = make_batch(chunks, all_rows=all_rows)
            images = reads_images(chunks)
            rows = self._model.run(batch, cache.pools, cache.slot_memory, images=images)
        return chunks, rows


def _cuts(sequences: list[Sequence], first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield steps of about ``size`` positions that cut no rows of an image that see each other."""
    while first < last:
        end = min(first + size, last)
        blocks = [b for s in sequences if s.images for b in s.images.blocks(first, last)]
        while cut := [past for begin, past in blocks if begin < end < past]:
            end = max(cut)
        yield first, end
        first = end


class DLPackArray:
    """A float32 array behind the DLPack protocol and nothing else.

    ``torch.from_dlpack(array)`` and ``numpy.from_dlpack(array)`` share its memory, which lives as long
    as any of them. Numpy does the work, so no other library is needed here.

    Attributes:
        shape: Of the array.
    """

    def __init__(self, values: npt.NDArray[np.float32]) -> None:
        self._values = values
        self.shape = values.shape

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type and id: the CPU."""
        kind, number = self._values.__dlpack_device__()
        return int(kind), int(number)

    def __dlpack__(self, **wanted: Any) -> Any:
        """Return a capsule for one consumer, with the keywords of the array API standard.

        Numpy before 2.1 takes none but ``stream``: what a consumer leaves at None is not passed on.
        """
        return self._values.__dlpack__(**{k: v for k, v in wanted.items() if v is not None})
