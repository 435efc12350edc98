"""The rule by which tenants share what there is only so much of: queues, threads, watchers."""

from __future__ import annotations

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
