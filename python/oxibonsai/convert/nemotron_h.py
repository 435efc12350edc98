"""Nemotron-H: names and keys.

A file has no place for ``time_step_min``, below which transformers raises time steps and NVIDIA's own code
does not.
"""

from __future__ import annotations

import re

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.llama import row_order
from oxibonsai.convert.mamba import NO_LIMIT, conv_shape, ssm_values
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, UnsupportedError

_A = "nemotron_h"
_FIXED = {
    "embeddings.weight": "token_embd.weight",
    "norm_f.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = {
    "norm.weight": "attn_norm.weight",
    "mixer.in_proj.weight": "ssm_in.weight",
    "mixer.conv1d.weight": "ssm_conv1d.weight",
    "mixer.conv1d.bias": "ssm_conv1d.bias",
    "mixer.dt_bias": "ssm_dt.bias",
    "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d",
    "mixer.norm.weight": "ssm_norm.weight",
    "mixer.out_proj.weight": "ssm_out.weight",
    "mixer.q_proj.weight": "attn_q.weight",
    "mixer.k_proj.weight": "attn_k.weight",
    "mixer.v_proj.weight": "attn_v.weight",
    "mixer.o_proj.weight": "attn_output.weight",
    "mixer.up_proj.weight": "ffn_up.weight",
    "mixer.down_proj.weight": "ffn_down.weight",
}
# Kinds of layers, as older configurations write them and as newer ones do.
_KINDS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "mamba": "linear_attention"}
_ENDLESS = 2**20  # nothing has positions


def tensor_name(parameter: str) -> str:
    """GGUF's name of a parameter."""
    plain = parameter.removeprefix("backbone.").removeprefix("model.")
    if plain in _FIXED:
        return _FIXED[plain]
    layer = re.fullmatch(r"layers\.([0-9]{1,4})\.(.+)", plain)
    if layer is None or layer[2] not in _LAYER:
        raise UnsupportedError(
            f"the model has the parameter {parameter}, which is none of Nemotron-H's"
        )
    return f"blk.{int(layer[1])}.{_LAYER[layer[2]]}"


def kinds(folder: ModelFolder) -> list[str]:
    """Of each layer: ``linear_attention`` (Mamba 2), ``full_attention`` or ``mlp``."""
    config = folder.config
    found = config.get("hybrid_override_pattern") or config.get("layers_block_type")
    if not isinstance(found, str | list) or not found:
        raise FormatError(f"{folder.path / 'config.json'} does not say what its layers are")
    named = [_KINDS.get(str(kind), str(kind)) for kind in found]
    for kind in set(named) - set(_KINDS.values()):
        raise UnsupportedError(
            f"{folder.path / 'config.json'} has layers of kind {kind!r}; convert knows "
            + ", ".join(sorted(set(_KINDS.values())))
        )
    return named


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("mamba_hidden_act", "silu")
    folder.require("mlp_hidden_act", "relu2")
    for bias in ("attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"):
        folder.require(bias, False)
    folder.require("time_step_limit", *NO_LIMIT)
    layers, ff, kv = kinds(folder), folder.count("intermediate_size"), decoder.kv_heads(folder)
    counts = {
        "block_count": len(layers),
        "context_length": _ENDLESS,
        "embedding_length": folder.count("hidden_size"),
        "attention.head_count": folder.count("num_attention_heads"),
        "attention.key_length": decoder.head_dim(folder),
        "attention.value_length": decoder.head_dim(folder),
        "rope.dimension_count": decoder.head_dim(folder),
        "vocab_size": folder.count("vocab_size"),
        "ssm.conv_kernel": folder.count("conv_kernel"),
        "ssm.state_size": folder.count("ssm_state_size"),
        "ssm.group_count": folder.count("n_groups"),
        "ssm.inner_size": folder.count("mamba_num_heads") * folder.count("mamba_head_dim"),
        "ssm.time_step_rank": folder.count("mamba_num_heads"),
    }
    lists = {
        "attention.head_count_kv": [kv if k == "full_attention" else 0 for k in layers],
        "feed_forward_length": [ff if k == "mlp" else 0 for k in layers],
    }
    epsilon = (folder.real("layer_norm_epsilon", 1e-5), "f32")
    return {
        **{f"{_A}.{k}": (v, "u32") for k, v in counts.items()},
        **{f"{_A}.{k}": (v, "arr[i32]") for k, v in lists.items()},
        f"{_A}.attention.layer_norm_epsilon": epsilon,
        f"{_A}.attention.layer_norm_rms_epsilon": epsilon,
        f"{_A}.rope.scaling.finetuned": (False, "bool"),
        **tokenizer_keys(folder),
    }


def _shape(folder: ModelFolder, tensor: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of a head are columns; the norm has a row for each group."""
    if tensor.endswith((".ssm_a", ".ssm_d")):
        return (*shape, 1)
    groups = folder.count("n_groups")
    if tensor.endswith("ssm_norm.weight") and len(shape) == 1 and shape[0] % groups == 0:
        return (groups, shape[0] // groups)
    return conv_shape(tensor, shape)


def _shapes(folder: ModelFolder) -> Shapes:
    hidden, ff = folder.count("hidden_size"), folder.count("intermediate_size")
    heads, groups = folder.count("mamba_num_heads"), folder.count("n_groups")
    inner = heads * folder.count("mamba_head_dim")
    width, dim = inner + 2 * groups * folder.count("ssm_state_size"), decoder.head_dim(folder)
    q, kv = dim * folder.count("num_attention_heads"), dim * decoder.kv_heads(folder)
    parts: dict[str, Shapes] = {
        "linear_attention": {
            "ssm_in.weight": (inner + width + heads, hidden),
            "ssm_conv1d.weight": (width, folder.count("conv_kernel")),
            "ssm_dt.bias": (heads,),
            "ssm_a": (heads, 1),
            "ssm_d": (heads, 1),
            "ssm_norm.weight": (groups, inner // groups),
            "ssm_out.weight": (hidden, inner),
        },
        "full_attention": {
            "attn_q.weight": (q, hidden),
            "attn_k.weight": (kv, hidden),
            "attn_v.weight": (kv, hidden),
            "attn_output.weight": (hidden, q),
        },
        "mlp": {"ffn_up.weight": (ff, hidden), "ffn_down.weight": (hidden, ff)},
    }
    found: Shapes = {
        "token_embd.weight": (folder.count("vocab_size"), hidden),
        "output_norm.weight": (hidden,),
    }
    if folder.config.get("tie_word_embeddings", False) is False:
        found["output.weight"] = (folder.count("vocab_size"), hidden)
    for i, kind in enumerate(kinds(folder)):
        found[f"blk.{i}.attn_norm.weight"] = (hidden,)
        found |= {f"blk.{i}.{part}": shape for part, shape in parts[kind].items()}
    return found


NEMOTRON_H = Recipe(
    _A,
    metadata,
    tensor_name,
    lambda tensor: decoder.is_matrix(tensor) and "ssm_conv1d" not in tensor,
    shapes=_shapes,
    row_order=row_order,  # as llama.cpp has it: without positions any order within the heads is right
    shape=_shape,
    values=ssm_values,
)
