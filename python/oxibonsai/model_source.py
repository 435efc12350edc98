"""From a model's name to an opened checkpoint, also of a folder as Hugging Face's libraries save it."""

from __future__ import annotations

import os
from pathlib import Path

from oxibonsai.cache_folder import cache_folder
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import SourceError
from oxibonsai.scratch_folder import scratch_folder
from oxibonsai.sources import resolve

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def open_model(
    source: str | os.PathLike[str] | None, quant_type: str = "", *, vocabulary_only: bool = False
) -> Checkpoint:
    """Opens what ``source`` names.

    Args:
        source: What :func:`oxibonsai.sources.resolve` takes, or a folder with ``config.json`` and
            safetensors and without a GGUF file.
        quant_type: Layout of the tensors of type id 42, where a GGUF file leaves it open.
        vocabulary_only: Leave out a folder's weights.

    Raises:
        SourceError: There is no such model, or no room to open a folder.
        FormatError, UnsupportedError: As :class:`Checkpoint` and :func:`oxibonsai.convert.convert`.
    """
    folder = None if source is None else _weights_folder(os.fspath(source))
    if folder is None:
        return Checkpoint(resolve(source), quant_type)
    return _open_folder(folder, vocabulary_only)


def _weights_folder(source: str) -> Path | None:
    """The folder of safetensors that is meant, if one is."""
    if not source or source.startswith(("hf:", "pip:")):
        return None
    path = Path(os.path.expanduser(source))
    try:
        names = {p.name for p in path.iterdir()} if path.is_dir() else set()
    except OSError as e:
        raise SourceError(f"cannot look at {path}: {e.strerror}") from e
    wanted = "config.json" in names and not names.isdisjoint(_WEIGHTS)
    return path if wanted and not any(n.endswith(".gguf") for n in names) else None


def _open_folder(folder: Path, vocabulary_only: bool) -> Checkpoint:
    """Writes the same bytes as ``oxibonsai convert`` to a file that loses its name once it is mapped.

    The file lies in the cache folder, not in memory: its pages can then leave memory as those of any
    model file, which matters once the weights are packed. Its room on the disk is given back when
    the checkpoint is.
    """
    from oxibonsai.convert import convert

    place = cache_folder()
    try:
        with scratch_folder(place) as scratch:
            file = scratch / f"{folder.resolve().name}.gguf"
            convert(folder, file, weights=not vocabulary_only)
            _set_time(file, folder)
            checkpoint = Checkpoint(file)
            checkpoint.remember_identity(folder)
            return checkpoint
    except OSError as e:
        raise SourceError(f"cannot open the folder {folder} through {place}: {e}") from e


def _set_time(file: Path, folder: Path) -> None:
    """The time of the folder's last change: what is kept of the model is found again by it."""
    newest = max(p.stat().st_mtime_ns for p in folder.iterdir())
    os.utime(file, ns=(newest, newest))
