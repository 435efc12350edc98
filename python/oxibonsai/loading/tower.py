"""From a vision tower's name to an opened checkpoint, also of the tower in a folder of safetensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.files.home_paths import with_home
from oxibonsai.loading.model import opened
from oxibonsai.sources.model_folder import find_towers, resolve_tower

Source = str | os.PathLike[str]


def open_tower(source: Source) -> Checkpoint:
    """Open the tower that somebody names.

    Args:
        source: An mmproj file, ``hf:org/repo[:mmproj-FILE.gguf]``, an ``https://`` address, or the folder
            of a whole model as Hugging Face's libraries save it.

    Raises:
        SourceError: There is no such file.
        FormatError, UnsupportedError: It is damaged, or no tower that is known.
    """
    folder = with_home(source)
    return _of_folder(folder) if folder.is_dir() else Checkpoint(resolve_tower(source))


def discovered_mmproj(
    source: Source | None, model: Source
) -> Iterator[tuple[Path, Callable[[], Checkpoint]]]:
    """Yield the towers that may be a model's, the likeliest one first, each with what opens it.

    Args:
        source: What the model was named.
        model: Its file, or its folder of safetensors.
    """
    model = Path(model)
    if model.is_dir():
        from oxibonsai.convert.vision_tower import has_tower

        if has_tower(model):
            yield model, lambda: _of_folder(model)
        return
    for path in find_towers(source, model):
        yield path, lambda path=path: Checkpoint(path)  # type: ignore[misc]


def _of_folder(folder: Path) -> Checkpoint:
    from oxibonsai.convert.vision_tower import plan_tower

    return opened(plan_tower(folder), folder)
