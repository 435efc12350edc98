"""T5, whole or its encoder alone: names and keys."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from oxibonsai.convert import encoder
from oxibonsai.convert.decoder import key_of
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pooling import pooling_keys, projection_keys, projections
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, UnsupportedError

_ATTENTION = {
    "layer.0.SelfAttention.q": "attn_q",
    "layer.0.SelfAttention.k": "attn_k",
    "layer.0.SelfAttention.v": "attn_v",
    "layer.0.SelfAttention.o": "attn_o",
    "layer.0.SelfAttention.relative_attention_bias": "attn_rel_b",
    "layer.0.layer_norm": "attn_norm",
}
_CROSS_ATTENTION = {
    "layer.1.EncDecAttention.q": "cross_attn_q",
    "layer.1.EncDecAttention.k": "cross_attn_k",
    "layer.1.EncDecAttention.v": "cross_attn_v",
    "layer.1.EncDecAttention.o": "cross_attn_o",
    "layer.1.EncDecAttention.relative_attention_bias": "cross_attn_rel_b",  # of old models, unused
    "layer.1.layer_norm": "cross_attn_norm",
}
_FEED_FORWARD = {
    "DenseReluDense.wi": "ffn_up",
    "DenseReluDense.wi_0": "ffn_gate",
    "DenseReluDense.wi_1": "ffn_up",
    "DenseReluDense.wo": "ffn_down",
    "layer_norm": "ffn_norm",
}
# By the side, whose feed-forward part is its last: GGUF's name of it, and of the parts of its layers.
_PARTS = {
    "encoder": ("enc", {**_ATTENTION, **{f"layer.1.{k}": v for k, v in _FEED_FORWARD.items()}}),
    "decoder": (
        "dec",
        {
            **_ATTENTION,
            **_CROSS_ATTENTION,
            **{f"layer.2.{k}": v for k, v in _FEED_FORWARD.items()},
        },
    ),
}
_FIXED = {
    "shared": "token_embd",
    "lm_head": "output",
    "encoder.final_layer_norm": "enc.output_norm",
    "decoder.final_layer_norm": "dec.output_norm",
}
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_NAMES = {
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "d_kv": "head_dim",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "n_positions": "max_position_embeddings",
}
_POSITIONS = 512  # where the configuration does not say; no weight depends on it
_LAYER = re.compile(r"(encoder|decoder)\.block\.([0-9]{1,4})\.(.+)")


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the usual names."""
    return {"max_position_embeddings": _POSITIONS, **encoder.renamed(_NAMES)(folder)}


@dataclass(frozen=True)
class T5Namer:
    """GGUF's name of a parameter, and the way back.

    Attributes:
        gated: Whether the feed-forward parts have a gate, which gives the other matrix another name.
    """

    gated: bool

    def __call__(self, parameter: str) -> str | None:
        """GGUF's name; None for a further copy of the table."""
        if parameter in _COPIES:
            return None
        module, _, last = parameter.rpartition(".")
        if last == "weight" and (layer := _LAYER.fullmatch(module)) is not None:
            side, parts = self._parts(layer[1])
            if layer[3] in parts:
                return f"{side}.blk.{int(layer[2])}.{parts[layer[3]]}.weight"
        if last == "weight" and module in _FIXED:
            return f"{_FIXED[module]}.weight"
        raise UnsupportedError(f"the model has the parameter {parameter}, which is none of T5's")

    def parameter(self, tensor: str) -> str | None:
        """Return the parameter that GGUF calls ``tensor``; None where it is none of the family's."""
        stem, _, last = tensor.rpartition(".")
        if last != "weight":
            return None
        layer = re.fullmatch(r"(enc|dec)\.blk\.([0-9]{1,4})\.(.+)", stem)
        if layer is None:
            module = key_of(_FIXED, stem)
            return None if module is None else f"{module}.weight"
        side = "encoder" if layer[1] == "enc" else "decoder"
        module = key_of(self._parts(side)[1], layer[3])
        return None if module is None else f"{side}.block.{layer[2]}.{module}.weight"

    def _parts(self, side: str) -> tuple[str, dict[str, str]]:
        short, parts = _PARTS[side]
        others = ("Dense.wi",) if self.gated else ("Dense.wi_0", "Dense.wi_1")
        return short, {k: v for k, v in parts.items() if not k.endswith(others)}


def _model_keys(folder: ModelFolder, architecture: str) -> Metadata:
    folder.require("feed_forward_proj", "relu", "gated-gelu")
    folder.require("relative_attention_max_distance", 128)
    width = (folder.count("head_dim"), "u32")
    epsilon = (folder.real("layer_norm_epsilon", 1e-6), "f32")
    counts = {
        "block_count": folder.count("num_hidden_layers"),
        "context_length": folder.count("max_position_embeddings"),
        "embedding_length": folder.count("hidden_size"),
        "feed_forward_length": folder.count("intermediate_size"),
        "attention.head_count": folder.count("num_attention_heads"),
        "attention.relative_buckets_count": folder.count("relative_attention_num_buckets"),
    }
    return {
        **{f"{architecture}.{key}": (value, "u32") for key, value in counts.items()},
        f"{architecture}.attention.key_length": width,
        f"{architecture}.attention.value_length": width,
        f"{architecture}.attention.layer_norm_epsilon": epsilon,
        f"{architecture}.attention.layer_norm_rms_epsilon": epsilon,
    }


def encoder_metadata(folder: ModelFolder) -> Metadata:
    """Keys of the encoder alone, then its tokenizer's."""
    return {
        **_model_keys(folder, "t5encoder"),
        **pooling_keys(folder, "t5encoder", projects=True),
        **projection_keys(folder, "t5encoder"),
        **tokenizer_keys(folder),
    }


def _check_outputs(folder: ModelFolder) -> None:
    """Check the output matrix: with one of its own, a file has logits as they are; others scale them."""
    config = folder.config
    # Before version 5 of transformers one key said both; mT5 in this version never scales.
    tied = config.get("tie_word_embeddings") is not False and config["model_type"] != "mt5"
    scaled = config.get("scale_decoder_outputs", tied)
    own = "lm_head.weight" in folder.parameters
    if scaled is own or not isinstance(scaled, bool):
        raise UnsupportedError(
            f"{folder.path} has {'an' if own else 'no'} lm_head.weight, and its config.json says that "
            f"logits are {'' if scaled else 'not '}scaled, which a GGUF file cannot express"
        )


def metadata(folder: ModelFolder) -> Metadata:
    """Keys of both sides, then the tokenizer's."""
    _check_outputs(folder)
    start = folder.config.get("decoder_start_token_id")
    if type(start) is not int or not 0 <= start < folder.count("vocab_size"):
        raise FormatError(
            f"{folder.path / 'config.json'}: decoder_start_token_id is {start!r}, no token"
        )
    return {
        **_model_keys(folder, "t5"),
        "t5.decoder_block_count": (folder.count("num_decoder_layers"), "u32"),
        "t5.decoder_start_token_id": (start, "u32"),
        **tokenizer_keys(folder),
    }


def is_matrix(tensor: str) -> bool:
    """Return the weights of linear layers and the token table, not the biases by distance."""
    return encoder.is_matrix(tensor) and "attn_rel_b" not in tensor


def _named(recipe: Recipe) -> Recipe:
    """Return the recipe with the names of a model's own kind of feed-forward part."""
    gated = replace(recipe, tensor_name=T5Namer(gated=True))
    return replace(
        recipe,
        variant=lambda folder: (
            gated if folder.config.get("feed_forward_proj") == "gated-gelu" else recipe
        ),
    )


_PLAIN = T5Namer(gated=False)
T5_ENCODER = _named(
    Recipe("t5encoder", encoder_metadata, _PLAIN, is_matrix, config=config, extra=projections)
)
T5 = _named(Recipe("t5", metadata, _PLAIN, is_matrix, config=config))
