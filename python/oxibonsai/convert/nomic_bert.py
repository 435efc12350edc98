"""Nomic BERT, with experts in every second layer or without: names and keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from oxibonsai.convert import encoder
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.pooling import pooling_keys
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope

_FIXED = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "emb_ln": "token_embd_norm",
}
_LAYER = {
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "norm1": "attn_output_norm",
    "norm2": "layer_output_norm",
    "mlp.fc11": "ffn_up",
    "mlp.fc12": "ffn_gate",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "mlp.router.layer": "ffn_gate_inp",
}
_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
    "activation_function": "hidden_act",
}
_EXPERTS = re.compile(r"encoder\.layers\.([0-9]{1,4})\.mlp\.experts\.mlp\.(w1|w2)")
# Tokens that the models were trained for, where their tables of positions are longer.
_TRAINED = 2048


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the usual names; positions as far as the model was trained."""
    found = encoder.renamed(_NAMES)(folder)
    if (
        "n_positions" in folder.config
        and folder.config.get("max_trained_positions", _TRAINED) == _TRAINED
    ):
        # The model with experts, which states 2048, was trained with a quarter of that.
        found["max_position_embeddings"] = {8192: _TRAINED, _TRAINED: 512}.get(
            folder.count("n_positions"), folder.config["n_positions"]
        )
    return found


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    experts = _has_experts(folder)
    folder.require("hidden_act", *(("gelu",) if experts else ("swiglu", "silu")))
    for key in ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"):
        folder.require(key, experts)
    for key, value in (
        ("causal", False),
        ("prenorm", False),
        ("rotary_emb_fraction", 1.0),
        ("rotary_emb_interleaved", False),
        ("rotary_emb_scale_base", None),
        ("use_rms_norm", False),
    ):
        folder.require(key, value, None)
    name = _architecture(folder)
    theta = read_rope(folder, ("default",))[1]["rope_theta"]
    keys: Metadata = {
        **encoder.dimension_keys(folder, name),
        f"{name}.rope.freq_base": (theta, "f32"),
        **pooling_keys(folder, name),
        **encoder.segment_keys(folder),
    }
    if experts:
        counts = {
            "moe_every_n_layers": folder.count("moe_every_n_layers"),
            "expert_count": folder.count("num_experts"),
            "expert_used_count": folder.count("moe_top_k"),
        }
        keys |= {f"{name}.{key}": (value, "u32") for key, value in counts.items()}
    return keys | encoder.tokenizer_keys(folder)


def _has_experts(folder: ModelFolder) -> bool:
    return bool(folder.config.get("moe_every_n_layers"))


def _architecture(folder: ModelFolder) -> str:
    return "nomic-bert-moe" if _has_experts(folder) else "nomic-bert"


def _pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Matrices of all experts, one below the other; those of w2 have columns for rows."""
    found = _EXPERTS.fullmatch(parameter)
    if found is None:
        return ()
    experts, hidden = folder.count("num_experts"), folder.count("hidden_size")
    ff = folder.count("intermediate_size")

    def up(rows: Floats) -> Floats:
        return rows.reshape(experts, ff, hidden)

    def down(rows: Floats) -> Floats:
        return rows.reshape(experts, ff, hidden).transpose(0, 2, 1)

    name, part = ("up", up) if found[2] == "w1" else ("down", down)
    return (Piece(f"blk.{int(found[1])}.ffn_{name}_exps.weight", part=part),)


def _left_out(folder: ModelFolder, parameter: str) -> bool:
    """Return the experts' shared bias, which llama.cpp's files do not have either."""
    del folder
    return parameter.endswith("mlp.experts.bias")


_NAME = encoder.EncoderNamer(
    "Nomic BERT",
    "encoder.layers",
    _LAYER,
    _FIXED,
    prefixes=("bert.",),
    left_out=("cls.", "pooler.", "embeddings.position_ids", "embeddings.token_type_ids"),
)


def recipe(architecture: str) -> Recipe:
    """With experts or without."""
    return Recipe(
        architecture,
        metadata,
        _NAME,
        encoder.is_matrix,
        left_out=_left_out,
        pieces=_pieces,
        config=config,
    )


NOMIC_BERT, NOMIC_BERT_MOE = recipe("nomic-bert"), recipe("nomic-bert-moe")
