"""Qwen3-Next and Qwen3.5 with experts: names, keys, and what one parameter holds of several tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder, experts, gated_delta, qwen35
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.mamba import (
    conv_parameter_shape,
    conv_shape,
    ssm_parameter_values,
    ssm_values,
)
from oxibonsai.convert.multimodal import with_vision
from oxibonsai.convert.pieces import Piece, expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_EXPERTS = {
    **experts.ROUTER,
    **experts.shared_names("mlp.shared_expert"),
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
_QWEN35 = {k: v for k, v in qwen35.LAYER.items() if not k.startswith("mlp.")}
_PROJECTED = {"linear_attn.in_proj_" + part for part in ("qkv", "z", "a", "b")}
_NEXT = {k: v for k, v in _QWEN35.items() if k not in _PROJECTED}
_STACKED = re.compile(r"model\.layers\.([0-9]{1,4})\.mlp\.experts\.(gate_up_proj|down_proj)")
_QKVZ = re.compile(r"model\.layers\.([0-9]{1,4})\.linear_attn\.in_proj_qkvz\.weight")


def _metadata(folder: ModelFolder, architecture: str) -> Metadata:
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    folder.require("norm_topk_prob", True)
    folder.require("decoder_sparse_step", 1)
    folder.require("mlp_only_layers", [], None)
    shared = folder.count("shared_expert_intermediate_size")
    dense = folder.config.get("intermediate_size") is not None
    counts = {
        "block_count": folder.count("num_hidden_layers"),
        "context_length": folder.count("max_position_embeddings"),
        "embedding_length": folder.count("hidden_size"),
        "attention.head_count": folder.count("num_attention_heads"),
        "attention.head_count_kv": decoder.kv_heads(folder),
        "attention.key_length": decoder.head_dim(folder),
        "attention.value_length": decoder.head_dim(folder),
        "vocab_size": folder.count("vocab_size"),
        "expert_shared_feed_forward_length": shared,
        **({"feed_forward_length": folder.count("intermediate_size")} if dense else {}),
    }
    epsilon = (folder.real("rms_norm_eps", 1e-6), "f32")
    return {
        **{f"{architecture}.{k}": (v, "u32") for k, v in counts.items()},
        f"{architecture}.attention.layer_norm_rms_epsilon": epsilon,
        **experts.expert_keys(folder, architecture),
        **gated_delta.keys(folder, architecture),
        **tokenizer_keys(folder),
    }


def _pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return an expert's matrix, or those of all: the gate's rows above the other half's."""
    found = _STACKED.fullmatch(parameter)
    if found is None:
        return expert_pieces(folder, parameter)
    b, ff = f"blk.{int(found[1])}.ffn", folder.count("moe_intermediate_size")
    if found[2] == "down_proj":
        return (Piece(f"{b}_down_exps.weight", part=lambda v: v),)
    return (
        Piece(f"{b}_gate_exps.weight", part=lambda v: v[:, :ff]),
        Piece(f"{b}_up_exps.weight", part=lambda v: v[:, ff:]),
    )


def _next_pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Each key head's query, key, values and gates stand together in one parameter."""
    found = _QKVZ.fullmatch(parameter)
    if found is None:
        return _pieces(folder, parameter)
    qkv, z = _rows(folder)
    b = f"blk.{int(found[1])}"
    return (
        Piece(f"{b}.attn_qkv.weight", part=lambda v: v[qkv]),
        Piece(f"{b}.attn_gate.weight", part=lambda v: v[z]),
    )


def _rows(folder: ModelFolder) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows of all queries, keys and values; of all gates."""
    keys, width = folder.count("linear_num_key_heads"), folder.count("linear_key_head_dim")
    values = folder.count("linear_num_value_heads") * folder.count("linear_value_head_dim") // keys
    rows = np.arange(keys * (2 * width + 2 * values)).reshape(keys, -1)
    q, k, v, z = np.split(rows, np.cumsum([width, width, values]), axis=1)
    return np.concatenate([part.reshape(-1) for part in (q, k, v)]), z.reshape(-1)


def _is_matrix(tensor: str) -> bool:
    return qwen35.is_matrix(tensor) and experts.is_matrix(tensor)


def _shapes(folder: ModelFolder, linear: dict[str, tuple[int, ...]]) -> Shapes:
    hidden, count = folder.count("hidden_size"), experts.count(folder)
    ff = folder.count("moe_intermediate_size")
    shared = folder.count("shared_expert_intermediate_size")
    common = {
        "attn_norm.weight": (hidden,),
        "post_attention_norm.weight": (hidden,),
        "ffn_gate_inp.weight": (count, hidden),
        "ffn_gate_exps.weight": (count, ff, hidden),
        "ffn_up_exps.weight": (count, ff, hidden),
        "ffn_down_exps.weight": (count, hidden, ff),
        "ffn_gate_inp_shexp.weight": (1, hidden),
        "ffn_gate_shexp.weight": (shared, hidden),
        "ffn_up_shexp.weight": (shared, hidden),
        "ffn_down_shexp.weight": (hidden, shared),
    }
    return gated_delta.layer_shapes(folder, common, {**gated_delta.shapes(folder), **linear})


def _moe_shapes(folder: ModelFolder) -> Shapes:
    matrix = (folder.count("linear_num_value_heads"), folder.count("hidden_size"))
    return _shapes(folder, {"ssm_alpha.weight": matrix, "ssm_beta.weight": matrix})


def _next_shapes(folder: ModelFolder) -> Shapes:
    matrix = (2 * folder.count("linear_num_value_heads"), folder.count("hidden_size"))
    return _shapes(folder, {"ssm_ba.weight": matrix})


QWEN35MOE = Recipe(
    "qwen35moe",
    lambda folder: {
        **_metadata(folder, "qwen35moe"),
        **gated_delta.section_keys(folder, "qwen35moe"),
    },
    qwen35.namer("Qwen3.5 with experts", {**_QWEN35, **_EXPERTS}),
    _is_matrix,
    shapes=_moe_shapes,
    pieces=_pieces,
    row_order=qwen35.row_order,
    column_order=qwen35.column_order,
    shape=lambda folder, tensor, shape: conv_shape(tensor, shape),
    parameter_shape=lambda folder, tensor, shape: conv_parameter_shape(tensor, shape),
    values=ssm_values,
    parameter_values=ssm_parameter_values,
    offset=qwen35.offset,
)
QWEN35MOE_MULTIMODAL = with_vision(QWEN35MOE)
QWEN3NEXT = Recipe(
    "qwen3next",
    lambda folder: _metadata(folder, "qwen3next"),
    qwen35.namer("Qwen3-Next", {**_NEXT, **_EXPERTS, "linear_attn.in_proj_ba": "ssm_ba"}),
    _is_matrix,
    shapes=_next_shapes,
    pieces=_next_pieces,
    shape=lambda folder, tensor, shape: conv_shape(tensor, shape),
    parameter_shape=lambda folder, tensor, shape: conv_parameter_shape(tensor, shape),
    values=ssm_values,
    parameter_values=ssm_parameter_values,
    offset=qwen35.offset,
)
