"""LFM2: names and keys; layers that attend have key-value heads, the others a short convolution."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.mamba import conv_parameter_shape, conv_shape
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

LAYER = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
    "feed_forward.gate": "ffn_gate_inp",  # of LFM2-MoE alone
}
_EXPERT = re.compile(
    r"model\.layers\.([0-9]{1,4})\.feed_forward\.experts\.([0-9]{1,5})\.(w[123])\.weight"
)
_FIXED = {
    "model.embed_tokens": "token_embd",
    "model.embedding_norm": "token_embd_norm",
    "lm_head": "output",
}


def attends(folder: ModelFolder) -> list[bool]:
    """Return for each layer whether it attends."""
    layers = folder.count("num_hidden_layers")
    kinds = folder.config.get("layer_types")
    if kinds is None and isinstance(indices := folder.config.get("full_attn_idxs"), list):
        kinds = ["full_attention" if i in indices else "conv" for i in range(layers)]
    known = {"full_attention", "conv"}
    if not isinstance(kinds, list) or len(kinds) != layers or not known.issuperset(kinds):
        raise FormatError(
            f"{folder.path / 'config.json'}: layer_types does not say of {layers} layers which of conv "
            "and full_attention they are"
        )
    return [kind == "full_attention" for kind in kinds]


def _feed_forward(folder: ModelFolder) -> int:
    """Return the configuration's width, two thirds of it rounded up where it says so."""
    key = "block_ff_dim" if folder.config.get("block_ff_dim") is not None else "intermediate_size"
    width = folder.count(key)
    if folder.config.get("block_auto_adjust_ff_dim", True) is not True:
        return width
    factor = folder.config.get("block_ffn_dim_multiplier", 1.0)
    multiple = folder.count("block_multiple_of")
    width = int(2 * width / 3)
    if factor is not None:
        width = int(factor * width)
    return -(-width // multiple) * multiple


def _keys(folder: ModelFolder, a: str, ff: int) -> Metadata:
    folder.require("conv_bias", False)
    heads = [decoder.kv_heads(folder) if a else 0 for a in attends(folder)]
    counts = {
        "block_count": folder.count("num_hidden_layers"),
        "context_length": folder.count("max_position_embeddings"),
        "embedding_length": folder.count("hidden_size"),
        "feed_forward_length": ff,
        "attention.head_count": folder.count("num_attention_heads"),
        "vocab_size": folder.count("vocab_size"),
        "shortconv.l_cache": folder.count("conv_L_cache"),
    }
    return {
        **{f"{a}.{k}": (v, "u32") for k, v in counts.items()},
        f"{a}.attention.head_count_kv": (heads, "arr[i32]"),
        f"{a}.attention.layer_norm_rms_epsilon": (folder.real("norm_eps", 1e-5), "f32"),
        **rope_keys(a, *read_rope(folder, ("default",))),
    }


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    return {**_keys(folder, "lfm2", _feed_forward(folder)), **tokenizer_keys(folder)}


def mixed_metadata(folder: ModelFolder) -> Metadata:
    """Return the keys of a model with experts."""
    folder.require("norm_topk_prob", True)
    folder.require("routed_scaling_factor", 1.0)
    folder.require("use_expert_bias", True)
    a = "lfm2moe"
    return {
        **_keys(folder, a, folder.count("intermediate_size")),
        **experts.expert_keys(folder, a),
        f"{a}.leading_dense_block_count": (_dense_layers(folder), "u32"),
        f"{a}.expert_gating_func": (experts.SIGMOID, "u32"),
        **tokenizer_keys(folder),
    }


def _dense_layers(folder: ModelFolder) -> int:
    return 0 if folder.config.get("num_dense_layers") == 0 else folder.count("num_dense_layers")


def pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the matrix of one expert."""
    found = _EXPERT.fullmatch(parameter)
    if found is None:
        return ()
    name = {"w1": "gate", "w2": "down", "w3": "up"}[found[3]]
    return (Piece(f"blk.{int(found[1])}.ffn_{name}_exps.weight", int(found[2])),)


def _shapes(folder: ModelFolder, ff: int, mixed: Shapes, dense: int) -> Shapes:
    hidden, vocabulary = folder.count("hidden_size"), folder.count("vocab_size")
    width = decoder.head_dim(folder)
    q, kv = width * folder.count("num_attention_heads"), width * decoder.kv_heads(folder)
    common = {"attn_norm": (hidden,), "ffn_norm": (hidden,)}
    plain = {"ffn_gate": (ff, hidden), "ffn_up": (ff, hidden), "ffn_down": (hidden, ff)}
    attention = {
        "attn_q": (q, hidden),
        "attn_k": (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_output": (hidden, q),
        "attn_q_norm": (width,),
        "attn_k_norm": (width,),
    }
    convolution = {
        "shortconv.in_proj": (3 * hidden, hidden),
        "shortconv.conv": (hidden, folder.count("conv_L_cache")),
        "shortconv.out_proj": (hidden, hidden),
    }
    found: Shapes = {"token_embd.weight": (vocabulary, hidden)}
    found["token_embd_norm.weight"] = (hidden,)
    tied = folder.config.get("tie_embedding", folder.config.get("tie_word_embeddings", True))
    if tied is False:
        found["output.weight"] = (vocabulary, hidden)
    for i, attending in enumerate(attends(folder)):
        parts: Shapes = {**common, **(attention if attending else convolution)}
        parts |= plain if i < dense else mixed
        found |= {f"blk.{i}.{part}.weight": shape for part, shape in parts.items()}
    return found


def _plain_shapes(folder: ModelFolder) -> Shapes:
    return _shapes(folder, _feed_forward(folder), {}, folder.count("num_hidden_layers"))


def _mixed_shapes(folder: ModelFolder) -> Shapes:
    hidden, ff = folder.count("hidden_size"), folder.count("moe_intermediate_size")
    count, dense = experts.count(folder), _dense_layers(folder)
    mixed = {
        "ffn_gate_inp": (count, hidden),
        "ffn_gate_exps": (count, ff, hidden),
        "ffn_up_exps": (count, ff, hidden),
        "ffn_down_exps": (count, hidden, ff),
    }
    found = _shapes(folder, folder.count("intermediate_size"), mixed, dense)
    for i in range(dense, folder.count("num_hidden_layers")):
        found[f"blk.{i}.exp_probs_b.bias"] = (count,)
    return found


LFM2 = Recipe(
    "lfm2",
    metadata,
    decoder.namer("LFM2", LAYER, fixed=_FIXED),
    lambda tensor: decoder.is_matrix(tensor) and "shortconv.conv" not in tensor,
    shapes=_plain_shapes,
    shape=lambda folder, tensor, shape: conv_shape(tensor, shape),
    parameter_shape=lambda folder, tensor, shape: conv_parameter_shape(tensor, shape),
)
LFM2MOE = Recipe(
    "lfm2moe",
    mixed_metadata,
    decoder.namer(
        "LFM2", LAYER, fixed=_FIXED, extra={"feed_forward.expert_bias": "exp_probs_b.bias"}
    ),
    lambda tensor: experts.is_matrix(tensor) and "shortconv.conv" not in tensor,
    shapes=_mixed_shapes,
    pieces=pieces,
    shape=lambda folder, tensor, shape: conv_shape(tensor, shape),
    parameter_shape=lambda folder, tensor, shape: conv_parameter_shape(tensor, shape),
)
