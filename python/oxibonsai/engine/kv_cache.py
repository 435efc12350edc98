"""The state of sequences: pages of keys and values, a slot of recurrent state, and their reuse."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections import OrderedDict
from collections.abc import Sequence as Items
from dataclasses import replace

from oxibonsai import _core
from oxibonsai.devices import KvPages, Slots
from oxibonsai.engine.page_table import PageTable
from oxibonsai.engine.slot_cache import Slot, SlotCache
from oxibonsai.errors import CapacityError

PAGE_POSITIONS = _core.PAGE_POSITIONS


class KvCache:
    """Pages of one or several types under one budget of bytes, and slots of recurrent state.

    A full page is known by a hash of all tokens up to its end. Sequences with equal beginnings share
    such pages by count of their users; an unused one is kept until its room is needed, the
    least recently used first. A page with several users is copied before one of them writes to it.

    Recurrent state cannot be shared or taken back, but copied. Snapshots of a slot are kept at borders
    of pages, under the same hashes; a beginning is of use only up to a border with a snapshot.

    Args:
        pools: Memory of the pages, one pool a type; none where the model has only recurrent state.
        budget: Bytes that all used and kept pages may take.
        keep: Whether pages and snapshots are kept and shared by their tokens.
        slots: For recurrent state; None where the model has none.
    """

    def __init__(
        self,
        pools: Items[KvPages],
        budget: int,
        *,
        keep: bool = True,
        slots: SlotCache | None = None,
    ) -> None:
        self.pools = pools
        self.budget = budget
        self.keep = keep
        self.slots = slots
        self._free = [list(range(p.pages - 1, -1, -1)) for p in pools]
        self._users = [[0] * p.pages for p in pools]
        self._page_of: list[dict[bytes, int]] = [{} for _ in pools]
        self._key_of: list[dict[int, bytes]] = [{} for _ in pools]
        self._idle: OrderedDict[tuple[int, int], None] = OrderedDict()  # oldest first
        self._num_idle = [0 for _ in pools]
        self._taken = 0  # bytes of used and idle pages

    @property
    def used_bytes(self) -> int:
        """Bytes of pages that sequences use."""
        idle = zip(self._num_idle, self.pools, strict=True)
        return self._taken - sum(count * pool.page_bytes for count, pool in idle)

    @property
    def idle_pages(self) -> int:
        """Cached pages that no sequence uses."""
        return len(self._idle)

    @property
    def slot_memory(self) -> Slots | None:
        """Return the memory of recurrent state that a pass of the model reads and writes."""
        return None if self.slots is None else self.slots.memory

    @property
    def has_slot(self) -> bool:
        """Whether one more sequence may have a slot, where the model has recurrent state."""
        return self.slots is None or self.slots.has_room

    def free_pages(self, pool: int = 0) -> int:
        """Pages of a pool that could be taken now; a model that needs none never runs out of them."""
        if not self.pools:
            return sys.maxsize
        room = (self.budget - self.used_bytes) // self.pools[pool].page_bytes
        return min(len(self._free[pool]) + self._num_idle[pool], room)

    def extend(self, table: PageTable, positions: int) -> None:
        """Add pages to a table until it holds ``positions`` positions.

        Raises:
            CapacityError: Too few are free; the table is left as it was.
        """
        needed = -(-positions // PAGE_POSITIONS) - len(table.pages)
        if needed <= 0 or not self.pools:
            return
        if needed > self.free_pages(table.pool):
            raise CapacityError(
                f"the KV cache is full: {needed} more pages of {PAGE_POSITIONS} positions needed, "
                f"{self.free_pages(table.pool)} free"
            )
        table.pages.extend(self._take(table.pool) for _ in range(needed))

    def release(self, table: PageTable) -> None:
        """Return up the pages and slots of a table."""
        self._truncate(table, 0)
        for slot in (table.slot, table.backup):
            if slot is not None and self.slots is not None:
                self.slots.give_back(slot.index)
        table.slot = table.backup = table.newest = None

    def attach(self, table: PageTable) -> None:
        """Return a table a slot, where it has none and the model has recurrent state.

        Raises:
            CapacityError: No slot is free.
        """
        if self.slots is None or table.slot is not None:
            return
        state = self.slots.find((table.pool, table.keys[-1])) if table.keys else None
        index = self.slots.take()
        self.slots.copy(state, index)
        if state is None:
            self._truncate(table, 0)
        table.slot = Slot(index, len(table.keys) * PAGE_POSITIONS)

    def fork(self, table: PageTable, positions: int) -> PageTable:
        """Return a table with the state of the first ``positions`` positions.

        With recurrent state it may cover fewer: :meth:`PageTable.reach` tells.

        Raises:
            CapacityError: No slot is free.
        """
        slot = None
        if self.slots is not None:
            positions, state = self._nearest(self.slots, table, positions)
            slot = Slot(self.slots.take(), positions)
            self.slots.copy(state, slot.index)
        count = -(-positions // PAGE_POSITIONS)
        for page in table.pages[:count]:
            self._users[table.pool][page] += 1
        keys = table.keys[: positions // PAGE_POSITIONS]
        return PageTable(table.pool, table.pages[:count], keys, slot)

    def rewind(self, table: PageTable, positions: int) -> int:
        """Brings a table back to its first ``positions`` positions, or as near as there is a state.

        A backup is given up.

        Returns:
            How many positions it covers now.
        """
        slots, slot = self.slots, table.slot
        if slots is not None:
            reached, state = (0, None) if slot is None else self._nearest(slots, table, positions)
            if slot is not None:
                slots.copy(state, slot.index)
                slot.position = reached
            positions = reached
            if table.backup is not None:
                slots.give_back(table.backup.index)
                table.backup = None
        self._truncate(table, positions)
        return positions

    def back_up(self, table: PageTable) -> None:
        """Keep the state of now for :meth:`rewind`, which else finds one at a border of pages only.

        Raises:
            CapacityError: No slot is free for it.
        """
        if self.slots is None or table.slot is None:
            return
        if table.backup is None:
            table.backup = Slot(self.slots.take())
        self.slots.copy(table.slot.index, table.backup.index)
        table.backup.position = table.slot.position

    def border_state(self, table: PageTable, positions: int) -> tuple[int, bytes]:
        """Return the state at the last page border that has one: the border and the slot's bytes.

        Args:
            table: Of a sequence; it is not changed.
            positions: The border is not behind them.

        Returns:
            Positions up to the border, and the bytes of the recurrent state there; no bytes where the
            model has none.
        """
        border = positions // PAGE_POSITIONS * PAGE_POSITIONS
        if self.slots is None:
            return border, b""
        at_border = replace(table, backup=None)
        if table.slot is not None and table.slot.position % PAGE_POSITIONS != 0:
            at_border.slot = None
        border, state = self._nearest(self.slots, at_border, border)
        return border, b"" if state is None else self.slots.memory.read(state)

    def chunk_end(self, first: int, count: int, total: int) -> int:
        """Where a chunk of a prompt has to end, so that a snapshot can be taken.

        Args:
            first: The chunk's first position.
            count: Its positions, at most.
            total: Positions of the prompt.
        """
        end = first + count
        if self.slots is None or not self.keep or self.slots.plan.snapshots == 0:
            return end
        interval = self.slots.plan.interval
        last = (total - 1) // PAGE_POSITIONS * PAGE_POSITIONS
        end = min(end, (first // interval + 1) * interval)
        return last if first < last < end else end

    def make_writable(self, table: PageTable, first: int, last: int) -> None:
        """Copy the pages of positions ``first`` to ``last`` that others use or may find.

        Raises:
            CapacityError: No page is free for a copy.
        """
        for i in range(first // PAGE_POSITIONS, last // PAGE_POSITIONS + 1 if self.pools else 0):
            page = table.pages[i]
            # A full page is known by its tokens; after a rewind others may follow.
            known = i >= len(table.keys) and page in self._key_of[table.pool]
            if known or self._users[table.pool][page] > 1:
                copy = self._take(table.pool)
                self.pools[table.pool].copy(page, copy)
                self._drop(table.pool, page)
                table.pages[i] = copy

    def find(self, tokens: Items[int], pool: int = 0, root: bytes = b"") -> PageTable:
        """Return a table of the kept pages that hold the beginning of ``tokens``; it has no slot yet.

        At least one token is left to compute: the logits after the last one are wanted. With recurrent
        state it ends at a border with a snapshot, which :meth:`attach` then reads.

        Args:
            tokens: The sequence's.
            pool: Where to look.
            root: What else the pages depend on: an adapter, and with whom they may be shared.
        """
        table = self._find_pages(tokens, pool, root)
        if self.slots is not None:
            keys = table.keys
            while keys and not self.slots.has((pool, keys[-1])):
                keys.pop()
            self._truncate(table, len(keys) * PAGE_POSITIONS)
        return table

    def _find_pages(self, tokens: Items[int], pool: int, root: bytes) -> PageTable:
        table = PageTable(pool)
        for i in range((len(tokens) - 1) // PAGE_POSITIONS if self.keep else 0):
            key = page_key(table.keys[-1] if table.keys else root, tokens, i)
            if not self.pools:
                table.keys.append(key)
                continue
            page = self._page_of[pool].get(key)
            if page is None:
                break
            if self._users[pool][page] == 0:
                del self._idle[(pool, page)]
                self._num_idle[pool] -= 1
            self._users[pool][page] += 1
            table.pages.append(page)
            table.keys.append(key)
        return table

    def remember(
        self,
        table: PageTable,
        tokens: Items[int],
        computed: int,
        root: bytes = b"",
        *,
        generated: bool = False,
    ) -> None:
        """Enters the full pages of the first ``computed`` positions into the prefix cache.

        Args:
            table: Of a sequence.
            tokens: The sequence's.
            computed: How many of them the state covers.
            root: As of :meth:`find`.
            generated: Whether the last of them was generated, and not read. Of a text that grows by
                single tokens the newest snapshot is kept, not one at every border.
        """
        if not self.keep:
            return
        for i in range(len(table.keys), computed // PAGE_POSITIONS):
            key = page_key(table.keys[-1] if table.keys else root, tokens, i)
            table.keys.append(key)
            if not self.pools:
                continue
            page = table.pages[i]
            if key not in self._page_of[table.pool] and page not in self._key_of[table.pool]:
                self._page_of[table.pool][key] = page
                self._key_of[table.pool][page] = key
        if self.slots is not None and computed > 0 and computed % PAGE_POSITIONS == 0:
            self._take_snapshot(self.slots, table, computed, generated)

    def forget(self, tokens: Items[int], pool: int = 0, root: bytes = b"") -> int:
        """Drop the unused pages and the snapshots of a text; arguments as of :meth:`find`.

        Returns:
            How many positions those were.
        """
        # One more, so that the last page is found too.
        table = self._find_pages([*tokens, 0], pool, root)
        pages, keys = list(table.pages), list(table.keys)
        self.release(table)
        dropped = 0  # positions up to the last snapshot
        for i, key in enumerate(keys, 1):
            if self.slots is not None and self.slots.forget((pool, key)):
                dropped = i * PAGE_POSITIONS
        unused = [page for page in pages if (pool, page) in self._idle]
        for page in unused:
            self._forget(pool, page)
        return len(unused) * PAGE_POSITIONS if self.pools else dropped

    def clear(self) -> None:
        """Drop every unused page and every snapshot from the prefix cache."""
        if self.slots is not None:
            self.slots.clear()
        for pool, page in list(self._idle):
            self._forget(pool, page)

    def _truncate(self, table: PageTable, positions: int) -> None:
        """Drop the pages of later positions, and the keys of pages that are not full then."""
        kept = -(-positions // PAGE_POSITIONS)
        for page in reversed(table.pages[kept:]):  # a page is of no use once an earlier one is gone
            self._drop(table.pool, page)
        del table.pages[kept:]
        del table.keys[positions // PAGE_POSITIONS :]

    def _nearest(
        self, slots: SlotCache, table: PageTable, positions: int
    ) -> tuple[int, int | None]:
        """Return the longest prefix of a table, of at most ``positions``, with a state, and its slot."""
        reached, state = 0, None
        for slot in (table.slot, table.backup):
            if slot is not None and reached < slot.position <= positions:
                reached, state = slot.position, slot.index
        for border in range(min(len(table.keys), positions // PAGE_POSITIONS), 0, -1):
            if border * PAGE_POSITIONS <= reached:
                break
            index = slots.find((table.pool, table.keys[border - 1]))
            if index is not None:
                return border * PAGE_POSITIONS, index
        return reached, state

    def _take_snapshot(
        self, slots: SlotCache, table: PageTable, computed: int, generated: bool
    ) -> None:
        """Keep the state at the border of a page, if that is what the table's slot holds."""
        if table.slot is None or table.slot.position != computed:
            return
        key = table.keys[-1]
        if generated and table.newest not in (None, key):
            slots.forget((table.pool, table.newest))
            table.newest = None
        slots.keep((table.pool, key), table.slot.index)
        if generated and computed % slots.plan.interval != 0:
            table.newest = key

    def _take(self, pool: int) -> int:
        size = self.pools[pool].page_bytes
        while not self._free[pool] or self._taken + size > self.budget:
            # Least recently used first; only of this type if it has no free page numbers left.
            idle = (k for k in self._idle if self._free[pool] or k[0] == pool)
            oldest = next(idle, None)
            if oldest is None:
                raise CapacityError("the KV cache is full: no page is free")
            self._forget(*oldest)
        page = self._free[pool].pop()
        self._users[pool][page] = 1
        self._taken += size
        return page

    def _drop(self, pool: int, page: int) -> None:
        self._users[pool][page] -= 1
        if self._users[pool][page] > 0:
            return
        if page in self._key_of[pool]:
            self._idle[(pool, page)] = None
            self._num_idle[pool] += 1
        else:
            self._give_back(pool, page)

    def _forget(self, pool: int, page: int) -> None:
        del self._idle[(pool, page)]
        self._num_idle[pool] -= 1
        key = self._key_of[pool].pop(page)
        del self._page_of[pool][key]
        if self.slots is not None:
            self.slots.forget((pool, key))
        self._give_back(pool, page)

    def _give_back(self, pool: int, page: int) -> None:
        self._free[pool].append(page)
        self._taken -= self.pools[pool].page_bytes
        if len(self.pools) > 1:
            self.pools[pool].release(page)  # another type may need the memory


def page_key(parent: bytes, tokens: Items[int], index: int) -> bytes:
    """Hash of page ``index`` of a text, given that of the page before it."""
    run = array("q", tokens[index * PAGE_POSITIONS : (index + 1) * PAGE_POSITIONS])
    return hashlib.blake2b(parent + run.tobytes(), digest_size=16).digest()
