"""Pictures as transformers' processors give them to models, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf.arrays import is_torch
from oxibonsai.vision import PixelGrid
from oxibonsai.vision.processors import (
    Gemma3Processor,
    ImageProcessor,
    LlavaProcessor,
    Qwen2VLProcessor,
)

_FRAMES = 2  # of a video in one patch of Qwen's; of a picture both are the same
Columns = dict[str, np.ndarray[Any, Any]]


def as_columns(processor: ImageProcessor, grids: Sequence[PixelGrid]) -> Columns:
    """``pixel_values`` and what belongs to it, as transformers has them for this family.

    Qwen's are float32 [patches, 3 * 2 * patch * patch] with ``image_grid_thw`` int64 [pictures, 3];
    Gemma 3's and LLaVA 1.5's float32 [pictures, 3, height, width].
    """
    if isinstance(processor, Qwen2VLProcessor):
        grid = [_patch_grid(processor, g) for g in grids]
        return {
            "pixel_values": np.concatenate([_patches(processor, g) for g in grids]),
            "image_grid_thw": np.array([[1, *g] for g in grid], np.int64),
        }
    _check_square(processor)
    return {"pixel_values": np.concatenate([g.pixels for g in grids])}


def as_grids(processor: ImageProcessor, columns: Mapping[str, Any]) -> list[PixelGrid]:
    """The pictures of :func:`as_columns`; RequestError where they are none of this model."""
    pixels = _array(columns.get("pixel_values"), "pixel_values", np.float32)
    if not isinstance(processor, Qwen2VLProcessor):
        _check_square(processor)
        if pixels.ndim != 4:
            raise RequestError(
                f"pixel_values have shape {pixels.shape}; they are [pictures, 3, height, width]"
            )
        return [PixelGrid(pixels[i : i + 1]) for i in range(len(pixels))]
    grid = _array(columns.get("image_grid_thw"), "image_grid_thw", np.int64)
    p, m = processor.patch_size, processor.merge_size
    right = grid.ndim == 2 and grid.shape[1] == 3 and (grid[:, 0] == 1).all()
    right = right and (grid[:, 1:] > 0).all() and (grid[:, 1:] % m == 0).all()
    if not right or pixels.shape != (grid.prod(axis=1).sum(), 3 * _FRAMES * p * p):
        raise RequestError(
            f"pixel_values {list(pixels.shape)} and image_grid_thw {grid.tolist()} are not what this "
            "model's processor gives for pictures"
        )
    grids, at = [], 0
    for _, rows, cols in grid.tolist():
        own = pixels[at : at + rows * cols].reshape(rows // m, cols // m, m, m, 3, _FRAMES, p, p)
        at += rows * cols
        picture = own[:, :, :, :, :, 0].transpose(4, 0, 2, 5, 1, 3, 6)
        whole = np.ascontiguousarray(picture.reshape(1, 3, rows * p, cols * p))
        grids.append(PixelGrid(whole))
    return grids


def _patch_grid(processor: Qwen2VLProcessor, grid: PixelGrid) -> tuple[int, int]:
    _, _, height, width = grid.pixels.shape
    return height // processor.patch_size, width // processor.patch_size


def _patches(processor: Qwen2VLProcessor, grid: PixelGrid) -> np.ndarray[Any, Any]:
    """Patches in squares of merge * merge, each picture twice as a video of two frames."""
    p, m = processor.patch_size, processor.merge_size
    rows, cols = _patch_grid(processor, grid)
    squares = grid.pixels[0].reshape(3, rows // m, m, p, cols // m, m, p)
    ordered = squares.transpose(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None]
    return np.repeat(ordered, _FRAMES, axis=5).reshape(rows * cols, -1)


def _check_square(processor: ImageProcessor) -> None:
    if not isinstance(processor, Gemma3Processor | LlavaProcessor):
        raise UnsupportedError(
            "transformers' form of pixels is available for Qwen-VL, Gemma 3 and LLaVA 1.5: use "
            "oxibonsai.load() and engine.chat() for this model"
        )


def _array(value: Any, name: str, dtype: Any) -> np.ndarray[Any, Any]:
    if value is None:
        raise RequestError(f"{name} is missing: give what the processor gave")
    try:
        return np.asarray(value.cpu() if is_torch(value) else value, dtype=dtype)
    except (TypeError, ValueError) as e:
        raise RequestError(f"{name} is no array of numbers: {e}") from e
