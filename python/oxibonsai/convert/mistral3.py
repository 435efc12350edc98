"""Ministral 3: names and keys; q and k are in the order of interleaved pairs."""

from __future__ import annotations

from oxibonsai.architectures.rotary import YARN_NUMBERS
from oxibonsai.convert import decoder
from oxibonsai.convert.decoder import row_order
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys, yarn_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError

_GROWTH, _SCALES = "llama_4_scaling_beta", ("mscale", "mscale_all_dim")
_ALSO = (*YARN_NUMBERS, _GROWTH, *_SCALES, "max_position_embeddings")


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("sliding_window", None)
    rope = folder.config.get("rope_parameters")
    found = read_rope(folder, ("yarn",), also=_ALSO)
    if not isinstance(rope, dict) or rope.get("mscale", 1.0) != 1.0:
        raise FormatError(f"{folder.path / 'config.json'}: mscale is not 1, as files take it")
    return {
        **decoder.dimension_keys(folder, "mistral3"),
        "mistral3.rope.dimension_count": (decoder.head_dim(folder), "u32"),
        **rope_keys("mistral3", *found),
        **yarn_keys(folder, "mistral3"),
        "mistral3.rope.scaling.yarn_log_multiplier": (_number(folder, _SCALES[1]), "f32"),
        "mistral3.attention.temperature_scale": (_number(folder, _GROWTH), "f32"),
        **tokenizer_keys(folder),
    }


def _number(folder: ModelFolder, name: str) -> float:
    """Return a number above zero of ``rope_parameters``."""
    value = folder.config["rope_parameters"].get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e3:
        raise FormatError(f"{folder.path / 'config.json'}: {name} is {value!r}, not above zero")
    return float(value)


MISTRAL3 = Recipe(
    "mistral3",
    metadata,
    decoder.namer("Ministral 3", decoder.LAYER),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values()),
    row_order=row_order,
)
