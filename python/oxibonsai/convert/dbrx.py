"""DBRX: names and keys; the matrices of all experts lie below each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

_LAYER = {
    "norm_attn_norm.norm_1": "attn_norm",
    "norm_attn_norm.attn.Wqkv": "attn_qkv",
    "norm_attn_norm.attn.out_proj": "attn_output",
    "norm_attn_norm.norm_2": "attn_output_norm",
    "ffn.router.layer": "ffn_gate_inp",
}
_FIXED = {"transformer.wte": "token_embd", "transformer.norm_f": "output_norm", "lm_head": "output"}
_EXPERTS = re.compile(r"transformer\.blocks\.([0-9]{1,4})\.ffn\.experts\.mlp\.(w1|v1|w2)")
_PARTS = {"w1": "gate", "v1": "up", "w2": "down"}
# What DBRX calls what others call so.
_NAMES = {
    "hidden_size": ("d_model",),
    "intermediate_size": ("ffn_config", "ffn_hidden_size"),
    "max_position_embeddings": ("max_seq_len",),
    "num_attention_heads": ("n_heads",),
    "num_experts": ("ffn_config", "moe_num_experts"),
    "num_experts_per_tok": ("ffn_config", "moe_top_k"),
    "num_hidden_layers": ("n_layers",),
    "num_key_value_heads": ("attn_config", "kv_n_heads"),
    "clip_qkv": ("attn_config", "clip_qkv"),
    "rope_theta": ("attn_config", "rope_theta"),
}


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the usual names."""
    found = dict(folder.config)
    for name, path in _NAMES.items():
        value: Any = folder.config
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        found[name] = value
    found["rope_parameters"] = {"rope_type": "default", "rope_theta": found["rope_theta"]}
    return found


def pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Each expert's rows are its neurons, of the matrix of its results too."""
    found = _EXPERTS.fullmatch(parameter)
    if found is None:
        return ()
    shape = experts.count(folder), folder.count("intermediate_size"), folder.count("hidden_size")

    def by_expert(values: Floats) -> Floats:
        if values.shape != (shape[0] * shape[1], shape[2]):
            raise FormatError(
                f"{folder.path}: {parameter} has shape {values.shape}, but config.json asks for "
                f"({shape[0] * shape[1]}, {shape[2]})"
            )
        stacked = values.reshape(shape)
        return stacked.swapaxes(1, 2) if found[2] == "w2" else stacked

    return (Piece(f"blk.{int(found[1])}.ffn_{_PARTS[found[2]]}_exps.weight", part=by_expert),)


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    given = folder.config.get("ffn_config") or {}
    where = folder.path / "config.json"
    if given.get("ffn_act_fn", {"name": "silu"}) != {"name": "silu"}:
        raise FormatError(f"{where}: ffn_act_fn is {given['ffn_act_fn']!r}, not silu")
    if given.get("moe_normalize_expert_weights", 1.0) != 1.0:
        raise FormatError(f"{where}: moe_normalize_expert_weights is not 1")
    return {
        **decoder.dimension_keys(folder, "dbrx", "layer_norm_eps"),
        **experts.expert_keys(folder, "dbrx", ff=None),
        **decoder.scale_key(folder, "dbrx.attention.clamp_kqv", "clip_qkv"),
        **rope_keys("dbrx", *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    return experts.shapes(
        folder,
        _LAYER.values(),
        experts=experts.count(folder),
        ff=folder.count("intermediate_size"),
    )


DBRX = Recipe(
    "dbrx",
    metadata,
    decoder.namer("DBRX", _LAYER, fixed=_FIXED, layers="transformer.blocks"),
    experts.is_matrix,
    shapes=_shapes,
    pieces=pieces,
    config=config,
)
