"""Types of settings: lists, switches, further names of flags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_settings import NoDecode


@dataclass(frozen=True)
class Flag:
    """Further spellings of a field's flag, for compatibility with llama-server."""

    aliases: tuple[str, ...] = ()


def _split(value: Any) -> Any:
    """Split ``a,b`` into two items; the items of a sequence may contain commas too."""
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, (list, tuple)) and all(isinstance(p, str) for p in parts):
        return [item.strip() for p in parts for item in p.split(",") if item.strip()]
    return parts


def _switch(value: Any) -> Any:
    """Accept llama-server's words for on and off, in addition to pydantic's."""
    words = {"enabled": True, "disabled": False, "": False}
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


# An environment variable holds a list as comma-separated words, not as JSON.
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Paths = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_split)]
Switch = Annotated[bool, BeforeValidator(_switch)]
