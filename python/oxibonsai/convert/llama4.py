"""Llama 4: names and keys; experts lie transposed, gate above up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.multimodal import with_vision
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_factors, rope_keys
from oxibonsai.convert.stacked_experts import transposed_pieces
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import UnsupportedError

_LAYER = {
    **experts.LAYER,
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
    "feed_forward.router": "ffn_gate_inp",
    **experts.shared_names("feed_forward.shared_expert"),
}
_DENSE = ("ffn_gate", "ffn_up", "ffn_down")
_A = "llama4"
_ROPES = ("default", "llama3")
# What files that do not say it have, and how many experts tell of models without norms of q and k.
_CHUNK, _GROWTH, _PERIOD, _EXPERTS_WITHOUT_NORMS = 8192, 0.1, 4, 128


def _width(folder: ModelFolder) -> int:
    return folder.count("intermediate_size")


def _steps(folder: ModelFolder) -> int:
    """Every so many-th layer has experts."""
    step, listed = folder.count("interleave_moe_layer_step"), folder.config.get("moe_layers")
    layers = folder.count("num_hidden_layers")
    if listed is not None and listed != list(range(step - 1, layers, step)):
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: moe_layers are not every {step}-th layer"
        )
    return step


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    folder.require("attn_temperature_tuning", True, 4)
    folder.require("use_qk_norm", experts.count(folder) != _EXPERTS_WITHOUT_NORMS)
    layers, chunk = folder.count("num_hidden_layers"), folder.count("attention_chunk_size")
    with_rope = [int((i + 1) % _PERIOD != 0) for i in range(layers)]
    folder.require("no_rope_layers", None, [], with_rope)
    kinds = ["chunked_attention" if rope else "full_attention" for rope in with_rope]
    folder.require("layer_types", None, kinds)
    keys: Metadata = {
        f"{_A}.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        f"{_A}.feed_forward_length": (folder.count("intermediate_size_mlp"), "u32"),
        f"{_A}.interleave_moe_layer_step": (_steps(folder), "u32"),
    }
    if chunk != _CHUNK:
        keys[f"{_A}.attention.sliding_window"] = (chunk, "u32")
    if folder.config.get("floor_scale", _CHUNK) != _CHUNK:
        keys[f"{_A}.attention.temperature_length"] = (folder.count("floor_scale"), "u32")
    if folder.config.get("attn_scale", _GROWTH) != _GROWTH:
        keys |= decoder.scale_key(folder, f"{_A}.attention.temperature_scale", "attn_scale")
    return {
        **decoder.dimension_keys(folder, _A),
        **experts.expert_keys(folder, _A, ff="intermediate_size"),
        **keys,
        **rope_keys(_A, *read_rope(folder, _ROPES)),
        **tokenizer_keys(folder),
    }


def extra(folder: ModelFolder) -> dict[str, npt.NDArray[np.float32]]:
    """Llama 3's scaling of frequencies."""
    return rope_factors(folder, _ROPES, decoder.head_dim(folder))


def _shapes(folder: ModelFolder) -> Shapes:
    width, hidden = _width(folder), folder.count("hidden_size")
    dense = folder.count("intermediate_size_mlp")
    found = experts.shapes(
        folder,
        set(_LAYER.values()) - set(_DENSE),
        experts=experts.count(folder),
        ff=width,
        shared_ff=width,
    )
    step = _steps(folder)
    for i in range(folder.count("num_hidden_layers")):
        if (i + 1) % step == 0:
            continue
        for part in ("ffn_gate_inp", *experts.STACKS, *experts.SHARED):
            del found[f"blk.{i}.{part}.weight"]
        for part in _DENSE[:2]:
            found[f"blk.{i}.{part}.weight"] = (dense, hidden)
        found[f"blk.{i}.ffn_down.weight"] = (hidden, dense)
    return found


LLAMA4 = Recipe(
    _A,
    metadata,
    decoder.namer("Llama 4", _LAYER),
    experts.is_matrix,
    shapes=_shapes,
    pieces=transposed_pieces,
    extra=extra,
)
LLAMA4_MULTIMODAL = replace(
    with_vision(LLAMA4),
    config=ModelFolder.text_config,
    notes=("the model's part for images is left out: what is made of it takes texts alone",),
)
