"""OLMo: names and keys; no norm has a weight, q and k are in the order of interleaved pairs."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.decoder import row_order
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {k: v for k, v in decoder.LAYER.items() if "norm" not in v}
_FIXED = {"model.embed_tokens": "token_embd", "lm_head": "output"}


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    return {
        **decoder.dimension_keys(folder, "olmo", "layer_norm_eps"),
        **decoder.scale_key(folder, "olmo.attention.clamp_kqv", "clip_qkv"),
        **rope_keys("olmo", *read_rope(folder, ("default", "linear"))),
        **tokenizer_keys(folder),
    }


OLMO = Recipe(
    "olmo",
    metadata,
    decoder.namer("OLMo", LAYER, fixed=_FIXED),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values(), fixed=("token_embd",)),
    row_order=row_order,
)
