"""``config.json`` and ``generation_config.json`` of a model."""

from __future__ import annotations

from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import UnsupportedError
from oxibonsai.export.architectures import SAVED, saved_as
from oxibonsai.export.encoders import scoring
from oxibonsai.export.inverse import Inverse
from oxibonsai.export.numbers import short, shortened
from oxibonsai.export.rope import rope_fields
from oxibonsai.models import read_config
from oxibonsai.models.keys import Keys
from oxibonsai.tokenizer import Tokenizer

_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


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
    kind = saved_as(checkpoint, c)
    if kind is None:
        raise UnsupportedError(
            f"{checkpoint.path}: this model of architecture {c.architecture} can be saved as gguf only"
        )
    saved = scoring(SAVED[kind]) if c.classifier is not None else SAVED[kind]
    if saved.family is not None:
        own = saved.family.write_config_json(saved.family.read_gguf(Keys(checkpoint)))
        told = {**own, "torch_dtype": dtype, **_special_or_none(checkpoint)}
        return Inverse(checkpoint, shortened(told), saved)
    found: dict[str, Any] = {
        "architectures": [f"{saved.kind}{saved.task}"],
        "model_type": saved.model_type,
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_hidden_layers,
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads,
        "max_position_embeddings": c.max_position_embeddings,
        "tie_word_embeddings": not checkpoint.has("output.weight"),
        "torch_dtype": dtype,
        **_special_or_none(checkpoint),
        **(
            {}
            if saved.rope == "none"
            else rope_fields(checkpoint, c, by_kind=saved.rope == "by kind")
        ),
        **saved.own(checkpoint, c),
    }
    if found["intermediate_size"] is None:  # no layer has such a part
        del found["intermediate_size"]
    if saved.head_dim:
        found["head_dim"] = c.head_dim
    if saved.epsilon:
        found[saved.epsilon] = c.rms_norm_eps or c.layer_norm_eps
    return Inverse(checkpoint, shortened(found), saved)  # refuses one of another model


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
    """Where generation ends, and the defaults of sampling that the file states."""
    found = _special(checkpoint)
    if checkpoint.has_tokenizer:
        found["eos_token_id"] = sorted(Tokenizer.from_gguf(checkpoint.file).eos_ids)
    for gguf_name, name in _SAMPLING.items():
        value = checkpoint.file.get(f"general.sampling.{gguf_name}")
        if value is not None:
            found[name] = short(value) if isinstance(value, float) else value
            found["do_sample"] = True
    return found
