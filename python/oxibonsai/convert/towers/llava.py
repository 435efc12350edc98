"""Towers of LLaVA 1.5 and 1.6: CLIP up to the layer whose result is read, and two matrices."""

from __future__ import annotations

import re

from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.convert.converter import Shapes, TowerConverter
from oxibonsai.convert.towers import tower as t
from oxibonsai.convert.towers.siglip import LAYERS, PARTS
from oxibonsai.errors import FormatError, UnsupportedError

_PREFIX = re.compile(
    r"(?:model\.)?(?:vision_tower\.vision_model|vision_tower|multi_modal_projector)\."
)
_NEWLINE = re.compile(r"(?:model\.)?image_newline")
_FIXED = {
    "embeddings.patch_embedding": t.PATCHES,
    "embeddings.position_embedding": "v.position_embd",
    "pre_layrnorm": "v.pre_ln",
    "linear_1": "mm.0",
    "linear_2": "mm.2",
}
_CLIP = {"layer_norm_eps": 1e-5}  # what transformers has where a folder does not say
_FEATURE = -2


def _layers(folder: ModelFolder) -> int:
    """Return the number of layers up to the one whose result is read."""
    layers = folder.part("vision_config").count("num_hidden_layers")
    feature = folder.config.get("vision_feature_layer", _FEATURE)
    if type(feature) is not int or not -layers <= feature < 0:
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: vision_feature_layer is {feature!r}; convert knows one "
            "layer, counted from the last as -1"
        )
    return layers + 1 + feature


def _metadata(folder: ModelFolder) -> Metadata:
    vision = folder.part("vision_config", **_CLIP)
    vision.require("model_type", "clip_vision_model")
    vision.require("hidden_act", "quick_gelu", "gelu")
    folder.require("projector_hidden_act", "gelu")
    folder.require("vision_feature_select_strategy", "default")
    layers = _layers(folder)
    found = t.tower_keys(folder, vision, "mlp", vision.real("layer_norm_eps", 1e-5))
    found |= {
        "clip.has_text_encoder": (False, "bool"),
        "clip.has_llava_projector": (True, "bool"),
        "clip.use_gelu": (vision.config.get("hidden_act") == "gelu", "bool"),
        "clip.vision.block_count": (layers, "u32"),
        "clip.vision.feature_layer": ([layers], "arr[i32]"),
    }
    if folder.config.get("model_type") == "llava_next":
        found["clip.vision.mm_patch_merge_type"] = ("spatial_unpad", "str")
        found["clip.vision.image_grid_pinpoints"] = (_pinpoints(folder), "arr[i32]")
    return found


def _pinpoints(folder: ModelFolder) -> list[int]:
    """Return the width and height of each resolution; configurations have the height first."""
    found = folder.config.get("image_grid_pinpoints")
    pairs = isinstance(found, list) and all(
        isinstance(p, list) and len(p) == 2 and all(type(n) is int and n > 0 for n in p)
        for p in found
    )
    if not isinstance(found, list) or not found or not pairs:
        raise FormatError(
            f"{folder.path / 'config.json'}: image_grid_pinpoints is {found!r}, no pairs of sides"
        )
    return [n for height, width in found for n in (width, height)]


def _tensor(folder: ModelFolder, parameter: str) -> Tensor | None:
    """Return no entry of what lies behind the layer whose result is read."""
    if _NEWLINE.fullmatch(parameter):
        return t.entry(parameter, "v.image_newline")
    found = _PREFIX.match(parameter)
    if found is None:
        return None
    name = parameter[found.end() :]
    layer = re.match(r"encoder\.layers\.([0-9]{1,4})\.", name)
    behind = layer is not None and int(layer[1]) >= _layers(folder)
    if behind or name.startswith(("post_layernorm.", "embeddings.position_ids")):
        return None
    if name == "embeddings.class_embedding":
        return t.entry(parameter, "v.class_embd")
    return t.module_entry("LLaVA", parameter, _PREFIX, _FIXED, LAYERS, PARTS)


def _shapes(folder: ModelFolder) -> Shapes:
    vision = folder.part("vision_config")
    width, size = vision.count("hidden_size"), vision.count("patch_size")
    places = (vision.count("image_size") // size) ** 2 + 1
    ff, wide = vision.count("intermediate_size"), t.text_width(folder)
    found = {
        **t.layer_shapes(_layers(folder), width, ff, PARTS.values(), PARTS.values()),
        f"{t.PATCHES}.weight": (width, 3, size, size),
        t.PLACES: (places, width),
        "v.class_embd": (width,),
        "v.pre_ln.weight": (width,),
        "v.pre_ln.bias": (width,),
        "mm.0.weight": (wide, width),
        "mm.0.bias": (wide,),
        "mm.2.weight": (wide, wide),
        "mm.2.bias": (wide,),
    }
    if folder.config.get("model_type") == "llava_next":
        found["v.image_newline"] = (wide,)
    return found


LLAVA = TowerConverter(
    "clip", _metadata, tensor=_tensor, is_matrix=t.is_matrix_or_patches, shapes=_shapes
)
