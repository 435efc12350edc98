"""Granite 3 with experts: names, keys, and q and k in the order of interleaved pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.decoder import row_order
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    **experts.LAYER,
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "shared_mlp.output_linear": "ffn_down_shexp",
}
_A = "granitemoe"
_SCALES = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
_STACKED = re.compile(
    r"model\.layers\.([0-9]{1,4})\.(block_sparse_moe|shared_mlp)\.(input|output)_linear\.weight"
)


def pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """All experts are one parameter, the gate's rows above those of the other half."""
    found = _STACKED.fullmatch(parameter)
    if found is None:
        return ()
    end = "exps" if found[2] == "block_sparse_moe" else "shexp"
    b = f"blk.{int(found[1])}.ffn"
    if found[3] == "output":
        return (Piece(f"{b}_down_{end}.weight", part=lambda v: v),)
    ff = folder.count("intermediate_size" if end == "exps" else "shared_intermediate_size")
    return (
        Piece(f"{b}_gate_{end}.weight", part=lambda v: v[..., :ff, :]),
        Piece(f"{b}_up_{end}.weight", part=lambda v: v[..., ff:, :]),
    )


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    folder.require("position_embedding_type", None, "rope")
    keys: Metadata = {
        **decoder.dimension_keys(folder, _A),
        **experts.expert_keys(folder, _A, ff=None),
        f"{_A}.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys(_A, *read_rope(folder, ("default", "linear", "yarn"))),
        **tokenizer_keys(folder),
    }
    for key, name in _SCALES.items():
        keys |= decoder.scale_key(folder, f"{_A}.{key}", name)
    if shared := _shared_width(folder):
        keys[f"{_A}.expert_shared_feed_forward_length"] = (shared, "u32")
    return keys


def _shared_width(folder: ModelFolder) -> int:
    return folder.count_or_zero("shared_intermediate_size")


def _shapes(folder: ModelFolder) -> Shapes:
    return experts.shapes(
        folder,
        experts.LAYER.values(),
        experts=experts.count(folder),
        ff=folder.count("intermediate_size"),
        shared_ff=_shared_width(folder),
    )


GRANITEMOE = Recipe(
    _A,
    metadata,
    decoder.namer("Granite with experts", _LAYER),
    experts.is_matrix,
    shapes=_shapes,
    pieces=pieces,
    row_order=row_order,
)
