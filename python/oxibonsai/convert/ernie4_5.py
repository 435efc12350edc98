"""ERNIE 4.5, without experts: names and keys."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_BIASED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    return {
        **decoder.dimension_keys(folder, "ernie4_5"),
        **rope_keys("ernie4_5", *read_rope(folder, ("default", "linear"))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    biased = _BIASED if folder.config.get("use_bias") is True else ()
    return decoder.shapes(folder, decoder.LAYER.values(), biased, tied=True)


ERNIE4_5 = Recipe(
    "ernie4_5",
    metadata,
    decoder.namer("ERNIE 4.5", decoder.LAYER, _BIASED),
    decoder.is_matrix,
    shapes=_shapes,
)
