"""Towers of InternVL in transformers' form: a class, factors of each layer's parts, three matrices."""

from __future__ import annotations

import re

from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.convert.converter import Shapes, TowerConverter
from oxibonsai.convert.towers import tower as t

_PREFIX = re.compile(r"(?:model\.)?(?:vision_tower|multi_modal_projector)\.")
_FACTORS = re.compile(r"encoder\.layer\.([0-9]{1,4})\.lambda_([12])")
_PARTS = {
    "layernorm_before": "ln1",
    "layernorm_after": "ln2",
    "attention.q_proj": "attn_q",
    "attention.k_proj": "attn_k",
    "attention.v_proj": "attn_v",
    "attention.q_norm": "attn_q_norm",
    "attention.k_norm": "attn_k_norm",
    "attention.projection_layer": "attn_out",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
_NORMS = {"attn_q_norm", "attn_k_norm"}
_FIXED = {
    "embeddings.patch_embeddings.projection": t.PATCHES,
    "layer_norm": "mm.model.mlp.0",
    "linear_1": "mm.model.mlp.1",
    "linear_2": "mm.model.mlp.3",
}
_LOOSE = {
    "embeddings.cls_token": "v.class_embd",
    "embeddings.position_embeddings": t.PLACES,
}
# What files leave unsaid: tiles of a picture. The models' own processor calls them patches.
_TILES = {"preproc_min_tiles": ("min_patches", 1), "preproc_max_tiles": ("max_patches", 12)}


def _metadata(folder: ModelFolder) -> Metadata:
    vision = folder.part("vision_config")
    vision.require("hidden_act", "gelu")
    vision.require("use_mean_pooling", True)  # else a norm follows the layers
    folder.require("projector_hidden_act", "gelu")
    folder.require("vision_feature_layer", -1)
    folder.require("vision_feature_select_strategy", "default")
    eps = vision.real("layer_norm_eps", 1e-6)
    found = t.tower_keys(folder, vision, "internvl", eps)
    found["clip.use_gelu"] = (True, "bool")
    found["clip.vision.projector.scale_factor"] = (_joined(folder), "u32")
    prepared = t.processor_config(folder)
    for key, (name, default) in _TILES.items():
        count = t.processor_count(folder, prepared, name, default)
        if count != default:
            found[f"clip.vision.{key}"] = (count, "u32")
    return found


def _joined(folder: ModelFolder) -> int:
    """Return patches on each axis that become one row."""
    return t.inverse(folder, "downsample_ratio", 0.5)


def _tensor(folder: ModelFolder, parameter: str) -> Tensor | None:
    found = _PREFIX.match(parameter)
    if found is None:
        return None
    name = parameter[found.end() :]
    factors = _FACTORS.fullmatch(name)
    if factors is not None:
        return t.entry(parameter, f"v.blk.{int(factors[1])}.ls{factors[2]}.weight")
    if name in _LOOSE:
        return t.entry(parameter, _LOOSE[name])
    return t.module_entry("InternVL", parameter, _PREFIX, _FIXED, "encoder.layer", _PARTS)


def _shapes(folder: ModelFolder) -> Shapes:
    vision = folder.part("vision_config")
    width, size = vision.count("hidden_size"), t.side(vision, "patch_size")
    places = (t.side(vision, "image_size") // size) ** 2 + 1
    parts = {*_PARTS.values(), "ls1", "ls2"}
    normed = vision.config.get("use_qk_norm") is True
    heads = {"attn_q", "attn_k", "attn_v"} if vision.config.get("attention_bias") is True else set()
    norms = set() if vision.config.get("norm_type") == "rms_norm" else {"ln1", "ln2"}
    biased = {"attn_out", "ffn_up", "ffn_down", *heads, *norms}
    layers, ff = vision.count("num_hidden_layers"), vision.count("intermediate_size")
    wide, joined = t.text_width(folder), width * _joined(folder) ** 2
    return {
        **t.layer_shapes(layers, width, ff, parts if normed else parts - _NORMS, biased),
        f"{t.PATCHES}.weight": (width, 3, size, size),
        f"{t.PATCHES}.bias": (width,),
        t.PLACES: (1, places, width),
        "v.class_embd": (1, 1, width),
        **{f"mm.model.mlp.0.{kind}": (joined,) for kind in ("weight", "bias")},
        "mm.model.mlp.1.weight": (wide, joined),
        "mm.model.mlp.1.bias": (wide,),
        "mm.model.mlp.3.weight": (wide, wide),
        "mm.model.mlp.3.bias": (wide,),
    }


INTERNVL = TowerConverter(
    "clip", _metadata, tensor=_tensor, is_matrix=t.is_matrix_or_patches, shapes=_shapes
)
