"""``config.json`` and ``generation_config.json`` of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from oxibonsai.architectures.encoder import EncoderFamily
from oxibonsai.architectures.schema.family import Family
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.text_tokenizer import SAMPLING
from oxibonsai.errors import UnsupportedError
from oxibonsai.export.inverse import Inverse
from oxibonsai.models import ModelConfig, read_config
from oxibonsai.tokenizer import Tokenizer


def config_json(checkpoint: Checkpoint, dtype: str) -> dict[str, Any]:
    """Return the configuration that all versions of transformers read; see :func:`inverse_of`."""
    return inverse_of(checkpoint, dtype).config


def inverse_of(checkpoint: Checkpoint, dtype: str) -> Inverse:
    """Return a model read backwards, with its configuration.

    Raises:
        UnsupportedError: transformers does not have the architecture, or its configuration no place for
            something in the file.
    """
    c = read_config(checkpoint)
    family = saved_as(c)
    if family is None:
        raise UnsupportedError(
            f"{checkpoint.path}: this model of architecture {c.architecture} can be saved as gguf only"
        )
    try:
        own = family.write_config_json(c.of_family)
    except UnsupportedError as e:
        raise UnsupportedError(f"{checkpoint.path}: {e}") from e
    told = {**own, "torch_dtype": dtype, **_special_or_none(checkpoint)}
    told = family.with_special_tokens(told)
    return Inverse(checkpoint, shortened(told), family)  # refuses one of another model


def saved_as(c: ModelConfig) -> Family[Any] | None:
    """Return the family under whose names a model is saved; None: transformers has none for it."""
    family = c.family.saved_as or c.family
    scores = isinstance(family, EncoderFamily) and family.prefix
    return family if family.kind and (c.classifier is None or scores) else None


def _special_or_none(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the special tokens of a file, null without a vocabulary: transformers has defaults."""
    none = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    return {**none, **_special(checkpoint)}


def _special(checkpoint: Checkpoint) -> dict[str, Any]:
    if not checkpoint.has_tokenizer:
        return {}
    tokenizer = Tokenizer.from_gguf(checkpoint.file)
    return {
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": tokenizer.eos_id,
        "pad_token_id": tokenizer.pad_id,
    }


def generation_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return where generation ends, and the defaults of sampling that the file states."""
    found = _special(checkpoint)
    if checkpoint.has_tokenizer:
        found["eos_token_id"] = sorted(Tokenizer.from_gguf(checkpoint.file).eos_ids)
    for name, (gguf_name, *_) in SAMPLING.items():
        value = checkpoint.file.get(f"general.sampling.{gguf_name}")
        if value is not None:
            found[name] = short(value) if isinstance(value, float) else value
            found["do_sample"] = True
    return found


def shortened(value: Any) -> Any:
    """Return a value with all its numbers as they were meant."""
    if isinstance(value, dict):
        return {k: shortened(v) for k, v in value.items()}
    return short(value) if isinstance(value, float) else value


def short(value: float) -> float:
    """Return the decimal that was meant by a float32 of the file."""
    return float(str(np.float32(value)))
