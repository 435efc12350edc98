"""How far rows are from transformers' float32 rows, ours and those of llama.cpp's mtmd, tower by tower."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import random_vision
from random_vision import Eyed
from test_towers import Case, distance, picture, rows_of, true_rows
from tower_folders import save

from oxibonsai import _core
from oxibonsai.convert.vision_tower import convert_tower
from oxibonsai.vision import PixelGrid, Tower

RECORDED = Path(__file__).parents[1] / "truth/vision/mtmd_distances.json"
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Measured:
    """A tower, types of its matrices, and a picture.

    Attributes:
        name: In reports.
        family: As of ``random_vision``.
        make: Makes the model.
        types: Of matrices, as for ``convert_tower``.
        sides: Height and width of a tile in pixels.
        tiles: Rows and columns of tiles. Of more than one, the rows of the overview are compared, which
            is the first: mtmd reads tile by tile.
        overview_rows: That it becomes.
    """

    name: str
    family: str
    make: Callable[[Path], Eyed]
    sides: tuple[int, int]
    types: tuple[str, ...] = ("f32", "f16")
    tiles: tuple[int, int] = (1, 1)
    overview_rows: int | None = None

    def pixels(self) -> PixelGrid:
        """The picture."""
        return picture(*self.tiles, *self.sides)


def _small(family: str, height: int, width: int) -> Measured:
    return Measured(family, family, random_vision.MODELS[family], (height, width))


_QUANTIZED = ("f16", "q8_0")
TOWERS = [
    _small("qwen2vl", 24, 40),
    # mtmd's windows have the side of the published models', whatever a file says.
    Measured(
        "qwen2.5vl", "qwen2.5vl", partial(random_vision.qwen2vl, windowed=True, window=112),
        (120, 232),
    ),
    _small("qwen3vl", 24, 40),
    _small("gemma3", 48, 48),
    _small("llava", 24, 24),
    replace(_small("llava 1.6", 24, 24), tiles=(1, 2), overview_rows=36),
    _small("idefics3", 24, 24),
    _small("internvl", 24, 24),
    _small("mistral3", 24, 40),
    Measured(
        "qwen3vl, wide", "qwen3vl",
        partial(
            random_vision.qwen3vl, hidden_size=1024, intermediate_size=4096, num_heads=16,
            patch_size=16,
        ),
        (160, 224), _QUANTIZED,
    ),
    Measured(
        "gemma3, wide", "gemma3",
        partial(
            random_vision.gemma3, hidden_size=1152, intermediate_size=4304, num_hidden_layers=3,
            num_attention_heads=16, image_size=224, patch_size=14,
        ),
        (224, 224), _QUANTIZED,
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Files:
    """A tower's mmproj files, by the type of their matrices, and transformers' rows of the picture."""

    measured: Measured
    paths: dict[str, Path]
    truth: Floats

    def own_distance(self, kind: str, threads: int = 2) -> float:
        """That of our rows."""
        tower = Tower.open(self.paths[kind], _core.CpuDevice(threads), lambda text: 7)
        rows = rows_of(tower.encode(self.measured.pixels()))
        return distance(rows[: self.measured.overview_rows], self.truth)


def make_files(measured: Measured, folder: Path) -> Files:
    """Writes the files into a folder."""
    (folder / "files").mkdir()
    eyed = measured.make(folder / "files")
    model = save(eyed, measured.family, folder / "model")
    paths = {kind: folder / f"mmproj-{kind}.gguf" for kind in measured.types}
    for kind, path in paths.items():
        convert_tower(model, path, dtype=kind)
    nothing: Any = None
    case = Case(measured.family, eyed, nothing, nothing)
    return Files(measured, paths, true_rows(case, measured.pixels())[: measured.overview_rows])


def recorded() -> dict[str, dict[str, float]]:
    """Distances of mtmd's rows, by tower and type."""
    found: dict[str, dict[str, float]] = json.loads(RECORDED.read_text())
    return found
