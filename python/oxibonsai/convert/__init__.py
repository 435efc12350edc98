"""Folders of Hugging Face models to GGUF files: one small file an architecture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oxibonsai import _core
from oxibonsai.convert.bert import BERT
from oxibonsai.convert.exact_blocks import EXACT_TYPES
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.gemma3 import GEMMA3
from oxibonsai.convert.llama import LLAMA
from oxibonsai.convert.plan import Planned, file_type, plan
from oxibonsai.convert.qwen2 import QWEN2
from oxibonsai.convert.qwen3 import QWEN3
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.stored_types import STORED_TYPES
from oxibonsai.errors import RequestError, UnsupportedError

__all__ = ["RECIPES", "TYPES", "convert"]

RECIPES: dict[str, Recipe] = {  # by config.json's model_type
    "bert": BERT,
    "gemma3_text": GEMMA3,
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
}

# What matrices may be stored as.
TYPES = ("auto", "f32", "f16", "bf16", *EXACT_TYPES)

# Called with the bytes that are written and the bytes in all.
Progress = Callable[[int, int], None]


def convert(
    folder: Path,
    out: Path,
    *,
    dtype: str = "auto",
    name: str = "",
    weights: bool = True,
    progress: Progress | None = None,
) -> None:
    """Writes a model folder as one GGUF file, which appears under its name when it is complete.

    Args:
        folder: With ``config.json``, safetensors and, for texts, ``tokenizer.json``.
        out: The file; replaced where it exists.
        dtype: Of matrices. ``"auto"`` loses nothing: each as it is stored; 8-bit floats with their
            scales as f32; MLX packs of 1, 2, 4 and 8 bits as q1_0, q2_0_g64, q4_1 and q8_0. 4-bit packs
            of AutoAWQ and GPTQ become q4_1, with minima rounded to float16. ``"f32"``,
            ``"f16"`` and ``"bf16"`` round to nearest even. ``"q1_0"``, ``"q2_0_g64"``, ``"pq2_0"`` and
            ``"ptq1_0"`` are for weights that are binary or ternary already, which is checked group by
            group. Vectors and small tables stay f32.
        name: The model's name in the file; empty: the folder's.
        weights: False writes the metadata and the vocabulary alone.
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
    tensors = plan(source, recipe, dtype) if weights else []
    keys = _general(recipe, tensors, name or folder.resolve().name) | recipe.metadata(source)
    _write(out, keys, tensors, progress)


def _write(out: Path, keys: Metadata, tensors: list[Planned], progress: Progress | None) -> None:
    writer = _core.GgufWriter(str(out))
    for key, (value, value_type) in keys.items():
        writer.add_metadata(key, value, value_type)
    for tensor in tensors:
        gguf_id = STORED_TYPES[tensor.type_name].gguf_id
        writer.add_tensor(tensor.name, tensor.shape, gguf_id, tensor.nbytes)
    writer.write_header()
    done, total = 0, sum(t.nbytes for t in tensors)
    for tensor in tensors:
        writer.write_tensor(tensor.blocks())
        done += tensor.nbytes
        if progress is not None:
            progress(done, total)
    writer.close()


def _general(recipe: Recipe, tensors: list[Planned], name: str) -> Metadata:
    keys: Metadata = {
        "general.architecture": (recipe.architecture, "str"),
        "general.type": ("model", "str"),
        "general.name": (name, "str"),
        "general.quantization_version": (2, "u32"),
    }
    number = file_type(tensors)
    return keys if number is None else keys | {"general.file_type": (number, "u32")}
