"""Whose a request is to the engines: its share of them, and of what they keep."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.engine import Options
from oxibonsai.server.access import ANONYMOUS, current_owner


def of_present_owner(options: Options, *, share_cache: bool) -> Options:
    """Options of the owner that the present request acts for; without keys there is but one.

    Args:
        options: A salt in them is kept: it separates requests of one owner.
        share_cache: Let owners find in the cache what others have sent.
    """
    who = current_owner()
    if who is None or who == ANONYMOUS:
        return options
    salt = options.cache_salt if share_cache else f"{who}:{options.cache_salt}"
    return replace(options, tenant=who, cache_salt=salt)
