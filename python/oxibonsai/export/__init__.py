"""Loaded models to folders: safetensors as Hugging Face's libraries read them, or one GGUF file."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import RequestError
from oxibonsai.export.config_json import generation_json, inverse_of
from oxibonsai.export.safetensors_writer import DTYPES, Exported, Floats, write_safetensors
from oxibonsai.export.sentences import projections, sentence_files
from oxibonsai.files.whole_file import follow_links, is_replaced, make_room, put_in_place
from oxibonsai.split import write_whole
from oxibonsai.tokenizer.files.saving import tokenizer_files

Format = Literal["safetensors", "gguf"]

__all__ = ["Format", "save_model"]


def save_model(
    checkpoint: Checkpoint,
    folder: str | os.PathLike[str],
    *,
    format: Format = "safetensors",
    dtype: str = "float32",
    learnt: Mapping[str, Floats] | None = None,
) -> None:
    """Write a model into a folder, which is made where it is not there.

    Args:
        checkpoint: Of the model.
        folder: Gets ``model.gguf``, the file's tensors and metadata as they are; or
            ``model.safetensors``, ``config.json``, ``generation_config.json`` and the tokenizer's files.
        format: ``"safetensors"``, with quantized weights decoded, or ``"gguf"``.
        dtype: Of the matrices in safetensors: ``"float32"``, which loses nothing, ``"float16"`` or
            ``"bfloat16"``. Vectors stay float32.
        learnt: Values of parameters in the place of the model's, by their names in safetensors.

    Raises:
        RequestError: There is no such format or dtype.
        FormatError: A value is too large for the dtype.
        UnsupportedError: Hugging Face's formats have no place for something in the model.
        OSError: The folder can't be written.
    """
    if format not in get_args(Format):
        raise RequestError(f"format is {format!r}; it is one of {', '.join(get_args(Format))}")
    if dtype not in DTYPES:
        raise RequestError(f"dtype is {dtype!r}; it is one of {', '.join(DTYPES)}")
    place = Path(folder)
    if format == "gguf":
        with _folder(place):
            write_whole(checkpoint.file, place / "model.gguf")
        return
    # All of the small files are put together before anything is written.
    texts = tokenizer_files(checkpoint)
    generation, inverse = generation_json(checkpoint), inverse_of(checkpoint, dtype)
    tensors = [_with_values(t, learnt or {}) for t in inverse.parameters()]
    if inverse.generates:
        texts["generation_config.json"] = _text(generation)
    texts["config.json"] = _text(inverse.config)
    dense: dict[str, Exported] = {}
    if inverse.makes_vectors:
        texts |= sentence_files(checkpoint)
        dense = projections(checkpoint)
    with _folder(place), _together(place) as part:
        write_safetensors(part / "model.safetensors", tensors, dtype)
        for name, text in texts.items():
            (part / name).parent.mkdir(exist_ok=True)
            (part / name).write_text(text, "utf-8")
        for name, matrix in dense.items():
            write_safetensors(part / name / "model.safetensors", [matrix], dtype)
        checkpoint.file.check_unchanged()


def _with_values(tensor: Exported, learnt: Mapping[str, Floats]) -> Exported:
    """Return a parameter with what was learnt, where it was."""
    if tensor.name not in learnt:
        return tensor
    values = learnt[tensor.name]
    return replace(tensor, values=lambda: values, packed=None)


@contextmanager
def _together(place: Path) -> Iterator[Path]:
    """Yield a folder whose files move into ``place`` when all of them are complete, or not at all."""
    make_room(place / "model.safetensors")
    part, moved = Path(tempfile.mkdtemp(dir=place, suffix=".part")), list[Path]()
    try:
        yield part
        for file in sorted(f for f in part.rglob("*") if f.is_file()):
            target = place / file.relative_to(part)
            with _folder(target.parent):
                put_in_place(file, target)
                moved.append(target)
    except BaseException:
        for file in moved:  # some without the others are no model
            if is_replaced(file):
                follow_links(file).unlink(missing_ok=True)
            if file.parent != place:
                with suppress(OSError):  # it has other files
                    file.parent.rmdir()
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _folder(place: Path) -> Iterator[None]:
    """Make a folder; on an error, the folders that it made and that are still empty are removed."""
    made = [folder for folder in (place, *place.parents) if not folder.exists()]
    try:
        place.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):  # of one that has files
            for folder in made:
                folder.rmdir()
        raise


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
