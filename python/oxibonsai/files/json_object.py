"""JSON files that hold one object."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from oxibonsai.errors import FormatError

_MOST_BYTES = 256 << 20


def read_object(path: Path) -> dict[str, Any]:
    """Return the object that a JSON file holds.

    Raises:
        FormatError: The file is missing, can't be read or holds something else.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise FormatError(f"{path} is too large")
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as e:
        raise FormatError(f"{path.parent} has no {path.name}: the file is missing") from e
    except (OSError, ValueError, RecursionError) as e:
        raise FormatError(f"cannot read {path}: {e}") from e
    if not isinstance(value, dict):
        raise FormatError(f"{path} is no JSON object")
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object, as ``object_pairs_hook``; ValueError for a key that is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice[:80]!r} is there twice in one object")
    return found
