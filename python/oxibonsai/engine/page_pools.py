"""Pages of keys and values: which are free, how many sequences use each, and what they hold."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Items

from oxibonsai.devices import KvPages
from oxibonsai.errors import CapacityError


class PagePools:
    """Pages of one or several types under one budget of bytes.

    A full page is known by a hash of all tokens up to its end. It is kept after its last user has
    dropped it, until its room is needed, the least recently used first.

    Args:
        memory: Of the pages, one pool a type; none where the model has only recurrent state.
        budget: Bytes that all used and kept pages may take.
        save: Called with a pool, an unused page and its hash before the page leaves the pool.
    """

    def __init__(
        self, memory: Items[KvPages], budget: int, save: Callable[[int, int, bytes], None]
    ) -> None:
        self.memory = memory
        self.budget = budget
        self._save = save
        self._free = [list(range(p.pages - 1, -1, -1)) for p in memory]
        self._users = [[0] * p.pages for p in memory]
        self._page_of: list[dict[bytes, int]] = [{} for _ in memory]
        self._key_of: list[dict[int, bytes]] = [{} for _ in memory]
        self._unused: OrderedDict[tuple[int, int], None] = OrderedDict()  # oldest first
        self._num_unused = [0 for _ in memory]
        self._taken = 0  # bytes of used and unused pages

    @property
    def used_bytes(self) -> int:
        """The bytes of pages that sequences use."""
        unused = zip(self._num_unused, self.memory, strict=True)
        return self._taken - sum(count * pool.page_bytes for count, pool in unused)

    @property
    def unused(self) -> list[tuple[int, int]]:
        """The pools and numbers of known pages that no sequence uses, the oldest first."""
        return list(self._unused)

    @property
    def num_unused(self) -> int:
        """How many known pages no sequence uses."""
        return len(self._unused)

    def num_free(self, pool: int) -> int:
        """Return how many pages of a pool can be taken; a model that needs none never runs out of them."""
        if not self.memory:
            return sys.maxsize
        room = (self.budget - self.used_bytes) // self.memory[pool].page_bytes
        return min(len(self._free[pool]) + self._num_unused[pool], room)

    def take(self, pool: int) -> int:
        """Return a page with one user, whatever it holds.

        Raises:
            CapacityError: None is free.
        """
        size = self.memory[pool].page_bytes
        while not self._free[pool] or self._taken + size > self.budget:
            # Least recently used first; only of this type if it has no free page numbers left.
            unused = (k for k in self._unused if self._free[pool] or k[0] == pool)
            oldest = next(unused, None)
            if oldest is None:
                raise CapacityError("the KV cache is full: no page is free")
            self.evict(*oldest)
        page = self._free[pool].pop()
        self._users[pool][page] = 1
        self._taken += size
        return page

    def share(self, pool: int, page: int) -> None:
        """Count one more user of a page that is in use."""
        self._users[pool][page] += 1

    def drop(self, pool: int, page: int) -> None:
        """Count one user less; keep a page without users where it is known."""
        self._users[pool][page] -= 1
        if self._users[pool][page] > 0:
            return
        if page in self._key_of[pool]:
            self._unused[(pool, page)] = None
            self._num_unused[pool] += 1
        else:
            self._give_back(pool, page)

    def users(self, pool: int, page: int) -> int:
        """Return how many sequences use a page."""
        return self._users[pool][page]

    def know(self, pool: int, page: int, key: bytes) -> None:
        """Enter a full page under its hash."""
        if key not in self._page_of[pool] and page not in self._key_of[pool]:
            self._page_of[pool][key] = page
            self._key_of[pool][page] = key

    def is_known(self, pool: int, page: int) -> bool:
        """Return whether a page is entered under a hash."""
        return page in self._key_of[pool]

    def find(self, pool: int, key: bytes) -> int | None:
        """Return the page with this hash; None where the pool has none."""
        return self._page_of[pool].get(key) if self.memory else None

    def hold(self, pool: int, key: bytes) -> int | None:
        """Return the page with this hash, with one more user; None where the pool has none."""
        page = self.find(pool, key)
        if page is None:
            return None
        if self._users[pool][page] == 0:
            del self._unused[(pool, page)]
            self._num_unused[pool] -= 1
        self._users[pool][page] += 1
        return page

    def evict(self, pool: int, page: int) -> None:
        """Save an unused page, and take it out of its pool."""
        self._save(pool, page, self._key_of[pool][page])
        self.forget(pool, page)

    def forget(self, pool: int, page: int) -> None:
        """Take an unused page out of its pool."""
        del self._unused[(pool, page)]
        self._num_unused[pool] -= 1
        key = self._key_of[pool].pop(page)
        del self._page_of[pool][key]
        self._give_back(pool, page)

    def _give_back(self, pool: int, page: int) -> None:
        self._free[pool].append(page)
        self._taken -= self.memory[pool].page_bytes
        if len(self.memory) > 1:
            self.memory[pool].release(page)  # another type may need the memory
