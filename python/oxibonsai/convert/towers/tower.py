"""Keys, names and kinds of tensors that the conversions of all vision towers share."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping
from typing import Any

from oxibonsai.architectures.schema.operations import Operation
from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.convert.converter import Shapes
from oxibonsai.convert.multimodal import text_config
from oxibonsai.errors import FormatError, UnsupportedError

PATCHES, PLACES = "v.patch_embd", "v.position_embd.weight"
INPUT = "mm.input_projection.weight"
# GGUF's keys of the dimensions, and what most families call them.
COUNTS = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
}
_VECTORS = re.compile(r".*(?:ln|ln1|ln2|norm|norm_embd|ls1|ls2|mm\.model\.mlp\.0)\.weight")
_LARGEST = 3e38  # float32 holds it
_MOST_JOINED = 1 << 15
_THETA = 10000.0
_PROCESSORS = ("processor_config.json", "preprocessor_config.json")


def processor_config(folder: ModelFolder) -> dict[str, Any]:
    """Return the folder's settings for preparing images; of two files, the newer form's."""
    found: dict[str, Any] = {}
    for name in reversed(_PROCESSORS):
        if (folder.path / name).is_file():
            held = folder.json(name)
            inner = held.get("image_processor")
            found |= {**held, **(inner if isinstance(inner, dict) else {})}
    if not found:
        raise FormatError(f"{folder.path} has no preprocessor_config.json")
    return found


def processor_count(folder: ModelFolder, held: Mapping[str, Any], name: str, default: int) -> int:
    """Return a positive count of what :func:`processor_config` says, or of an object in it.

    Args:
        folder: For errors.
        held: The configuration or the object.
        name: Of the count.
        default: Where it is missing or null.
    """
    count = default if held.get(name) is None else held[name]
    if type(count) is not int or not 0 < count < 2**31:
        raise FormatError(f"{folder.path}: {name} of the processor is {count!r}, no count")
    return count


def side(vision: ModelFolder, name: str) -> int:
    """Return the pixels of a square, which some write once for each axis."""
    value = vision.config.get(name)
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
        vision.config[name] = value[0]
    return vision.count(name)


def inverse(part: ModelFolder, name: str, default: float) -> int:
    """Return the patches on each axis that become one row, which some write as a ratio 1 / n."""
    ratio = part.real(name, default)
    joined = round(min(1 / ratio, _MOST_JOINED))
    if abs(joined * ratio - 1) > 1e-6:
        raise FormatError(f"{part.path / 'config.json'}: {name} is {ratio}, no 1 / n")
    return joined


def require_theta(vision: ModelFolder) -> None:
    """UnsupportedError where a tower's rotary embedding has another base than files can say."""
    rope = vision.config.get("rope_parameters")
    held = rope if isinstance(rope, dict) else vision.config
    theta = held.get("rope_theta", _THETA)
    if theta != _THETA:
        raise UnsupportedError(
            f"{vision.path / 'config.json'}: rope_theta of the vision tower is {theta!r}; convert knows "
            f"{_THETA:g}"
        )


def tower_keys(
    folder: ModelFolder,
    vision: ModelFolder,
    projector: str,
    eps: float,
    counts: Mapping[str, str] = COUNTS,
) -> Metadata:
    """Return the keys that all families have.

    Args:
        folder: The model.
        vision: Its part ``vision_config``.
        projector: The family's name in llama.cpp.
        eps: Of the tower's norms.
        counts: What the configuration calls the dimensions, by GGUF's key.
    """
    prepared = processor_config(folder)
    return {
        "clip.has_vision_encoder": (True, "bool"),
        "clip.projector_type": (projector, "str"),
        "clip.vision.image_size": (side(vision, "image_size"), "u32"),
        "clip.vision.patch_size": (side(vision, "patch_size"), "u32"),
        **{f"clip.vision.{key}": (vision.count(name), "u32") for key, name in counts.items()},
        "clip.vision.projection_dim": (text_width(folder), "u32"),
        "clip.vision.attention.layer_norm_epsilon": (eps, "f32"),
        "clip.vision.image_mean": (_channels(folder, prepared, "image_mean"), "arr[f32]"),
        "clip.vision.image_std": (_channels(folder, prepared, "image_std"), "arr[f32]"),
    }


def text_width(folder: ModelFolder) -> int:
    """Return the width of the language model's embeddings."""
    text = copy.copy(folder)
    text.config = text_config(folder)
    return text.count("hidden_size")


def _channels(folder: ModelFolder, prepared: Mapping[str, Any], name: str) -> list[float]:
    values = prepared.get(name)
    numbers = isinstance(values, list) and all(
        isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= _LARGEST
        for v in values
    )
    if not isinstance(values, list) or not numbers or len(values) != 3:
        raise FormatError(
            f"{folder.path / 'preprocessor_config.json'}: {name} is {values!r}, no three numbers"
        )
    return [float(v) for v in values]


def entry(parameter: str, tensor: str, *operations: Operation) -> Tensor:
    """Return the entry of one parameter that is one tensor."""
    return Tensor((parameter,), (tensor,), operations)


def module_entry(
    family: str,
    parameter: str,
    prefix: re.Pattern[str],
    fixed: Mapping[str, str],
    layers: str,
    parts: Mapping[str, str],
) -> Tensor:
    """Return the entry of a module's weight or bias.

    Args:
        family: For errors.
        parameter: One of the tower.
        prefix: What all of its names begin with.
        fixed: GGUF's name of each module outside of the layers.
        layers: What the names of all layers begin with.
        parts: GGUF's name of each module of a layer.

    Raises:
        UnsupportedError: The family has no such parameter.
    """
    module, _, kind = prefix.sub("", parameter, count=1).rpartition(".")
    layer = re.fullmatch(rf"{re.escape(layers)}\.([0-9]{{1,4}})\.(.+)", module)
    if kind in ("weight", "bias"):
        if module in fixed:
            return entry(parameter, f"{fixed[module]}.{kind}")
        if layer is not None and layer[2] in parts:
            return entry(parameter, f"v.blk.{int(layer[1])}.{parts[layer[2]]}.{kind}")
    raise UnsupportedError(f"the model has the parameter {parameter}, which is none of {family}'s")


def is_matrix(tensor: str) -> bool:
    """Return whether it is the weight of a linear layer; all others stay f32.

    So does Gemma 3's projector, which llama.cpp transposes: it reads only floats there.
    """
    kept = tensor.startswith(("v.position_embd", PATCHES, INPUT)) or _VECTORS.fullmatch(tensor)
    return tensor.endswith(".weight") and not kept


def is_matrix_or_patches(tensor: str) -> bool:
    """Return whether it is such a weight or the convolution, which most store as f16 where all is."""
    return is_matrix(tensor) or tensor.startswith(f"{PATCHES}.weight")


def layer_shapes(
    layers: int, width: int, ff: int, parts: Collection[str], biased: Collection[str]
) -> Shapes:
    """Return the shapes of the tensors of all layers, by GGUF's name.

    Args:
        layers: How many there are.
        width: Of the hidden states.
        ff: Of the feed-forward part.
        parts: Those that have a weight.
        biased: Those of them that have a bias.
    """
    known = {
        **dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_out"), (width, width)),
        "attn_qkv": (3 * width, width),
        "ffn_gate": (ff, width),
        "ffn_up": (ff, width),
        "ffn_down": (width, ff),
    }
    found: Shapes = {}
    for i in range(layers):
        for part in parts:
            shape: tuple[int, ...] = known.get(part, (width,))
            found[f"v.blk.{i}.{part}.weight"] = shape
            if part in biased:
                found[f"v.blk.{i}.{part}.bias"] = shape[:1]
    return found
