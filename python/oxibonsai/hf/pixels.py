"""Images as transformers' processors give them to models, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.hf.arrays import is_torch
from oxibonsai.vision import PixelGrid
from oxibonsai.vision.processors import (
    Idefics3Processor,
    ImageProcessor,
    LlavaNextProcessor,
    PixtralProcessor,
    Qwen2VLProcessor,
)

_FRAMES = 2  # of a video in one patch of Qwen's; of an image both are the same
Columns = dict[str, np.ndarray[Any, Any]]


def as_columns(
    processor: ImageProcessor, grids: Sequence[PixelGrid], counts: Sequence[int]
) -> Columns:
    """Return ``pixel_values`` and what belongs to it, as transformers has them for this family.

    Args:
        processor: Of the family.
        grids: The images of all texts, in order.
        counts: How many of them each text has.

    Qwen's and GLM's are float32 [patches, 3 * 2 * patch * patch] with ``image_grid_thw`` int64 [images, 3];
    Gemma 3's and LLaVA 1.5's float32 [images, 3, height, width]; LLaVA 1.6's [images, tiles, 3,
    height, width] and Pixtral's [images, 3, height, width], filled up with zeros, with
    ``image_sizes`` int64 [images, 2]: heights and widths before and after resizing. InternVL's and
    Llama 4's are [tiles of all images, 3, height, width]; those of Idefics 3 [texts, tiles, 3, height,
    width], filled up with zeros, with ``pixel_attention_mask`` int64 [texts, tiles, height, width], 1 for
    pixels.
    """
    if isinstance(processor, Idefics3Processor):
        return _tiles_of_texts(grids, counts)
    if isinstance(processor, Qwen2VLProcessor):
        grid = [_patch_grid(processor, g) for g in grids]
        return {
            "pixel_values": np.concatenate([_patches(processor, g) for g in grids]),
            "image_grid_thw": np.array([[1, *g] for g in grid], np.int64),
        }
    if isinstance(processor, LlavaNextProcessor):
        sizes = [g.original_size for g in grids]
        return {
            "pixel_values": _stacked([g.pixels for g in grids]),
            "image_sizes": np.array(sizes, np.int64),
        }
    if isinstance(processor, PixtralProcessor):
        sizes = [(g.pixels.shape[2], g.pixels.shape[3]) for g in grids]
        return {
            "pixel_values": _stacked([g.pixels[0] for g in grids]),
            "image_sizes": np.array(sizes, np.int64),
        }
    return {"pixel_values": np.concatenate([g.pixels for g in grids])}


def _tiles_of_texts(grids: Sequence[PixelGrid], counts: Sequence[int]) -> Columns:
    rest = iter(grids)
    texts = [
        [tile for _, g in zip(range(n), rest, strict=False) for tile in g.pixels] for n in counts
    ]
    most = max(map(len, texts))
    _, _, height, width = grids[0].pixels.shape
    pixels = np.zeros((len(texts), most, 3, height, width), np.float32)
    mask = np.zeros((len(texts), most, height, width), np.int64)
    for i, tiles in enumerate(texts):
        for j, tile in enumerate(tiles):
            pixels[i, j], mask[i, j] = tile, 1
    return {"pixel_values": pixels, "pixel_attention_mask": mask}


def as_grids(processor: ImageProcessor, columns: Mapping[str, Any]) -> list[PixelGrid]:
    """Return the images of :func:`as_columns`; of a family that cuts them, their tiles one by one.

    Raises:
        RequestError: They are none of this model.
    """
    pixels = _array(columns.get("pixel_values"), "pixel_values", np.float32)
    if isinstance(processor, Qwen2VLProcessor):
        return _grids_of_patches(processor, pixels, columns)
    if isinstance(processor, Idefics3Processor):
        return _grids_of_texts(pixels, columns)
    tiled = isinstance(processor, LlavaNextProcessor)
    if pixels.ndim != 4 + tiled:
        tiles = "tiles, " if tiled else ""
        raise RequestError(
            f"pixel_values have shape {pixels.shape}; they are [pictures, {tiles}3, height, width]"
        )
    if isinstance(processor, LlavaNextProcessor | PixtralProcessor):
        sizes = _array(columns.get("image_sizes"), "image_sizes", np.int64)
        if sizes.shape != (len(pixels), 2) or (sizes < 1).any():
            raise RequestError(f"image_sizes are {sizes.tolist()}, not a size for each picture")
        pairs = zip(pixels, [(h, w) for h, w in sizes.tolist()], strict=True)
        if isinstance(processor, PixtralProcessor):
            return [PixelGrid(np.ascontiguousarray(p[None, :, :h, :w])) for p, (h, w) in pairs]
        return [_grid_of_tiles(processor, p, size) for p, size in pairs]
    return [PixelGrid(pixels[i : i + 1]) for i in range(len(pixels))]


def _grids_of_texts(pixels: np.ndarray[Any, Any], columns: Mapping[str, Any]) -> list[PixelGrid]:
    """Return the tiles that the mask shows; where there is no mask, those that are not zero."""
    if pixels.ndim != 5:
        raise RequestError(
            f"pixel_values have shape {pixels.shape}; they are [texts, tiles, 3, height, width]"
        )
    shown = (pixels != 0).any(axis=(2, 3, 4))
    if columns.get("pixel_attention_mask") is not None:
        mask = _array(columns["pixel_attention_mask"], "pixel_attention_mask", np.int64) != 0
        if mask.shape != pixels.shape[:2] + pixels.shape[3:]:
            raise RequestError(
                f"pixel_attention_mask has shape {mask.shape}; it is [texts, tiles, height, width]"
            )
        shown = mask.all(axis=(2, 3))
        if (mask.any(axis=(2, 3)) != shown).any():
            raise UnsupportedError(
                "pixel_attention_mask hides a part of a tile, which this version does not support: the "
                "model's processor fills each tile"
            )
    return [PixelGrid(tile[None]) for tile in pixels[shown]]


def _grid_of_tiles(
    processor: LlavaNextProcessor, pixels: np.ndarray[Any, Any], size: tuple[int, int]
) -> PixelGrid:
    height, width = processor.best_resolution(size)
    tiles = height // processor.image_size, width // processor.image_size
    return PixelGrid(np.ascontiguousarray(pixels[: 1 + tiles[0] * tiles[1]]), tiles, size)


def _stacked(arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Stack several arrays into one, each filled up with zeros at its ends."""
    shape = np.max([a.shape for a in arrays], axis=0)
    whole = np.zeros((len(arrays), *shape), np.float32)
    for i, array in enumerate(arrays):
        whole[i][tuple(slice(n) for n in array.shape)] = array
    return whole


def _grids_of_patches(
    processor: Qwen2VLProcessor, pixels: np.ndarray[Any, Any], columns: Mapping[str, Any]
) -> list[PixelGrid]:
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
        image = own[:, :, :, :, :, 0].transpose(4, 0, 2, 5, 1, 3, 6)
        whole = np.ascontiguousarray(image.reshape(1, 3, rows * p, cols * p))
        grids.append(PixelGrid(whole))
    return grids


def _patch_grid(processor: Qwen2VLProcessor, grid: PixelGrid) -> tuple[int, int]:
    _, _, height, width = grid.pixels.shape
    return height // processor.patch_size, width // processor.patch_size


def _patches(processor: Qwen2VLProcessor, grid: PixelGrid) -> np.ndarray[Any, Any]:
    """Return patches in squares of merge * merge, each image twice as a video of two frames."""
    p, m = processor.patch_size, processor.merge_size
    rows, cols = _patch_grid(processor, grid)
    squares = grid.pixels[0].reshape(3, rows // m, m, p, cols // m, m, p)
    ordered = squares.transpose(1, 4, 2, 5, 0, 3, 6)[:, :, :, :, :, None]
    return np.repeat(ordered, _FRAMES, axis=5).reshape(rows * cols, -1)


def _array(value: Any, name: str, dtype: Any) -> np.ndarray[Any, Any]:
    if value is None:
        raise RequestError(f"{name} is missing: give what the processor gave")
    try:
        return np.asarray(value.cpu() if is_torch(value) else value, dtype=dtype)
    except (TypeError, ValueError) as e:
        raise RequestError(f"{name} is no array of numbers: {e}") from e
