"""Qwen3.5 (Bonsai 27B): names and keys; value heads in a tiled order, norms hold 1 + w."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder, gated_delta
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.mamba import conv_shape, ssm_values
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

LAYER = {
    **decoder.LAYER,
    **decoder.HEAD_NORMS,
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
# Parameters that are no module's weight.
LOOSE = {"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"}
# Layers that predict further tokens, which no pass runs.
_DRAFTING = ("mtp.", "model.mtp.")
_HEADS = ("attn_gate", "ssm_alpha", "ssm_beta", "ssm_a", "ssm_dt")


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    return {
        **decoder.dimension_keys(folder, "qwen35"),
        **gated_delta.keys(folder, "qwen35"),
        **gated_delta.section_keys(folder, "qwen35"),
        **tokenizer_keys(folder),
    }


def namer(family: str, layer_names: Mapping[str, str]) -> Callable[[str], str | None]:
    """GGUF's name of a parameter; None for what drafts further tokens."""
    plain = decoder.namer(family, layer_names)

    def name(parameter: str) -> str | None:
        if parameter.startswith(_DRAFTING):
            return None
        loose = re.fullmatch(r"model\.layers\.([0-9]{1,4})\.(.+)", parameter)
        if loose is not None and loose[2] in LOOSE:
            return f"blk.{int(loose[1])}.{LOOSE[loose[2]]}"
        return plain(parameter)

    return name


tensor_name = namer("Qwen3.5", LAYER)


def is_matrix(tensor: str) -> bool:
    """The taps of a convolution are no weights of a linear layer."""
    return decoder.is_matrix(tensor) and "ssm_conv1d" not in tensor


def _part(tensor: str) -> str:
    return tensor.split(".")[2] if tensor.startswith("blk.") else tensor


def row_order(folder: ModelFolder, tensor: str) -> npt.NDArray[np.intp] | None:
    """Value heads in a tiled order, wherever a row belongs to one."""
    part = _part(tensor)
    width = folder.count("linear_value_head_dim")
    if part in _HEADS:
        return gated_delta.tiled(folder, width if part == "attn_gate" else 1)
    if part not in ("attn_qkv", "ssm_conv1d"):
        return None
    keys = 2 * folder.count("linear_num_key_heads") * folder.count("linear_key_head_dim")
    return np.concatenate([np.arange(keys), keys + gated_delta.tiled(folder, width)])


def column_order(folder: ModelFolder, tensor: str) -> npt.NDArray[np.intp] | None:
    """The output matrix reads value heads."""
    if _part(tensor) != "ssm_out":
        return None
    return gated_delta.tiled(folder, folder.count("linear_value_head_dim"))


def offset(tensor: str) -> float:
    """Norms are stored as their distance from 1, but for that of a gated delta rule."""
    return 1.0 if "norm" in tensor and "ssm_norm" not in tensor else 0.0


def _shapes(folder: ModelFolder) -> Shapes:
    hidden, ff = folder.count("hidden_size"), folder.count("intermediate_size")
    heads = folder.count("linear_num_value_heads")
    common = {
        "attn_norm.weight": (hidden,),
        "post_attention_norm.weight": (hidden,),
        "ffn_gate.weight": (ff, hidden),
        "ffn_up.weight": (ff, hidden),
        "ffn_down.weight": (hidden, ff),
    }
    linear = {
        **gated_delta.shapes(folder),
        "ssm_alpha.weight": (heads, hidden),
        "ssm_beta.weight": (heads, hidden),
    }
    return gated_delta.layer_shapes(folder, common, linear)


QWEN35 = Recipe(
    "qwen35",
    metadata,
    tensor_name,
    is_matrix,
    shapes=_shapes,
    row_order=row_order,
    column_order=column_order,
    shape=lambda folder, tensor, shape: conv_shape(tensor, shape),
    values=ssm_values,
    offset=offset,
)


def text_config(folder: ModelFolder) -> dict[str, Any]:
    """The configuration of the part for texts."""
    text = folder.config.get("text_config")
    if not isinstance(text, dict):
        raise FormatError(f"{folder.path / 'config.json'} has no object text_config")
    outer = {k: v for k, v in folder.config.items() if k == "tie_word_embeddings"}
    return {**outer, **text}


def text_name(parameter: str) -> str | None:
    """A parameter of the part for texts as a model of texts alone calls it; None: of images."""
    if parameter.startswith(("model.visual.", "visual.")):
        return None
    return parameter.replace("model.language_model.", "model.", 1)


def _multimodal_name(parameter: str) -> str | None:
    name = text_name(parameter)
    return None if name is None else tensor_name(name)


QWEN35_MULTIMODAL = replace(
    QWEN35,
    config=text_config,
    tensor_name=_multimodal_name,
)
