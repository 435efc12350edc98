"""StableLM: names and keys, of the models whose halves follow each other."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import PARTIAL, read_rope, rope_keys, rotary_dims
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_BIASED = ("attn_q", "attn_k", "attn_v")
_NORMS = ("attn_norm", "ffn_norm")


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("qk_layernorm", False)
    folder.require("use_parallel_residual", False)
    width = decoder.head_dim(folder)
    dims = rotary_dims(folder, width, "rope_pct", share=0.25)
    return {
        **decoder.dimension_keys(folder, "stablelm", "layer_norm_eps"),
        "stablelm.rope.dimension_count": (dims, "u32"),
        "stablelm.use_parallel_residual": (False, "bool"),
        **rope_keys("stablelm", *read_rope(folder, ("default", "linear"), also=(PARTIAL,))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    biased = (*_BIASED, *_NORMS) if folder.config.get("use_qkv_bias") is True else _NORMS
    return decoder.shapes(folder, decoder.LAYER.values(), biased)


STABLELM = Recipe(
    "stablelm",
    metadata,
    decoder.namer("StableLM", decoder.LAYER, (*_BIASED, *_NORMS, "output_norm")),
    decoder.is_matrix,
    shapes=_shapes,
)
