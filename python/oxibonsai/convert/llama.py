"""Llama 1 to 3, SmolLM2, Mistral: names, keys, and q and k in the order of interleaved pairs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import llama3_factors, read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_BIASED = ("attn_q", "attn_k", "attn_v", "attn_output")
_ROPES = ("default", "linear", "yarn", "llama3")


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("mlp_bias", False)
    folder.require("sliding_window", None)  # of older Mistral models
    return {
        **decoder.dimension_keys(folder, "llama"),
        "llama.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("llama", *read_rope(folder, _ROPES)),
        **tokenizer_keys(folder),
    }


def row_order(folder: ModelFolder, tensor: str) -> npt.NDArray[np.intp] | None:
    """Rows of q and k: a head's halves are rotated together there, neighbours in GGUF."""
    part = tensor.split(".")[-2]
    if part not in ("attn_q", "attn_k"):
        return None
    heads = folder.count("num_attention_heads") if part == "attn_q" else decoder.kv_heads(folder)
    return paired_rows(heads, decoder.head_dim(folder))


def paired_rows(heads: int, width: int) -> npt.NDArray[np.intp]:
    """Which row of halves is at each place among interleaved pairs."""
    return np.arange(heads * width).reshape(heads, 2, width // 2).swapaxes(1, 2).reshape(-1)


def extra(folder: ModelFolder) -> dict[str, npt.NDArray[np.float32]]:
    """Llama 3's scaling of frequencies."""
    kind, numbers = read_rope(folder, _ROPES)
    if kind != "llama3":
        return {}
    return {"rope_freqs.weight": llama3_factors(numbers, decoder.head_dim(folder))}


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    biased = _BIASED if folder.config.get("attention_bias") is True else ()
    return decoder.shapes(folder, decoder.LAYER.values(), biased)


LLAMA = Recipe(
    "llama",
    metadata,
    decoder.namer("Llama", decoder.LAYER, _BIASED),
    decoder.is_matrix,
    shapes=_shapes,
    row_order=row_order,
    extra=extra,
)
