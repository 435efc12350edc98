"""Qwen, the first: names and keys."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import UnsupportedError

LAYER = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.w1": "ffn_up",
    "mlp.w2": "ffn_gate",
    "mlp.c_proj": "ffn_down",
}
_FIXED = {"transformer.wte": "token_embd", "transformer.ln_f": "output_norm", "lm_head": "output"}
_RANKS = "qwen.tiktoken"


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the usual names."""
    found = folder.config
    return {
        **found,
        "max_position_embeddings": found.get("max_position_embeddings", found.get("seq_length")),
        "rms_norm_eps": found.get("layer_norm_epsilon", 1e-6),
        "rope_theta": found.get("rope_theta", found.get("rotary_emb_base", 10000.0)),
    }


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's; the feed-forward length counts gate and up."""
    folder.require("no_bias", True)
    folder.require("rotary_pct", 1.0)
    folder.require("scale_attn_weights", True)
    if (folder.path / _RANKS).is_file() and not (folder.path / "tokenizer.json").is_file():
        raise UnsupportedError(
            f"{folder.path} has {_RANKS} and no tokenizer.json, which convert needs: make one of it first"
        )
    return {
        **decoder.dimension_keys(folder, "qwen"),
        **rope_keys("qwen", *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    hidden, half = folder.count("hidden_size"), folder.count("intermediate_size") // 2
    matrices = {"ffn_gate": (half, hidden), "ffn_up": (half, hidden), "ffn_down": (hidden, half)}
    return decoder.shapes(folder, LAYER.values(), ("attn_qkv",), special=matrices)


QWEN = Recipe(
    "qwen",
    metadata,
    decoder.namer("Qwen", LAYER, ("attn_qkv",), fixed=_FIXED, layers="transformer.h"),
    decoder.is_matrix,
    shapes=_shapes,
    config=config,
)
