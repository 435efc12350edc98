"""From the chunks of a step to the rows of a batch."""

from __future__ import annotations

from collections.abc import Sequence as Items

from oxibonsai import _core
from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.scheduler import Chunk


def reserve(cache: KvCache, table: PageTable, first: int, rows: int) -> None:
    """Makes sure that positions ``first`` to ``first + rows - 1`` have pages of their own, and a slot.

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
) -> None:
    """Adds tokens of one sequence to a batch; its slot holds the state after them from then on.

    Args:
        batch: Of the next step.
        table: The sequence's, with pages for them; see :func:`reserve`.
        tokens: Those of positions ``first`` and on.
        first: 0, or the position that the state of the sequence has reached.
        outputs: How many of the last rows want a result, or which rows.
    """
    slot = table.slot
    if slot is not None:
        if first not in (0, slot.position):
            raise RuntimeError(
                f"a step begins at position {first} of a sequence whose recurrent state has read "
                f"{slot.position} tokens"
            )
        slot.position = first + len(tokens)
    batch.add(
        tokens,
        first=first,
        pages=table.pages,
        pool=table.pool,
        slot=-1 if slot is None else slot.index,
        outputs=outputs,
    )


def make_batch(chunks: list[Chunk], *, all_rows: bool = False) -> _core.Batch:
    """Rows of all chunks; outputs are all of them, or those from which a token is chosen."""
    batch = _core.Batch()
    for c in chunks:
        tokens = c.sequence.tokens[c.first : c.first + c.count] + c.draft
        add_span(
            batch, c.sequence.table, tokens, c.first, outputs=c.rows if all_rows else c.outputs
        )
    return batch
