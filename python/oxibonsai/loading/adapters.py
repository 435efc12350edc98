"""From what a user names to adapters that fit a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home
from oxibonsai.lora import Adapter, read_adapter
from oxibonsai.models import read_config
from oxibonsai.sources import resolve

Source = str | os.PathLike[str]
# One adapter, or several, each alone or with its scale.
LoraChoice = Source | Sequence[Source | tuple[Source, float]]

_PEFT_CONFIG = "adapter_config.json"
_LARGEST_SCALE = 1e6  # with the largest alpha the product is finite


def open_adapters(choice: LoraChoice | None, base: Checkpoint) -> tuple[Adapter, ...]:
    """Open adapters for a model.

    Args:
        choice: A GGUF file as llama.cpp's converter writes it, ``hf:...``, or a folder that PEFT
            saved; or a list of such, each by itself or with a scale: ``["a.gguf", ("b.gguf", 0.5)]``;
            None: none.
        base: The model.

    Raises:
        SourceError: There is no such adapter.
        FormatError: A file is damaged, or is for another model.
        UnsupportedError: An adapter is more than low-rank pairs of linear layers.
        RequestError: A scale is no number from -1e6 to 1e6, or what is listed is no adapter.
    """
    return tuple(_open(source, scale, base) for source, scale in chosen_adapters(choice))


def chosen_adapters(choice: LoraChoice | None) -> list[tuple[str, float]]:
    """Return the adapters that a user names, each with its scale.

    Raises:
        RequestError: A scale is no number from -1e6 to 1e6, or what is listed is no adapter.
    """
    if choice is None:
        return []
    listed = choice if isinstance(choice, list | tuple) else [choice]
    return [_source_and_scale(item) for item in listed]


def split_scaled(text: str) -> tuple[str, float]:
    """Return ``FILE:SCALE``, as llama-server's ``--lora-scaled`` has it.

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
    """Return whether it is an adapter's folder as PEFT saves it."""
    try:
        return (with_home(source) / _PEFT_CONFIG).is_file()
    except OSError:  # a name that is too long, a folder that is closed
        return False


def _source_and_scale(item: Any) -> tuple[str, float]:
    source, scale = item if isinstance(item, tuple) and len(item) == 2 else (item, 1.0)
    if not isinstance(source, str | os.PathLike):
        raise RequestError(
            f"lora has {item!r}; it must be a list of files, each by itself or as (file, scale)"
        )
    return os.fspath(source), _checked(scale, source)


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
        return read_adapter(GgufModel.open(resolve(source)), source, scale, base)
    from oxibonsai.convert.lora import plan_lora

    planned = plan_lora(with_home(source), read_config(base))
    return read_adapter(planned.reader(), source, scale, base)
