"""Where oxibonsai keeps what it can make or fetch again."""

from __future__ import annotations

import os
from pathlib import Path

from oxibonsai.errors import SourceError


def cache_folder() -> Path:
    """``OXIBONSAI_CACHE``, else ``oxibonsai`` in the user's cache folder."""
    if chosen := os.environ.get("OXIBONSAI_CACHE"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "oxibonsai"
    try:
        return Path.home() / ".cache" / "oxibonsai"
    except RuntimeError as e:
        raise SourceError("there is no home folder to keep models in; set OXIBONSAI_CACHE") from e
