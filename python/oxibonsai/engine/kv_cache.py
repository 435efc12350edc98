"""Reference counts of the pages of the KV cache, and their reuse by equal prefixes."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from oxibonsai import _core
from oxibonsai.devices import KvPages
from oxibonsai.errors import CapacityError

PAGE_POSITIONS = _core.PAGE_POSITIONS


@dataclass
class PageTable:
    """The pages of one sequence: page i holds positions 64 i to 64 i + 63.

    Attributes:
        pool: Which of the cache's pools they belong to.
        pages: Their numbers.
        keys: Of the leading pages that are known by their tokens.
    """

    pool: int = 0
    pages: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)


class KvCache:
    """Pages of one or several types under one budget of bytes.

    A full page is known by a hash of all tokens up to its end. Sequences with equal beginnings share
    such pages by count of their users; an unused one is kept until its room is needed, the
    least recently used first. A page with several users is copied before one of them writes to it.

    Args:
        pools: Memory of the pages, one pool a type.
        budget: Bytes that all used and kept pages may take.
        keep: Whether pages are kept and shared by their tokens.
    """

    def __init__(self, pools: Items[KvPages], budget: int, *, keep: bool = True) -> None:
        self.pools = pools
        self.budget = budget
        self.keep = keep
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

    def free_pages(self, pool: int = 0) -> int:
        """Pages of a pool that could be taken now."""
        room = (self.budget - self.used_bytes) // self.pools[pool].page_bytes
        return min(len(self._free[pool]) + self._num_idle[pool], room)

    def extend(self, table: PageTable, positions: int) -> None:
        """Adds pages to a table until it holds ``positions`` positions.

        Raises:
            CapacityError: Too few are free; the table is left as it was.
        """
        needed = -(-positions // PAGE_POSITIONS) - len(table.pages)
        if needed <= 0:
            return
        if needed > self.free_pages(table.pool):
            raise CapacityError(
                f"the KV cache is full: {needed} more pages of {PAGE_POSITIONS} positions needed, "
                f"{self.free_pages(table.pool)} free"
            )
        table.pages.extend(self._take(table.pool) for _ in range(needed))

    def release(self, table: PageTable) -> None:
        """Gives up all pages of a table."""
        for page in reversed(table.pages):  # a page is of no use once an earlier one is gone
            self._drop(table.pool, page)
        table.pages.clear()
        table.keys.clear()

    def fork(self, table: PageTable, positions: int) -> PageTable:
        """A table that shares the pages of the first ``positions`` positions."""
        count = -(-positions // PAGE_POSITIONS)
        for page in table.pages[:count]:
            self._users[table.pool][page] += 1
        return PageTable(table.pool, table.pages[:count], table.keys[: positions // PAGE_POSITIONS])

    def make_writable(self, table: PageTable, first: int, last: int) -> None:
        """Copies the pages of positions ``first`` to ``last`` that others use too.

        Raises:
            CapacityError: No page is free for a copy.
        """
        for i in range(first // PAGE_POSITIONS, last // PAGE_POSITIONS + 1):
            page = table.pages[i]
            if self._users[table.pool][page] > 1:
                copy = self._take(table.pool)
                self.pools[table.pool].copy(page, copy)
                self._drop(table.pool, page)
                table.pages[i] = copy

    def find(self, tokens: Items[int], pool: int = 0, root: bytes = b"") -> PageTable:
        """A table of the kept pages that hold the beginning of ``tokens``.

        At least one token is left to compute: the logits after the last one are wanted.

        Args:
            tokens: The sequence's.
            pool: Where to look.
            root: What else the pages depend on: an adapter, and with whom they may be shared.
        """
        table = PageTable(pool)
        for i in range((len(tokens) - 1) // PAGE_POSITIONS if self.keep else 0):
            key = page_key(table.keys[-1] if table.keys else root, tokens, i)
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
        self, table: PageTable, tokens: Items[int], computed: int, root: bytes = b""
    ) -> None:
        """Enters the full pages of the first ``computed`` positions into the prefix cache."""
        if not self.keep:
            return
        for i in range(len(table.keys), computed // PAGE_POSITIONS):
            key = page_key(table.keys[-1] if table.keys else root, tokens, i)
            table.keys.append(key)
            page = table.pages[i]
            if key not in self._page_of[table.pool] and page not in self._key_of[table.pool]:
                self._page_of[table.pool][key] = page
                self._key_of[table.pool][page] = key

    def forget(self, tokens: Items[int], pool: int = 0, root: bytes = b"") -> int:
        """Drops the unused pages of a text from the prefix cache; arguments as of :meth:`find`.

        Returns:
            How many positions those were.
        """
        table = self.find([*tokens, 0], pool, root)  # one more, so that the last page is found too
        pages = list(table.pages)
        self.release(table)
        unused = [page for page in pages if (pool, page) in self._idle]
        for page in unused:
            self._forget(pool, page)
        return len(unused) * PAGE_POSITIONS

    def clear(self) -> None:
        """Drops every unused page from the prefix cache."""
        for pool, page in list(self._idle):
            self._forget(pool, page)

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
        del self._page_of[pool][self._key_of[pool].pop(page)]
        self._give_back(pool, page)

    def _give_back(self, pool: int, page: int) -> None:
        self._free[pool].append(page)
        self._taken -= self.pools[pool].page_bytes
        if len(self.pools) > 1:
            self.pools[pool].release(page)  # another type may need the memory


def page_key(parent: bytes, tokens: Items[int], index: int) -> bytes:
    """Hash of page ``index`` of a text, given that of the page before it."""
    run = array("i", tokens[index * PAGE_POSITIONS : (index + 1) * PAGE_POSITIONS])
    return hashlib.blake2b(parent + run.tobytes(), digest_size=16).digest()
