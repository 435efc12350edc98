"""MiniCPM 3: names and keys; keys and values are one matrix."""

from __future__ import annotations

import math

from oxibonsai.convert import decoder, phi3
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    **{k: v for k, v in decoder.LAYER.items() if not k.endswith(("q_proj", "k_proj", "v_proj"))},
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}
_A = "minicpm3"


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's; factors that files leave out are the 4B model's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    rope, value = folder.count("qk_rope_head_dim"), _value_dim(folder)
    layers, hidden = folder.count("num_hidden_layers"), folder.count("hidden_size")
    keys: Metadata = {
        f"{_A}.attention.q_lora_rank": (folder.count("q_lora_rank"), "u32"),
        f"{_A}.attention.kv_lora_rank": (folder.count("kv_lora_rank"), "u32"),
        f"{_A}.attention.key_length": (folder.count("qk_nope_head_dim") + rope, "u32"),
        f"{_A}.attention.value_length": (value, "u32"),
        f"{_A}.rope.dimension_count": (rope, "u32"),
    }
    depth = _factor(folder, "scale_depth", 1.4)
    keys[f"{_A}.embedding_scale"] = (_factor(folder, "scale_emb", 12.0), "f32")
    keys[f"{_A}.residual_scale"] = (depth / math.sqrt(layers), "f32")
    keys[f"{_A}.logit_scale"] = (hidden / _factor(folder, "dim_model_base", 256.0), "f32")
    return {
        **decoder.dimension_keys(folder, _A),
        **phi3.rope_keys(folder, _A),
        **keys,
        **tokenizer_keys(folder),
    }


def _value_dim(folder: ModelFolder) -> int:
    if folder.config.get("v_head_dim") is not None:
        return folder.count("v_head_dim")
    return folder.count("hidden_size") // folder.count("num_attention_heads")


def _factor(folder: ModelFolder, name: str, default: float) -> float:
    if folder.config.get(name) is None:
        return default
    (value, _) = decoder.scale_key(folder, name, name)[name]
    return float(value)


def _shapes(folder: ModelFolder) -> Shapes:
    hidden, heads = folder.count("hidden_size"), folder.count("num_attention_heads")
    rank, rope, q_rank = (
        folder.count(key) for key in ("kv_lora_rank", "qk_rope_head_dim", "q_lora_rank")
    )
    nope, value = folder.count("qk_nope_head_dim"), _value_dim(folder)
    special: dict[str, tuple[int, ...]] = {
        "attn_q_a": (q_rank, hidden),
        "attn_q_a_norm": (q_rank,),
        "attn_q_b": (heads * (nope + rope), q_rank),
        "attn_kv_a_mqa": (rank + rope, hidden),
        "attn_kv_a_norm": (rank,),
        "attn_kv_b": (heads * (nope + value), rank),
        "attn_output": (hidden, heads * value),
    }
    return decoder.shapes(folder, _LAYER.values(), tied=True, special=special)


MINICPM3 = Recipe(
    _A,
    metadata,
    decoder.namer("MiniCPM 3", _LAYER),
    decoder.is_matrix,
    shapes=_shapes,
    extra=phi3.factors,
    # Rotated dims are what dimensions of heads stand for there.
    config=lambda folder: {**folder.config, "head_dim": folder.config.get("qk_rope_head_dim")},
)
