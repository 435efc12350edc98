"""Towers of Gemma 3, Idefics 3 and SmolVLM: SigLIP with a projector of one matrix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import isqrt

from oxibonsai.architectures.schema.arithmetic import Add
from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.convert.converter import Shapes, TowerConverter
from oxibonsai.convert.towers import tower as t

_PREFIX = re.compile(
    r"(?:model\.)?(?:vision_tower\.vision_model|vision_tower|vision_model|multi_modal_projector|connector)\."
)
LAYERS = "encoder.layers"
PARTS = {
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
_FIXED = {
    "embeddings.patch_embedding": t.PATCHES,
    "embeddings.position_embedding": "v.position_embd",
    "post_layernorm": "v.post_ln",
}
_GEMMA3 = {**_FIXED, "mm_soft_emb_norm": "mm.soft_emb_norm"}
_IDEFICS3 = {**_FIXED, "modality_projection.proj": "mm.model.fc"}
_INPUT = "multi_modal_projector.mm_input_projection_weight"
_POOLED = 4  # what files leave unsaid: patches on each axis that become one row
# What transformers' configurations have where a folder does not say.
_SIGLIP = {"layer_norm_eps": 1e-6}
_SMOLVLM = {
    **_SIGLIP, "hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 16, "image_size": 224, "patch_size": 32,
}  # fmt: skip


def _gemma3_metadata(folder: ModelFolder) -> Metadata:
    vision = folder.part("vision_config", **_SIGLIP)
    vision.require("hidden_act", "gelu_pytorch_tanh")
    found = t.tower_keys(folder, vision, "gemma3", vision.real("layer_norm_eps", 1e-6))
    found["clip.use_gelu"] = (True, "bool")
    tokens = folder.config.get("mm_tokens_per_image")
    rows = isqrt(folder.count("mm_tokens_per_image")) if tokens is not None else 16
    pooled = vision.count("image_size") // vision.count("patch_size") // max(rows, 1)
    if pooled != _POOLED:
        found["clip.vision.projector.scale_factor"] = (pooled, "u32")
    return found


def _idefics3_metadata(folder: ModelFolder) -> Metadata:
    vision = folder.part("vision_config", **_SMOLVLM)
    vision.require("hidden_act", "gelu_pytorch_tanh")
    size = t.processor_config(folder).get("size")
    held = size if isinstance(size, dict) else {}
    edge = t.processor_count(folder, held, "longest_edge", vision.count("image_size"))
    joined = folder.count("scale_factor") if "scale_factor" in folder.config else 2
    return {
        **t.tower_keys(folder, vision, "idefics3", vision.real("layer_norm_eps", 1e-6)),
        "clip.use_gelu": (True, "bool"),
        "clip.vision.projector.scale_factor": (joined, "u32"),
        "clip.vision.preproc_image_size": (edge, "u32"),
    }


def _shapes(folder: ModelFolder, defaults: Mapping[str, float]) -> Shapes:
    """Return the shapes of SigLIP's tensors."""
    vision = folder.part("vision_config", **defaults)
    width, size = vision.count("hidden_size"), vision.count("patch_size")
    places = (vision.count("image_size") // size) ** 2
    layers, ff = vision.count("num_hidden_layers"), vision.count("intermediate_size")
    return {
        **t.layer_shapes(layers, width, ff, PARTS.values(), PARTS.values()),
        f"{t.PATCHES}.weight": (width, 3, size, size),
        f"{t.PATCHES}.bias": (width,),
        t.PLACES: (places, width),
        "v.post_ln.weight": (width,),
        "v.post_ln.bias": (width,),
    }


def _gemma3_shapes(folder: ModelFolder) -> Shapes:
    width = folder.part("vision_config").count("hidden_size")
    return {
        **_shapes(folder, _SIGLIP),
        t.INPUT: (width, t.text_width(folder)),
        "mm.soft_emb_norm.weight": (width,),
    }


def _idefics3_shapes(folder: ModelFolder) -> Shapes:
    found = _shapes(folder, _SMOLVLM)
    joined = folder.count("scale_factor") if "scale_factor" in folder.config else 2
    wide = found["v.post_ln.weight"][0] * joined**2
    return {**found, "mm.model.fc.weight": (t.text_width(folder), wide)}


def _gemma3_tensor(folder: ModelFolder, parameter: str) -> Tensor | None:
    if not _is_part(parameter):
        return None
    if parameter.endswith(_INPUT):
        return t.entry(parameter, t.INPUT)
    found = t.module_entry("Gemma 3", parameter, _PREFIX, _GEMMA3, LAYERS, PARTS)
    is_norm = found.tensors == ("mm.soft_emb_norm.weight",)  # which a folder has without the 1
    return replace(found, operations=(Add(1.0),)) if is_norm else found


def _idefics3_tensor(folder: ModelFolder, parameter: str) -> Tensor | None:
    if not _is_part(parameter):
        return None
    return t.module_entry("Idefics 3", parameter, _PREFIX, _IDEFICS3, LAYERS, PARTS)


def _is_part(parameter: str) -> bool:
    """Return whether a parameter is the tower's, and not of the head that SigLIP was trained with."""
    found = _PREFIX.match(parameter)
    return found is not None and not parameter.startswith("head.", found.end())


GEMMA3 = TowerConverter(
    "clip", _gemma3_metadata, tensor=_gemma3_tensor, shapes=_gemma3_shapes,
    is_matrix=lambda tensor: t.is_matrix(tensor) or tensor == t.INPUT,
)  # fmt: skip
IDEFICS3 = TowerConverter(
    "clip", _idefics3_metadata, tensor=_idefics3_tensor, is_matrix=t.is_matrix,
    shapes=_idefics3_shapes,
)  # fmt: skip
