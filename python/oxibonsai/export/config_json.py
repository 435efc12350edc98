"""``config.json`` and ``generation_config.json`` of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.rope import llama3_factors
from oxibonsai.errors import UnsupportedError
from oxibonsai.export.architectures import SAVED, saved_as
from oxibonsai.export.inverse import Inverse
from oxibonsai.graph import RopeConfig
from oxibonsai.models import read_config
from oxibonsai.models.config import ModelConfig
from oxibonsai.tokenizer import Tokenizer

_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def config_json(checkpoint: Checkpoint, dtype: str) -> dict[str, Any]:
    """The configuration, in the form that all versions of transformers read; errors as of
    :func:`inverse_of`.
    """
    return inverse_of(checkpoint, dtype).config


def inverse_of(checkpoint: Checkpoint, dtype: str) -> Inverse:
    """A model read backwards, with its configuration.

    Raises:
        UnsupportedError: transformers does not have the architecture, or its configuration no place for
            something in the file.
    """
    c = read_config(checkpoint)
    kind = saved_as(c)
    if kind is None:
        raise UnsupportedError(
            f"{checkpoint.path}: this model of architecture {c.architecture} can be saved as gguf only"
        )
    saved = SAVED[kind]
    found: dict[str, Any] = {
        "architectures": [f"{saved.kind}ForCausalLM"],
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
        # Of a file without a vocabulary too, because transformers has defaults of its own.
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
        **_special(checkpoint),
        **({} if saved.rope == "none" else _rope(checkpoint, c, by_kind=saved.rope == "by kind")),
        **saved.own(checkpoint, c),
    }
    if found["intermediate_size"] is None:  # no layer has such a part
        del found["intermediate_size"]
    if saved.head_dim:
        found["head_dim"] = c.head_dim
    if saved.epsilon:
        found[saved.epsilon] = c.rms_norm_eps or c.layer_norm_eps
    return Inverse(checkpoint, _shortened(found), saved)  # refuses one of another model


def _shortened(value: Any) -> Any:
    """The same with all numbers as they were meant."""
    if isinstance(value, dict):
        return {k: _shortened(v) for k, v in value.items()}
    return _short(value) if isinstance(value, float) else value


def _short(value: float) -> float:
    """The decimal that was meant by a float32 of the file."""
    return float(str(np.float32(value)))


def _rope(checkpoint: Checkpoint, c: ModelConfig, *, by_kind: bool) -> dict[str, Any]:
    """The rotary embedding, of the layers that have one."""
    rope = c.rope if c.rope.rotary_dim > 0 or c.rope_local is None else c.rope_local
    if rope.rotary_dim == 0:
        return {}
    scaling = _scaling(checkpoint, rope)
    found: dict[str, Any] = {"rope_theta": rope.theta, "rope_scaling": scaling}
    if rope.rotary_dim != c.head_dim:
        found["partial_rotary_factor"] = rope.rotary_dim / c.head_dim
    if by_kind and c.rope_local is not None:
        plain = {"rope_type": "default", "rope_theta": _short(rope.theta)}
        local = {**plain, "rope_theta": _short(c.rope_local.theta)}
        kinds = {"full_attention": {**plain, **(scaling or {})}, "sliding_attention": local}
        found["rope_parameters"] = kinds
    return found


def _scaling(checkpoint: Checkpoint, rope: RopeConfig) -> dict[str, Any] | None:
    usual = (rope.beta_fast, rope.beta_slow, rope.attention_factor) == (32.0, 1.0, 1.0)
    longrope = checkpoint.has("rope_factors_long.weight")
    if not usual or longrope or (rope.frequency_factors and rope.scaling != "none"):
        raise UnsupportedError(f"{checkpoint.path}: its rope scaling can be saved as gguf only")
    if rope.frequency_factors:
        return _llama3(checkpoint, rope)
    if rope.scaling == "none":
        return None
    found: dict[str, Any] = {"rope_type": rope.scaling, "factor": _short(rope.factor)}
    if rope.scaling == "yarn":
        found["original_max_position_embeddings"] = rope.original_context
        if not rope.ramp_of_pairs:
            found |= {"truncate": False, "beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow}
    return found


def _llama3(checkpoint: Checkpoint, rope: RopeConfig) -> dict[str, Any]:
    """The constants that a table of factors was made from: GGUF has the table alone."""
    stored = np.array(rope.frequency_factors, dtype=np.float32)
    numbers: dict[str, float] = {
        "factor": float(round(stored.max())),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    for power in range(4, 24):
        trial = {
            **numbers,
            "original_max_position_embeddings": 2**power,
            "rope_theta": rope.theta,
        }
        if np.allclose(llama3_factors(trial, rope.rotary_dim), stored, rtol=1e-5, atol=0.0):
            del trial["rope_theta"]
            return {"rope_type": "llama3", **trial}
    raise UnsupportedError(
        f"{checkpoint.path}: rope_freqs.weight is not what Llama 3's constants give; save it as gguf"
    )


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
            found[name] = _short(value) if isinstance(value, float) else value
            found["do_sample"] = True
    return found
