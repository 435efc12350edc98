"""The rule by which tenants share what there is only so much of: queues, threads, watchers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping


def exceeds_share(held: Mapping[str, int], tenant: str, most: int) -> bool:
    """Return whether a tenant must be refused: all is taken, and not too little of it is its own.

    Each of ``n`` tenants may hold an ``n``-th, and at least one, even where others have taken all.
    What others hold already is not taken away from them, so that fewer than twice as many are held,
    or one by each tenant.

    Args:
        held: What each tenant holds, the one that is asked for included.
        tenant: Whose request it is.
        most: How many there are; with 0, nothing is ever given.
    """
    if sum(held.values()) <= most:
        return False
    tenants = sum(count > 0 for count in held.values())
    return held[tenant] > max(most // tenants, min(1, most))


class Shares:
    """Counts what tenants hold of something; safe to use from several threads.

    Args:
        most: How many there are; see :func:`exceeds_share`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, tenant: str) -> bool:
        """Take one for a tenant; return whether it may have it."""
        with self._lock:
            held = self._held + Counter([tenant])
            if exceeds_share(held, tenant, self._most):
                return False
            self._held = held
            return True

    def give_back(self, tenant: str) -> None:
        """Give back what :meth:`take` took."""
        with self._lock:
            self._held -= Counter([tenant])
