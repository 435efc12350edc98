"""Llama 4's pictures: tiles, sizes and pixels are those of its own processor in transformers."""

from __future__ import annotations

from typing import Any

import llama4_pictures as truth
import numpy as np
import pytest
from odd_pictures import ODD_PICTURES
from PIL import Image

from oxibonsai.vision.decoding import DecodedImage, decode_image
from oxibonsai.vision.processors import Llama4Processor

Array = np.ndarray[Any, Any]
PROCESSOR = Llama4Processor(truth.SIDE, truth.TILES, truth.MEAN, truth.STD)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Array]:
    with np.load(truth.RECORDED) as file:
        return dict(file)


@pytest.fixture(scope="module")
def levels() -> Array:
    """What each of 256 levels becomes, [channels, 256]."""
    ramp = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    processor = Llama4Processor(16, 1, truth.MEAN, truth.STD)
    return processor.prepare(DecodedImage(Image.fromarray(ramp))).pixels.reshape(3, 256)


@pytest.mark.parametrize("name", truth.PICTURES)
def test_pixels_are_those_of_transformers_within_a_level(
    name: str, recorded: dict[str, Array], levels: Array
) -> None:
    """Torchvision resizes in 16 bits, Pillow in 22; normalised values are the same bit by bit."""
    found = PROCESSOR.prepare(decode_image(ODD_PICTURES[name]))
    bits = recorded[f"{name}: pixels"].astype(np.uint32) << 16
    expected = bits.view(np.float32)
    assert found.tiles == tuple(recorded[f"{name}: tiles"])
    assert found.pixels.shape == expected.shape
    for c in range(3):
        own, wanted = found.pixels[:, c], expected[:, c]
        assert np.isin(wanted, levels[c]).all()
        first = np.searchsorted(levels[c], wanted, side="left").astype(int)
        last = np.searchsorted(levels[c], wanted, side="right").astype(int) - 1
        above, below = levels[c][np.minimum(last + 1, 255)], levels[c][np.maximum(first - 1, 0)]
        assert ((below <= own) & (own <= above)).all()


def test_sizes_are_those_of_transformers(recorded: dict[str, Array]) -> None:
    processor = Llama4Processor(truth.SIDE_OF_SIZES, truth.TILES_OF_SIZES)
    for height, width, rows, columns, *fitted in recorded["sizes"].tolist():
        assert processor.grid((height, width)) == (rows, columns), (height, width)
        canvas = rows * truth.SIDE_OF_SIZES, columns * truth.SIDE_OF_SIZES
        assert processor.fitted((height, width), canvas) == tuple(fitted), (height, width)
