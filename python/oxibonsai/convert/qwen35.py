"""Qwen3.5 (Bonsai 27B): names and keys; value heads in a tiled order, norms hold 1 + w."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from oxibonsai.convert import decoder, gated_delta
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.mamba import (
    conv_parameter_shape,
    conv_shape,
    ssm_parameter_values,
    ssm_values,
)
from oxibonsai.convert.multimodal import with_vision
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import UnsupportedError

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
# The layer that predicts further tokens, past the others in the file.
_DRAFTING = ("mtp.", "model.mtp.")
_DRAFTING_PARTS = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head_norm",
}
_DRAFTING_LAYER = "mtp.layers.0."
_HEADS = ("attn_gate", "ssm_alpha", "ssm_beta", "ssm_a", "ssm_dt")


def drafts(folder: ModelFolder) -> bool:
    """Whether the folder has one layer that predicts further tokens; several are left out."""
    parts = {p.removeprefix("model.") for p in folder.parameters if p.startswith(_DRAFTING)}
    layers = {p.split(".")[2] for p in parts if p.startswith("mtp.layers.")}
    return layers == {"0"}


def drafting_keys(folder: ModelFolder) -> Metadata:
    """How many layers there are with that one."""
    if not drafts(folder):
        return {}
    layers = folder.count("num_hidden_layers")
    return {
        "qwen35.block_count": (layers + 1, "u32"),
        "qwen35.nextn_predict_layers": (1, "u32"),
    }


def _drafting_pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the parts of the drafting layer, by the layer's number in the file."""
    if not parameter.startswith(_DRAFTING) or not drafts(folder):
        return ()
    name, kind = parameter.removeprefix("model.").removesuffix(".weight"), ".weight"
    part = LAYER.get(name.removeprefix(_DRAFTING_LAYER))
    if name.startswith(_DRAFTING_LAYER) and part is not None:
        return (Piece(f"blk.{folder.count('num_hidden_layers')}.{part}{kind}"),)
    part = _DRAFTING_PARTS.get(name.removeprefix("mtp."))
    if part is None:
        raise UnsupportedError(
            f"the model has the parameter {parameter}, which is none of Qwen3.5's"
        )
    return (Piece(f"blk.{folder.count('num_hidden_layers')}.nextn.{part}{kind}"),)


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    return {
        **decoder.dimension_keys(folder, "qwen35"),
        **drafting_keys(folder),
        **gated_delta.keys(folder, "qwen35"),
        **gated_delta.section_keys(folder, "qwen35"),
        **tokenizer_keys(folder),
    }


def namer(family: str, layer_names: Mapping[str, str]) -> decoder.Namer:
    """GGUF's name of a parameter; None for what drafts further tokens, if that is left out."""
    return decoder.namer(family, layer_names, extra=LOOSE, drafting=_DRAFTING)


def is_matrix(tensor: str) -> bool:
    """Return the taps of a convolution are no weights of a linear layer."""
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
    """Return the output matrix reads value heads."""
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
    found = gated_delta.layer_shapes(folder, common, linear)
    if drafts(folder):
        b = f"blk.{folder.count('num_hidden_layers')}"
        own = {**common, **gated_delta.attention_shapes(folder)}
        found |= {f"{b}.{part}": shape for part, shape in own.items()}
        found |= {
            f"{b}.nextn.{n}.weight": (hidden,) for n in ("enorm", "hnorm", "shared_head_norm")
        }
        found[f"{b}.nextn.eh_proj.weight"] = (hidden, 2 * hidden)
    return found


QWEN35 = Recipe(
    "qwen35",
    metadata,
    namer("Qwen3.5", LAYER),
    is_matrix,
    shapes=_shapes,
    pieces=_drafting_pieces,
    row_order=row_order,
    column_order=column_order,
    shape=lambda folder, tensor, shape: conv_shape(tensor, shape),
    parameter_shape=lambda folder, tensor, shape: conv_parameter_shape(tensor, shape),
    values=ssm_values,
    parameter_values=ssm_parameter_values,
    offset=offset,
)
QWEN35_MULTIMODAL = with_vision(QWEN35)
