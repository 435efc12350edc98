"""Towers of Llama 4: a class behind the patches, an adapter of two matrices, and one more."""

from __future__ import annotations

import re

from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.convert.converter import Shapes, TowerConverter
from oxibonsai.convert.towers import tower as t
from oxibonsai.errors import FormatError, UnsupportedError

_PREFIX = re.compile(r"(?:model\.)?(?:vision_model|multi_modal_projector)\.")
_PARTS = {
    "input_layernorm": "ln1",
    "post_attention_layernorm": "ln2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_out",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
_FIXED = {
    "patch_embedding.linear": t.PATCHES,
    "layernorm_pre": "v.pre_ln",
    "layernorm_post": "v.post_ln",
    "vision_adapter.mlp.fc1": "mm.model.mlp.1",
    "vision_adapter.mlp.fc2": "mm.model.mlp.2",
    "linear_1": "mm.model.fc",
}
_LOOSE = {"class_embedding": "v.class_embd", "positional_embedding_vlm": t.PLACES}
_TILES = 16  # what files leave unsaid; the model's own processor calls them patches


def _metadata(folder: ModelFolder) -> Metadata:
    vision = folder.part("vision_config")
    vision.require("hidden_act", "gelu")
    vision.require("num_channels", 3)
    vision.require("norm_eps", 1e-5)  # transformers reads no other
    vision.require("vision_feature_select_strategy", "default")
    t.require_theta(vision)
    found = t.tower_keys(folder, vision, "llama4", vision.real("norm_eps", 1e-5))
    found["clip.use_gelu"] = (True, "bool")
    found["clip.vision.projector.scale_factor"] = (_joined(folder, vision), "u32")
    prepared = t.processor_config(folder)
    tiles = t.processor_count(folder, prepared, "max_patches", _TILES)
    if tiles != _TILES:
        found["clip.vision.preproc_max_tiles"] = (tiles, "u32")
    if prepared.get("resize_to_max_canvas"):
        raise UnsupportedError(
            f"{folder.path}: the processor's resize_to_max_canvas is not supported"
        )
    return found


def _joined(folder: ModelFolder, vision: ModelFolder) -> int:
    """Return patches on each axis that become one row."""
    joined = t.inverse(vision, "pixel_shuffle_ratio", 0.5)
    width, wide = vision.count("hidden_size"), vision.count("intermediate_size")
    if width * joined**2 != wide:  # transformers takes the one for the other
        raise FormatError(
            f"{folder.path / 'config.json'}: {joined} x {joined} patches of {width} columns are not the "
            f"{wide} of intermediate_size"
        )
    return joined


def _tensor(folder: ModelFolder, parameter: str) -> Tensor | None:
    found = _PREFIX.match(parameter)
    if found is None:
        return None
    name = parameter[found.end() :]
    if name in _LOOSE:
        return t.entry(parameter, _LOOSE[name])
    return t.module_entry("Llama 4", parameter, _PREFIX, _FIXED, "model.layers", _PARTS)


def _shapes(folder: ModelFolder) -> Shapes:
    vision = folder.part("vision_config")
    width, size = vision.count("hidden_size"), t.side(vision, "patch_size")
    places = (t.side(vision, "image_size") // size) ** 2 + 1
    layers, ff = vision.count("num_hidden_layers"), vision.count("intermediate_size")
    wide = vision.count("projector_output_dim")
    norms = (f"v.{name}.{kind}" for name in ("pre_ln", "post_ln") for kind in ("weight", "bias"))
    return {
        **t.layer_shapes(layers, width, ff, _PARTS.values(), _PARTS.values()),
        f"{t.PATCHES}.weight": (width, 3 * size * size),
        t.PLACES: (places, width),
        "v.class_embd": (width,),
        **dict.fromkeys(norms, (width,)),
        "mm.model.mlp.1.weight": (wide, ff),
        "mm.model.mlp.2.weight": (wide, wide),
        "mm.model.fc.weight": (t.text_width(folder), wide),
    }


LLAMA4 = TowerConverter(
    "clip", _metadata, tensor=_tensor, is_matrix=t.is_matrix_or_patches, shapes=_shapes
)
