"""ModernBERT: names and keys."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import encoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pooling import classifier_pooling_keys, pooling_keys
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, UnsupportedError

_FIXED = {
    "embeddings.tok_embeddings": "token_embd",
    "embeddings.norm": "token_embd_norm",
    "final_norm": "output_norm",
    "head.dense": "cls",
    "head.norm": "cls.norm",
    "classifier": "cls.output",
}
_LAYER = {
    "attn_norm": "attn_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.Wo": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.Wi": "ffn_up",
    "mlp.Wo": "ffn_down",
}
_NAME = "modern-bert"
_GLOBAL_THETA, _LOCAL_THETA, _PERIOD = 160000.0, 10000.0, 3


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_activation", "gelu", "silu")
    for key in ("norm_bias", "attention_bias", "mlp_bias"):
        folder.require(key, False)
    every, local = _thetas(folder)
    window = f"{_NAME}.attention.sliding_window"
    return {
        **encoder.dimension_keys(folder, _NAME, "norm_eps"),
        window: (folder.count("local_attention"), "u32"),
        f"{window}_pattern": (_period(folder), "u32"),
        f"{_NAME}.rope.freq_base": (every, "f32"),
        f"{_NAME}.rope.freq_base_swa": (local, "f32"),
        f"{_NAME}.rope.scaling.type": ("none", "str"),
        f"{_NAME}.hidden_activation": (folder.config.get("hidden_activation", "gelu"), "str"),
        f"{_NAME}.vocab_size": (folder.count("vocab_size"), "u32"),
        **pooling_keys(folder, _NAME),
        **classifier_pooling_keys(folder, _NAME),
        **tokenizer_keys(folder),
    }


def _thetas(folder: ModelFolder) -> tuple[float, float]:
    """Bases of the rotary embeddings of global and of local layers."""
    rope: Any = folder.config.get("rope_parameters")
    kinds = ("full_attention", "sliding_attention")
    if isinstance(rope, dict) and set(rope) >= set(kinds):
        every, local = (read_rope(folder, ("default",), rope[k])[1]["rope_theta"] for k in kinds)
        return every, local
    names = {"global_rope_theta": _GLOBAL_THETA, "local_rope_theta": _LOCAL_THETA}
    stated = ({"rope_theta": folder.config.get(n) or default} for n, default in names.items())
    every, local = (read_rope(folder, ("default",), s)[1]["rope_theta"] for s in stated)
    return every, local


def _period(folder: ModelFolder) -> int:
    """Every n-th layer is global, the first among them; newer configurations list all kinds."""
    kinds = folder.config.get("layer_types")
    if kinds is None:
        stated = folder.config.get("global_attn_every_n_layers") is not None
        return folder.count("global_attn_every_n_layers") if stated else _PERIOD
    layers = folder.count("num_hidden_layers")
    full = "full_attention"
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise FormatError(
            f"{folder.path / 'config.json'}: layer_types does not list {layers} layers"
        )
    others = [i for i, kind in enumerate(kinds) if kind == full and i > 0]
    period = others[0] if others else max(layers, _PERIOD)
    if kinds != [full if i % period == 0 else "sliding_attention" for i in range(layers)]:
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: layer_types has no period, which GGUF has no place for"
        )
    return period


def _left_out(folder: ModelFolder, parameter: str) -> bool:
    """Return the head of a masked language model."""
    return parameter.startswith("head.") and not encoder.classifies(folder)


MODERN_BERT = Recipe(
    _NAME,
    metadata,
    encoder.EncoderNamer(
        "ModernBERT", "layers", _LAYER, _FIXED, prefixes=("model.",), left_out=("decoder.",)
    ),
    encoder.is_matrix,
    left_out=_left_out,
)
