"""Logits of whole texts, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oxibonsai.engine.batching import make_batch, reads_images, reserve
from oxibonsai.engine.scheduler import Chunk
from oxibonsai.engine.sequence import Options, Sequence
from oxibonsai.errors import RequestError
from oxibonsai.sampling import SamplingParams
from oxibonsai.vision import PlacedImage

if TYPE_CHECKING:
    from oxibonsai.engine.engine import Engine

Rows = npt.NDArray[np.float32]
_CHUNK = 256  # rows of a step without logits


def iter_logits(
    engine: Engine,
    texts: Items[Items[int]],
    chunk_size: int,
    first: int = 0,
    images: Items[tuple[PlacedImage, ...]] | None = None,
) -> Iterator[tuple[int, int, Rows]]:
    """Run several texts side by side; yield (text, first position, rows [n, vocabulary]) in order.

    The lock of the engine is held for one step at a time. With recurrent state, no more texts run at
    once than the engine has slots for; the others follow.

    Args:
        engine: Runs them.
        texts: Token ids.
        chunk_size: Rows of a block; a picture whose rows see each other is not cut, and makes it
            shorter or longer.
        first: Position from which on logits are wanted.
        images: Of each text; None: there are none.

    Raises:
        RequestError: A text is empty, too long, or holds ids outside the vocabulary.
    """
    if chunk_size < 1:
        raise RequestError(f"chunk_size is {chunk_size}; it must be at least 1")
    engine.model.check_generates()
    engine.model.check_decoder_only("logits of whole texts")
    checked = [engine.check_prompt(ids) for ids in texts]
    placed = [()] * len(checked) if images is None else images
    sequences = [
        Sequence(ids, SamplingParams(), Options(), images=engine.prompt_images(ids, own))
        for ids, own in zip(checked, placed, strict=True)
    ]
    slots = engine.cache.slots
    beside = (len(sequences) or 1) if slots is None else slots.plan.sequences
    return _run(engine, sequences, beside, chunk_size, first)


def _run(
    engine: Engine, sequences: list[Sequence], beside: int, size: int, first: int
) -> Iterator[tuple[int, int, Rows]]:
    for i in range(0, len(sequences), beside):
        yield from _run_group(engine, sequences[i : i + beside], i, size, first)


def _run_group(
    engine: Engine, sequences: list[Sequence], offset: int, size: int, first: int
) -> Iterator[tuple[int, int, Rows]]:
    longest = max(len(s.tokens) for s in sequences)
    try:
        for start, end in _cuts(sequences, 0, first, _CHUNK):
            _step(engine, sequences, start, end, all_rows=False)
        for start, end in _cuts(sequences, first, longest, size):
            chunks, rows = _step(engine, sequences, start, end, all_rows=True)
            row = 0
            for c in chunks:
                yield offset + sequences.index(c.sequence), start, rows[row : row + c.count]
                row += c.count
    finally:
        with engine.lock:
            for s in sequences:
                engine.cache.release(s.table)


def _cuts(sequences: list[Sequence], first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield steps of about ``size`` positions that cut no rows of an image that see each other."""
    while first < last:
        end = min(first + size, last)
        blocks = [b for s in sequences if s.images for b in s.images.blocks(first, last)]
        while cut := [past for begin, past in blocks if begin < end < past]:
            end = max(cut)
        yield first, end
        first = end


def _step(
    engine: Engine, sequences: list[Sequence], start: int, end: int, *, all_rows: bool
) -> tuple[list[Chunk], Rows]:
    """Positions start .. end - 1 of every text that has them."""
    live = [s for s in sequences if len(s.tokens) > start]
    chunks = [Chunk(s, start, min(end, len(s.tokens)) - start) for s in live]
    with engine.lock:
        for c in chunks:
            reserve(engine.cache, c.sequence.table, c.first, c.count)
        cache = engine.cache
        batch = make_batch(chunks, all_rows=all_rows)
        rows = engine.model.run(batch, cache.pools, cache.slot_memory, images=reads_images(chunks))
    return chunks, rows
