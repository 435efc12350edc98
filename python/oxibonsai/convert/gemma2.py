"""Gemma 2: names and keys; norms hold 1 + w, every second layer sees a window."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import UnsupportedError

LAYER = {
    **decoder.LAYER,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
_LAYERS_OF_27B = 46  # whose scale readers of the file know


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_activation", "gelu_pytorch_tanh")
    folder.require("attention_bias", False)
    keys = {
        **decoder.dimension_keys(folder, "gemma2"),
        "gemma2.attention.sliding_window": (folder.count("sliding_window"), "u32"),
        **rope_keys("gemma2", *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }
    for name, cap in _CAPS.items():
        keys[f"gemma2.{name}"] = (cap, "f32")
        keys |= decoder.scale_key(folder, f"gemma2.{name}", name)
    _check(folder)
    return keys


def _check(folder: ModelFolder) -> None:
    """UnsupportedError for what a file has no key for."""
    where = folder.path / "config.json"
    large = folder.count("num_hidden_layers") == _LAYERS_OF_27B
    heads = folder.count("num_attention_heads")
    known = folder.count("hidden_size") // heads if large else decoder.head_dim(folder)
    if folder.count("query_pre_attn_scalar") != known:
        raise UnsupportedError(
            f"{where}: query_pre_attn_scalar is {folder.config['query_pre_attn_scalar']}; files of "
            f"Gemma 2 have no key for it, and their readers take {known}"
        )
    kinds = ["full_attention" if i % 2 else "sliding_attention" for i in range(_layers(folder))]
    if folder.config.get("layer_types", kinds) != kinds:
        raise UnsupportedError(f"{where}: layer_types is not every second layer, as files have it")


def _layers(folder: ModelFolder) -> int:
    return folder.count("num_hidden_layers")


GEMMA2 = Recipe(
    "gemma2",
    metadata,
    decoder.namer("Gemma 2", LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values(), tied=True),
    offset=lambda tensor: 1.0 if "norm" in tensor else 0.0,
)
