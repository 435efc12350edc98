"""From a folder of a Hugging Face model to llama.cpp's mmproj file of its vision tower."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.convert.converter import TowerConverter
from oxibonsai.convert.hadamard_folder import PACK_TYPE
from oxibonsai.convert.towers.glm4v import GLM4V
from oxibonsai.convert.towers.internvl import INTERNVL
from oxibonsai.convert.towers.llama4 import LLAMA4
from oxibonsai.convert.towers.llava import LLAVA
from oxibonsai.convert.towers.pixtral import PIXTRAL
from oxibonsai.convert.towers.qwen_vl import QWEN2VL, QWEN3VL, QWEN25VL
from oxibonsai.convert.towers.siglip import GEMMA3, IDEFICS3
from oxibonsai.convert.towers.tower import is_matrix
from oxibonsai.convert.writing import PlannedModel, plan_model
from oxibonsai.errors import UnsupportedError
from oxibonsai.files.progress import Progress

TOWERS: dict[str, TowerConverter] = {  # by config.json's model_type
    "gemma3": GEMMA3,
    "glm4v": GLM4V,
    "glm4v_moe": GLM4V,
    "glm46v": GLM4V,
    "idefics3": IDEFICS3,
    "internvl": INTERNVL,
    "llama4": LLAMA4,
    "llava": LLAVA,
    "llava_next": LLAVA,
    "mistral3": PIXTRAL,
    "qwen2_vl": QWEN2VL,
    "qwen2_5_vl": QWEN25VL,
    "qwen3_vl": QWEN3VL,
    "qwen3_vl_moe": QWEN3VL,
    "qwen3_5": QWEN3VL,
    "qwen3_5_moe": QWEN3VL,
    PACK_TYPE: QWEN3VL,  # whose rotation is that of the language model alone
    "smolvlm": IDEFICS3,
}


def has_tower(folder: Path) -> bool:
    """Return whether a folder's model sees, with a tower that :func:`convert_tower` knows."""
    if not (folder / "config.json").is_file():
        return False
    source = ModelFolder(folder)
    return str(source.config.get("model_type")) in TOWERS and _sees(source)


def convert_tower(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    dtype: str = "auto",
    name: str = "",
    threads: int = 1,
    progress: Progress | None = None,
) -> list[str]:
    """Write a model's vision tower as an mmproj file, as llama.cpp reads it.

    Args:
        folder: The whole model, with ``preprocessor_config.json`` or ``processor_config.json``.
        out: The file; replaced where it exists.
        dtype: Of matrices, as for :func:`oxibonsai.convert.language_model.convert`. The convolution over
            patches is f16 where that is chosen and its family stores it so, otherwise f32; learned
            embeddings and norms are f32.
        name: The model's name in the file; empty: the folder's.
        threads: They share out the rows that are encoded; the bytes don't depend on it.
        progress: Told after each tensor.

    Returns:
        What the user should know: see :func:`oxibonsai.convert.language_model.convert`.

    Raises:
        RequestError: There is no such dtype.
        FormatError: The folder lacks something.
        UnsupportedError: It has no tower that is known.
    """
    return plan_tower(folder, dtype=dtype, name=name, threads=threads).write(Path(out), progress)


def plan_tower(
    folder: str | os.PathLike[str], *, dtype: str = "auto", name: str = "", threads: int = 1
) -> PlannedModel:
    """Return the keys and tensors of the file that :func:`convert_tower` writes; arguments as there."""
    source = ModelFolder(Path(folder))
    converter = _converter(source)
    if dtype.lower() != "f16":
        converter = replace(converter, is_matrix=is_matrix)
    return plan_model(source, converter, kind="mmproj", dtype=dtype, name=name, threads=threads)


def _converter(folder: ModelFolder) -> TowerConverter:
    kind = str(folder.config.get("model_type"))
    if kind == "llava" and _vision_type(folder) == "pixtral":
        return PIXTRAL
    if kind not in TOWERS or not _sees(folder):
        raise UnsupportedError(
            f"{folder.path} holds a model of type {kind!r}, of which convert knows no vision tower; it "
            f"knows those of {', '.join(sorted(TOWERS))}"
        )
    return TOWERS[kind]


def _sees(folder: ModelFolder) -> bool:
    """Return whether a configuration has a part for images; MLX packs say apart whether they hold it."""
    components = folder.config.get("components")
    held = components.get("vision", True) if isinstance(components, dict) else True
    return bool(held) and isinstance(folder.config.get("vision_config"), dict)


def _vision_type(folder: ModelFolder) -> str | None:
    vision = folder.config.get("vision_config")
    return vision.get("model_type") if isinstance(vision, dict) else None
