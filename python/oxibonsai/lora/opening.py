"""From what a user names to adapters that fit a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from oxibonsai.cache_folder import cache_folder
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import RequestError, SourceError
from oxibonsai.lora.adapter import Adapter
from oxibonsai.lora.gguf_file import read_adapter
from oxibonsai.scratch_folder import scratch_folder
from oxibonsai.sources import resolve

Source = str | os.PathLike[str]
# One adapter, or several, each alone or with its scale.
LoraChoice = Source | Sequence[Source | tuple[Source, float]]

_PEFT_CONFIG = "adapter_config.json"
_LARGEST_SCALE = 1e6  # with the largest alpha the product is finite


def open_adapters(choice: LoraChoice, base: Checkpoint) -> tuple[Adapter, ...]:
    """Opens adapters for a model.

    Args:
        choice: A GGUF file as llama.cpp's converter writes it, ``hf:...``, or a folder that PEFT
            saved; or a list of such, each by itself or with a scale: ``["a.gguf", ("b.gguf", 0.5)]``.
        base: The model.

    Raises:
        SourceError: There is no such adapter.
        FormatError: A file is damaged, or is for another model.
        UnsupportedError: An adapter is more than low-rank pairs of linear layers.
        RequestError: A scale is no number from -1e6 to 1e6.
    """
    listed = [choice] if isinstance(choice, str | os.PathLike) else choice
    found = []
    for item in listed:
        source, scale = (item[0], item[1]) if isinstance(item, tuple) else (item, 1.0)
        found.append(_open(os.fspath(source), _checked(scale, source), base))
    return tuple(found)


def split_scaled(text: str) -> tuple[str, float]:
    """``FILE:SCALE``, as llama-server's ``--lora-scaled`` has it.

    Raises:
        RequestError: There is no scale, or it is out of range.
    """
    source, _, number = text.rpartition(":")
    try:
        scale = float(number)
    except ValueError as e:
        raise RequestError(f"{text!r} must be FILE:SCALE, a number after the last colon") from e
    return source, _checked(scale, source)


def is_peft_folder(source: Source) -> bool:
    """Whether it is an adapter's folder as PEFT saves it."""
    return (Path(os.path.expanduser(source)) / _PEFT_CONFIG).is_file()


def _checked(scale: float, source: Source) -> float:
    number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if not number or not abs(scale) <= _LARGEST_SCALE:
        raise RequestError(
            f"the scale of adapter {os.fspath(source)} is {scale!r}; it must be a number from "
            f"{-_LARGEST_SCALE:g} to {_LARGEST_SCALE:g}"
        )
    return float(scale)


def _open(source: str, scale: float, base: Checkpoint) -> Adapter:
    if not is_peft_folder(source):
        return read_adapter(resolve(source), source, scale, base)
    from oxibonsai.convert.lora import convert_lora

    folder, place = Path(os.path.expanduser(source)), cache_folder()
    try:
        # The file loses its name once it is mapped, as that of any folder which is opened.
        with scratch_folder(place) as scratch:
            file = scratch / "adapter.gguf"
            convert_lora(folder, file, base.config())
            return read_adapter(file, source, scale, base)
    except OSError as e:
        raise SourceError(f"cannot open the folder {folder} through {place}: {e}") from e
