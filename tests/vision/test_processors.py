"""Processors give the pixels of the models' own processors in transformers, bit by bit."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from odd_pictures import ODD_PICTURES, drawn
from PIL import Image

from oxibonsai.errors import RequestError
from oxibonsai.vision.decoding import DecodedImage, decode_image
from oxibonsai.vision.processors import (
    Gemma3Processor,
    Glm4VProcessor,
    Idefics3Processor,
    ImageProcessor,
    InternVLProcessor,
    LlavaNextProcessor,
    LlavaProcessor,
    PixtralProcessor,
    Qwen2VLProcessor,
)

Peer = Callable[[Image.Image], "np.ndarray[Any, Any]"]


def _qwen(patch: int, least: int, most: int, mean: float | None = None) -> tuple[Any, Peer]:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    values = {} if mean is None else {"image_mean": (mean,) * 3, "image_std": (mean,) * 3}
    own = Qwen2VLProcessor(patch_size=patch, min_pixels=least, max_pixels=most, **values)  # type: ignore[arg-type]
    peer = Qwen2VLImageProcessorPil(
        patch_size=patch, size={"shortest_edge": least, "longest_edge": most}, **values
    )

    return own, lambda image: _picture(peer(image, return_tensors="np"), patch)


def _picture(found: Any, patch: int) -> np.ndarray[Any, Any]:
    """The pixels of patches in squares of 2 x 2."""
    _, rows, columns = found["image_grid_thw"][0]
    patches = found["pixel_values"].reshape(rows // 2, columns // 2, 2, 2, 3, 2, patch, patch)
    assert (patches[:, :, :, :, :, 0] == patches[:, :, :, :, :, 1]).all()  # two equal frames
    picture = patches[:, :, :, :, :, 0].transpose(4, 0, 2, 5, 1, 3, 6)
    return np.asarray(picture.reshape(1, 3, rows * patch, columns * patch))


def _glm4v(least: int, most: int) -> tuple[Any, Peer]:
    """Bounds of one frame; the peer counts two."""
    from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil

    size = {"shortest_edge": 2 * least, "longest_edge": 2 * most}
    peer = Glm46VImageProcessorPil(size=size)
    own = Glm4VProcessor(min_pixels=least, max_pixels=most)
    return own, lambda image: _picture(peer(image, return_tensors="np"), 14)


def _gemma3() -> tuple[Any, Peer]:
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    peer = Gemma3ImageProcessorPil(size={"height": 448, "width": 448})
    return Gemma3Processor(448), lambda image: peer(image, return_tensors="np")["pixel_values"]


def _llava(pads: bool) -> tuple[Any, Peer]:
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

    peer = LlavaImageProcessorPil(
        size={"shortest_edge": 112}, crop_size={"height": 112, "width": 112}, do_pad=pads
    )
    return (
        LlavaProcessor(112, pads=pads),
        lambda image: peer(image, return_tensors="np")["pixel_values"],
    )


def _llava_next() -> tuple[Any, Peer]:
    from transformers.models.llava_next.image_processing_pil_llava_next import (
        LlavaNextImageProcessorPil,
    )

    pinpoints = [[112, 224], [224, 112], [224, 224], [336, 112], [112, 336]]
    peer = LlavaNextImageProcessorPil(
        size={"shortest_edge": 112},
        crop_size={"height": 112, "width": 112},
        image_grid_pinpoints=pinpoints,
    )
    own = LlavaNextProcessor(112, tuple((h, w) for h, w in pinpoints))
    return own, lambda image: peer(image, return_tensors="np")["pixel_values"][0]


def _idefics3(splits: bool) -> tuple[Any, Peer]:
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    peer = Idefics3ImageProcessorPil(
        size={"longest_edge": 512}, max_image_size={"longest_edge": 128}, do_image_splitting=splits
    )
    own = Idefics3Processor(512, 128, splits)
    return own, lambda image: peer(image, return_tensors="np")["pixel_values"][0]


def _pixtral() -> tuple[Any, Peer]:
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    peer = PixtralImageProcessorPil(
        size={"longest_edge": 512}, patch_size={"height": 28, "width": 28}
    )
    return (
        PixtralProcessor(512, 28),
        lambda image: peer(image, return_tensors="np")["pixel_values"],
    )


def _internvl(most: int) -> tuple[Any, Peer]:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    own = InternVLProcessor(112, 1, most)
    peer = GotOcr2ImageProcessorPil(
        size={"height": 112, "width": 112},
        crop_to_patches=True,
        max_patches=most,
        image_mean=own.image_mean,
        image_std=own.image_std,
    )
    return own, lambda image: peer(image, return_tensors="np")["pixel_values"]


FAMILIES: dict[str, Callable[[], tuple[ImageProcessor, Peer]]] = {
    "qwen2vl": lambda: _qwen(14, 56 * 56, 28 * 28 * 640),
    "qwen3vl": lambda: _qwen(16, 65536, 262144, 0.5),
    "glm4v": lambda: _glm4v(112 * 112 // 2, 28 * 28 * 640),
    "glm4v, enlarged": lambda: _glm4v(28 * 28 * 300, 28 * 28 * 640),
    "gemma3": _gemma3,
    "llava": lambda: _llava(False),
    "llava with padding": lambda: _llava(True),
    "llava_next": _llava_next,
    "idefics3": lambda: _idefics3(True),
    "idefics3 without splitting": lambda: _idefics3(False),
    "pixtral": _pixtral,
    "internvl": lambda: _internvl(12),
    "internvl with few tiles": lambda: _internvl(4),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_pixels_are_those_of_transformers(family: str) -> None:
    own, peer = FAMILIES[family]()
    for name, data in ODD_PICTURES.items():
        grid = own.prepare(decode_image(data))
        expected = peer(Image.open(io.BytesIO(data)))
        assert grid.pixels.shape == expected.shape, name
        assert np.array_equal(grid.pixels, expected), name
        image = Image.open(io.BytesIO(data))
        assert grid.original_size == (image.height, image.width)
        overview = grid.pixels.shape[0] - grid.tiles[0] * grid.tiles[1]
        assert overview in ((1,) if family == "llava_next" else (0, 1)), name


@pytest.mark.parametrize(
    ("family", "size"),
    [("qwen2vl", (3, 700)), ("glm4v", (3, 700)), ("pixtral", (1, 3000)), ("llava", (1, 4_000_000)),
     ("llava with padding", (1, 9000))],
)  # fmt: skip
def test_a_shape_that_is_nothing_for_a_model_is_refused(family: str, size: tuple[int, int]) -> None:
    own, _ = FAMILIES[family]()
    with pytest.raises(RequestError, match=r"cut it"):
        own.prepare(DecodedImage(Image.new("RGB", (size[1], size[0]))))


@pytest.mark.parametrize("size", [(20, 1600), (9, 40), (700, 5), (27, 29)])
def test_glm4v_lengthens_a_side_shorter_than_a_token_first(size: tuple[int, int]) -> None:
    own, peer = _glm4v(28 * 28, 28 * 28 * 640)
    image = Image.fromarray(drawn(*size))
    assert np.array_equal(own.prepare(DecodedImage(image)).pixels, peer(image))


def test_bounds_in_tokens() -> None:
    processor = Qwen2VLProcessor()
    few = processor.with_tokens(None, 16)
    assert few.max_pixels == 16 * 28 * 28
    grid = few.prepare(decode_image(ODD_PICTURES["large"]))
    assert grid.pixels.shape[2] * grid.pixels.shape[3] <= 16 * 28 * 28
    many = processor.with_tokens(100, 200).prepare(decode_image(ODD_PICTURES["one pixel"]))
    assert many.pixels.shape[2] * many.pixels.shape[3] >= 100 * 28 * 28
    with pytest.raises(RequestError, match="--image-max-tokens"):
        processor.with_tokens(2000, None)


@pytest.mark.parametrize("bounds", [(None, 40), (None, 3), (100, None), (9, 12), (1, 1)])
def test_bounds_in_tokens_are_the_pixels_of_qwens_own_processor(
    bounds: tuple[int | None, int | None],
) -> None:
    """A token is 32 x 32 pixels, as in llama.cpp; 64 to 16,384 of them are Bonsai 2's own bounds."""
    area = 32 * 32
    least, most = bounds
    own, _ = _qwen(16, 64 * area, 16384 * area, 0.5)
    # The model's lower bound gives way to an upper one.
    lower = least or (64 if most is None or most >= 64 else 1)
    _, peer = _qwen(16, lower * area, (most or 16384) * area, 0.5)
    for name, data in ODD_PICTURES.items():
        found = own.with_tokens(*bounds).prepare(decode_image(data)).pixels
        assert np.array_equal(found, peer(Image.open(io.BytesIO(data)))), name


@pytest.mark.parametrize("name", sorted(ODD_PICTURES))
def test_bounds_on_tokens_hold_for_pixtral(name: str) -> None:
    picture = decode_image(ODD_PICTURES[name])
    plain = PixtralProcessor(256, 16)
    for least, most in ((None, 40), (60, 120), (9, 256)):
        bounded = plain.with_tokens(least, most)
        _, _, height, width = bounded.prepare(picture).pixels.shape
        rows, columns = height // 16, width // 16
        assert rows * columns <= (most or 256) or 1 in (rows, columns)
        assert rows * columns >= (least or 1) or 16 in (rows, columns)
        assert max(rows, columns) <= 16
    assert plain.with_tokens(None, 256).prepare(picture).digest() == plain.prepare(picture).digest()
    with pytest.raises(RequestError, match="set both"):
        plain.with_tokens(50, 40)
    with pytest.raises(RequestError, match="up to 256 tokens"):
        plain.with_tokens(300, 400)


def test_bounds_leave_a_picture_that_vanishes_to_its_error() -> None:
    line = DecodedImage(Image.new("RGB", (4000, 3)))
    for processor in (PixtralProcessor(256, 16), PixtralProcessor(256, 16).with_tokens(60, 120)):
        with pytest.raises(RequestError):
            processor.prepare(line)
