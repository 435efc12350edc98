"""Which sequence owns which page of the KV cache."""

from __future__ import annotations

from oxibonsai import _core
from oxibonsai.errors import CapacityError


class PageAllocator:
    """Hands out pages of ``_core.PAGE_SLOTS`` positions; the lowest free one first."""

    def __init__(self, pages: int) -> None:
        self._free = list(range(pages - 1, -1, -1))

    @property
    def free(self) -> int:
        """Pages that nobody owns."""
        return len(self._free)

    def extend(self, pages: list[int], positions: int) -> None:
        """Adds pages to a table until it holds ``positions`` positions.

        Raises:
            CapacityError: Too few are free; the table is left as it was.
        """
        needed = -(-positions // _core.PAGE_SLOTS) - len(pages)
        if needed > len(self._free):
            raise CapacityError(
                f"the KV cache is full: {needed} more pages of {_core.PAGE_SLOTS} positions needed, "
                f"{len(self._free)} free"
            )
        pages.extend(self._free.pop() for _ in range(needed))

    def release(self, pages: list[int]) -> None:
        """Takes all pages of a table back."""
        self._free.extend(reversed(pages))
        pages.clear()
