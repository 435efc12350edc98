"""Gemma 3 (text): names and keys; norms hold 1 + w, some layers see a window only."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, UnsupportedError

LAYER = {
    **decoder.LAYER,
    **decoder.HEAD_NORMS,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_LOCAL_THETA = 10000.0


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("use_bidirectional_attention", False, None)
    return shared_metadata(folder)


def shared_metadata(folder: ModelFolder) -> Metadata:
    """Return the keys that the decoder and the encoder with these layers share."""
    folder.require("hidden_activation", "gelu_pytorch_tanh")
    folder.require("attention_bias", False)
    keys = {
        **decoder.dimension_keys(folder, "gemma3"),
        "gemma3.attention.sliding_window": (folder.count("sliding_window"), "u32"),
        "gemma3.attention.sliding_window_pattern": (_pattern(folder), "u32"),
        **_rope(folder),
    }
    scalar = folder.count("query_pre_attn_scalar")
    if scalar != decoder.head_dim(folder):
        keys["gemma3.attention.scale"] = (scalar**-0.5, "f32")
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        cap = folder.config.get(name)
        if cap is None:
            continue
        if isinstance(cap, bool) or not isinstance(cap, int | float) or not 0 < cap < 1e6:
            raise FormatError(f"{folder.path / 'config.json'}: {name} is {cap!r}, not above zero")
        keys[f"gemma3.{name}"] = (float(cap), "f32")
    return keys | tokenizer_keys(folder)


def _pattern(folder: ModelFolder) -> int:
    """Every n-th layer is global; newer configurations list the kinds of all layers."""
    types = folder.config.get("layer_types")
    if types is None:
        old = folder.config.get("_sliding_window_pattern") is not None
        key = "_sliding_window_pattern" if old else "sliding_window_pattern"
        return folder.count(key) if folder.config.get(key) is not None else 6
    layers = folder.count("num_hidden_layers")
    if not isinstance(types, list) or len(types) != layers:
        raise FormatError(
            f"{folder.path / 'config.json'}: layer_types does not list {layers} layers"
        )
    full = "full_attention"
    period = types.index(full) + 1 if full in types else max(layers + 1, 6)
    expected = [full if (i + 1) % period == 0 else "sliding_attention" for i in range(layers)]
    if types != expected:
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: layer_types has no period, which GGUF has no place for"
        )
    return period


def _rope(folder: ModelFolder) -> Metadata:
    """Two rotary embeddings: of global layers, and of those with a window, which is never scaled."""
    rope: Any = folder.config.get("rope_parameters")
    local_theta = folder.config.get("rope_local_base_freq", _LOCAL_THETA)
    if isinstance(rope, dict) and "full_attention" in rope:
        local = rope.get("sliding_attention")
        local_theta = read_rope(folder, ("default",), local)[1]["rope_theta"]
        rope = rope["full_attention"]
    keys = rope_keys("gemma3", *read_rope(folder, ("default", "linear"), rope))
    if isinstance(local_theta, bool) or not isinstance(local_theta, int | float):
        raise FormatError(f"{folder.path / 'config.json'}: rope_local_base_freq is no number")
    return keys | {"gemma3.rope.freq_base_swa": (float(local_theta), "f32")}


GEMMA3 = Recipe(
    "gemma3",
    metadata,
    decoder.namer("Gemma 3", LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, LAYER.values(), tied=True),
    offset=lambda tensor: 1.0 if "norm" in tensor else 0.0,
)
