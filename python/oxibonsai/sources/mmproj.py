"""Find a model's vision tower."""

from __future__ import annotations

import os
from pathlib import Path

from oxibonsai.errors import SourceError
from oxibonsai.sources import resolve
from oxibonsai.sources.choice import towers


def find_towers(
    source: str | os.PathLike[str] | None, model: Path, *, progress: bool | None = None
) -> list[Path]:
    """Vision towers (llama.cpp's mmproj files) that may be a model's, the likeliest one first.

    Args:
        source: What the model was named.
        model: Its file.
        progress: Whether to show progress of a download on stderr; None: when it is a terminal.

    Returns:
        Those in the model's folder; of a repository on the hub the likeliest, which is fetched.

    Raises:
        SourceError: The hub refuses to give the file.
    """
    text = "" if source is None else os.fspath(source)
    if text.startswith("hf:"):
        from oxibonsai.sources.hub import hub_tower

        found = hub_tower(text.removeprefix("hf:"), model, progress=progress)
        return [] if found is None else [found]
    try:
        files = {p.name: p for p in model.parent.iterdir() if p.is_file()}
    except OSError:
        return []
    return [files[name] for name in towers(files, model.name)]


def resolve_tower(source: str | os.PathLike[str], *, progress: bool | None = None) -> Path:
    """Return the file of a vision tower that somebody names.

    Args:
        source: A file, ``hf:org/repo[:mmproj-FILE.gguf]`` or an ``https://`` address.
        progress: As for :func:`find_towers`.

    Raises:
        SourceError: There is no such file.
    """
    text = os.fspath(source)
    if text.startswith("hf:"):
        from oxibonsai.sources.hub import hub_tower

        found = hub_tower(text.removeprefix("hf:"), Path(), progress=progress)
        if found is None:
            raise SourceError(f"{text} has no vision tower of that name (mmproj-*.gguf)")
        return found
    return resolve(source, progress=progress)
