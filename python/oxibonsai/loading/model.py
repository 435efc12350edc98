"""From a model's name to an opened checkpoint, also of a folder as Hugging Face's libraries save it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import SourceError
from oxibonsai.files.cache_folder import cache_folder
from oxibonsai.files.scratch_folder import scratch_folder
from oxibonsai.sources import resolve, source_text
from oxibonsai.sources.choice import NoGguf
from oxibonsai.sources.model_folder import model_folder, model_name


def open_model(
    source: str | os.PathLike[str] | None, quant_type: str = "", *, vocabulary_only: bool = False
) -> Checkpoint:
    """Open what ``source`` names.

    Args:
        source: What :func:`oxibonsai.sources.resolve` takes; or a folder, repository or package
            without a GGUF file but with ``config.json`` and safetensors or ONNX, or an ONNX file
            (also ``hf:org/repo:FILE.onnx``).
        quant_type: Layout of the tensors of type id 42, where a GGUF file leaves it open.
        vocabulary_only: Leave out a folder's weights.

    Raises:
        SourceError: There is no such model, or no room to open a folder.
        RequestError: The source is neither a string nor a path.
        FormatError, UnsupportedError: As :class:`Checkpoint` and
            :func:`oxibonsai.convert.language_model.convert`.
    """
    named = os.environ.get("OXIBONSAI_MODEL", "") if source is None else source_text(source)
    if not named.endswith(".onnx"):
        try:
            return Checkpoint(resolve(source), quant_type)
        except NoGguf as e:
            if not e.convertible:
                raise
    with ExitStack() as stack:
        weights = stack.enter_context(model_folder(named))
        checkpoint = _open_weights(weights, model_name(named), vocabulary_only)
        checkpoint.keep(stack.pop_all())
        return checkpoint


def _open_weights(weights: Path, name: str, vocabulary_only: bool) -> Checkpoint:
    from oxibonsai.convert.language_model import convert

    return converted(
        weights, lambda file: convert(weights, file, name=name, weights=not vocabulary_only)
    )


def converted(weights: Path, convert: Callable[[Path], list[str]]) -> Checkpoint:
    """Open what ``oxibonsai convert`` would write, in a file that loses its name once it is mapped.

    The file lies in the cache folder, not in memory: its pages can then leave memory as those of any
    model file, which matters once the weights are packed. Its room on the disk is given back when
    the checkpoint is.

    Args:
        weights: The folder; errors name it.
        convert: Writes the file, and says what the user should know.
    """
    place = cache_folder()
    try:
        with scratch_folder(place) as scratch:
            file = scratch / f"{weights.resolve().name}.gguf"
            for note in convert(file):
                warnings.warn(note, stacklevel=3)
            _set_time(file, weights)
            checkpoint = Checkpoint(file)
            checkpoint.remember_identity(weights)
            return checkpoint
    except OSError as e:
        raise SourceError(f"cannot open {weights} through {place}: {e}") from e


def _set_time(file: Path, weights: Path) -> None:
    """Set the file's time to that of the last change of the weights, by which cached forms are found."""
    folder = weights if weights.is_dir() else weights.parent
    files = [*folder.iterdir(), *folder.glob("onnx/*")]
    newest = max(p.stat().st_mtime_ns for p in files)
    os.utime(file, ns=(newest, newest))
