"""PLaMo 2: names and keys; layers of Mamba 2 and layers of attention.

Layers of attention see a window, for which llama.cpp's files have no keys: those of other architectures
say it here.
"""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.mamba import conv_shape, is_matrix, ssm_values
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

_FIXED = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = {
    "pre_mixer_norm.weight": "attn_norm.weight",
    "post_mixer_norm.weight": "post_attention_norm",
    "pre_mlp_norm.weight": "ffn_norm.weight",
    "post_mlp_norm.weight": "post_ffw_norm",
    "mlp.gate_up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "mixer.qkv_proj.weight": "attn_qkv.weight",
    "mixer.o_proj.weight": "attn_output.weight",
    "mixer.q_weight": "attn_q_norm.weight",
    "mixer.k_weight": "attn_k_norm.weight",
    "mixer.in_proj.weight": "ssm_in.weight",
    "mixer.conv1d.weight": "ssm_conv1d.weight",
    "mixer.bcdt_proj.weight": "ssm_x.weight",
    "mixer.dt_proj.weight": "ssm_dt.weight",
    "mixer.dt_bias": "ssm_dt.bias",
    "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d",
    "mixer.dt_norm_weight": "ssm_dt_norm",
    "mixer.B_norm_weight": "ssm_b_norm",
    "mixer.C_norm_weight": "ssm_c_norm",
    "mixer.out_proj.weight": "ssm_out.weight",
}
# What the model adds to the weights of a norm.
_OFFSETS: dict[str, float] = {
    "output_norm.weight": 1.0,
    "attn_norm.weight": 1.0,
    "ffn_norm.weight": 1.0,
    "post_attention_norm": 1.0 / 5.0,
    "post_ffw_norm": 1.0 / 5.0**1.5,
}
_MATRICES = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")


def _offset(tensor: str) -> float:
    return _OFFSETS.get(tensor.split(".", 2)[-1] if tensor.startswith("blk.") else tensor, 0.0)


def _attends(folder: ModelFolder) -> list[bool]:
    """Return for each layer whether it attends."""
    layers, step = folder.count("num_hidden_layers"), folder.count("mamba_step")
    if step < 2:
        raise FormatError(f"{folder.path / 'config.json'}: mamba_step is {step}, not 2 or more")
    if layers <= step // 2:
        return [i == layers - 1 for i in range(layers)]
    return [i % step == step // 2 for i in range(layers)]


def _sizes(folder: ModelFolder) -> dict[str, int]:
    """Dimensions that several places need."""
    width = folder.count("hidden_size_per_head")
    heads = folder.count("mamba_num_heads")
    return {
        "width": width,
        "heads": heads,
        "inner": heads * width,
        "state": folder.count("mamba_d_state"),
        "rank": max(64, folder.count("hidden_size") // 16),
    }


def _window_keys(folder: ModelFolder) -> Metadata:
    """Return the window of all layers that attend, but for those named; the query itself counts."""
    full = folder.config.get("full_attention_idx")
    layers = folder.count("num_hidden_layers")
    if full is not None and not (isinstance(full, list) and all(i in range(layers) for i in full)):
        raise FormatError(
            f"{folder.path / 'config.json'}: full_attention_idx does not name some of {layers} layers"
        )
    local = [i not in (full or ()) for i in range(layers)]
    key = "plamo2.attention.sliding_window"
    window = (folder.count("attention_window_size") + 1, "u32")
    return {key: window, f"{key}_pattern": (local, "arr[bool]")}


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration with what it may lack."""
    theta = folder.config.get("rope_theta")
    return {**folder.config, "rope_theta": 10000.0 if theta is None else theta}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("mamba_enabled", True)
    folder.require("rms_norm_eps", 1e-6)  # that of queries and keys, which nothing states
    folder.require("linear_type", "normal", None)
    sizes, attends = _sizes(folder), _attends(folder)
    counts = {
        "block_count": len(attends),
        "context_length": folder.count("max_position_embeddings"),
        "embedding_length": folder.count("hidden_size"),
        "feed_forward_length": folder.count("intermediate_size"),
        "attention.key_length": sizes["width"],
        "attention.value_length": sizes["width"],
        "vocab_size": folder.count("vocab_size"),
        "ssm.conv_kernel": folder.count("mamba_d_conv"),
        "ssm.inner_size": sizes["inner"],
        "ssm.state_size": sizes["state"],
        "ssm.time_step_rank": sizes["heads"],
        "ssm.group_count": 0,
    }
    lists = {
        "attention.head_count": folder.count("num_attention_heads"),
        "attention.head_count_kv": folder.count("num_key_value_heads"),
    }
    return {
        **{f"plamo2.{k}": (v, "u32") for k, v in counts.items()},
        **{
            f"plamo2.{k}": ([count if a else 0 for a in attends], "arr[i32]")
            for k, count in lists.items()
        },
        "plamo2.attention.layer_norm_rms_epsilon": (folder.real("rms_norm_eps", 1e-6), "f32"),
        **rope_keys("plamo2", *read_rope(folder, ("default",))),
        **_window_keys(folder),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    hidden, ff = folder.count("hidden_size"), folder.count("intermediate_size")
    sizes = _sizes(folder)
    heads, inner, state, rank = (sizes[k] for k in ("heads", "inner", "state", "rank"))
    q, kv = folder.count("num_attention_heads"), folder.count("num_key_value_heads")
    common: Shapes = {
        **dict.fromkeys(("attn_norm.weight", "ffn_norm.weight"), (hidden,)),
        **dict.fromkeys(("post_attention_norm", "post_ffw_norm"), (hidden,)),
        "ffn_up.weight": (2 * ff, hidden),
        "ffn_down.weight": (hidden, ff),
    }
    attention: Shapes = {
        "attn_qkv.weight": ((q + 2 * kv) * sizes["width"], hidden),
        "attn_output.weight": (hidden, q * sizes["width"]),
        "attn_q_norm.weight": (q, sizes["width"]),
        "attn_k_norm.weight": (kv, sizes["width"]),
    }
    scan: Shapes = {
        "ssm_in.weight": (2 * inner, hidden),
        "ssm_conv1d.weight": (inner, folder.count("mamba_d_conv")),
        "ssm_x.weight": (rank + 2 * state, inner),
        "ssm_dt.weight": (heads, rank),
        **dict.fromkeys(("ssm_dt.bias", "ssm_a", "ssm_d"), (heads,)),
        "ssm_dt_norm": (rank,),
        **dict.fromkeys(("ssm_b_norm", "ssm_c_norm"), (state,)),
        "ssm_out.weight": (hidden, inner),
    }
    table = (folder.count("vocab_size"), hidden)
    found: Shapes = {"token_embd.weight": table, "output_norm.weight": (hidden,)}
    if folder.config.get("tie_word_embeddings", True) is False:
        found["output.weight"] = table
    for i, attends in enumerate(_attends(folder)):
        parts = {**common, **(attention if attends else scan)}
        found |= {f"blk.{i}.{part}": size for part, size in parts.items()}
    return found


PLAMO2 = Recipe(
    "plamo2",
    metadata,
    decoder.ExactNamer("PLaMo 2", _FIXED, _LAYER, layers="model.layers.layers"),
    lambda tensor: is_matrix(tensor) or tensor.endswith(_MATRICES),
    shapes=_shapes,
    shape=lambda folder, tensor, shape: conv_shape(tensor, shape),
    values=ssm_values,
    offset=_offset,
    config=config,
)
