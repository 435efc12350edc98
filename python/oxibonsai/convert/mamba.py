"""Mamba, Falcon Mamba and Mamba 2: names and keys."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import UnsupportedError

# Nothing in these models ends at a position; GGUF wants a number.
_CONTEXT = 2**20
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
    "mixer.out_proj.weight": "ssm_out.weight",
    "mixer.A_log": "ssm_a",
    "mixer.D": "ssm_d",
}
_MAMBA = {
    **_LAYER,
    "mixer.x_proj.weight": "ssm_x.weight",
    "mixer.dt_proj.weight": "ssm_dt.weight",
    "mixer.dt_proj.bias": "ssm_dt.bias",
}
_MAMBA2 = {**_LAYER, "mixer.dt_bias": "ssm_dt.bias", "mixer.norm.weight": "ssm_norm.weight"}
# Of a time step, from 0 on; JSON has no infinity, so versions of transformers differ.
NO_LIMIT = ([0.0, float("inf")], [0.0, {"__float__": "Infinity"}])
_MATRICES = ("ssm_in", "ssm_x", "ssm_dt", "ssm_out")


def _namer(family: str, layer_names: Mapping[str, str]) -> decoder.ExactNamer:
    return decoder.ExactNamer(family, _FIXED, layer_names, layers="backbone.layers")


def is_matrix(tensor: str) -> bool:
    """Weights of linear layers and of the token table."""
    parts = tensor.split(".")
    return tensor in ("token_embd.weight", "output.weight") or (
        parts[-1] == "weight" and parts[-2] in _MATRICES
    )


def ssm_values(
    folder: ModelFolder, tensor: str, held: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Decays by what they are, not by their logarithm; computed in float64 and rounded once."""
    if not tensor.endswith(".ssm_a"):
        return held
    decay: npt.NDArray[np.float32] = -np.exp(held.astype(np.float64)).astype(np.float32)
    return decay


def ssm_parameter_values(
    folder: ModelFolder, tensor: str, held: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Undoes :func:`ssm_values`.

    Raises:
        UnsupportedError: A decay is not below zero, so that it has no logarithm.
    """
    if not tensor.endswith(".ssm_a"):
        return held
    if not (held < 0).all():
        raise UnsupportedError(f"{folder.path}: {tensor} has values that are not below zero")
    logarithm: npt.NDArray[np.float32] = np.log(-held.astype(np.float64)).astype(np.float32)
    return logarithm


def conv_shape(tensor: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a depthwise convolution has an axis of one."""
    depthwise = "ssm_conv1d" in tensor or "shortconv.conv" in tensor
    return (shape[0], shape[2]) if depthwise and len(shape) == 3 else shape


def conv_parameter_shape(tensor: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Undoes :func:`conv_shape`."""
    depthwise = "ssm_conv1d.weight" in tensor or "shortconv.conv" in tensor
    return (shape[0], 1, shape[1]) if depthwise else shape


def by_head_shape(tensor: str, shape: tuple[int, ...], groups: int) -> tuple[int, ...]:
    """Return the shapes of Mamba 2: numbers of a head are columns; the norm has a row for each group."""
    if tensor.endswith((".ssm_a", ".ssm_d")):
        return (*shape, 1)
    if tensor.endswith("ssm_norm.weight") and len(shape) == 1 and shape[0] % groups == 0:
        return (groups, shape[0] // groups)
    return conv_shape(tensor, shape)


def by_head_parameter_shape(tensor: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Undoes :func:`by_head_shape`."""
    if tensor.endswith((".ssm_a", ".ssm_d")):
        return shape[:1]
    if tensor.endswith("ssm_norm.weight"):
        return (int(np.prod(shape)),)
    return conv_parameter_shape(tensor, shape)


def _common(folder: ModelFolder, architecture: str) -> Metadata:
    folder.require("hidden_act", "silu")
    folder.require("use_bias", False)
    counts = {
        "context_length": _CONTEXT,
        "embedding_length": folder.count("hidden_size"),
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "block_count": folder.count("num_hidden_layers"),
        "vocab_size": folder.count("vocab_size"),
        "ssm.conv_kernel": folder.count("conv_kernel"),
        "ssm.state_size": folder.count("state_size"),
    }
    epsilon = (folder.real("layer_norm_epsilon", 1e-5), "f32")
    return {
        **{f"{architecture}.{k}": (v, "u32") for k, v in counts.items()},
        f"{architecture}.attention.layer_norm_rms_epsilon": epsilon,
    }


def _fixed_shapes(folder: ModelFolder, *, tied: bool) -> Shapes:
    hidden, vocabulary = folder.count("hidden_size"), folder.count("vocab_size")
    found: Shapes = {"token_embd.weight": (vocabulary, hidden), "output_norm.weight": (hidden,)}
    if folder.config.get("tie_word_embeddings", tied) is False:
        found["output.weight"] = (vocabulary, hidden)
    return found


def _layers(folder: ModelFolder, parts: Shapes) -> Shapes:
    layers = range(folder.count("num_hidden_layers"))
    return {f"blk.{i}.{part}": shape for i in layers for part, shape in parts.items()}


def _rank(folder: ModelFolder) -> int:
    if folder.config.get("time_step_rank", "auto") == "auto":
        return -(-folder.count("hidden_size") // 16)
    return folder.count("time_step_rank")


def mamba_metadata(folder: ModelFolder) -> Metadata:
    """Mamba 1's keys, then its tokenizer's."""
    folder.require("mixer_rms_eps", 1e-6)
    return {
        **_common(folder, "mamba"),
        "mamba.ssm.inner_size": (folder.count("intermediate_size"), "u32"),
        "mamba.ssm.time_step_rank": (_rank(folder), "u32"),
        "mamba.ssm.dt_b_c_rms": (folder.config.get("model_type") == "falcon_mamba", "bool"),
        **tokenizer_keys(folder),
    }


def _mamba_shapes(folder: ModelFolder) -> Shapes:
    hidden, inner = folder.count("hidden_size"), folder.count("intermediate_size")
    state, rank = folder.count("state_size"), _rank(folder)
    parts = {
        "attn_norm.weight": (hidden,),
        "ssm_in.weight": (2 * inner, hidden),
        "ssm_conv1d.weight": (inner, folder.count("conv_kernel")),
        "ssm_x.weight": (rank + 2 * state, inner),
        "ssm_dt.weight": (inner, rank),
        "ssm_dt.bias": (inner,),
        "ssm_a": (inner, state),
        "ssm_d": (inner,),
        "ssm_out.weight": (hidden, inner),
    }
    return {**_fixed_shapes(folder, tied=True), **_layers(folder, parts)}


MAMBA = Recipe(
    "mamba",
    mamba_metadata,
    _namer("Mamba", _MAMBA),
    is_matrix,
    shapes=_mamba_shapes,
    shape=lambda folder, tensor, shape: conv_shape(tensor, shape),
    parameter_shape=lambda folder, tensor, shape: conv_parameter_shape(tensor, shape),
    values=ssm_values,
    parameter_values=ssm_parameter_values,
)


def _groups(folder: ModelFolder) -> int:
    return folder.count("n_groups") if folder.config.get("n_groups") is not None else 8


def mamba2_metadata(folder: ModelFolder) -> Metadata:
    """Mamba 2's keys, then its tokenizer's."""
    folder.require("time_step_limit", *NO_LIMIT)
    heads, width = folder.count("num_heads"), folder.count("head_dim")
    return {
        **_common(folder, "mamba2"),
        "mamba2.ssm.inner_size": (heads * width, "u32"),
        "mamba2.ssm.time_step_rank": (heads, "u32"),
        "mamba2.ssm.group_count": (_groups(folder), "u32"),
        **tokenizer_keys(folder),
    }


def _mamba2_shapes(folder: ModelFolder) -> Shapes:
    hidden, heads = folder.count("hidden_size"), folder.count("num_heads")
    inner = heads * folder.count("head_dim")
    width = inner + 2 * _groups(folder) * folder.count("state_size")
    parts = {
        "attn_norm.weight": (hidden,),
        "ssm_in.weight": (inner + width + heads, hidden),
        "ssm_conv1d.weight": (width, folder.count("conv_kernel")),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads, 1),
        "ssm_d": (heads, 1),
        "ssm_norm.weight": (_groups(folder), inner // _groups(folder)),
        "ssm_out.weight": (hidden, inner),
    }
    return {**_fixed_shapes(folder, tied=False), **_layers(folder, parts)}


MAMBA2 = Recipe(
    "mamba2",
    mamba2_metadata,
    _namer("Mamba 2", _MAMBA2),
    is_matrix,
    shapes=_mamba2_shapes,
    shape=lambda folder, tensor, shape: by_head_shape(tensor, shape, _groups(folder)),
    parameter_shape=lambda folder, tensor, shape: by_head_parameter_shape(tensor, shape),
    values=ssm_values,
    parameter_values=ssm_parameter_values,
)
