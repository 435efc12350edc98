"""Towers of GLM-4.1V, 4.5V and 4.6V: the convolution spans two frames, another one joins squares."""

from __future__ import annotations

import re

from oxibonsai.architectures.schema.operations import MergeAxes, Split
from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.convert.converter import Shapes, TowerConverter
from oxibonsai.convert.towers import tower as t
from oxibonsai.errors import FormatError

_PREFIX = re.compile(r"(?:model\.)?visual\.")
_COUNTS = {**t.COUNTS, "block_count": "depth", "attention.head_count": "num_heads"}
_PARTS = {
    "norm1": "ln1",
    "norm2": "ln2",
    "attn.qkv": "attn_qkv",
    "attn.proj": "attn_out",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_MERGER = "mm.patch_merger"
_FIXED = {
    "patch_embed.proj": t.PATCHES,
    "post_conv_layernorm": "v.norm_embd",
    "embeddings.position_embedding": "v.position_embd",
    "post_layernorm": "v.post_ln",
    "downsample": _MERGER,
    "merger.proj": "mm.model.fc",
    "merger.post_projection_norm": "mm.post_norm",
    "merger.gate_proj": "mm.gate",
    "merger.up_proj": "mm.up",
    "merger.down_proj": "mm.down",
}
# What the models' own configuration and processor have where a file does not say; the latter counts the
# pixels of two frames, files those of one.
_EPS, _MERGE, _FRAMES = 1e-5, 2, 2
_PIXELS = {"min": ("shortest_edge", 112 * 112), "max": ("longest_edge", 28 * 28 * 15000)}


def _vision(folder: ModelFolder) -> ModelFolder:
    return folder.part("vision_config", rms_norm_eps=_EPS, spatial_merge_size=_MERGE)


def _metadata(folder: ModelFolder) -> Metadata:
    vision = _vision(folder)
    vision.require("hidden_act", "silu")
    vision.require("temporal_patch_size", _FRAMES)
    vision.require("in_channels", 3)
    t.require_theta(vision)
    if vision.count("out_hidden_size") != t.text_width(folder):
        raise FormatError(
            f"{folder.path / 'config.json'}: the tower's out_hidden_size is "
            f"{vision.count('out_hidden_size')}, but the language model reads {t.text_width(folder)}"
        )
    found = t.tower_keys(folder, vision, "glm4v", vision.real("rms_norm_eps", _EPS), _COUNTS)
    found["clip.use_silu"] = (True, "bool")
    merge = vision.count("spatial_merge_size")
    if merge != _MERGE:
        found["clip.vision.spatial_merge_size"] = (merge, "u32")
    size = t.processor_config(folder).get("size")
    held = size if isinstance(size, dict) else {}
    for bound, (edge, default) in _PIXELS.items():
        count = t.processor_count(folder, held, edge, default)
        if count != default:
            frame = count // _FRAMES if bound == "max" else -(-count // _FRAMES)
            found[f"clip.vision.image_{bound}_pixels"] = (frame, "u32")
    return found


def _tensor(folder: ModelFolder, parameter: str) -> Tensor | None:
    found = _PREFIX.match(parameter)
    if found is None:
        return None
    if parameter[found.end() :] == "patch_embed.proj.weight":
        frames = (f"{t.PATCHES}.weight", f"{t.PATCHES}.weight.1")
        return Tensor((parameter,), frames, (Split((1, 1), axis=2), MergeAxes(3, axis=1)))
    return t.module_entry("GLM-4V", parameter, _PREFIX, _FIXED, "blocks", _PARTS)


def _shapes(folder: ModelFolder) -> Shapes:
    vision = _vision(folder)
    width, size = vision.count("hidden_size"), t.side(vision, "patch_size")
    wide, ff = vision.count("out_hidden_size"), vision.count("intermediate_size")
    merge = vision.count("spatial_merge_size")
    biased = {"attn_qkv"} if vision.config.get("attention_bias") is True else set()
    patches = (width, 3, size, size)
    return {
        **t.layer_shapes(vision.count("depth"), width, wide, _PARTS.values(), biased),
        f"{t.PATCHES}.weight": patches,
        f"{t.PATCHES}.weight.1": patches,
        f"{t.PATCHES}.bias": (width,),
        "v.norm_embd.weight": (width,),
        t.PLACES: ((t.side(vision, "image_size") // size) ** 2, width),
        "v.post_ln.weight": (width,),
        f"{_MERGER}.weight": (wide, width, merge, merge),
        f"{_MERGER}.bias": (wide,),
        "mm.model.fc.weight": (wide, wide),
        "mm.post_norm.weight": (wide,),
        "mm.post_norm.bias": (wide,),
        "mm.gate.weight": (ff, wide),
        "mm.up.weight": (ff, wide),
        "mm.down.weight": (wide, ff),
    }


GLM4V = TowerConverter(
    "clip", _metadata, tensor=_tensor, is_matrix=t.is_matrix_or_patches, shapes=_shapes
)
