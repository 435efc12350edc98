"""Where oxibonsai keeps what it can make or fetch again, and what it cannot."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from oxibonsai.errors import RequestError, SourceError


def cache_folder() -> Path:
    """Return ``OXIBONSAI_CACHE``, else ``oxibonsai`` in the user's cache folder."""
    if chosen := os.environ.get("OXIBONSAI_CACHE"):
        return Path(chosen)
    from platformdirs import user_cache_path

    if folder := _inside_home(user_cache_path):
        return folder
    raise SourceError("there is no home folder to keep models in; set OXIBONSAI_CACHE")


def state_folder() -> Path:
    """Return ``oxibonsai`` in the user's folder for state, such as a server's store.

    Raises:
        RequestError: There is no home folder.
    """
    from platformdirs import user_state_path

    if folder := _inside_home(user_state_path):
        return folder
    raise RequestError("there is no home folder to keep the server's state in; set --state-dir")


def _inside_home(find: Callable[..., Path]) -> Path | None:
    try:
        folder = find("oxibonsai", appauthor=False)
    except RuntimeError:  # of later versions
        return None
    return folder if folder.is_absolute() else None  # "~/.cache", where nothing stands for ~


def cache_limit(variable: str, default_gb: float) -> int:
    """Return the bytes that a cache may take: an environment variable in GB, or the default.

    Raises:
        RequestError: The variable is no number of GB.
    """
    text = os.environ.get(variable, "")
    try:
        size = float(text or default_gb)
    except ValueError:
        size = -1.0
    if not 0.0 <= size < 1e6:
        raise RequestError(f"{variable} is {text!r}; it must be a number of GB")
    return int(size * 1e9)
