"""Mixtral: Llama's names and keys, with experts."""

from __future__ import annotations

from oxibonsai.architectures import llama
from oxibonsai.convert import decoder, experts
from oxibonsai.convert.families import converter_of
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes

_LLAMA = converter_of(llama.FAMILY)
_LAYER = {**experts.LAYER, "block_sparse_moe.gate": "ffn_gate_inp"}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    return _LLAMA.metadata(folder) | experts.expert_keys(folder, "llama", ff=None)


def _shapes(folder: ModelFolder) -> Shapes:
    count, ff = experts.count(folder), folder.count("intermediate_size")
    return experts.shapes(folder, _LAYER.values(), experts=count, ff=ff)


MIXTRAL = Recipe(
    "llama",
    metadata,
    decoder.namer("Mixtral", _LAYER),
    experts.is_matrix,
    shapes=_shapes,
    pieces=expert_pieces,
    row_order=decoder.row_order,
)
