"""Jamba: names and keys; some layers attend, some have experts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.mamba import (
    conv_parameter_shape,
    conv_shape,
    ssm_parameter_values,
    ssm_values,
)
from oxibonsai.convert.pieces import PROJECTIONS, Piece
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

_FIXED = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.final_layernorm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "pre_ff_layernorm.weight": "ffn_norm.weight",
    "feed_forward.gate_proj.weight": "ffn_gate.weight",
    "feed_forward.up_proj.weight": "ffn_up.weight",
    "feed_forward.down_proj.weight": "ffn_down.weight",
    "feed_forward.router.weight": "ffn_gate_inp.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mamba.in_proj.weight": "ssm_in.weight",
    "mamba.conv1d.weight": "ssm_conv1d.weight",
    "mamba.conv1d.bias": "ssm_conv1d.bias",
    "mamba.x_proj.weight": "ssm_x.weight",
    "mamba.dt_proj.weight": "ssm_dt.weight",
    "mamba.dt_proj.bias": "ssm_dt.bias",
    "mamba.A_log": "ssm_a",
    "mamba.D": "ssm_d",
    "mamba.dt_layernorm.weight": "ssm_dt_norm.weight",
    "mamba.b_layernorm.weight": "ssm_b_norm.weight",
    "mamba.c_layernorm.weight": "ssm_c_norm.weight",
    "mamba.out_proj.weight": "ssm_out.weight",
}
tensor_name = decoder.ExactNamer("Jamba", _FIXED, _LAYER)
_EXPERT = re.compile(
    r"model\.layers\.([0-9]{1,4})\.feed_forward\.experts\.([0-9]{1,5})\.(\w+)\.weight"
)


def pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the matrix of one expert; a layer with one alone has no stack."""
    found = _EXPERT.fullmatch(parameter)
    if found is None or found[3] not in PROJECTIONS:
        return ()
    name = f"blk.{int(found[1])}.ffn_{PROJECTIONS[found[3]]}"
    if not _mixes(folder, int(found[1])):
        return (Piece(f"{name}.weight"),)
    return (Piece(f"{name}_exps.weight", int(found[2])),)


def _every(folder: ModelFolder, name: str, layer: int) -> bool:
    """Whether a layer is one of those that begin at ``NAME_offset`` and come every ``NAME_period``."""
    period, offset = folder.count(f"{name}_period"), folder.config.get(f"{name}_offset")
    if type(offset) is not int or not 0 <= offset < period:
        raise FormatError(
            f"{folder.path / 'config.json'}: {name}_offset is {offset!r}, no count below {period}"
        )
    return layer % period == offset


def _attends(folder: ModelFolder, layer: int) -> bool:
    return _every(folder, "attn_layer", layer)


def _mixes(folder: ModelFolder, layer: int) -> bool:
    return experts.count(folder) > 1 and _every(folder, "expert_layer", layer)


def _rank(folder: ModelFolder) -> int:
    if folder.config.get("mamba_dt_rank", "auto") == "auto":
        return -(-folder.count("hidden_size") // 16)
    return folder.count("mamba_dt_rank")


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("mamba_proj_bias", False)
    layers = range(folder.count("num_hidden_layers"))
    heads = [decoder.kv_heads(folder) if _attends(folder, i) else 0 for i in layers]
    counts = {
        "block_count": len(layers),
        "context_length": folder.count("max_position_embeddings"),
        "embedding_length": folder.count("hidden_size"),
        "feed_forward_length": folder.count("intermediate_size"),
        "attention.head_count": folder.count("num_attention_heads"),
        "vocab_size": folder.count("vocab_size"),
        "ssm.conv_kernel": folder.count("mamba_d_conv"),
        "ssm.inner_size": folder.count("mamba_expand") * folder.count("hidden_size"),
        "ssm.state_size": folder.count("mamba_d_state"),
        "ssm.time_step_rank": _rank(folder),
        "expert_count": experts.count(folder),
        "expert_used_count": folder.count("num_experts_per_tok"),
    }
    return {
        **{f"jamba.{k}": (v, "u32") for k, v in counts.items()},
        "jamba.attention.head_count_kv": (heads, "arr[i32]"),
        "jamba.attention.layer_norm_rms_epsilon": (folder.real("rms_norm_eps", 1e-6), "f32"),
        **tokenizer_keys(folder),
    }


def _mamba_shapes(folder: ModelFolder) -> Shapes:
    hidden, state, rank = folder.count("hidden_size"), folder.count("mamba_d_state"), _rank(folder)
    inner = folder.count("mamba_expand") * hidden
    return {
        "ssm_in.weight": (2 * inner, hidden),
        "ssm_conv1d.weight": (inner, folder.count("mamba_d_conv")),
        "ssm_x.weight": (rank + 2 * state, inner),
        "ssm_dt.weight": (inner, rank),
        "ssm_dt.bias": (inner,),
        "ssm_a": (inner, state),
        "ssm_d": (inner,),
        "ssm_dt_norm.weight": (rank,),
        "ssm_b_norm.weight": (state,),
        "ssm_c_norm.weight": (state,),
        "ssm_out.weight": (hidden, inner),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    hidden, ff, count = (
        folder.count("hidden_size"), folder.count("intermediate_size"), experts.count(folder),
    )  # fmt: skip
    width = decoder.head_dim(folder)
    q, kv = width * folder.count("num_attention_heads"), width * decoder.kv_heads(folder)
    attention = {
        "attn_q.weight": (q, hidden),
        "attn_k.weight": (kv, hidden),
        "attn_v.weight": (kv, hidden),
        "attn_output.weight": (hidden, q),
    }
    dense = {"gate": (ff, hidden), "up": (ff, hidden), "down": (hidden, ff)}
    found: Shapes = {
        "token_embd.weight": (folder.count("vocab_size"), hidden),
        "output_norm.weight": (hidden,),
    }
    if folder.config.get("tie_word_embeddings", False) is False:
        found["output.weight"] = (folder.count("vocab_size"), hidden)
    for i in range(folder.count("num_hidden_layers")):
        parts: Shapes = {"attn_norm.weight": (hidden,), "ffn_norm.weight": (hidden,)}
        parts |= attention if _attends(folder, i) else _mamba_shapes(folder)
        if _mixes(folder, i):
            parts["ffn_gate_inp.weight"] = (count, hidden)
            parts |= {f"ffn_{n}_exps.weight": (count, *shape) for n, shape in dense.items()}
        else:
            parts |= {f"ffn_{n}.weight": shape for n, shape in dense.items()}
        found |= {f"blk.{i}.{part}": shape for part, shape in parts.items()}
    return found


JAMBA = Recipe(
    "jamba",
    metadata,
    tensor_name,
    lambda tensor: experts.is_matrix(tensor) and "ssm_conv1d" not in tensor,
    shapes=_shapes,
    pieces=pieces,
    shape=lambda folder, tensor, shape: conv_shape(tensor, shape),
    parameter_shape=lambda folder, tensor, shape: conv_parameter_shape(tensor, shape),
    values=ssm_values,
    parameter_values=ssm_parameter_values,
)
