"""Sets the tenant of a request: its fair share of the engines and its part of the prefix cache."""

from __future__ import annotations

from dataclasses import replace

from oxibonsai.engine import Options
from oxibonsai.server.access import ANONYMOUS, current_owner


def for_current_owner(options: Options, *, share_cache: bool) -> Options:
    """Set tenant and cache salt to the owner of the current request, if the server has API keys.

    Args:
        options: Their cache salt is kept, which separates requests of one owner.
        share_cache: Share the prefix cache between owners.
    """
    who = current_owner()
    if who is None or who == ANONYMOUS:
        return options
    salt = options.cache_salt if share_cache else f"{who}:{options.cache_salt}"
    return replace(options, tenant=who, cache_salt=salt)
