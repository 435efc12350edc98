"""Wrappers that join a vision tower to a language model of any family."""

from __future__ import annotations

from typing import Any

from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.wrapper import Wrapper

# The type of the language model where a folder does not say, by the model's.
TEXT_TYPES = {
    "idefics3": "llama",
    "internvl": "qwen2",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "smolvlm": "llama",
}
# Sizes that folders leave to transformers' defaults.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4,
    },
    "mistral": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
        "sliding_window": None,
    },
}  # fmt: skip


def wrapper_of(config: ConfigJson) -> Wrapper:
    """Return the wrapper around the language model that a model's ``config.json`` describes."""
    inner = config.fields.get("text_config")
    kind = inner.get("model_type") if isinstance(inner, dict) else None
    if kind is None:
        kind = TEXT_TYPES.get(str(config.fields.get("model_type")), "")
    return Wrapper(defaults={"model_type": str(kind), **_DEFAULTS.get(str(kind), {})})
