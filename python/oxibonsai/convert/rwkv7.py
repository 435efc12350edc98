"""RWKV-7 as flash-linear-attention saves it: names and keys."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, UnsupportedError

# Nothing in these models ends at a position; GGUF wants a number.
_CONTEXT = 2**20
# Of the norm over a head, whose epsilon is head_dim times that of the others: no file has it.
_HEAD_EPSILON = 64e-5
_FIXED = {
    "model.embeddings.weight": "token_embd.weight",
    "model.layers.0.pre_norm.weight": "token_embd_norm.weight",
    "model.layers.0.pre_norm.bias": "token_embd_norm.bias",
    "model.norm.weight": "output_norm.weight",
    "model.norm.bias": "output_norm.bias",
    "lm_head.weight": "output.weight",
}
_PARTS = {
    "attn_norm.weight": "attn_norm.weight",
    "attn_norm.bias": "attn_norm.bias",
    "ffn_norm.weight": "attn_norm_2.weight",
    "ffn_norm.bias": "attn_norm_2.bias",
    "attn.r_proj.weight": "time_mix_receptance.weight",
    "attn.k_proj.weight": "time_mix_key.weight",
    "attn.v_proj.weight": "time_mix_value.weight",
    "attn.o_proj.weight": "time_mix_output.weight",
    "attn.g_norm.weight": "time_mix_ln.weight",
    "attn.g_norm.bias": "time_mix_ln.bias",
    "attn.x_x": "time_mix_lerp_fused.weight",
    "ffn.x_k": "channel_mix_lerp_k.weight",
    "ffn.key.weight": "channel_mix_key.weight",
    "ffn.value.weight": "channel_mix_value.weight",
    **{f"attn.{name}": f"time_mix_{name}.weight" for name in ("k_k", "k_a", "r_k")},
}
# Pairs of small matrices, by the first letters of their names, and what config.json calls their ranks.
_RANKS = {
    "w": "decay_low_rank_dim",
    "a": "a_low_rank_dim",
    "v": "v_low_rank_dim",
    "g": "gate_low_rank_dim",
}
_PAIRS = {
    f"attn.{letter}_lora.lora.{own}": f"time_mix_{letter}{place}.weight"
    for letter in _RANKS
    for own, place in (("0.weight", 1), ("2.weight", 2), ("2.bias", 0))
    if (letter, place) != ("g", 0)
}
_LAYER = {**_PARTS, **_PAIRS}
_NAME = decoder.ExactNamer("RWKV-7", _FIXED, _LAYER)
# How much of the token before joins what is mixed for receptance, decay, key, value, rate and gate.
_SHARES = re.compile(r"model\.layers\.([0-9]{1,4})\.attn\.x_([rwkvag])")
_SHARE_ORDER = "rwkvag"
_FIRST_RATES = re.compile(r"blk\.0\.time_mix_a([012])\.weight")


def pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return a share of the token before, and the first layer's matrices of rates.

    The first layer mixes no values, but llama.cpp wants its matrices, and takes those of the rates.
    """
    share = _SHARES.fullmatch(parameter)
    if share is not None:
        tensor = f"blk.{int(share[1])}.time_mix_lerp_fused.weight"
        return (Piece(tensor, _SHARE_ORDER.index(share[2])),)
    if parameter in _FIXED or not parameter.startswith("model.layers.0."):
        return ()
    name = _NAME(parameter)
    rate = _FIRST_RATES.fullmatch(name)
    return (Piece(name), Piece(f"blk.0.time_mix_v{rate[1]}.weight")) if rate is not None else ()


def left_out(folder: ModelFolder, parameter: str) -> bool:
    """Return whether a parameter is one of the first layer's values, which nobody reads."""
    return parameter.startswith("model.layers.0.attn.v_lora.")


def shape(folder: ModelFolder, tensor: str, held: tuple[int, ...]) -> tuple[int, ...]:
    """Shares of the token before lie one after the other; vectors have one axis."""
    size = folder.count("hidden_size")
    if tensor.endswith("time_mix_lerp_fused.weight"):
        wanted = (len(_SHARE_ORDER), 1, 1, size)
        return wanted if [n for n in held if n > 1] == [n for n in wanted if n > 1] else held
    vector = tensor.endswith(("_r_k.weight", "_lerp_k.weight"))
    return (size,) if vector and math.prod(held) == size else held


def parameter_shape(folder: ModelFolder, tensor: str, held: tuple[int, ...]) -> tuple[int, ...]:
    """Return the vector that weighs a token's own value has an axis of heads."""
    size = _head_dim(folder)
    return (held[0] // size, size) if tensor.endswith("_r_k.weight") else held


def is_matrix(tensor: str) -> bool:
    """Weights of linear layers and of the token table; the decay's small matrices stay f32."""
    kept = ("norm", "_lerp_", "time_mix_w1.", "time_mix_w2.")
    vectors = ("time_mix_ln.", "_k_k.", "_k_a.", "_r_k.", *(f"time_mix_{c}0." for c in _RANKS))
    return tensor.endswith(".weight") and not any(part in tensor for part in (*kept, *vectors))


def _head_dim(folder: ModelFolder) -> int:
    if folder.config.get("head_dim") is not None:
        return folder.count("head_dim")
    return folder.count("hidden_size") // folder.count("num_heads")


def _ff(folder: ModelFolder) -> int:
    if folder.config.get("intermediate_size") is not None:
        return folder.count("intermediate_size")
    return 4 * folder.count("hidden_size")


def _rank(folder: ModelFolder, letter: str) -> int:
    """Return the rank of a pair of small matrices, from the first matrix if no configuration says it."""
    if folder.config.get(_RANKS[letter]) is not None:
        return folder.count(_RANKS[letter])
    layer = 1 if letter == "v" else 0  # the first layer mixes no values
    name = f"model.layers.{layer}.attn.{letter}_lora.lora.0.weight"
    held = folder.parameters.get(name)
    if held is None:
        raise FormatError(f"{folder.path / 'config.json'} lacks {_RANKS[letter]}")
    return held.shape[0]


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "sqrelu")
    folder.require("norm_first", True)
    folder.require("norm_bias", True)
    folder.require("attn", None)
    epsilon = folder.real("norm_eps", 1e-5)
    if abs(epsilon * _head_dim(folder) / _HEAD_EPSILON - 1.0) > 1e-6:
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: norm_eps is {epsilon} with heads of {_head_dim(folder)} "
            f"values; GGUF has no place for an epsilon of their norms other than {_HEAD_EPSILON:g}"
        )
    counts = {
        "context_length": _CONTEXT,
        "embedding_length": folder.count("hidden_size"),
        "block_count": folder.count("num_hidden_layers"),
        "feed_forward_length": _ff(folder),
        "attention.head_count": 0,
        "vocab_size": folder.count("vocab_size"),
        "wkv.head_size": _head_dim(folder),
        "attention.decay_lora_rank": _rank(folder, "w"),
        "attention.iclr_lora_rank": _rank(folder, "a"),
        "attention.value_residual_mix_lora_rank": _rank(folder, "v"),
        "attention.gate_lora_rank": _rank(folder, "g"),
    }
    return {
        **{f"rwkv7.{k}": (v, "u32") for k, v in counts.items()},
        "rwkv7.attention.layer_norm_epsilon": (epsilon, "f32"),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    hidden, ff = folder.count("hidden_size"), _ff(folder)
    table = (folder.count("vocab_size"), hidden)
    vectors = (
        "attn_norm.weight", "attn_norm.bias", "attn_norm_2.weight", "attn_norm_2.bias",
        "time_mix_ln.weight", "time_mix_ln.bias", "channel_mix_lerp_k.weight",
        *(f"time_mix_{name}.weight" for name in ("k_k", "k_a", "r_k", "w0", "a0", "v0")),
    )  # fmt: skip
    layer: Shapes = {
        **dict.fromkeys(vectors, (hidden,)),
        **{
            f"time_mix_{name}.weight": (hidden, hidden)
            for name in ("receptance", "key", "value", "output")
        },
        **{f"time_mix_{c}1.weight": (_rank(folder, c), hidden) for c in _RANKS},
        **{f"time_mix_{c}2.weight": (hidden, _rank(folder, c)) for c in _RANKS},
        "time_mix_lerp_fused.weight": (len(_SHARE_ORDER), 1, 1, hidden),
        "channel_mix_key.weight": (ff, hidden),
        "channel_mix_value.weight": (hidden, ff),
    }
    found: Shapes = {"token_embd.weight": table}
    if folder.config.get("tie_word_embeddings", False) is False:
        found["output.weight"] = table
    for norm in ("token_embd_norm", "output_norm"):
        found |= {f"{norm}.weight": (hidden,), f"{norm}.bias": (hidden,)}
    for i in range(folder.count("num_hidden_layers")):
        own = layer
        if i == 0:
            rate = _rank(folder, "a")
            first = {"time_mix_v1.weight": (rate, hidden), "time_mix_v2.weight": (hidden, rate)}
            own = {**layer, **first}
        found |= {f"blk.{i}.{part}": size for part, size in own.items()}
    return found


RWKV7 = Recipe(
    "rwkv7",
    metadata,
    _NAME,
    is_matrix,
    shapes=_shapes,
    pieces=pieces,
    left_out=left_out,
    shape=shape,
    parameter_shape=parameter_shape,
    most_dims=4,
)
