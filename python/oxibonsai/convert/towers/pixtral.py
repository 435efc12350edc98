"""Towers of Pixtral and Mistral Small 3.1: q and k in the order of interleaved pairs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from oxibonsai.architectures.schema.operations import MergeAxes, PermuteGrid, TakeRows
from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.convert.converter import Shapes, TowerConverter
from oxibonsai.convert.towers import tower as t
from oxibonsai.errors import FormatError, UnsupportedError

_PREFIX = re.compile(r"(?:model\.)?(?:vision_tower|multi_modal_projector)\.")
_EMBEDDINGS = re.compile(r"(?:model\.)?(?:language_model\.)?(?:model\.)?embed_tokens\.weight")
_BREAK = "[IMG_BREAK]"
_PARTS = {
    "attention_norm": "ln1",
    "ffn_norm": "ln2",
    "attention.q_proj": "attn_q",
    "attention.k_proj": "attn_k",
    "attention.v_proj": "attn_v",
    "attention.o_proj": "attn_out",
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
}
_FIXED = {
    "patch_conv": t.PATCHES,
    "ln_pre": "v.pre_ln",
    "norm": "mm.input_norm",
    "patch_merger.merging_layer": "mm.patch_merger",
    "linear_1": "mm.1",
    "linear_2": "mm.2",
}
_EPS = 1e-5  # of all norms; no configuration says it
_THETA = 10000.0
# What transformers has where a folder does not say.
_DEFAULTS: dict[str, Any] = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 1024, "patch_size": 16, "hidden_act": "gelu",
}  # fmt: skip


def _vision(folder: ModelFolder) -> ModelFolder:
    return folder.part("vision_config", **_DEFAULTS)


def _merges(folder: ModelFolder) -> bool:
    """Return whether squares of patches become one: in Mistral Small, not in Pixtral."""
    return folder.config.get("model_type") == "mistral3"


def _metadata(folder: ModelFolder) -> Metadata:
    vision = _vision(folder)
    vision.require("hidden_act", "gelu", "silu")
    folder.require("projector_hidden_act", "gelu")
    folder.require("vision_feature_layer", -1)
    heads, width = vision.count("num_attention_heads"), vision.count("hidden_size")
    vision.require("head_dim", width // heads, None)
    found = t.tower_keys(folder, vision, "pixtral", _EPS)
    silu = vision.config.get("hidden_act") == "silu"
    found["clip.use_silu" if silu else "clip.use_gelu"] = (True, "bool")
    if _merges(folder):
        found["clip.vision.spatial_merge_size"] = (folder.count("spatial_merge_size"), "u32")
    if (theta := _theta(vision)) != _THETA:
        found["clip.rope.freq_base"] = (theta, "f32")
    return found


def _theta(vision: ModelFolder) -> float:
    rope = vision.config.get("rope_parameters") or {}
    stated = rope.get("rope_theta") if isinstance(rope, dict) else None
    value = vision.config.get("rope_theta", _THETA) if stated is None else stated
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**31:
        raise FormatError(f"{vision.path / 'config.json'}: rope_theta is {value!r}, not above zero")
    return float(value)


def _break_token(folder: ModelFolder) -> int:
    """Return the id of the token between lines of a picture."""
    tokens = folder.json("tokenizer.json").get("added_tokens")
    for token in tokens if isinstance(tokens, list) else ():
        if isinstance(token, dict) and token.get("content") == _BREAK:
            number = token.get("id")
            if type(number) is int and number >= 0:
                return number
    raise FormatError(f"{folder.path / 'tokenizer.json'} has no token {_BREAK}")


def _tensor(folder: ModelFolder, parameter: str) -> Tensor | None:
    if _EMBEDDINGS.fullmatch(parameter):
        # Files have the embedding of the token between lines beside the tower.
        row = TakeRows((_break_token(folder),))
        return t.entry(parameter, "v.token_embd.img_break", row, MergeAxes(1))
    if _PREFIX.match(parameter) is None:
        return None
    found = t.module_entry("Pixtral", parameter, _PREFIX, _FIXED, "transformer.layers", _PARTS)
    if not found.tensors[0].endswith(("attn_q.weight", "attn_k.weight")):
        return found
    return replace(found, operations=(_pairs(folder),))


def _pairs(folder: ModelFolder) -> PermuteGrid:
    """Return what makes pairs of neighbours of the halves of each head."""
    vision = _vision(folder)
    heads, width = vision.count("num_attention_heads"), vision.count("hidden_size")
    if width % (2 * heads) != 0:
        raise UnsupportedError(
            f"{folder.path}: {heads} heads do not divide {width} columns in pairs"
        )
    return PermuteGrid((heads, 2, width // heads // 2), (0, 2, 1))


def _shapes(folder: ModelFolder) -> Shapes:
    vision = _vision(folder)
    width, size = vision.count("hidden_size"), vision.count("patch_size")
    layers, ff = vision.count("num_hidden_layers"), vision.count("intermediate_size")
    wide = t.text_width(folder)
    found = {
        **t.layer_shapes(layers, width, ff, _PARTS.values(), ()),
        f"{t.PATCHES}.weight": (width, 3, size, size),
        "v.pre_ln.weight": (width,),
        "v.token_embd.img_break": (wide,),
        "mm.1.weight": (wide, width),
        "mm.2.weight": (wide, wide),
    }
    if _merges(folder):
        joined = width * folder.count("spatial_merge_size") ** 2
        found |= {"mm.patch_merger.weight": (width, joined), "mm.input_norm.weight": (width,)}
    return found


PIXTRAL = TowerConverter(
    "clip", _metadata, tensor=_tensor, is_matrix=t.is_matrix_or_patches, shapes=_shapes
)
