"""GPT-NeoX and Pythia: names, keys, and q, k and v apart where a checkpoint has them by heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import PARTIAL, read_rope, rope_keys, rotary_dims
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {
    "input_layernorm": "attn_norm",
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}
_FIXED = {
    "gpt_neox.embed_in": "token_embd",
    "gpt_neox.final_layer_norm": "output_norm",
    "embed_out": "output",
    "lm_head": "output",
}
_MASKS = (".attention.bias", ".attention.masked_bias")  # constants, in old checkpoints


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "gelu")
    folder.require("attention_bias", True)
    width = decoder.head_dim(folder)
    parallel = folder.config.get("use_parallel_residual", True) is True
    dims = rotary_dims(folder, width, "rotary_pct", share=0.25)
    return {
        **decoder.dimension_keys(folder, "gptneox", "layer_norm_eps"),
        "gptneox.rope.dimension_count": (dims, "u32"),
        "gptneox.use_parallel_residual": (parallel, "bool"),
        **rope_keys("gptneox", *read_rope(folder, ("default", "linear"), also=(PARTIAL,))),
        **tokenizer_keys(folder),
    }


def row_order(folder: ModelFolder, tensor: str) -> npt.NDArray[np.intp] | None:
    """Checkpoints have each head's q, k and v together; files all of q, then k, then v."""
    if tensor.split(".")[-2] != "attn_qkv":
        return None
    heads, width = folder.count("num_attention_heads"), decoder.head_dim(folder)
    return np.arange(3 * heads * width).reshape(heads, 3, width).swapaxes(0, 1).reshape(-1)


def config(folder: ModelFolder) -> dict[str, Any]:
    """Every head has a key; old checkpoints have the frequencies' base under a name of its own."""
    found = {"rope_theta": folder.config.get("rotary_emb_base", 10000), **folder.config}
    return {**found, "num_key_value_heads": found.get("num_attention_heads")}


GPTNEOX = Recipe(
    "gptneox",
    metadata,
    decoder.namer(
        "GPT-NeoX",
        LAYER,
        (*LAYER.values(), "output_norm"),
        fixed=_FIXED,
        layers="gpt_neox.layers",
        left_out=_MASKS,
    ),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values(), LAYER.values()),
    row_order=row_order,
    config=config,
)
