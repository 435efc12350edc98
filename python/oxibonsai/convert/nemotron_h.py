"""Nemotron-H: names and keys.

A file has no place for ``time_step_min``, below which transformers raises time steps and NVIDIA's own code
does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.decoder import row_order
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.mamba import (
    NO_LIMIT,
    by_head_parameter_shape,
    by_head_shape,
    ssm_parameter_values,
    ssm_values,
)
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, UnsupportedError

_FIXED = {
    "backbone.embeddings.weight": "token_embd.weight",
    "backbone.norm_f.weight": "output_norm.weight",
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
    "mixer.gate.weight": "ffn_gate_inp.weight",
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mixer.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "mixer.shared_experts.down_proj.weight": "ffn_down_shexp.weight",
    "mixer.fc1_latent_proj.weight": "ffn_latent_down.weight",
    "mixer.fc2_latent_proj.weight": "ffn_latent_up.weight",
}
_EXPERT = re.compile(
    r"backbone\.layers\.([0-9]{1,4})\.mixer\.experts\.([0-9]{1,5})\.(up|down)_proj\.weight"
)
# Kinds of layers, as older configurations write them and as newer ones do.
_KINDS = {
    **{"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"},
    "mamba": "linear_attention",
}
_ENDLESS = 2**20  # nothing has positions


def _plain(parameter: str) -> str:
    """NVIDIA's name, where others begin with ``model.`` or with nothing."""
    own = parameter.removeprefix("backbone.").removeprefix("model.")
    return own if own.startswith("lm_head.") else f"backbone.{own}"


tensor_name = decoder.ExactNamer(
    "Nemotron-H", _FIXED, _LAYER, layers="backbone.layers", plain=_plain
)


def pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the matrix of one expert; none for any other parameter."""
    found = _EXPERT.fullmatch(_plain(parameter))
    if found is None:
        return ()
    return (Piece(f"blk.{int(found[1])}.ffn_{found[3]}_exps.weight", int(found[2])),)


def kinds(folder: ModelFolder) -> list[str]:
    """Return each layer's kind: ``linear_attention`` (Mamba 2), ``full_attention``, ``mlp`` or ``moe``."""
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


def metadata(folder: ModelFolder, a: str = "nemotron_h") -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("mamba_hidden_act", "silu")
    folder.require("mlp_hidden_act", "relu2")
    for bias in ("attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"):
        folder.require(bias, False)
    folder.require("time_step_limit", *NO_LIMIT)
    layers, kv = kinds(folder), decoder.kv_heads(folder)
    part, ff = "mlp", folder.count("intermediate_size")
    if a != "nemotron_h":
        part, ff = "moe", folder.count("moe_intermediate_size")
    if {"mlp", "moe"} - {part} & set(layers):
        raise UnsupportedError(
            f"{folder.path / 'config.json'} has layers with experts and others without, which GGUF lacks"
        )
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
        "feed_forward_length": [ff if k == part else 0 for k in layers],
    }
    epsilon = (folder.real("layer_norm_epsilon", 1e-5), "f32")
    return {
        **{f"{a}.{k}": (v, "u32") for k, v in counts.items()},
        **{f"{a}.{k}": (v, "arr[i32]") for k, v in lists.items()},
        f"{a}.attention.layer_norm_epsilon": epsilon,
        f"{a}.attention.layer_norm_rms_epsilon": epsilon,
        f"{a}.rope.scaling.finetuned": (False, "bool"),
        **tokenizer_keys(folder),
    }


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
        "moe": _expert_shapes(folder) if "moe" in kinds(folder) else {},
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


def _expert_shapes(folder: ModelFolder) -> Shapes:
    hidden, ff = folder.count("hidden_size"), folder.count("moe_intermediate_size")
    count, shared = folder.count("n_routed_experts"), _shared_width(folder)
    latent = folder.count_or_zero("moe_latent_size")
    inner = latent or hidden
    found: Shapes = {
        "ffn_gate_inp.weight": (count, hidden),
        "exp_probs_b.bias": (count,),
        "ffn_up_exps.weight": (count, ff, inner),
        "ffn_down_exps.weight": (count, inner, ff),
        "ffn_up_shexp.weight": (shared, hidden),
        "ffn_down_shexp.weight": (hidden, shared),
    }
    if latent:
        found["ffn_latent_down.weight"] = (latent, hidden)
        found["ffn_latent_up.weight"] = (hidden, latent)
    return found


def _shared_width(folder: ModelFolder) -> int:
    return folder.count("moe_shared_expert_intermediate_size")


def _metadata_moe(folder: ModelFolder) -> Metadata:
    """Return the model's keys and the experts'."""
    a = "nemotron_h_moe"
    folder.require("n_shared_experts", 1)
    keys = metadata(folder, a) | experts.expert_keys(folder, a, "n_routed_experts")
    keys |= {
        f"{a}.expert_shared_feed_forward_length": (_shared_width(folder), "u32"),
        f"{a}.expert_shared_count": (1, "u32"),
        f"{a}.expert_weights_norm": (folder.config.get("norm_topk_prob", True) is True, "bool"),
        **experts.group_keys(folder, a),
        **decoder.scale_key(folder, f"{a}.expert_weights_scale", "routed_scaling_factor"),
    }
    if latent := folder.count_or_zero("moe_latent_size"):
        keys[f"{a}.moe_latent_size"] = (latent, "u32")
    return keys


_DENSE = Recipe(
    "nemotron_h",
    metadata,
    tensor_name,
    lambda tensor: experts.is_matrix(tensor) and "ssm_conv1d" not in tensor,
    shapes=_shapes,
    row_order=row_order,  # as llama.cpp has it: without positions any order within the heads is right
    shape=lambda folder, tensor, shape: by_head_shape(tensor, shape, folder.count("n_groups")),
    parameter_shape=lambda folder, tensor, shape: by_head_parameter_shape(tensor, shape),
    values=ssm_values,
    parameter_values=ssm_parameter_values,
    pieces=pieces,
)
_WITH_EXPERTS = replace(_DENSE, architecture="nemotron_h_moe", metadata=_metadata_moe)
NEMOTRON_H = replace(
    _DENSE, variant=lambda folder: _WITH_EXPERTS if "moe" in kinds(folder) else _DENSE
)
