"""Models with Mamba 2 beside attention: Granite 4 and Falcon-H1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, UnsupportedError

Floats = npt.NDArray[np.float32]
_MAMBA = {
    "mamba.in_proj.weight": "ssm_in.weight",
    "mamba.conv1d.weight": "ssm_conv1d.weight",
    "mamba.conv1d.bias": "ssm_conv1d.bias",
    "mamba.dt_bias": "ssm_dt.bias",
    "mamba.A_log": "ssm_a",
    "mamba.D": "ssm_d",
    "mamba.norm.weight": "ssm_norm.weight",
    "mamba.out_proj.weight": "ssm_out.weight",
}
_ATTENTION = {
    f"self_attn.{part}_proj.weight": f"attn_{name}.weight"
    for part, name in {"q": "q", "k": "k", "v": "v", "o": "output"}.items()
}
_GRANITE = {
    **_MAMBA,
    **_ATTENTION,
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "block_sparse_moe.router.layer.weight": "ffn_gate_inp.weight",
}
_FALCON = {
    **_MAMBA,
    **_ATTENTION,
    "input_layernorm.weight": "attn_norm.weight",
    "pre_ff_layernorm.weight": "ffn_norm",  # as llama.cpp has it, where others end in .weight
    "feed_forward.gate_proj.weight": "ffn_gate.weight",
    "feed_forward.up_proj.weight": "ffn_up.weight",
    "feed_forward.down_proj.weight": "ffn_down.weight",
}


def _namer(family: str, layer_names: dict[str, str], norm: str) -> decoder.ExactNamer:
    fixed = {
        "model.embed_tokens.weight": "token_embd.weight",
        f"model.{norm}.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    return decoder.ExactNamer(family, fixed, layer_names)


def is_matrix(tensor: str) -> bool:
    """Weights of linear layers and of the token table."""
    return experts.is_matrix(tensor) and "ssm_conv1d" not in tensor


def _inner(folder: ModelFolder) -> int:
    if folder.config.get("mamba_d_ssm") is not None:
        return folder.count("mamba_d_ssm")
    return folder.count("mamba_expand") * folder.count("hidden_size")


def _mamba_keys(folder: ModelFolder, architecture: str) -> Metadata:
    folder.require("hidden_act", "silu")
    folder.require("time_step_limit", *NO_LIMIT, None)
    folder.require("mamba_proj_bias", False)
    folder.require("attention_bias", False)
    inner, heads = _inner(folder), folder.count("mamba_n_heads")
    if inner % heads != 0:
        raise FormatError(f"{folder.path / 'config.json'}: {inner} values are no {heads} heads")
    counts = {
        "ssm.conv_kernel": folder.count("mamba_d_conv"),
        "ssm.state_size": folder.count("mamba_d_state"),
        "ssm.group_count": folder.count("mamba_n_groups"),
        "ssm.inner_size": inner,
        "ssm.time_step_rank": heads,
    }
    return {f"{architecture}.{k}": (v, "u32") for k, v in counts.items()}


def _mamba_shapes(folder: ModelFolder) -> Shapes:
    hidden, inner, heads = (
        folder.count("hidden_size"),
        _inner(folder),
        folder.count("mamba_n_heads"),
    )
    groups = folder.count("mamba_n_groups")
    width = inner + 2 * groups * folder.count("mamba_d_state")
    return {
        "ssm_in.weight": (inner + width + heads, hidden),
        "ssm_conv1d.weight": (width, folder.count("mamba_d_conv")),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads, 1),
        "ssm_d": (heads, 1),
        "ssm_out.weight": (hidden, inner),
    }


def tensor_shape(folder: ModelFolder, tensor: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of a head are columns; the norm has a row for each group."""
    return by_head_shape(tensor, shape, folder.count("mamba_n_groups"))


def _attention_shapes(folder: ModelFolder) -> Shapes:
    hidden, width = folder.count("hidden_size"), decoder.head_dim(folder)
    q, kv = width * folder.count("num_attention_heads"), width * decoder.kv_heads(folder)
    return {
        "attn_q.weight": (q, hidden),
        "attn_k.weight": (kv, hidden),
        "attn_v.weight": (kv, hidden),
        "attn_output.weight": (hidden, q),
    }


def _shapes(
    folder: ModelFolder, ff: int, kinds: list[Shapes], *, tied: bool, ffn_norm: str
) -> Shapes:
    hidden, vocabulary = folder.count("hidden_size"), folder.count("vocab_size")
    found: Shapes = {"token_embd.weight": (vocabulary, hidden), "output_norm.weight": (hidden,)}
    if folder.config.get("tie_word_embeddings", tied) is False:
        found["output.weight"] = (vocabulary, hidden)
    common = {
        "attn_norm.weight": (hidden,),
        ffn_norm: (hidden,),
        "ffn_gate.weight": (ff, hidden),
        "ffn_up.weight": (ff, hidden),
        "ffn_down.weight": (hidden, ff),
    }
    for i, own in enumerate(kinds):
        found |= {f"blk.{i}.{part}": shape for part, shape in {**common, **own}.items()}
    return found


# Granite 4

_SCALES = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
_HALVES = re.compile(
    r"model\.layers\.([0-9]{1,4})\.(shared_mlp|block_sparse_moe)\.(input|output)_linear\.weight"
)
# Where nothing has positions, no text is too long; GGUF wants a number.
_ENDLESS = 2**20


def granite_attends(folder: ModelFolder) -> list[bool]:
    """Return for each layer whether it attends; the others have a Mamba 2."""
    layers = folder.count("num_hidden_layers")
    kinds: Any = folder.config.get("layer_types") or folder.config.get("layers_block_type")
    known = {"attention", "full_attention", "mamba", "linear_attention"}
    if not isinstance(kinds, list) or len(kinds) != layers or not known.issuperset(kinds):
        raise FormatError(
            f"{folder.path / 'config.json'}: layer_types does not say of {layers} layers which of "
            "attention and mamba they are"
        )
    return [kind in ("attention", "full_attention") for kind in kinds]


def _mixes(folder: ModelFolder) -> bool:
    return folder.config.get("num_local_experts") not in (None, 0)


def _width(folder: ModelFolder) -> str:
    """Return the configuration's name for the width of an expert, or of the shared feed-forward part."""
    return "intermediate_size" if _mixes(folder) else "shared_intermediate_size"


def _expert_keys(folder: ModelFolder) -> Metadata:
    shared = (folder.count("shared_intermediate_size"), "u32")
    return {
        **experts.expert_keys(folder, "granitehybrid", ff=None),
        "granitehybrid.expert_shared_feed_forward_length": shared,
    }


def granite_metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("position_embedding_type", None, "nope", "rope")
    rotated = folder.config.get("position_embedding_type") == "rope"
    heads = [decoder.kv_heads(folder) if a else 0 for a in granite_attends(folder)]
    a = "granitehybrid"
    context = folder.count("max_position_embeddings") if rotated else _ENDLESS
    keys: Metadata = {
        **decoder.dimension_keys(folder, a),
        f"{a}.context_length": (context, "u32"),
        f"{a}.feed_forward_length": (folder.count(_width(folder)), "u32"),
        **(_expert_keys(folder) if _mixes(folder) else {}),
        f"{a}.attention.head_count_kv": (heads, "arr[i32]"),
        **_mamba_keys(folder, a),
        f"{a}.rope.scaling.finetuned": (rotated, "bool"),
        **rope_keys(a, *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }
    for key, name in _SCALES.items():
        keys |= decoder.scale_key(folder, f"{a}.{key}", name)
    return keys


def _granite_pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the rows of a gate lie above those of the other half; all experts are one parameter."""
    found = _HALVES.fullmatch(parameter)
    if found is None:
        return ()
    b, shared = f"blk.{int(found[1])}.ffn", found[2] == "shared_mlp"
    end = "_exps" if not shared else "_shexp" if _mixes(folder) else ""
    if found[3] == "output":
        return (Piece(f"{b}_down{end}.weight", part=lambda v: v),)
    ff = folder.count("shared_intermediate_size" if shared else "intermediate_size")
    return (
        Piece(f"{b}_gate{end}.weight", part=lambda v: v[..., :ff, :]),
        Piece(f"{b}_up{end}.weight", part=lambda v: v[..., ff:, :]),
    )


def _granite_shapes(folder: ModelFolder) -> Shapes:
    hidden, ff = folder.count("hidden_size"), folder.count("shared_intermediate_size")
    inner, groups = _inner(folder), folder.count("mamba_n_groups")
    mamba: Shapes = {**_mamba_shapes(folder), "ssm_norm.weight": (groups, inner // groups)}
    attention: Shapes = _attention_shapes(folder)
    kinds = [attention if a else mamba for a in granite_attends(folder)]
    found = _shapes(folder, ff, kinds, tied=True, ffn_norm="ffn_norm.weight")
    if not _mixes(folder):
        return found
    # The part of all tokens is called that of a shared expert, beside the others.
    for name in [n for n in found if ".ffn_" in n and "norm" not in n]:
        found[name.replace(".weight", "_shexp.weight")] = found.pop(name)
    count, width = experts.count(folder), folder.count("intermediate_size")
    stacks = {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
    for i in range(len(kinds)):
        found[f"blk.{i}.ffn_gate_inp.weight"] = (count, hidden)
        for name, shape in stacks.items():
            found[f"blk.{i}.ffn_{name}_exps.weight"] = (count, *shape)
    return found


GRANITE_HYBRID = Recipe(
    "granitehybrid",
    granite_metadata,
    _namer("Granite 4", _GRANITE, "norm"),
    is_matrix,
    shapes=_granite_shapes,
    row_order=row_order,
    pieces=_granite_pieces,
    shape=tensor_shape,
    parameter_shape=lambda folder, tensor, shape: by_head_parameter_shape(tensor, shape),
    values=ssm_values,
    parameter_values=ssm_parameter_values,
)


# Falcon-H1: factors of the configuration are multiplied into the weights.


def falcon_metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("projectors_bias", False)
    folder.require("mlp_bias", False)
    if folder.config.get("mamba_rms_norm") is True:
        folder.require("mamba_norm_before_gate", False)
    return {
        **decoder.dimension_keys(folder, "falcon-h1"),
        **_mamba_keys(folder, "falcon-h1"),
        **rope_keys("falcon-h1", *read_rope(folder, ("default",))),
        **tokenizer_keys(folder),
    }


def _factor(folder: ModelFolder, name: str) -> float:
    value = folder.config.get(name, 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{folder.path / 'config.json'}: {name} is {value!r}, no number")
    return float(value)


def _factors(folder: ModelFolder, name: str, count: int) -> list[float]:
    value = folder.config.get(name) or [1.0] * count
    numbers = isinstance(value, list) and all(type(v) in (int, float) for v in value)
    if not numbers or len(value) != count:
        raise FormatError(
            f"{folder.path / 'config.json'}: {name} is {value!r}, not {count} numbers"
        )
    return [float(v) for v in value]


def falcon_values(folder: ModelFolder, tensor: str, held: Floats) -> Floats:
    """Decays by what they are; weights times the factors of what they make."""
    part = tensor.split(".")[-2]
    scaled = {
        "attn_q": ("attention_in_multiplier",),
        "attn_k": ("key_multiplier", "attention_in_multiplier"),
        "attn_v": ("attention_in_multiplier",),
        "attn_output": ("attention_out_multiplier",),
        "ssm_in": ("ssm_in_multiplier",),
        "ssm_out": ("ssm_out_multiplier",),
        "token_embd": ("embedding_multiplier",),
        "output": ("lm_head_multiplier",),
    }
    for name in scaled.get(part, ()):
        held = held * np.float32(_factor(folder, name))
    if part in ("ffn_gate", "ffn_down"):
        held = held * np.float32(_factors(folder, "mlp_multipliers", 2)[part == "ffn_down"])
    if part == "ssm_in":
        inner = _inner(folder)
        states = folder.count("mamba_n_groups") * folder.count("mamba_d_state")
        sizes = [inner, inner, states, states, folder.count("mamba_n_heads")]
        factors = np.array(_factors(folder, "ssm_multipliers", 5), np.float32)
        each = np.repeat(factors, sizes)
        held = held * each[:, None]
    return ssm_values(folder, tensor, held)


def _falcon_parameter_values(folder: ModelFolder, tensor: str, held: Floats) -> Floats:
    """Undoes :func:`falcon_values` of a configuration whose factors are all 1, as those of files are."""
    return ssm_parameter_values(folder, tensor, held)


def _falcon_shapes(folder: ModelFolder) -> Shapes:
    inner, groups = _inner(folder), folder.count("mamba_n_groups")
    own = {**_mamba_shapes(folder), **_attention_shapes(folder)}
    if folder.config.get("mamba_rms_norm") is True:
        own["ssm_norm.weight"] = (groups, inner // groups)
    kinds: list[Shapes] = [own] * folder.count("num_hidden_layers")
    ff = folder.count("intermediate_size")
    found = _shapes(folder, ff, kinds, tied=False, ffn_norm="ffn_norm")
    if "output.weight" not in found and _factor(folder, "lm_head_multiplier") != _factor(
        folder, "embedding_multiplier"
    ):
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: one table is embedding and output matrix, but their factors "
            "differ; save the model with both"
        )
    return found


FALCON_H1 = Recipe(
    "falcon-h1",
    falcon_metadata,
    _namer("Falcon-H1", _FALCON, "final_layernorm"),
    is_matrix,
    shapes=_falcon_shapes,
    shape=tensor_shape,
    parameter_shape=lambda folder, tensor, shape: by_head_parameter_shape(tensor, shape),
    values=falcon_values,
    parameter_values=_falcon_parameter_values,
)
