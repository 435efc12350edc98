"""Rotary embeddings: ``config.json`` to ``*.rope.*`` and Llama 3's table of factors."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.architectures import rotary
from oxibonsai.architectures.rotary import ORIGINAL as _ORIGINAL
from oxibonsai.architectures.rotary import PARTIAL as PARTIAL
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata


def config_json(folder: ModelFolder) -> ConfigJson:
    """Return the folder's ``config.json`` as families read it."""
    return ConfigJson(folder.config, folder.path / "config.json")


def read_rope(
    folder: ModelFolder, kinds: tuple[str, ...], rope: Any = None, *, also: Collection[str] = ()
) -> tuple[str, dict[str, float]]:
    """Return the kind of scaling and its numbers; see :func:`oxibonsai.architectures.rotary.read_rope`."""
    return rotary.read_rope(config_json(folder), kinds, rope, also=also)


def rotary_dims(folder: ModelFolder, width: int, *names: str, share: float = 1.0) -> int:
    """Return the rotated dims of a head of ``width``, from the share that the configuration states."""
    return rotary.rotary_dims(config_json(folder), width, *names, share=share)


def rope_factors(
    folder: ModelFolder, kinds: tuple[str, ...], width: int
) -> dict[str, npt.NDArray[np.float32]]:
    """Return Llama 3's table of factors for heads of ``width``, if the configuration scales so."""
    kind, numbers = read_rope(folder, kinds)
    if kind != "llama3":
        return {}
    return {"rope_freqs.weight": rotary.llama3_factors(config_json(folder), numbers, width)}


def rope_keys(architecture: str, kind: str, numbers: dict[str, float]) -> Metadata:
    """GGUF's keys of what ``read_rope`` found; Llama 3's scaling is in ``llama3_factors``."""
    prefix = f"{architecture}.rope"
    keys: Metadata = {f"{prefix}.freq_base": (numbers["rope_theta"], "f32")}
    if kind in ("linear", "yarn"):
        keys[f"{prefix}.scaling.type"] = (kind, "str")
        keys[f"{prefix}.scaling.factor"] = (numbers["factor"], "f32")
    if kind == "yarn":
        keys[f"{prefix}.scaling.original_context_length"] = (int(numbers[_ORIGINAL]), "u32")
    return keys


def yarn_keys(folder: ModelFolder, architecture: str, rope: Any = None) -> Metadata:
    """Return GGUF's keys of ``YARN_NUMBERS``, where the rotary embedding has them."""
    config = config_json(folder)
    if rope is None:
        rope = config.get("rope_parameters", "rope_scaling")
    numbers = rotary.yarn_numbers(config, rope if isinstance(rope, dict) else {})
    return {f"{architecture}.rope.scaling.{key}": (value, "f32") for key, value in numbers}
