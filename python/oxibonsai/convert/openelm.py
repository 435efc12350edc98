"""OpenELM: names, keys, and layers of different sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

_LAYER = {
    "attn_norm": "attn_norm",
    "attn.qkv_proj": "attn_qkv",
    "attn.out_proj": "attn_output",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "ffn_norm": "ffn_norm",
    "ffn.proj_2": "ffn_down",
}
_FIXED = {"transformer.token_embeddings": "token_embd", "transformer.norm": "output_norm"}
_GATE_UP = re.compile(r"transformer\.layers\.([0-9]{1,4})\.ffn\.proj_1\.weight")
_EPSILON = 1e-6  # which no configuration says
_NAMES = {
    "model_dim": "hidden_size",
    "num_transformer_layers": "num_hidden_layers",
    "max_context_length": "max_position_embeddings",
}


def config(folder: ModelFolder) -> dict[str, Any]:
    """Return the configuration under the usual names."""
    found = folder.config
    return {**found, **{usual: found.get(own) for own, usual in _NAMES.items()}}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("activation_fn_name", "swish")
    folder.require("normalization_layer_name", "rms_norm")
    folder.require("normalize_qk_projections", True)
    folder.require("ffn_with_glu", True)
    folder.require("share_input_output_layers", True)
    width = (folder.count("head_dim"), "u32")
    counts = {
        "block_count": folder.count("num_hidden_layers"),
        "context_length": folder.count("max_position_embeddings"),
        "embedding_length": folder.count("hidden_size"),
        "rope.dimension_count": folder.count("head_dim"),
    }
    return {
        **{f"openelm.{key}": (value, "u32") for key, value in counts.items()},
        "openelm.feed_forward_length": (_widths(folder), "arr[u32]"),
        "openelm.attention.head_count": (_counts(folder, "num_query_heads"), "arr[u32]"),
        "openelm.attention.head_count_kv": (_counts(folder, "num_kv_heads"), "arr[u32]"),
        "openelm.attention.key_length": width,
        "openelm.attention.value_length": width,
        "openelm.attention.layer_norm_rms_epsilon": (_EPSILON, "f32"),
        "openelm.rope.freq_base": (float(folder.count("rope_freq_constant")), "f32"),
        **tokenizer_keys(folder),
    }


def _counts(folder: ModelFolder, key: str) -> list[int]:
    value: Any = folder.config.get(key)
    layers = folder.count("num_hidden_layers")
    whole = isinstance(value, list) and all(type(n) is int and 0 < n < 2**31 for n in value)
    if not whole or len(value) != layers:
        raise FormatError(
            f"{folder.path / 'config.json'}: {key} is {value!r}, no counts of {layers} layers"
        )
    found: list[int] = value
    return found


def _widths(folder: ModelFolder) -> list[int]:
    """Return the MLPs' widths: multiples of the divisor next to their shares of the model's width."""
    shares: Any = folder.config.get("ffn_multipliers")
    layers, step = folder.count("num_hidden_layers"), folder.count("ffn_dim_divisor")
    numbers = isinstance(shares, list) and all(
        isinstance(s, int | float) and not isinstance(s, bool) and 0 < s < 1e3 for s in shares
    )
    if not numbers or len(shares) != layers:
        raise FormatError(
            f"{folder.path / 'config.json'}: ffn_multipliers are not {layers} numbers"
        )
    wanted = [share * folder.count("hidden_size") for share in shares]
    near = [max(step, int(w + step / 2) // step * step) for w in wanted]
    return [n + step if n < 0.9 * w else n for n, w in zip(near, wanted, strict=True)]


def _pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Gate above up."""
    del folder
    found = _GATE_UP.fullmatch(parameter)
    if found is None:
        return ()

    def half(i: int) -> Callable[[Floats], Floats]:
        return lambda rows: rows[: len(rows) // 2] if i == 0 else rows[len(rows) // 2 :]

    names = ("ffn_gate", "ffn_up")
    return [Piece(f"blk.{int(found[1])}.{n}.weight", part=half(i)) for i, n in enumerate(names)]


OPENELM = Recipe(
    "openelm",
    metadata,
    decoder.namer("OpenELM", _LAYER, fixed=_FIXED, layers="transformer.layers"),
    decoder.is_matrix,
    pieces=_pieces,
    config=config,
)
