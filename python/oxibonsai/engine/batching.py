"""From the chunks of a step to the rows of a batch."""

from __future__ import annotations

from oxibonsai import _core
from oxibonsai.engine.kv_cache import KvCache, PageTable
from oxibonsai.engine.scheduler import Chunk


def reserve(cache: KvCache, table: PageTable, first: int, rows: int) -> None:
    """Makes sure that positions ``first`` to ``first + rows - 1`` have pages of their own.

    Raises:
        CapacityError: Too few pages are free.
    """
    cache.extend(table, first + rows)
    cache.make_writable(table, first, first + rows - 1)


def make_batch(chunks: list[Chunk], *, all_rows: bool = False) -> _core.Batch:
    """Rows of all chunks; outputs are all of them, or those from which a token is chosen."""
    batch = _core.Batch()
    for c in chunks:
        table = c.sequence.table
        batch.add(
            c.sequence.tokens[c.first : c.first + c.count] + c.draft,
            first=c.first,
            pages=table.pages,
            pool=table.pool,
            outputs=c.rows if all_rows else c.outputs,
        )
    return batch
