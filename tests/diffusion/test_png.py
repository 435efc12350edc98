"""PNG files that others read, with the same bytes for the same picture."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oxibonsai.diffusion.pixels import encode_png, to_pixels
from oxibonsai.diffusion.request import KEYWORD, ImageRequest, png_texts, read_record, record_of
from oxibonsai.errors import FormatError, RequestError


def gradient(height: int, width: int) -> Any:
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 200 // width, y * 250 // height, (x * y) % 256], axis=2).astype(np.uint8)


NOISE = np.random.default_rng(0).integers(0, 256, (40, 31, 3), dtype=np.uint8)
PICTURES = {
    "one pixel": np.full((1, 1, 3), 7, np.uint8),
    "one row": gradient(1, 300),
    "one column": gradient(300, 1),
    "one colour": np.zeros((64, 64, 3), np.uint8),
    "gradient": gradient(90, 111),
    "noise": NOISE,
    "several blocks": gradient(700, 600),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pillow_reads_the_same_pixels(name: str) -> None:
    data = encode_png(PICTURES[name], {"parameters": "a tree", "words": "grün ☃"})
    with Image.open(io.BytesIO(data)) as image:
        image.verify()
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(np.asarray(image), PICTURES[name])
        assert image.text == {"parameters": "a tree", "words": "grün ☃"}  # type: ignore[attr-defined]


def test_the_bytes_are_a_function_of_pixels_and_texts_alone() -> None:
    """A hash that was recorded once: another library's version must not change it."""
    data = encode_png(PICTURES["gradient"], {"parameters": "a tree"})
    assert (
        hashlib.sha256(data).hexdigest()
        == "0d66a8c2a73e5d09ea1d424e8b24bd2988356b853894c8acafb653b0465ec023"
    )


def test_a_picture_is_not_much_larger_than_from_pillow() -> None:
    theirs = io.BytesIO()
    Image.fromarray(NOISE).save(theirs, "png")
    assert len(encode_png(NOISE, {})) < 1.1 * len(theirs.getvalue())


def test_other_shapes_are_refused() -> None:
    for wrong in (np.zeros((4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8), np.zeros((4, 4, 3))):
        with pytest.raises(RequestError, match="uint8"):
            encode_png(wrong, {})


def test_values_are_rounded_half_to_even_and_clamped() -> None:
    values = np.array([-1.5, -1.0, 0.0, 1.0, 2.0, 2 * 0.5 / 255 - 1], np.float32)
    assert to_pixels(values).tolist() == [0, 0, 128, 255, 255, 0]


def test_a_record_comes_back_from_the_picture_and_names_no_time_and_no_path(tmp_path: Path) -> None:
    record = record_of(ImageRequest("ein Bäumchen ☃", 42, 64, 96, 3, "torch"), "tiny")
    place = tmp_path / "a.png"
    place.write_bytes(encode_png(NOISE, png_texts(record)))
    assert read_record(place) == record
    assert set(record) == {"model", "prompt", "seed", "rng", "steps", "width", "height"}
    (tmp_path / "a.json").write_text(json.dumps(record))
    assert read_record(tmp_path / "a.json") == record
    plain = png_texts({**record, "prompt": "a tree"})
    assert "Steps: 3" in plain["parameters"]
    assert "Seed: 42, Size: 64x96" in plain["parameters"]
    assert json.loads(plain[KEYWORD])["prompt"] == "a tree"


def test_a_file_without_a_record_says_so(tmp_path: Path) -> None:
    place = tmp_path / "a.png"
    place.write_bytes(encode_png(NOISE, {}))
    with pytest.raises(FormatError, match="says nothing of how it was drawn"):
        read_record(place)
    place.write_bytes(place.read_bytes()[:40])
    with pytest.raises(FormatError):
        read_record(place)
    place.write_bytes(b"[1, 2]")
    with pytest.raises(FormatError, match="no record"):
        read_record(place)
    with pytest.raises(RequestError, match="cannot read"):
        read_record(tmp_path / "b.png")
