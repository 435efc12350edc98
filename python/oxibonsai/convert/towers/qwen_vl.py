"""Towers of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5: the convolution spans two frames."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from oxibonsai.architectures.schema.operations import (
    MergeAxes,
    Operation,
    Split,
    SplitAxis,
    Transpose,
)
from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.convert.converter import Shapes, TowerConverter
from oxibonsai.convert.towers import tower as t
from oxibonsai.errors import FormatError, UnsupportedError

_PREFIX = re.compile(r"(?:model\.)?(?:visual|vision_tower)\.")  # the second is mlx-vlm's
_EPS = 1e-6  # of all norms; no configuration says it
_COUNTS = {**t.COUNTS, "block_count": "depth", "attention.head_count": "num_heads"}
_PLAIN = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out"}
_PARTS_2 = {**_PLAIN, "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
_PARTS_25 = {
    **_PLAIN,
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_PARTS_3 = {
    **_PLAIN,
    "attn.qkv": "attn_qkv",
    "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
}
_FIXED_2 = {"merger.ln_q": "v.post_ln", "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2"}
_FIXED_3 = {
    "patch_embed.proj": t.PATCHES,
    "pos_embed": "v.position_embd",
    "merger.norm": "v.post_ln",
    "merger.linear_fc1": "mm.0",
    "merger.linear_fc2": "mm.2",
}
_Entries = Callable[[ModelFolder, str], Tensor | None]
_DEEP = {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}
# What the models' own tower has where a file does not say otherwise.
_MERGE, _WINDOW, _GRID_2 = 2, 112, 560
_PIXELS_2, _PIXELS_3 = (56 * 56, 3584 * 3584), (256 * 256, 4096 * 4096)


def _vision(folder: ModelFolder) -> ModelFolder:
    vision = folder.part("vision_config")
    vision.require("temporal_patch_size", 2)
    vision.require("in_channels", 3)
    vision.require("in_chans", 3)
    kind = folder.config.get("model_type")
    if kind == "qwen2_vl":
        vision.config.setdefault("mlp_ratio", 4)
        wide = vision.count("embed_dim") * vision.count("mlp_ratio")
        vision.config |= {"hidden_size": vision.count("embed_dim"), "intermediate_size": wide}
    if kind in ("qwen2_vl", "qwen2_5_vl"):
        vision.config.setdefault("image_size", _GRID_2)
    else:
        side = math.isqrt(vision.count("num_position_embeddings"))
        vision.config["image_size"] = side * vision.count("patch_size")
    return vision


def _metadata_2(folder: ModelFolder) -> Metadata:
    vision = _vision(folder)
    vision.require("hidden_act", "quick_gelu")
    found = t.tower_keys(folder, vision, "qwen2vl_merger", _EPS, _COUNTS)
    return found | _merge_key(vision) | _pixel_keys(folder, _PIXELS_2)


def _metadata_25(folder: ModelFolder) -> Metadata:
    vision = _vision(folder)
    vision.require("hidden_act", "silu")
    found = t.tower_keys(folder, vision, "qwen2.5vl_merger", _EPS, _COUNTS)
    found["clip.use_silu"] = (True, "bool")
    found["clip.vision.n_wa_pattern"] = (_period(vision), "u32")
    window = vision.count("window_size")
    if window != _WINDOW:
        found["clip.vision.window_size"] = (window, "u32")
    return found | _merge_key(vision) | _pixel_keys(folder, _PIXELS_2)


def _pixel_keys(folder: ModelFolder, usual: tuple[int, int]) -> Metadata:
    """Return the bounds on the pixels of a picture, where they are not the usual ones."""
    prepared = t.processor_config(folder)
    size = prepared.get("size")
    sides = size if isinstance(size, dict) else {}
    found: Metadata = {}
    for bound, edge, default in zip(("min", "max"), ("shortest", "longest"), usual, strict=True):
        said = t.processor_count(folder, sides, f"{edge}_edge", default)
        count = t.processor_count(folder, prepared, f"{bound}_pixels", said)
        if count != default:
            found[f"clip.vision.image_{bound}_pixels"] = (count, "u32")
    return found


def _merge_key(vision: ModelFolder) -> Metadata:
    merge = vision.count("spatial_merge_size")
    return {} if merge == _MERGE else {"clip.vision.spatial_merge_size": (merge, "u32")}


def _period(vision: ModelFolder) -> int:
    """Return after how many layers one sees the whole picture."""
    whole = vision.config.get("fullatt_block_indexes")
    numbers = isinstance(whole, list) and all(type(n) is int and n >= 0 for n in whole)
    if not isinstance(whole, list) or not whole or not numbers:
        raise FormatError(
            f"{vision.path / 'config.json'}: fullatt_block_indexes is {whole!r}, no numbers of layers"
        )
    period: int = whole[0] + 1
    if whole != list(range(period - 1, vision.count("depth"), period)):
        raise UnsupportedError(
            f"{vision.path / 'config.json'}: fullatt_block_indexes is {whole!r}, not every so many layers"
        )
    return period


def _metadata_3(folder: ModelFolder) -> Metadata:
    vision = _vision(folder)
    vision.require("hidden_act", "gelu_pytorch_tanh")
    deep = _deep_layers(folder)
    return {
        **t.tower_keys(folder, vision, "qwen3vl_merger", _EPS, _COUNTS),
        "clip.use_gelu": (True, "bool"),
        "clip.vision.spatial_merge_size": (vision.count("spatial_merge_size"), "u32"),
        "clip.vision.is_deepstack_layers": (
            [i in deep for i in range(vision.count("depth"))],
            "arr[bool]",
        ),
        **_pixel_keys(folder, _PIXELS_3),
    }


def _deep_layers(folder: ModelFolder) -> list[int]:
    vision = folder.part("vision_config")
    found = vision.config.get("deepstack_visual_indexes", [])
    layers = vision.count("depth")
    if not isinstance(found, list) or not all(type(n) is int and 0 <= n < layers for n in found):
        raise FormatError(
            f"{folder.path / 'config.json'}: deepstack_visual_indexes is {found!r}, no numbers of "
            f"{layers} layers"
        )
    return found


def _tensor_in(fixed: dict[str, str], parts: dict[str, str], family: str) -> _Entries:
    """Return what gives the entry of a parameter, by the names of modules outside and inside of layers.

    Files have the convolution frame by frame and, before Qwen3-VL, q, k and v each by itself.
    """

    def tensor(folder: ModelFolder, parameter: str) -> Tensor | None:
        found = _PREFIX.match(parameter)
        if found is None:
            return None
        name = parameter[found.end() :]
        if name == "patch_embed.proj.weight":
            frames = (f"{t.PATCHES}.weight", f"{t.PATCHES}.weight.1")
            return Tensor((parameter,), frames, _frames(folder, folder.parameters[parameter].shape))
        if name.startswith("deepstack_merger_list."):
            _, number, module, kind = (*name.split(".", 3), "", "")[:4]
            layers = _deep_layers(folder)
            if number.isdecimal() and int(number) < len(layers) and module in _DEEP:
                layer = layers[int(number)]
                return t.entry(parameter, f"v.deepstack.{layer}.{_DEEP[module]}.{kind}")
        fused = re.fullmatch(r"blocks\.([0-9]{1,4})\.attn\.qkv\.(weight|bias)", name)
        if fused is not None and folder.config.get("model_type") in ("qwen2_vl", "qwen2_5_vl"):
            width = _vision(folder).count("hidden_size")
            names = tuple(f"v.blk.{int(fused[1])}.attn_{n}.{fused[2]}" for n in "qkv")
            return Tensor((parameter,), names, (Split((width,) * 3),))
        return t.module_entry(family, parameter, _PREFIX, fixed, "blocks", parts)

    return tensor


def _frames(folder: ModelFolder, shape: tuple[int, ...]) -> tuple[Operation, ...]:
    """Return the steps from the convolution over two frames to that of each.

    Folders have it as [hidden, channels, frames, rows, columns]; MLX has the channels last.
    """
    size = _vision(folder).count("patch_size")
    if shape[1:] == (2, size, size, 3):
        channels_first = (MergeAxes(size, axis=1), Transpose(), SplitAxis(size, axis=2))
        return (Split((1, 1), axis=1), MergeAxes(1, axis=1), *channels_first)
    return Split((1, 1), axis=2), MergeAxes(3, axis=1)


def _shapes(folder: ModelFolder) -> Shapes:
    vision, kind = _vision(folder), folder.config.get("model_type")
    width, ff = vision.count("hidden_size"), vision.count("intermediate_size")
    size, wide = vision.count("patch_size"), width * vision.count("spatial_merge_size") ** 2
    older = kind in ("qwen2_vl", "qwen2_5_vl")
    heads = {"attn_q", "attn_k", "attn_v"} if older else {"attn_qkv"}
    parts = {"ln1", "ln2", "attn_out", "ffn_up", "ffn_down", *heads}
    if kind == "qwen2_5_vl":
        parts.add("ffn_gate")
    biased = parts - {"ln1", "ln2"} if kind == "qwen2_5_vl" else parts
    patches = (width, 3, size, size)
    found = t.layer_shapes(vision.count("depth"), width, ff, parts, biased)
    found |= {f"{t.PATCHES}.weight": patches, f"{t.PATCHES}.weight.1": patches}
    found |= {"v.post_ln.weight": (width,), "mm.0.weight": (wide, wide), "mm.0.bias": (wide,)}
    found |= {"mm.2.weight": (t.text_width(folder), wide), "mm.2.bias": (t.text_width(folder),)}
    if not older:
        found |= {t.PLACES: (vision.count("num_position_embeddings"), width)}
        found |= {f"{t.PATCHES}.bias": (width,), "v.post_ln.bias": (width,)}
    return found


def _converter(
    family: str,
    metadata: Callable[[ModelFolder], Metadata],
    fixed: dict[str, str],
    parts: dict[str, str],
) -> TowerConverter:
    return TowerConverter(
        "clip", metadata, tensor=_tensor_in(fixed, parts, family),
        is_matrix=t.is_matrix_or_patches, shapes=_shapes,
    )  # fmt: skip


QWEN2VL = _converter("Qwen2-VL", _metadata_2, _FIXED_2, _PARTS_2)
QWEN25VL = _converter("Qwen2.5-VL", _metadata_25, _FIXED_2, _PARTS_25)
QWEN3VL = _converter("Qwen3-VL", _metadata_3, _FIXED_3, _PARTS_3)
