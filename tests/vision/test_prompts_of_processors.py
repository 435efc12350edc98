"""Prompts with pictures have the ids of the models' own processors in transformers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from odd_pictures import drawn
from PIL import Image
from toy_tower import special_tokens

import tiny_model
from oxibonsai.chat import place_images
from oxibonsai.hf import AutoTokenizer
from oxibonsai.vision import ImageEmbedding, ImageReader, PixelGrid
from oxibonsai.vision.processors import Gemma3Processor, ImageProcessor, Qwen2VLProcessor
from oxibonsai.vision.towers.gemma3 import Gemma3Tower
from oxibonsai.vision.towers.glm4v import Glm4VTower
from oxibonsai.vision.towers.llama4 import Llama4Tower
from oxibonsai.vision.towers.qwen3vl import Qwen3VLTower

# In the places of fillers, so that line breaks around a picture may join those of a text.
TOKENS = ("<start_of_image>", "<image_soft_token>", "<end_of_image>")
_NEWLINE = "\u010a"  # a line break in a byte-level vocabulary
_FIRST = 262


class Rows:
    """The text that a family writes around its rows, without a tower's weights."""

    def __init__(self, family: Any, processor: ImageProcessor, placeholder: int, rows: int) -> None:
        self.processor = processor
        self.marker = family.marker
        self.written = family.written
        self.placeholder = placeholder
        self._layout = family.layout
        self._rows = rows

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        own = SimpleNamespace(count_rows=lambda _: self._rows or self._count(pixels))
        found: list[str | int] = self._layout(own, pixels)
        return found

    def encode(self, pixels: PixelGrid) -> list[str | ImageEmbedding]:
        return [
            p if isinstance(p, str) else ImageEmbedding(np.zeros((p, 4), np.float32), b"x")
            for p in self.layout(pixels)
        ]

    @staticmethod
    def _count(pixels: PixelGrid) -> int:
        return pixels.pixels.shape[2] * pixels.pixels.shape[3] // 28**2


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = special_tokens()
    tokens, types = (changes[f"tokenizer.ggml.{name}"][0] for name in ("tokens", "token_type"))  # type: ignore[index]
    for i, token in enumerate(TOKENS, _FIRST):
        tokens[i], types[i] = token, 3
    for i in (2, 3, 4):
        tokens[_FIRST + 1 + i] = _NEWLINE * i
    merges = [
        "a b",
        f"{_NEWLINE} {_NEWLINE}",
        f"{_NEWLINE * 2} {_NEWLINE}",
        f"{_NEWLINE * 2} {_NEWLINE * 2}",
    ]
    changes["tokenizer.ggml.merges"] = (merges, "arr[str]")
    found = tmp_path_factory.mktemp("prompts") / "model.gguf"
    tiny_model.write(found, changes=changes)
    return found


TEXTS = ["a{}b", "{}", "see\n{}\n\nthere\n", "{}{}", "\n{} and {}\n"]


@pytest.fixture(scope="module")
def peer_tokenizer(path: Path) -> Any:
    return AutoTokenizer.from_pretrained(path).transformers_tokenizer


def ids_of(path: Path, tower: Rows, text: str, pictures: list[Any]) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(path).tokenizer
    parts = [{"type": "image", "image": picture} for picture in pictures]
    reader = ImageReader.of_tower(tower)
    return place_images(text, parts, reader, tokenizer, None)[0]


@pytest.mark.parametrize("text", TEXTS)
def test_gemma3(path: Path, peer_tokenizer: Any, text: str) -> None:
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
    from transformers.models.gemma3.processing_gemma3 import Gemma3Processor as Peer

    peer_tokenizer.image_token, peer_tokenizer.image_token_id = TOKENS[1], _FIRST + 1
    peer_tokenizer.boi_token, peer_tokenizer.boi_token_id = TOKENS[0], _FIRST
    peer_tokenizer.eoi_token = TOKENS[2]
    peer = Peer(
        Gemma3ImageProcessorPil(size={"height": 56, "width": 56}),
        peer_tokenizer,
        image_seq_length=16,
    )
    filled = text.replace("{}", TOKENS[0])
    images = [Image.fromarray(drawn(30, 40, seed=i)) for i in range(text.count("{}"))]
    expected = peer(images=[images], text=[filled])["input_ids"][0]
    tower = Rows(Gemma3Tower, Gemma3Processor(56), _FIRST + 1, 16)
    assert ids_of(path, tower, filled, images) == expected


@pytest.mark.parametrize("tiles", [(1, 1), (1, 3), (3, 2)])
def test_llama4(tiles: tuple[int, int]) -> None:
    from transformers.models.llama4.processing_llama4 import Llama4Processor as Peer

    rows, cols = tiles
    pixels = np.zeros((rows * cols + (rows * cols > 1), 3, 8, 8), np.float32)
    expected = Peer._prompt_split_image(SimpleNamespace(), tiles, 4)
    own = SimpleNamespace(count_rows=lambda grid: 4 * len(grid.pixels))
    parts = Llama4Tower.layout(own, PixelGrid(pixels, tiles))  # type: ignore[arg-type]
    placeholder = Llama4Tower.placeholder
    assert "".join(p if isinstance(p, str) else placeholder * p for p in parts) == expected


def test_glm4v() -> None:
    """One token of a picture for each row, between what the template writes."""
    from transformers.models.glm46v.processing_glm46v import Glm46VProcessor as Peer

    image_processor = SimpleNamespace(merge_size=2)
    peer = SimpleNamespace(image_token="<|image|>", image_processor=image_processor)
    inputs = {"image_grid_thw": np.array([[1, 6, 4]])}
    expected = Peer.replace_image_token(peer, inputs, 0)
    own = SimpleNamespace(
        count_rows=lambda grid: grid.pixels.shape[2] * grid.pixels.shape[3] // 28**2
    )
    grid = PixelGrid(np.zeros((1, 3, 6 * 14, 4 * 14), np.float32))
    (rows,) = Glm4VTower.layout(own, grid)  # type: ignore[arg-type]
    assert rows == expected.count(Glm4VTower.placeholder) == len(expected) // len("<|image|>")
    assert Glm4VTower.written == f"<|begin_of_image|>{Glm4VTower.marker}<|end_of_image|>"


@pytest.mark.parametrize("text", TEXTS)
def test_qwen3vl(path: Path, peer_tokenizer: Any, text: str) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

    image_processor = Qwen2VLImageProcessorPil()
    peer = SimpleNamespace(image_token="<|image_pad|>", image_processor=image_processor)
    filled = text.replace("{}", Qwen3VLTower.written)
    images = [Image.fromarray(drawn(90 + 50 * i, 140)) for i in range(text.count("{}"))]
    inputs = image_processor(images, return_tensors="np")
    expected = filled
    for i in range(len(images)):
        rows = Qwen3VLProcessor.replace_image_token(peer, inputs, i)
        expected = expected.replace("<|image_pad|>", rows.replace("<|image_pad|>", "\0"), 1)
    expected_ids = peer_tokenizer(expected.replace("\0", "<|image_pad|>"))["input_ids"]
    tower = Rows(Qwen3VLTower, Qwen2VLProcessor(), 259, 0)
    assert ids_of(path, tower, filled, images) == expected_ids
