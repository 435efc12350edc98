"""Phi-3, Phi-3.5 and Phi-4: names, keys, and LongRoPE's two tables of factors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import rotary_dims
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, UnsupportedError

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LONG = {"short": "rope_factors_short.weight", "long": "rope_factors_long.weight"}


def metadata(folder: ModelFolder, architecture: str = "phi3") -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    a = architecture
    width = decoder.head_dim(folder)
    window = folder.config.get("sliding_window")
    return {
        **decoder.dimension_keys(folder, a),
        f"{a}.rope.dimension_count": (rotary_dims(folder, width), "u32"),
        f"{a}.rope.scaling.original_context_length": (_original(folder), "u32"),
        **rope_keys(folder, a),
        # Zero tells Phi-4 from the others.
        f"{a}.attention.sliding_window": (
            0 if window is None else folder.count("sliding_window"),
            "u32",
        ),
        **tokenizer_keys(folder),
    }


def rope_keys(folder: ModelFolder, architecture: str) -> Metadata:
    """Return GGUF's keys of LongRoPE beside the tables of factors."""
    prefix = f"{architecture}.rope"
    keys: Metadata = {f"{prefix}.freq_base": (_theta(folder), "f32")}
    if factors(folder):
        keys[f"{prefix}.scaling.original_context_length"] = (_original(folder), "u32")
        keys[f"{prefix}.scaling.attn_factor"] = (_magnitude(folder), "f32")
    return keys


def _magnitude(folder: ModelFolder) -> float:
    """Return the magnitude of LongRoPE's cos and sin, stated or from the extension."""
    times = folder.count("max_position_embeddings") / _original(folder)
    stated = _rope(folder).get("long_mscale" if times > 1.0 else "short_mscale")
    if stated is None:
        spread = 1.0 + math.log(times) / math.log(_original(folder)) if times > 1.0 else 1.0
        return math.sqrt(spread)
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 < stated < 100:
        raise FormatError(f"{folder.path / 'config.json'}: mscale is {stated!r}, not above zero")
    return float(stated)


def _rope(folder: ModelFolder) -> dict[str, Any]:
    """Where the rotary embedding is described: ``rope_parameters`` or ``rope_scaling``."""
    rope: Any = folder.config.get("rope_parameters") or folder.config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "longrope", "su"):
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: rope_type is {kind!r}; convert knows default and longrope"
        )
    return dict(rope)


def _theta(folder: ModelFolder) -> float:
    theta = _rope(folder).get("rope_theta", folder.config.get("rope_theta", 10000.0))
    if isinstance(theta, bool) or not isinstance(theta, int | float) or not 1 < theta < 2**31:
        raise FormatError(f"{folder.path / 'config.json'}: rope_theta is {theta!r}, not above one")
    return float(theta)


def _original(folder: ModelFolder) -> int:
    """Positions of the model before its context was extended."""
    name = "original_max_position_embeddings"
    found = _rope(folder).get(name, folder.config.get(name))
    if found is None:
        return folder.count("max_position_embeddings")
    if isinstance(found, bool) or not isinstance(found, int) or not 1 < found < 2**31:
        raise FormatError(f"{folder.path / 'config.json'}: {name} is {found!r}, not a count")
    return found


def factors(folder: ModelFolder) -> dict[str, npt.NDArray[np.float32]]:
    """LongRoPE's divisors of the frequencies."""
    rope, found = _rope(folder), {}
    for length, tensor in _LONG.items():
        values = rope.get(f"{length}_factor")
        if values is None:
            continue
        pairs = rotary_dims(folder, decoder.head_dim(folder)) // 2
        numbers = isinstance(values, list) and all(
            isinstance(v, int | float) and not isinstance(v, bool) and 0 < v < 1e6 for v in values
        )
        if not numbers or len(values) != pairs:
            raise FormatError(
                f"{folder.path / 'config.json'}: {length}_factor does not list {pairs} numbers above 0"
            )
        found[tensor] = np.array(values, dtype=np.float32)
    if len(found) == 1:
        raise FormatError(f"{folder.path / 'config.json'} has one of long_factor and short_factor")
    return found


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    up = {"ffn_up": (2 * folder.count("intermediate_size"), folder.count("hidden_size"))}
    return decoder.shapes(folder, LAYER.values(), special=up)


PHI3 = Recipe(
    "phi3",
    metadata,
    decoder.namer("Phi-3", LAYER),
    decoder.is_matrix,
    shapes=_shapes,
    extra=factors,
)
