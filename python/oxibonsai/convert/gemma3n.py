"""Gemma 3n: names and keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.gemma4 import LAYER as GEMMA4_LAYER
from oxibonsai.convert.gemma4 import kinds, leaves_out_shared, plain_name
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

_A = "gemma3n"
_WIDTHS = "layer_intermediate_sizes"  # of the configuration as it is read here
_LAYER = {
    **{k: v for k, v in GEMMA4_LAYER.items() if not k.startswith(("router", "layer_scalar"))},
    "altup.correct_output_scale": "altup_correct_scale.weight",
    "altup.correction_coefs.weight": "altup_correct_coef.weight",
    "altup.prediction_coefs.weight": "altup_predict_coef.weight",
    "altup.modality_router.weight": "altup_router.weight",
    "altup.router_norm.weight": "altup_router_norm.weight",
    "laurel.linear_left.weight": "laurel_l.weight",
    "laurel.linear_right.weight": "laurel_r.weight",
    "laurel.post_laurel_norm.weight": "laurel_post_norm.weight",
}
_FIXED = {
    **{f"{name}.weight": f"{part}.weight" for name, part in decoder.FIXED.items()},
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
}
_STACKS = {"altup_projections": "altup_proj", "altup_unembed_projections": "altup_unembd_proj"}
_STACKED = re.compile(rf"model\.({'|'.join(_STACKS)})\.([0-9]{{1,2}})\.weight")
_name = decoder.ExactNamer("Gemma 3n", _FIXED, _LAYER)


def _is_matrix(tensor: str) -> bool:
    """All but norms, and what weighs the streams."""
    small = ("altup_correct", "altup_predict", "altup_router", "post_norm")
    return decoder.is_matrix(tensor) and not any(part in tensor for part in small)


def pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the matrix of one stream; none for any other parameter."""
    found = _STACKED.fullmatch(parameter)
    return (Piece(f"{_STACKS[found[1]]}.weight", int(found[2])),) if found else ()


def _with_widths(folder: ModelFolder, config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with one width of all layers for the keys that all models have."""
    layers, widths = config.get("num_hidden_layers"), config.get("intermediate_size")
    listed = widths if isinstance(widths, list) else [widths] * int(layers or 0)
    if len(listed) != layers or any(type(n) is not int or n <= 0 for n in listed):
        raise FormatError(
            f"{folder.path / 'config.json'}: intermediate_size is {widths!r}, no counts of {layers} layers"
        )
    return {**config, "intermediate_size": listed[0], _WIDTHS: listed}


def _sparsity(folder: ModelFolder) -> list[float]:
    """Return each layer's sparsity as deviations above the mean of a normal distribution."""
    layers, shares = (
        folder.count("num_hidden_layers"),
        folder.config.get("activation_sparsity_pattern"),
    )
    shares = shares if isinstance(shares, list) else [shares or 0.0] * layers
    numbers = all(isinstance(s, int | float) and 0 <= s < 1 for s in shares)
    if len(shares) != layers or not numbers:
        raise FormatError(
            f"{folder.path / 'config.json'}: activation_sparsity_pattern lists no shares of {layers} "
            "layers"
        )
    return [NormalDist().inv_cdf(s) if s > 0 else float("-inf") for s in shares]


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_activation", "gelu_pytorch_tanh")
    folder.require("attention_bias", False)
    folder.require("altup_correct_scale", True)
    counts = {
        "altup.active_idx": folder.count_or_zero("altup_active_idx"),
        "altup.num_inputs": folder.count("altup_num_inputs"),
        "attention.sliding_window": folder.count("sliding_window"),
        "attention.shared_kv_layers": folder.count_or_zero("num_kv_shared_layers"),
        "embedding_length_per_layer_input": folder.count("hidden_size_per_layer_input"),
    }
    keys: Metadata = {f"{_A}.{k}": (v, "u32") for k, v in counts.items()}
    keys[f"{_A}.feed_forward_length"] = (folder.config[_WIDTHS], "arr[i32]")
    keys[f"{_A}.activation_sparsity_scale"] = (_sparsity(folder), "arr[f32]")
    local = [kind == "sliding_attention" for kind in kinds(folder)]
    keys[f"{_A}.attention.sliding_window_pattern"] = (local, "arr[bool]")
    cap = decoder.scale_key(folder, f"{_A}.final_logit_softcapping", "final_logit_softcapping")
    return {
        **decoder.dimension_keys(folder, _A),
        **keys,
        **_rope(folder),
        **cap,
        **tokenizer_keys(folder),
    }


def _rope(folder: ModelFolder) -> Metadata:
    """Two bases; older configurations write them apart."""
    rope: Any = folder.config.get("rope_parameters")
    if isinstance(rope, dict) and "full_attention" in rope:
        full, local = rope["full_attention"], rope.get("sliding_attention")
    else:
        full = {"rope_theta": folder.config.get("rope_theta", 1e6)}
        local = {"rope_theta": folder.config.get("rope_local_base_freq", 1e4)}
    return {
        f"{_A}.rope.freq_base": (read_rope(folder, ("default",), full)[1]["rope_theta"], "f32"),
        f"{_A}.rope.freq_base_swa": (
            read_rope(folder, ("default",), local)[1]["rope_theta"],
            "f32",
        ),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    hidden, heads = folder.count("hidden_size"), folder.count("num_attention_heads")
    dim, kv = decoder.head_dim(folder), decoder.kv_heads(folder)
    vocabulary, layers = folder.count("vocab_size"), folder.count("num_hidden_layers")
    size, streams = folder.count("hidden_size_per_layer_input"), folder.count("altup_num_inputs")
    rank = folder.count("laurel_rank")
    found: Shapes = {
        "token_embd.weight": (vocabulary, hidden),
        "output_norm.weight": (hidden,),
        "per_layer_token_embd.weight": (vocabulary, layers * size),
        "per_layer_model_proj.weight": (layers * size, hidden),
        "per_layer_proj_norm.weight": (size,),
        **{f"{stack}.weight": (streams - 1, hidden, hidden) for stack in _STACKS.values()},
    }
    norms = (
        *("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "post_norm"),
        *("altup_correct_scale", "altup_router_norm", "laurel_post_norm"),
    )
    first_shared = layers - folder.count_or_zero("num_kv_shared_layers")
    for i, ff in enumerate(folder.config[_WIDTHS]):
        parts: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(norms, (hidden,)),
            "attn_q": (heads * dim, hidden),
            "attn_q_norm": (dim,),
            "attn_output": (hidden, heads * dim),
            "ffn_gate": (ff, hidden),
            "ffn_up": (ff, hidden),
            "ffn_down": (hidden, ff),
            "inp_gate": (size, hidden),
            "proj": (hidden, size),
            "laurel_l": (rank, hidden),
            "laurel_r": (hidden, rank),
            "altup_router": (streams, hidden),
            "altup_correct_coef": (streams, streams),
            "altup_predict_coef": (streams * streams, streams),
        }
        if i < first_shared:
            parts |= {"attn_k": (kv * dim, hidden), "attn_v": (kv * dim, hidden)}
            parts["attn_k_norm"] = (dim,)
        found |= {f"blk.{i}.{part}.weight": shape for part, shape in parts.items()}
    return found


GEMMA3N = Recipe(
    _A,
    metadata,
    _name,
    _is_matrix,
    shapes=_shapes,
    pieces=pieces,
    left_out=leaves_out_shared,
    config=lambda folder: _with_widths(folder, folder.config),
)
_OTHERS = ("vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.")
GEMMA3N_MULTIMODAL = replace(
    GEMMA3N,
    config=lambda folder: _with_widths(folder, folder.text_config()),
    tensor_name=lambda parameter: _name(plain_name(parameter)),
    pieces=lambda folder, parameter: pieces(folder, plain_name(parameter)),
    left_out=lambda folder, parameter: (
        parameter.removeprefix("model.").startswith(_OTHERS)
        or leaves_out_shared(folder, plain_name(parameter))
    ),
    notes=(
        "the model's parts for images and sound are left out: what is made of it takes texts alone",
    ),
)
