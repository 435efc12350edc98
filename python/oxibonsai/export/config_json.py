"""``config.json`` and ``generation_config.json`` of a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.rope import llama3_factors
from oxibonsai.errors import UnsupportedError
from oxibonsai.graph import RopeConfig
from oxibonsai.models import read_config
from oxibonsai.models.config import ModelConfig
from oxibonsai.tokenizer import Tokenizer

_CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
}
# Architectures whose layers are those of another, which transformers knows without code from elsewhere.
_SAME_LAYERS = {"internlm2": "llama", "xverse": "llama", "baichuan": "llama"}
_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def config_json(checkpoint: Checkpoint, dtype: str) -> dict[str, Any]:
    """The configuration, in the form that all versions of transformers read."""
    c = read_config(checkpoint)
    kind = saved_as(checkpoint, c)
    model_type, name = _CLASSES[kind]
    common = {
        "architectures": [name],
        "model_type": model_type,
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_hidden_layers,
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads,
        "head_dim": c.head_dim,
        "max_position_embeddings": c.max_position_embeddings,
        "rms_norm_eps": _short(c.rms_norm_eps),
        "tie_word_embeddings": not checkpoint.has("output.weight"),
        "torch_dtype": dtype,
        "rope_theta": _short(c.rope.theta),
        "rope_scaling": _scaling(checkpoint, c.rope),
        **_special(checkpoint),
    }
    return common | (_gemma3(c) if kind == "gemma3" else _plain(checkpoint, c, kind))


def saved_as(checkpoint: Checkpoint, c: ModelConfig) -> str:
    """The architecture under whose names a model is saved: its own, or one with the same layers.

    Raises:
        UnsupportedError: There is none.
    """
    kind = _SAME_LAYERS.get(c.architecture, c.architecture)
    if kind not in _CLASSES or not c.generates or c.alibi_max_bias > 0.0:
        raise UnsupportedError(
            f"{checkpoint.path}: this model of architecture {c.architecture} can be saved as gguf only"
        )
    return kind


def _short(value: float) -> float:
    """The decimal that was meant by a float32 of the file."""
    return float(str(np.float32(value)))


def _plain(checkpoint: Checkpoint, c: ModelConfig, kind: str) -> dict[str, Any]:
    biased = {p for p in ("q", "k", "v", "output") if checkpoint.has(f"blk.0.attn_{p}.bias")}
    wanted = {"q", "k", "v"} if kind == "qwen2" else {"q", "k", "v", "output"}
    standard = abs(c.attention_scale * c.head_dim**0.5 - 1.0) < 1e-6
    if biased not in (set(), wanted) or c.sliding_window or not standard:
        raise UnsupportedError(
            f"{checkpoint.path}: its biases, window or attention scale have no place in a "
            f"{c.architecture} configuration; save it as gguf"
        )
    if kind == "qwen2":
        return {"hidden_act": "silu", "use_sliding_window": False}
    keys: dict[str, Any] = {"hidden_act": "silu", "attention_bias": bool(biased)}
    return keys | ({"mlp_bias": False} if kind == "llama" else {})


def _gemma3(c: ModelConfig) -> dict[str, Any]:
    local = c.rope_local or c.rope
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": round(c.attention_scale**-2),
        "sliding_window": c.sliding_window or c.max_position_embeddings,
        "layer_types": [
            "sliding_attention" if c.is_local(i) else "full_attention"
            for i in range(c.num_hidden_layers)
        ],
        "sliding_window_pattern": c.sliding_window_pattern,
        "rope_local_base_freq": _short(local.theta),
        "attn_logit_softcapping": c.attn_logit_softcapping or None,
        "final_logit_softcapping": c.final_logit_softcapping or None,
    }


def _scaling(checkpoint: Checkpoint, rope: RopeConfig) -> dict[str, Any] | None:
    usual = (rope.beta_fast, rope.beta_slow, rope.attention_factor) == (32.0, 1.0, 1.0)
    if not usual or (rope.frequency_factors and rope.scaling != "none"):
        raise UnsupportedError(f"{checkpoint.path}: its rope scaling can be saved as gguf only")
    if rope.frequency_factors:
        return _llama3(checkpoint, rope)
    if rope.scaling == "none":
        return None
    found: dict[str, Any] = {"rope_type": rope.scaling, "factor": _short(rope.factor)}
    if rope.scaling == "yarn":
        found["original_max_position_embeddings"] = rope.original_context
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
