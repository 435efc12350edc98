"""Pictures become upright RGB, or one clear error."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_pictures import GOOD, HOSTILE
from odd_pictures import ODD_PICTURES, drawn, saved, turned
from PIL import Image, ImageOps

from oxibonsai.errors import RequestError
from oxibonsai.vision.decoding import ImageLimits, decode_image
from oxibonsai.vision.image_input import read_image


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(decode_image(data).image)


@pytest.mark.parametrize("name", ODD_PICTURES)
def test_a_picture_is_rgb_over_white(name: str) -> None:
    from transformers.image_transforms import convert_to_rgb

    image = Image.open(io.BytesIO(ODD_PICTURES[name]))
    assert np.array_equal(pixels(ODD_PICTURES[name]), convert_to_rgb(image, return_numpy=True))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_upright(orientation: int) -> None:
    data = turned(orientation)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert upright is not None
    assert np.array_equal(pixels(data), np.asarray(upright))
    assert (pixels(data).shape[:2] == (67, 41)) == (orientation > 4)


def test_sixteen_bits_of_grey_keep_the_upper_eight() -> None:
    values = np.array([[0, 255, 256, 0x1234, 0x8000, 0xFFFF]], np.uint16)
    assert pixels(saved(Image.fromarray(values)))[0, :, 0].tolist() == [0, 0, 1, 0x12, 0x80, 0xFF]


@pytest.mark.parametrize("form", ["image", "array", "grey", "bytes", "path"])
def test_a_program_gives_a_picture_in_any_form(form: str, tmp_path: Path) -> None:
    array = drawn(20, 30)
    if form == "grey":
        array = np.repeat(array[..., :1], 3, axis=2)
    (tmp_path / "p.png").write_bytes(saved(Image.fromarray(array)))
    given: Any = {
        "image": Image.fromarray(array),
        "array": array,
        "grey": array[..., 0],
        "bytes": (tmp_path / "p.png").read_bytes(),
        "path": str(tmp_path / "p.png"),
    }[form]
    assert np.array_equal(np.asarray(read_image(given).image), array)


@pytest.mark.parametrize(
    "given",
    [3, None, np.zeros((2, 2), np.float32), np.zeros((0, 4, 3), np.uint8), np.zeros((2, 2, 2), np.uint8),
     "/nowhere/at/all.png", "/dev", Image.new("RGB", (9000, 9000)), b"", "a\0b"],
    ids=lambda g: str(type(g).__name__),
)  # fmt: skip
def test_what_is_no_picture_is_refused(given: Any) -> None:
    with pytest.raises(RequestError):
        read_image(given)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_error(name: str) -> None:
    with pytest.raises(RequestError) as raised:
        decode_image(HOSTILE[name])
    assert "picture" in str(raised.value)


def test_damage_anywhere_is_an_error_or_a_picture() -> None:
    random = np.random.default_rng(3)
    for data in GOOD.values():
        for _ in range(60):
            damaged = bytearray(data)
            for place in random.integers(0, min(len(data), 600), 4):
                damaged[place] = random.integers(256)
            try:
                picture = decode_image(bytes(damaged), ImageLimits(max_pixels=1 << 20))
            except RequestError:
                continue
            assert picture.image.mode == "RGB"


def test_a_bomb_takes_no_memory() -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in (
        "PNG bomb",
        "PNG of 2^31",
        "WebP of 16383",
        "GIF with a frame of 65535",
        "JPEG of 65535",
    ):
        with pytest.raises(RequestError):
            decode_image(HOSTILE[name])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10  # KiB


def test_limits_can_be_set() -> None:
    data = ODD_PICTURES["square"]
    decode_image(data, ImageLimits(len(data), 300 * 300))
    with pytest.raises(RequestError, match=f"more than {len(data) - 1}"):
        decode_image(data, ImageLimits(len(data) - 1))
    with pytest.raises(RequestError, match="300 x 300 pixels, more than 89999"):
        decode_image(data, ImageLimits(max_pixels=300 * 300 - 1))
