"""The keys of a model's tokenizer, and the defaults of sampling beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.files.vocabulary_keys import (
    OF_ARCHITECTURE,
    encoder_vocabulary_keys,
    vocabulary_keys,
)

# generation_config.json's names, and GGUF's of the same defaults of sampling.
SAMPLING = {
    "temperature": ("temp", "f32", 0.0, 100.0),
    "top_k": ("top_k", "i32", 0, 2**31 - 1),
    "top_p": ("top_p", "f32", 0.0, 1.0),
    "min_p": ("min_p", "f32", 0.0, 1.0),
    "repetition_penalty": ("penalty_repeat", "f32", 0.0, 100.0),
}


def tokenizer_keys(folder: ModelFolder) -> Metadata:
    """Return everything of ``tokenizer.*`` and the defaults of sampling."""
    return vocabulary_keys(folder.path, folder.count("vocab_size")) | _sampling(folder)


def tokenizer_of(architecture: str, *, encoder: bool) -> Callable[[ModelFolder], Metadata]:
    """Return what gives the keys of an architecture's tokenizer, as :func:`tokenizer_keys` does.

    Args:
        architecture: GGUF's name.
        encoder: Whether its vocabulary may be WordPiece.
    """
    usual = encoder_vocabulary_keys if encoder else vocabulary_keys
    keys: Callable[[Path, int], Metadata] = OF_ARCHITECTURE.get(architecture, usual)
    return lambda folder: keys(folder.path, folder.count("vocab_size")) | _sampling(folder)


def _sampling(folder: ModelFolder) -> Metadata:
    """Return defaults of sampling, where the model states them."""
    name = "generation_config.json"
    config = folder.json(name) if (folder.path / name).is_file() else {}
    keys: Metadata = {}
    for name_, (gguf_name, kind, low, high) in SAMPLING.items():
        value = config.get(name_)
        if value is None:
            continue
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole or (kind == "f32" and isinstance(value, float))) or not low <= value <= high:
            raise FormatError(
                f"{folder.path / name}: {name_} is {value!r}, not a number from {low} to {high}"
            )
        keys[f"general.sampling.{gguf_name}"] = (value, kind)
    return keys
