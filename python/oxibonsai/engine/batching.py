"""From the chunks of a step to the rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np

from oxibonsai import _core
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.scheduler import Chunk
from oxibonsai.models.adapting import IMAGES
from oxibonsai.vision.prompt_images import Floats, PromptImages


def reserve(cache: KvCache, table: PageTable, first: int, rows: int) -> None:
    """Make sure that positions ``first`` to ``first + rows - 1`` have pages of their own, and a slot.

    Raises:
        CapacityError: Too few pages are free, or no slot.
    """
    cache.attach(table)
    cache.extend(table, first + rows)
    cache.make_writable(table, first, first + rows - 1)


def add_span(
    batch: _core.Batch,
    table: PageTable,
    tokens: Items[int],
    first: int,
    outputs: int | Items[int],
    blocks: Items[tuple[int, int]] = (),
    encoded: int = 0,
    drafted: int = 0,
) -> None:
    """Add tokens of one sequence to a batch; its slot holds the state after them from then on.

    Args:
        batch: Of the next step.
        table: The sequence's, with pages for them; see :func:`reserve`.
        tokens: Those of positions ``first`` and on.
        first: 0, or the position that the state of the sequence has reached.
        outputs: How many of the last rows want a result, or which rows.
        blocks: Positions first .. end - 1 whose rows see each other.
        encoded: Positions of an encoder's tokens, which come before the decoder's.
        drafted: How many of the last tokens are a draft; the table has states for as many rows.
    """
    slot, states = table.slot, table.states[:drafted]
    if slot is not None:
        if first not in (0, slot.position):
            raise RuntimeError(
                f"a step begins at position {first} of a sequence whose recurrent state has read "
                f"{slot.position} tokens"
            )
        slot.position = first + len(tokens)
        for i, state in enumerate(states):
            state.position = slot.position - drafted + i
    batch.add(
        tokens,
        first=first,
        pages=table.pages,
        pool=table.pool,
        slot=-1 if slot is None else slot.index,
        outputs=outputs,
        blocks=blocks,
        encoded=encoded,
        row_slots=[state.index for state in states],
    )


def make_batch(chunks: list[Chunk], *, all_rows: bool = False) -> _core.Batch:
    """Return the rows of all chunks; outputs are all of them, or those from which a token is chosen."""
    batch = _core.Batch()
    rows: list[Floats] = []
    for c in chunks:
        tokens = c.sequence.tokens[c.first : c.first + c.count] + c.draft
        blocks: list[tuple[int, int]] = []
        if (images := c.sequence.images) is not None:
            tokens = images.fill(tokens, c.first, rows)
            blocks = images.blocks(c.first, c.first + c.count)
        outputs = c.rows if all_rows else c.outputs
        add_span(
            batch,
            c.sequence.table,
            tokens,
            c.first,
            outputs,
            blocks,
            c.sequence.encoded,
            len(c.draft),
        )
    if rows:
        batch.set_input(IMAGES, np.concatenate(rows))
    _set_positions(batch, chunks)
    return batch


def reads_images(chunks: list[Chunk]) -> bool:
    """Return whether some of the chunks' tokens stand for rows of images."""
    return any(
        c.sequence.images is not None and c.sequence.images.overlaps(c.first, c.first + c.count)
        for c in chunks
    )


def _set_positions(batch: _core.Batch, chunks: list[Chunk]) -> None:
    """Set positions on several axes, where a sequence has an image that such positions go through."""

    def own(images: PromptImages | None) -> bool:
        return images is not None and images.positions is not None

    if not any(own(c.sequence.images) for c in chunks):
        return
    positions = []
    for c in chunks:
        images = c.sequence.images
        if images is not None and images.positions is not None:
            positions.append(images.row_positions(c.first, c.rows))
        else:
            plain = np.arange(c.first, c.first + c.rows, dtype=np.int32)
            positions.append(plain[:, None])
    axes = max(p.shape[1] for p in positions)
    batch.set_positions(np.concatenate([np.broadcast_to(p, (len(p), axes)) for p in positions]))
