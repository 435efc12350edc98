"""Where oxibonsai keeps what it can make or fetch again."""

from __future__ import annotations

import os
from pathlib import Path

from oxibonsai.errors import RequestError, SourceError


def cache_folder() -> Path:
    """Return ``OXIBONSAI_CACHE``, else ``oxibonsai`` in the user's cache folder."""
    if chosen := os.environ.get("OXIBONSAI_CACHE"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "oxibonsai"
    try:
        return Path.home() / ".cache" / "oxibonsai"
    except RuntimeError as e:
        raise SourceError("there is no home folder to keep models in; set OXIBONSAI_CACHE") from e


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
