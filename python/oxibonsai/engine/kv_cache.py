"""The state of sequences: pages of keys and values, a slot of recurrent state, and their reuse."""

from __future__ import annotations

import sys
from collections.abc import Sequence as Items

from oxibonsai.devices import KvPages, Slots
from oxibonsai.engine.page_pools import PagePools
from oxibonsai.engine.page_table import PAGE_POSITIONS, PageTable, Prefix, page_key
from oxibonsai.engine.slot_cache import Slot, SlotCache
from oxibonsai.engine.state_store import Entry, StateKey, StateStore
from oxibonsai.errors import CapacityError

# A turn that begins so few tokens behind a snapshot gets none of its own: a step costs more.
_LEAST_STEP = 16


class KvCache:
    """Pages of one or several types under one budget of bytes, and slots of recurrent state.

    A full page is known by a hash of all tokens up to its end. Sequences with equal beginnings share
    such pages by count of their users; an unused one is kept until its room is needed, the
    least recently used first. A page with several users is copied before one of them writes to it.

    Recurrent state cannot be shared or taken back, but copied. Snapshots of a slot are kept in a store: of
    where turns of a conversation end and of where a text ended, at any position, with the page that is
    partly written there. A beginning is of use only up to a snapshot. Pages that the pools have no more
    room for go to the store, too.

    Args:
        pools: Memory of the pages, one pool a type; none where the model has only recurrent state.
        budget: Bytes that all used and kept pages may take.
        keep: Whether pages and snapshots are kept and shared by their tokens.
        slots: For recurrent state; None where the model has none.
        store: Keeps snapshots, and pages that leave the pools; None: nothing does.
    """

    def __init__(
        self,
        pools: Items[KvPages],
        budget: int,
        *,
        keep: bool = True,
        slots: SlotCache | None = None,
        store: StateStore | None = None,
    ) -> None:
        self.pools = pools
        self.keep = keep
        self.slots = slots
        self.store = store
        self.pages = PagePools(pools, budget, self._save)

    @property
    def budget(self) -> int:
        """Bytes that all used and kept pages may take."""
        return self.pages.budget

    @property
    def used_bytes(self) -> int:
        """Return the bytes of pages that sequences use."""
        return self.pages.used_bytes

    @property
    def idle_pages(self) -> int:
        """Cached pages that no sequence uses."""
        return self.pages.num_unused

    @property
    def takes_snapshots(self) -> bool:
        """Whether snapshots of recurrent state are kept."""
        return self.slots is not None and self.store is not None

    @property
    def slot_memory(self) -> Slots | None:
        """Return the memory of recurrent state that a pass of the model reads and writes."""
        return None if self.slots is None else self.slots.memory

    @property
    def has_slot(self) -> bool:
        """Whether one more sequence may have a slot, where the model has recurrent state."""
        return self.slots is None or self.slots.has_room

    def free_pages(self, pool: int = 0) -> int:
        """Return how many pages of a pool are free; a model that needs none never runs out of them."""
        return self.pages.num_free(pool)

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
        for _ in range(needed):
            page = self.pages.take(table.pool)
            if self.store is not None and self.store.folder is not None:
                # A snapshot may hold a page that is partly written: no other text's on disk.
                self.pools[table.pool].write(page, bytes(self.pools[table.pool].page_bytes))
            table.pages.append(page)

    def release(self, table: PageTable) -> None:
        """Return up the pages and slots of a table."""
        self._truncate(table, 0)
        if self.slots is not None:
            self._give_back_states(self.slots, table)
            if table.slot is not None:
                self.slots.give_back(table.slot.index)
        table.slot = None

    def attach(self, table: PageTable) -> None:
        """Give a table a slot, where it has none and the model has recurrent state.

        Raises:
            CapacityError: No slot is free.
        """
        if self.slots is None or table.slot is not None:
            return
        table.slot = Slot(self.slots.take())
        self._truncate(table, 0)

    def fork(self, table: PageTable, positions: int) -> PageTable:
        """Return a table with the state of the first ``positions`` positions.

        With recurrent state it may cover fewer: :meth:`PageTable.reach` tells.

        Raises:
            CapacityError: No slot is free.
        """
        slot = None
        if self.slots is not None:
            positions, state = self._nearest(table, positions)
            slot = Slot(self.slots.take(), positions)
            self._bring(self.slots, slot, state)
        count = -(-positions // PAGE_POSITIONS)
        for page in table.pages[:count]:
            self.pages.share(table.pool, page)
        keys = table.keys[: positions // PAGE_POSITIONS]
        snapshots = [s for s in table.snapshots if s[0] <= positions]
        return PageTable(table.pool, table.pages[:count], keys, slot, snapshots=snapshots)

    def rewind(self, table: PageTable, positions: int) -> int:
        """Bring a table back to its first ``positions`` positions, or as near as there is a state.

        The table's further states are given up.

        Returns:
            How many positions it covers now.
        """
        slots, slot = self.slots, table.slot
        if slots is not None:
            reached, state = (0, None) if slot is None else self._nearest(table, positions)
            own = next((s for s in table.states if s.index == state), None)
            if own is not None and slot is not None:  # it becomes the table's slot
                table.states.remove(own)
                table.states.append(slot)
                table.slot = own
            elif slot is not None:
                self._bring(slots, slot, state)
                slot.position = reached
            positions = reached
            self._give_back_states(slots, table)
        self._truncate(table, positions)
        return positions

    def back_up(self, table: PageTable) -> None:
        """Keep the state of now for :meth:`rewind`, which else finds one at a border of pages only.

        Raises:
            CapacityError: No slot is free for it.
        """
        if self.slots is None or table.slot is None:
            return
        if not table.states:
            table.states.append(Slot(self.slots.take()))
        self.slots.copy(table.slot.index, table.states[0].index)
        table.states[0].position = table.slot.position

    def take_states(self, table: PageTable, count: int) -> int:
        """Take slots for the states after so many rows, to which :meth:`rewind` may go back.

        Returns:
            For how many rows there are; all where the model has no recurrent state.
        """
        if self.slots is None or table.slot is None:
            return count
        while len(table.states) < count and self.slots.has_spare:
            table.states.append(Slot(self.slots.take()))
        return min(count, len(table.states))

    def _give_back_states(self, slots: SlotCache, table: PageTable) -> None:
        for state in table.states:
            slots.give_back(state.index)
        table.states = []

    def read(self, table: PageTable, positions: int) -> tuple[int, list[bytes], bytes]:
        """Return the state of a sequence, or as much of its beginning as can be read.

        Args:
            table: Of the sequence; it is not changed.
            positions: At most so many.

        Returns:
            How many positions they cover, the bytes of their pages and of the slot at their end. Without
            recurrent state that is whole pages: the rest of a page may hold what another sequence left.
        """
        held = b""
        if self.slots is None:
            positions -= positions % PAGE_POSITIONS
        else:
            positions, state = self._nearest(table, positions)
            held = self.slots.memory.read(state) if isinstance(state, int) else state or b""
        count = -(-positions // PAGE_POSITIONS)
        pages = [self.pools[table.pool].read(page) for page in table.pages[:count]]
        return positions, pages, held

    def read_kept(self, prefix: Prefix) -> tuple[int, list[bytes], bytes]:
        """Return the state of a prefix, as :meth:`read`; of no positions where some of it is gone."""
        nothing: tuple[int, list[bytes], bytes] = (0, [], b"")
        snapshot = self._stored(prefix.snapshot)
        if prefix.snapshot is not None and snapshot is None:
            return nothing
        pages = []
        for key in prefix.keys if self.pools else ():
            page = self.pages.find(prefix.pool, key)
            stored = None if page is not None else self._stored(self._page_key(prefix.pool, key))
            if page is not None:
                pages.append(self.pools[prefix.pool].read(page))
            elif stored is not None:
                pages.append(stored.parts[0])
            else:
                return nothing
        if snapshot is None:
            return prefix.positions, pages, b""
        state, tail = snapshot.parts
        return prefix.positions, [*pages, tail] if tail else pages, state

    def stops(self, prompt: int, borders: Items[int] = (), image_end: int = 0) -> tuple[int, ...]:
        """Return the positions of a prompt where its state is kept, beside those at intervals.

        That is where the first turn ends, where the last one begins and ends, and behind the last image, of
        which another question may be asked; where nothing is known of turns, at the last border of a
        page. A client that changes the end of a conversation goes on from one of them.

        Args:
            prompt: Its tokens.
            borders: Where turns begin.
            image_end: Where the last image ends; 0: there is none.
        """
        if not self.takes_snapshots:
            return ()
        inside = sorted({b for b in borders if 0 < b < prompt})
        last = (prompt - 1) // PAGE_POSITIONS * PAGE_POSITIONS
        chosen = {*inside[:1], *inside[-2:]}
        if 0 < image_end < prompt:
            chosen.add(image_end)
        if not inside or last - inside[-1] >= PAGE_POSITIONS:
            chosen.add(last)
        return tuple(sorted(chosen))

    def chunk_end(self, table: PageTable, first: int, count: int, stops: Items[int] = ()) -> int:
        """Return where a chunk has to end, so that a snapshot can be taken.

        Args:
            table: Of the sequence.
            first: The chunk's first position.
            count: Its positions, at most.
            stops: As of :meth:`stops`.
        """
        return min(first + count, self.next_stop(table, first, stops))

    def next_stop(self, table: PageTable, position: int, stops: Items[int] = ()) -> int:
        """Return the next position behind another one where a snapshot is to be taken."""
        if self.slots is None or self.store is None:
            return sys.maxsize
        interval = self.slots.plan.interval
        least = table.snapshots[-1][0] + _LEAST_STEP if table.snapshots else 0
        near = (s for s in stops if s > position and (s >= least or s == stops[-1]))
        return min(next(near, sys.maxsize), (position // interval + 1) * interval)

    def make_writable(self, table: PageTable, first: int, last: int) -> None:
        """Copy the pages of positions ``first`` to ``last`` that others use or may find.

        Raises:
            CapacityError: No page is free for a copy.
        """
        for i in range(first // PAGE_POSITIONS, last // PAGE_POSITIONS + 1 if self.pools else 0):
            page = table.pages[i]
            # A full page is known by its tokens; after a rewind others may follow.
            known = i >= len(table.keys) and self.pages.is_known(table.pool, page)
            if known or self.pages.users(table.pool, page) > 1:
                copy = self.pages.take(table.pool)
                self.pools[table.pool].copy(page, copy)
                self.pages.drop(table.pool, page)
                table.pages[i] = copy

    def find(self, tokens: Items[int], pool: int = 0, root: bytes = b"") -> PageTable:
        """Return a table with the state that is kept of the beginning of ``tokens``.

        At least one token is left to compute: the logits after the last one are wanted.

        Args:
            tokens: The sequence's.
            pool: Where to look.
            root: What else the state depends on: an adapter, and with whom it may be shared.

        Raises:
            CapacityError: No slot is free, or no page for what comes from the store.
        """
        while True:
            prefix = self.lookup(tokens, pool, root)
            if prefix.positions == 0:
                return PageTable(pool)
            table = self.open(prefix)
            if table is not None:
                return table

    def find_at(
        self, tokens: Items[int], position: int, root: bytes
    ) -> tuple[PageTable, bytes] | None:
        """Return a table with the state at one position, and what :meth:`keep_snapshot` was given there.

        Args:
            tokens: The sequence's, up to the position at least.
            position: Where the state is.
            root: As of :meth:`find`.

        Raises:
            CapacityError: No page is free for what comes from the store.
        """
        count, length = divmod(position, PAGE_POSITIONS)
        keys: list[bytes] = []
        for i in range(count):
            keys.append(page_key(keys[-1] if keys else root, tokens, i))
        tail = tokens[position - length : position]
        key = self._snapshot_key(0, keys[-1] if keys else root, tail)
        entry = self._stored(key)
        table = None if entry is None else self.open(Prefix(0, keys, key, position))
        return None if entry is None or table is None else (table, entry.parts[0])

    def lookup(self, tokens: Items[int], pool: int = 0, root: bytes = b"") -> Prefix:
        """Return what is kept of the beginning of ``tokens``, and take nothing.

        Arguments as of :meth:`find`.
        """
        keys: list[bytes] = []
        for i in range((len(tokens) - 1) // PAGE_POSITIONS if self.keep else 0):
            key = page_key(keys[-1] if keys else root, tokens, i)
            if not self._has_page(pool, key):
                break
            keys.append(key)
        if self.slots is None:
            return Prefix(pool, keys, None, len(keys) * PAGE_POSITIONS)
        if self.store is None:
            return Prefix(pool)
        for count in range(len(keys), -1, -1):
            parent, at = keys[count - 1] if count else root, count * PAGE_POSITIONS
            for length in self.store.lengths(self._type(pool), parent):
                if at + length >= len(tokens):
                    continue
                snapshot = self._snapshot_key(pool, parent, tokens[at : at + length])
                if snapshot in self.store:
                    return Prefix(pool, keys[:count], snapshot, at + length)
        return Prefix(pool)

    def shared_pages(self, prefix: Prefix) -> int:
        """Return how many pages of a prefix sequences hold now, so that they take no more room."""
        pool = prefix.pool
        pages = (self.pages.find(pool, key) for key in prefix.keys)
        return sum(page is not None and self.pages.users(pool, page) > 0 for page in pages)

    def open(self, prefix: Prefix) -> PageTable | None:
        """Return a table with the state of a prefix; None where some of it turns out to be gone.

        Raises:
            CapacityError: No slot is free, or no page for what comes from the store.
        """
        snapshot = self._stored(prefix.snapshot)
        if prefix.snapshot is not None and snapshot is None:
            return None
        table = PageTable(prefix.pool)
        if self.slots is not None:
            table.slot = Slot(self.slots.take(), prefix.positions)
        # Those in the pool first: what comes from the store takes the place of others.
        held = [self.pages.hold(prefix.pool, key) for key in prefix.keys] if self.pools else []
        table.pages = [page for page in held if page is not None]
        try:
            complete = self._load(table, prefix, held)
            if complete and snapshot is not None:
                self._load_snapshot(table, prefix, snapshot)
        except CapacityError:
            self.release(table)
            raise
        if not complete:
            self.release(table)
            return None
        return table

    def remember(
        self,
        table: PageTable,
        tokens: Items[int],
        computed: int,
        root: bytes = b"",
        stops: Items[int] = (),
    ) -> bool:
        """Enter the full pages of the first ``computed`` positions into the prefix cache.

        Args:
            table: Of a sequence.
            tokens: The sequence's.
            computed: How many of them the state covers.
            root: As of :meth:`find`.
            stops: As of :meth:`stops`.

        Returns:
            Whether a snapshot was taken, since the state is at a stop.
        """
        if not self.keep:
            return False
        for i in range(len(table.keys), computed // PAGE_POSITIONS):
            key = page_key(table.keys[-1] if table.keys else root, tokens, i)
            table.keys.append(key)
            if self.pools:
                self.pages.know(table.pool, table.pages[i], key)
        slot = table.slot
        if slot is None or slot.position != computed or computed == 0:
            return False
        if self.next_stop(table, computed - 1, stops) != computed:
            return False
        return self._keep_slot(table, slot, tokens, root)

    def keep_end(self, table: PageTable, tokens: Items[int], computed: int, root: bytes) -> int:
        """Take a snapshot of the last state of a sequence that is known; arguments as of :meth:`remember`.

        Returns:
            Its position; 0 where none was taken.
        """
        slots = [] if table.slot is None else [table.slot, *table.states]
        known = [slot for slot in slots if 0 < slot.position <= computed]
        newest = max(known, key=lambda slot: slot.position, default=None)
        if newest is None or not self._keep_slot(table, newest, tokens, root):
            return 0
        return newest.position

    def keep_snapshot(
        self, table: PageTable, tokens: Items[int], position: int, root: bytes, state: bytes
    ) -> bool:
        """Keep a state under the tokens up to there, with the page that is partly written.

        Args:
            table: Of a sequence; its full pages up to there are known.
            tokens: The sequence's.
            position: Where the state is.
            root: As of :meth:`find`.
            state: Its bytes.

        Returns:
            Whether there is a store that keeps it.
        """
        if self.store is None or not self.keep:
            return False
        count, length = divmod(position, PAGE_POSITIONS)
        parent = table.keys[count - 1] if count else root
        key = self._snapshot_key(table.pool, parent, tokens[position - length : position])
        if key not in self.store:
            tail = b""
            if length and self.pools:
                tail = self.pools[table.pool].read(table.pages[count])
            self.store.put(key, Entry((state, tail), parent, length))
        if not table.snapshots or table.snapshots[-1][0] < position:
            table.snapshots.append((position, key))
        return True

    def forget(self, tokens: Items[int], pool: int = 0, root: bytes = b"") -> int:
        """Drop the unused pages and the snapshots of a text; arguments as of :meth:`find`.

        Returns:
            How many positions those were.
        """
        parents = [root]
        for i in range(len(tokens) // PAGE_POSITIONS):
            parents.append(page_key(parents[-1], tokens, i))
        last = 0  # position of the last snapshot
        for i, parent in enumerate(parents if self.store is not None else ()):
            last = max(last, self._forget_stored(tokens, pool, parent, i * PAGE_POSITIONS))
        pages = [self.pages.find(pool, key) for key in parents[1:]]
        unused = [p for p in pages if p is not None and self.pages.users(pool, p) == 0]
        for page in unused:
            self.pages.forget(pool, page)
        return max(last, len(unused) * PAGE_POSITIONS)

    def clear(self) -> None:
        """Drop every unused page and every snapshot from the prefix cache."""
        if self.store is not None:
            self.store.clear()
        for pool, page in self.pages.unused:
            self.pages.forget(pool, page)

    def close(self) -> None:
        """Have the store write to disk what it keeps, with the unused pages of the pools."""
        if self.store is None or self.store.folder is None:
            return
        for pool, page in self.pages.unused:
            self.pages.evict(pool, page)
        self.store.flush()

    def _truncate(self, table: PageTable, positions: int) -> None:
        """Drop the pages of later positions, and the keys of pages that are not full then."""
        kept = -(-positions // PAGE_POSITIONS)
        for page in reversed(table.pages[kept:]):  # a page is of no use once an earlier one is gone
            self.pages.drop(table.pool, page)
        del table.pages[kept:]
        del table.keys[positions // PAGE_POSITIONS :]
        while table.snapshots and table.snapshots[-1][0] > positions:
            table.snapshots.pop()

    def _nearest(self, table: PageTable, positions: int) -> tuple[int, int | bytes | None]:
        """Return the longest prefix of a table, of at most ``positions``, with a state.

        Returns:
            Its positions, and the slot with the state or its bytes; 0 and None where there is none.
        """
        reached, state = 0, None
        for slot in (table.slot, *table.states):
            if slot is not None and reached < slot.position <= positions:
                reached, state = slot.position, slot.index
        for position, key in reversed(table.snapshots):
            if position <= reached:
                break
            if position <= positions and (stored := self._stored(key)) is not None:
                return position, stored.parts[0]
        return reached, state

    @staticmethod
    def _bring(slots: SlotCache, slot: Slot, state: int | bytes | None) -> None:
        """Bring a slot to a state; None, that of no tokens, needs no bytes."""
        if isinstance(state, int):
            slots.copy(state, slot.index)
        elif state is not None:
            slots.memory.write(slot.index, state)

    def _keep_slot(self, table: PageTable, slot: Slot, tokens: Items[int], root: bytes) -> bool:
        if self.slots is None or self.store is None:
            return False
        if table.snapshots and table.snapshots[-1][0] == slot.position:
            return True
        state = self.slots.memory.read(slot.index)
        return self.keep_snapshot(table, tokens, slot.position, root, state)

    def _type(self, pool: int) -> str:
        return self.pools[pool].type if self.pools else ""

    def _page_key(self, pool: int, key: bytes) -> StateKey:
        return StateKey("page", self._type(pool), key)

    def _snapshot_key(self, pool: int, parent: bytes, tail: Items[int]) -> StateKey:
        # What a drafting layer keeps is found with the model's: no prompt is looked up there.
        kind = "draft" if self.slots is None else "snapshot"
        return StateKey(kind, self._type(pool), page_key(parent, tail, 0))

    def _has_page(self, pool: int, key: bytes) -> bool:
        """Return whether a full page is in the pool or store; a model that needs none has all."""
        if not self.pools or self.pages.find(pool, key) is not None:
            return True
        return self.store is not None and self._page_key(pool, key) in self.store

    def _stored(self, key: StateKey | None) -> Entry | None:
        """Return an entry of the store; None where there is none, or no store."""
        return None if key is None or self.store is None else self.store.get(key)

    def _load(self, table: PageTable, prefix: Prefix, held: list[int | None]) -> bool:
        """Add the pages that the pool lacks from the store; return whether all were there."""
        pool = prefix.pool
        for i, key in enumerate(prefix.keys if self.pools else ()):
            if held[i] is not None:
                continue
            stored = self._stored(self._page_key(pool, key))
            if stored is None:
                return False
            page = self.pages.take(pool)
            self.pools[pool].write(page, stored.parts[0])
            table.pages.insert(i, page)
            self.pages.know(pool, page, key)
        table.keys = list(prefix.keys)
        return True

    def _load_snapshot(self, table: PageTable, prefix: Prefix, snapshot: Entry) -> None:
        assert prefix.snapshot is not None
        assert self.store is not None
        state, tail = snapshot.parts
        if tail:
            table.pages.append(self.pages.take(prefix.pool))
            self.pools[prefix.pool].write(table.pages[-1], tail)
        if self.slots is not None and table.slot is not None:
            self.slots.memory.write(table.slot.index, state)
        table.snapshots.append((prefix.positions, prefix.snapshot))
        self.store.counts.hits += self.slots is not None

    def _forget_stored(self, tokens: Items[int], pool: int, parent: bytes, at: int) -> int:
        """Drop the snapshots behind a run of full pages, and its last page, from the store.

        Returns:
            The position of the last snapshot; 0 where there was none.
        """
        assert self.store is not None
        last = 0
        self.store.drop(self._page_key(pool, parent))
        for length in self.store.lengths(self._type(pool), parent):
            tail = tokens[at : at + length]
            if len(tail) == length and self.store.drop(self._snapshot_key(pool, parent, tail)):
                last = max(last, at + length)
        return last

    def _save(self, pool: int, page: int, key: bytes) -> None:
        """Put a page that leaves its pool into the store, where there is one."""
        if self.store is not None and not self.store.touch(self._page_key(pool, key)):
            self.store.put(self._page_key(pool, key), Entry((self.pools[pool].read(page),)))
