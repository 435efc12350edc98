"""Qwen3, and so every dense Bonsai: names and keys."""

from __future__ import annotations

import re
from typing import Any

from oxibonsai.convert.byte_level import byte_level_keys
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.errors import FormatError, UnsupportedError

_FIXED = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tensor_name(parameter: str) -> str | None:
    """GGUF's name."""
    module, _, kind = parameter.rpartition(".")
    layer = re.fullmatch(r"model\.layers\.([0-9]{1,4})\.(.+)", module)
    if kind == "weight" and layer is not None and layer[2] in _LAYER:
        return f"blk.{int(layer[1])}.{_LAYER[layer[2]]}.weight"
    if kind == "weight" and module in _FIXED:
        return f"{_FIXED[module]}.weight"
    raise UnsupportedError(f"the model has the parameter {parameter}, which is none of Qwen3's")


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    folder.require("use_sliding_window", False)
    head_dim = folder.count("head_dim")
    return {
        "qwen3.block_count": (folder.count("num_hidden_layers"), "u32"),
        "qwen3.context_length": (folder.count("max_position_embeddings"), "u32"),
        "qwen3.embedding_length": (folder.count("hidden_size"), "u32"),
        "qwen3.feed_forward_length": (folder.count("intermediate_size"), "u32"),
        "qwen3.attention.head_count": (folder.count("num_attention_heads"), "u32"),
        "qwen3.attention.head_count_kv": (folder.count("num_key_value_heads"), "u32"),
        "qwen3.attention.key_length": (head_dim, "u32"),
        "qwen3.attention.value_length": (head_dim, "u32"),
        "qwen3.attention.layer_norm_rms_epsilon": (folder.real("rms_norm_eps", 1e-6), "f32"),
        **_rope(folder),
        **byte_level_keys(folder, folder.count("vocab_size")),
    }


def _rope(folder: ModelFolder) -> Metadata:
    """Older configurations hold ``rope_theta`` and ``rope_scaling``, newer ones ``rope_parameters``."""
    config, where = folder.config, folder.path / "config.json"
    rope: Any = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise FormatError(f"{where}: the rotary embedding is {rope!r}, no object")
    rope = {"rope_theta": config.get("rope_theta"), **rope}
    kind = rope.pop("rope_type", rope.pop("type", "default"))
    numbers = ["rope_theta"]
    if kind == "yarn":
        numbers += ["factor", "original_max_position_embeddings"]
    elif kind != "default":
        raise UnsupportedError(
            f"{where}: rope_type is {kind!r}; convert knows 'default' and 'yarn'"
        )
    for name in rope:
        if name not in [*numbers, "type"]:
            raise UnsupportedError(f"{where}: the rotary embedding has {name}, which convert lacks")
    for name in numbers:
        value = rope.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**31:
            raise FormatError(f"{where}: {name} is {value!r}, not a positive number")
    keys: Metadata = {"qwen3.rope.freq_base": (float(rope["rope_theta"]), "f32")}
    if kind == "yarn":
        original = int(rope["original_max_position_embeddings"])
        keys["qwen3.rope.scaling.type"] = ("yarn", "str")
        keys["qwen3.rope.scaling.factor"] = (float(rope["factor"]), "f32")
        keys["qwen3.rope.scaling.original_context_length"] = (original, "u32")
    return keys


QWEN3 = Recipe("qwen3", metadata, tensor_name, lambda tensor: "norm" not in tensor)
