"""Folders of Hugging Face models to GGUF files: one small file an architecture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.convert.bert import BERT
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.qwen3 import QWEN3
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.errors import FormatError, RequestError, UnsupportedError

__all__ = ["RECIPES", "TYPES", "convert"]

RECIPES: dict[str, Recipe] = {"bert": BERT, "qwen3": QWEN3}  # by config.json's model_type

# What matrices may be stored as: GGUF's tensor type and file type, which are one number here.
TYPES = {"f32": 0, "f16": 1}
_DTYPES: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16)}

# Called with the bytes that are written and the bytes in all.
Progress = Callable[[int, int], None]


def convert(
    folder: Path,
    out: Path,
    *,
    dtype: str = "f16",
    name: str = "",
    progress: Progress | None = None,
) -> None:
    """Writes a model folder as one GGUF file, which appears under its name when it is complete.

    Args:
        folder: With ``config.json``, ``tokenizer.json`` and safetensors.
        out: The file; replaced where it exists.
        dtype: ``"f32"`` or ``"f16"`` matrices. Vectors and small tables stay f32.
        name: The model's name in the file; empty: the folder's.
        progress: Told after each tensor.

    Raises:
        RequestError: There is no such dtype.
        FormatError: The folder lacks something, or a value does not fit the dtype.
        UnsupportedError: It asks for what no recipe knows.
    """
    if dtype not in TYPES:
        raise RequestError(f"dtype is {dtype!r}; it is one of {', '.join(TYPES)}")
    source = ModelFolder(folder)
    kind = source.config.get("model_type")
    recipe = RECIPES.get(str(kind))
    if recipe is None:
        raise UnsupportedError(
            f"{folder} holds a model of type {kind!r}; convert knows {', '.join(sorted(RECIPES))}"
        )
    stored = {n: as_ for n in source.shapes if (as_ := recipe.tensor_name(n)) is not None}
    if len(set(stored.values())) != len(stored):
        raise FormatError(f"{folder} has two parameters of one meaning")
    types = {n: dtype if recipe.is_matrix(as_) else "f32" for n, as_ in stored.items()}
    sizes = {n: int(np.prod(source.shapes[n])) * _DTYPES[types[n]].itemsize for n in stored}
    keys = _general(recipe, dtype, name or folder.resolve().name) | recipe.metadata(source)
    writer = _core.GgufWriter(str(out))
    for key, (value, value_type) in keys.items():
        writer.add_metadata(key, value, value_type)
    for parameter, as_ in stored.items():
        shape = source.shapes[parameter]
        writer.add_tensor(as_, shape, TYPES[types[parameter]], sizes[parameter])
    writer.write_header()
    done, total = 0, sum(sizes.values())
    for parameter in stored:
        writer.write_tensor(_bytes(source, parameter, types[parameter]))
        done += sizes[parameter]
        if progress is not None:
            progress(done, total)
    writer.close()


def _bytes(source: ModelFolder, parameter: str, dtype: str) -> npt.NDArray[np.uint8]:
    """A parameter, rounded to nearest even."""
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(source.tensor(parameter), dtype=_DTYPES[dtype])
    if not np.isfinite(rounded).all():
        raise FormatError(
            f"{source.path}: parameter {parameter} holds values that {dtype} can't; they are not "
            "finite, or too large for f16: f32 is the type that holds all"
        )
    flat: npt.NDArray[np.uint8] = rounded.reshape(-1).view(np.uint8)
    return flat


def _general(recipe: Recipe, dtype: str, name: str) -> Metadata:
    return {
        "general.architecture": (recipe.architecture, "str"),
        "general.type": ("model", "str"),
        "general.name": (name, "str"),
        "general.file_type": (TYPES[dtype], "u32"),
        "general.quantization_version": (2, "u32"),
    }
