"""A tower that anybody can follow: a row is the mean colour of a square, repeated over the width."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

import tiny_model
from oxibonsai.vision import ImageEmbedding, PixelGrid
from oxibonsai.vision.processors import Qwen2VLProcessor

TOKENS = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
_FIRST_TOKEN = 258  # the first filler of the tiny model's vocabulary
MARKER = "".join(TOKENS)

TEMPLATE = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for part in m.content %}{% if part.type == 'image' %}" + MARKER + "{% else %}"
    "{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# One that knows nothing of pictures.
TEXT_TEMPLATE = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def special_tokens(*, special: bool = True) -> dict[str, tuple[Any, str] | None]:
    """Metadata of the tiny model's tokenizer with the tokens of pictures."""
    tokens, types = tiny_model._tokens()
    for i, token in enumerate(TOKENS, _FIRST_TOKEN):
        tokens[i], types[i] = token, 3 if special else 1
    return {
        "tokenizer.ggml.tokens": (tokens, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
    }


def write_model(path: Path, template: str = TEMPLATE, *, special: bool = True) -> None:
    """The tiny model with the tokens of pictures, and a chat template."""
    changes = {"tokenizer.chat_template": (template, "str"), **special_tokens(special=special)}
    tiny_model.write(path, changes=changes)


class ToyTower:
    """Rows of 8 x 8 pixels.

    Attributes:
        encoded: Pictures so far.
    """

    marker = written = MARKER
    placeholder = _FIRST_TOKEN + 1
    processor = Qwen2VLProcessor(patch_size=4, min_pixels=64, max_pixels=64 * 16)

    def __init__(self) -> None:
        self.encoded = 0

    def layout(self, pixels: PixelGrid) -> list[str | int]:
        """A row for each square, between the tokens around a picture."""
        rows = pixels.pixels.shape[2] * pixels.pixels.shape[3] // 64
        return [TOKENS[0], rows, TOKENS[2]]

    def encode(self, pixels: PixelGrid) -> list[str | ImageEmbedding]:
        """The mean colours, between the tokens around a picture."""
        self.encoded += 1
        _, _, height, width = pixels.pixels.shape
        squares = pixels.pixels[0].reshape(3, height // 8, 8, width // 8, 8).mean(axis=(2, 4))
        rows = np.resize(squares.reshape(3, -1).T, (height * width // 64, tiny_model.HIDDEN))
        digest = hashlib.blake2b(pixels.digest(), digest_size=16).digest()
        embedding = ImageEmbedding(rows.astype(np.float32), digest, (1, height // 8, width // 8))
        return [TOKENS[0], embedding, TOKENS[2]]
