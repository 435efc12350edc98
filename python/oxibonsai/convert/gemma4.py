"""Gemma 4: names and keys; heads of two sizes, a table of embeddings for all layers, merges."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import PARTIAL, read_rope
from oxibonsai.convert.stacked_experts import stacked_pieces
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, UnsupportedError

_A = "gemma4"
_LOCAL, _FULL = "sliding_attention", "full_attention"
LAYER = {
    **{f"{name}.weight": f"{part}.weight" for name, part in decoder.LAYER.items()},
    **{f"{name}.weight": f"{part}.weight" for name, part in decoder.HEAD_NORMS.items()},
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    "layer_scalar": "layer_output_scale.weight",
    "per_layer_input_gate.weight": "inp_gate.weight",
    "per_layer_projection.weight": "proj.weight",
    "post_per_layer_input_norm.weight": "post_norm.weight",
    "router.proj.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
}
_FIXED = {
    **{f"{name}.weight": f"{part}.weight" for name, part in decoder.FIXED.items()},
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
}
# Tokens that a parser of answers must see, though tokenizers call them special.
_VISIBLE = {
    *("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>"),
    *("<|tool_response>", "<tool_response|>", '<|"|>'),
}
_USER_DEFINED = 4  # a type of token
_STILL = 1e30  # divisor of the frequencies of pairs that do not turn
_name = decoder.ExactNamer("Gemma 4", _FIXED, LAYER)


def _is_matrix(tensor: str) -> bool:
    scale = tensor.endswith("layer_output_scale.weight")
    return experts.is_matrix(tensor) and not scale and "post_norm" not in tensor


def kinds(folder: ModelFolder) -> list[str]:
    """Return for each layer whether it has a window."""
    found, layers = folder.config.get("layer_types"), folder.count("num_hidden_layers")
    if not isinstance(found, list) or len(found) != layers or set(found) - {_LOCAL, _FULL}:
        raise FormatError(
            f"{folder.path / 'config.json'}: layer_types does not say of {layers} layers which of "
            f"{_LOCAL} and {_FULL} they are"
        )
    return found


def _of_full_layers(folder: ModelFolder, name: str, stated: str) -> int | None:
    """Return a dimension that only layers without a window have, as versions of transformers write it."""
    if folder.config.get(stated) is not None:
        return folder.count(stated)
    layers: Any = folder.config.get("per_layer_config") or {}
    found = {layer.get(name) for layer in layers.values() if isinstance(layer, dict)} - {None}
    if len(found) > 1 or any(type(n) is not int or n <= 0 for n in found):
        raise FormatError(f"{folder.path / 'config.json'}: per_layer_config has no one {name}")
    return found.pop() if found else None


def _heads(folder: ModelFolder, kind: str) -> tuple[int, int]:
    """Key-value heads and their dims, of one kind of layers."""
    dim, kv = folder.count("head_dim"), decoder.kv_heads(folder)
    if kind == _LOCAL:
        return kv, dim
    dim = _of_full_layers(folder, "head_dim", "global_head_dim") or dim
    return _of_full_layers(folder, "num_key_value_heads", "num_global_key_value_heads") or kv, dim


def _widths(folder: ModelFolder) -> list[int]:
    """Return each layer's MLP width: doubled where keys and values are shared, if the model says so."""
    layers, ff = folder.count("num_hidden_layers"), folder.count("intermediate_size")
    if folder.config.get("use_double_wide_mlp") is not True:
        return [ff] * layers
    first = layers - folder.count_or_zero("num_kv_shared_layers")
    return [ff if i < first else 2 * ff for i in range(layers)]


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_activation", "gelu_pytorch_tanh")
    folder.require("attention_bias", False)
    folder.require("use_bidirectional_attention", None, "vision")
    local = [kind == _LOCAL for kind in kinds(folder)]
    (kv_local, dim_local), (kv_full, dim) = (_heads(folder, kind) for kind in (_LOCAL, _FULL))
    counts = {
        "attention.key_length": dim,
        "attention.value_length": dim,
        "attention.key_length_swa": dim_local,
        "attention.value_length_swa": dim_local,
        "attention.sliding_window": folder.count("sliding_window"),
        "attention.shared_kv_layers": folder.count_or_zero("num_kv_shared_layers"),
        "embedding_length_per_layer_input": folder.count_or_zero("hidden_size_per_layer_input"),
        "rope.dimension_count": dim,
        "rope.dimension_count_swa": dim_local,
    }
    keys: Metadata = {f"{_A}.{k}": (v, "u32") for k, v in counts.items()}
    keys[f"{_A}.attention.sliding_window_pattern"] = (local, "arr[bool]")
    if kv_full != kv_local:
        heads = [kv_local if windowed else kv_full for windowed in local]
        keys[f"{_A}.attention.head_count_kv"] = (heads, "arr[i32]")
    if folder.config.get("use_double_wide_mlp") is True:
        keys[f"{_A}.feed_forward_length"] = (_widths(folder), "arr[i32]")
    if folder.config.get("enable_moe_block") is True:
        keys |= experts.expert_keys(folder, _A, "num_experts", "top_k_experts")
    cap = decoder.scale_key(folder, f"{_A}.final_logit_softcapping", "final_logit_softcapping")
    return {
        **decoder.dimension_keys(folder, _A),
        **keys,
        **_rope(folder),
        **cap,
        **_tokenizer_keys(folder),
    }


def _rope(folder: ModelFolder) -> Metadata:
    """Two bases; layers without a window turn a part of their pairs."""
    rope: Any = folder.config.get("rope_parameters")
    if not isinstance(rope, dict) or not {_LOCAL, _FULL} <= rope.keys():
        raise FormatError(f"{folder.path / 'config.json'}: rope_parameters lack a kind of layers")
    local = read_rope(folder, ("default",), rope[_LOCAL])[1]["rope_theta"]
    full = dict(rope[_FULL])
    if full.pop("rope_type", None) != "proportional":
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: rope_type of {_FULL} is not proportional"
        )
    theta = read_rope(folder, ("default",), full, also=(PARTIAL,))[1]["rope_theta"]
    return {
        f"{_A}.rope.freq_base": (theta, "f32"),
        f"{_A}.rope.freq_base_swa": (local, "f32"),
    }


def extra(folder: ModelFolder) -> dict[str, npt.NDArray[np.float32]]:
    """Which pairs of layers without a window turn."""
    dim = _heads(folder, _FULL)[1]
    share = folder.config["rope_parameters"][_FULL].get(PARTIAL, 1.0)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise FormatError(f"{folder.path / 'config.json'}: {PARTIAL} is {share!r}, no share")
    turning = int(dim * share / 2)
    factors = [1.0] * turning + [_STILL] * (dim // 2 - turning)
    return {"rope_freqs.weight": np.array(factors, dtype=np.float32)}


def _tokenizer_keys(folder: ModelFolder) -> Metadata:
    """Merge of characters, which scores cannot say; tokens around tool calls are text."""
    keys = tokenizer_keys(folder)
    if keys["tokenizer.ggml.model"][0] == "no_vocab":
        return keys
    merges = folder.json("tokenizer.json").get("model", {}).get("merges")
    if not isinstance(merges, list):
        raise FormatError(f"{folder.path / 'tokenizer.json'} has no merges")
    texts = [m if isinstance(m, str) else " ".join(m) for m in merges]
    types = list(keys["tokenizer.ggml.token_type"][0])
    for i, token in enumerate(keys["tokenizer.ggml.tokens"][0]):
        if token in _VISIBLE:
            types[i] = _USER_DEFINED
    return {
        **keys,
        "tokenizer.ggml.model": ("gemma4", "str"),
        "tokenizer.ggml.merges": (texts, "arr[str]"),
        "tokenizer.ggml.token_type": (types, keys["tokenizer.ggml.token_type"][1]),
    }


def leaves_out_shared(folder: ModelFolder, parameter: str) -> bool:
    """Keys and values that layers which share them may have and do not use."""
    found = re.fullmatch(
        r"model\.layers\.([0-9]{1,4})\.self_attn\.[kv]_(?:proj|norm)\.weight", parameter
    )
    first = folder.count("num_hidden_layers") - folder.count_or_zero("num_kv_shared_layers")
    return found is not None and int(found[1]) >= first


def _shapes(folder: ModelFolder) -> Shapes:
    hidden, heads = folder.count("hidden_size"), folder.count("num_attention_heads")
    vocabulary, layers = folder.count("vocab_size"), folder.count("num_hidden_layers")
    size = folder.count_or_zero("hidden_size_per_layer_input")
    first_shared = layers - folder.count_or_zero("num_kv_shared_layers")
    found: Shapes = {"token_embd.weight": (vocabulary, hidden), "output_norm.weight": (hidden,)}
    if size:
        found["per_layer_token_embd.weight"] = (vocabulary, layers * size)
        found["per_layer_model_proj.weight"] = (layers * size, hidden)
        found["per_layer_proj_norm.weight"] = (size,)
    for i, (kind, ff) in enumerate(zip(kinds(folder), _widths(folder), strict=True)):
        kv, dim = _heads(folder, kind)
        norms = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")
        parts: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(norms, (hidden,)),
            "attn_q": (heads * dim, hidden),
            "attn_q_norm": (dim,),
            "attn_output": (hidden, heads * dim),
            "ffn_gate": (ff, hidden),
            "ffn_up": (ff, hidden),
            "ffn_down": (hidden, ff),
        }
        if i < first_shared:
            parts |= {"attn_k": (kv * dim, hidden), "attn_k_norm": (dim,)}
            if kind == _LOCAL or folder.config.get("attention_k_eq_v") is not True:
                parts["attn_v"] = (kv * dim, hidden)
        if size:
            parts |= {"inp_gate": (size, hidden), "proj": (hidden, size), "post_norm": (hidden,)}
        if folder.config.get("enable_moe_block") is True:
            parts |= _expert_shapes(folder)
        found |= {f"blk.{i}.{part}.weight": shape for part, shape in parts.items()}
    return found


def _expert_shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    hidden, count = folder.count("hidden_size"), folder.count("num_experts")
    ff = folder.count("moe_intermediate_size")
    return {
        **dict.fromkeys(("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"), (hidden,)),
        "ffn_gate_inp": (count, hidden),
        "ffn_gate_up_exps": (count, 2 * ff, hidden),
        "ffn_down_exps": (count, hidden, ff),
    }


GEMMA4 = Recipe(
    _A,
    metadata,
    _name,
    _is_matrix,
    shapes=_shapes,
    extra=extra,
    pieces=stacked_pieces,
    left_out=leaves_out_shared,
)


def plain_name(parameter: str) -> str:
    """Return a parameter's name in the text model alone, from that in one that takes more than texts."""
    return "model." + parameter.removeprefix("model.").removeprefix("language_model.").removeprefix(
        "model."
    )


_OTHERS = ("vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.")
GEMMA4_MULTIMODAL = replace(
    GEMMA4,
    config=ModelFolder.text_config,
    tensor_name=lambda parameter: _name(plain_name(parameter)),
    pieces=lambda folder, parameter: stacked_pieces(folder, plain_name(parameter)),
    left_out=lambda folder, parameter: (
        parameter.removeprefix("model.").startswith(_OTHERS)
        or leaves_out_shared(folder, plain_name(parameter))
    ),
    notes=(
        "the model's parts for images and sound are left out: what is made of it takes texts alone",
    ),
)
