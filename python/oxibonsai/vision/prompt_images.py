"""Images in a prompt: the ids around them, and what a step reads in place of their tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError
from oxibonsai.models import Model
from oxibonsai.tokenizer import Tokenizer, Watch
from oxibonsai.vision.image import ImageEmbedding, PlacedImage, place
from oxibonsai.vision.reader import ImageReader

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int32]


class PromptImages:
    """Embeddings in a prompt.

    Args:
        prompt: Token ids, in which any id stands for each row of an image.
        placed: In the order of their places.
        axes: Of the positions that the model's rope reads; 0: those in the sequence.

    Attributes:
        cache_ids: The prompt as the prefix cache knows it: the content of an image in place of its
            tokens' ids.
        positions: int32 [prompt, axes] of M-RoPE; None where the model reads those in the sequence.
    """

    def __init__(self, prompt: Sequence[int], placed: tuple[PlacedImage, ...], axes: int) -> None:
        self.placed = placed
        self.cache_ids = list(prompt)
        for image in placed:
            name = hashlib.blake2b(image.embedding.digest, digest_size=8).digest()
            base = int.from_bytes(name, "little")
            for i in range(len(image.embedding)):
                # Below zero, where no token's id is; within 64 bits.
                self.cache_ids[image.first + i] = -1 - (base + i) % 2**63
        self.positions = _positions(len(prompt), placed, axes) if axes else None

    def overlaps(self, first: int, end: int) -> bool:
        """Return whether tokens ``first`` to ``end - 1`` stand for rows of an image."""
        return any(i.first < end and i.end > first for i in self.placed)

    def is_encoded_from(self, first: int) -> bool:
        """Return whether the rows at position ``first`` and behind it are there."""
        return all(i.embedding.is_encoded for i in self.placed if i.end > first)

    def encode_from(self, first: int) -> None:
        """Have the rows at position ``first`` and behind it computed, where a tower has given them up."""
        for image in self.placed:
            if image.end > first:
                _ = image.embedding.rows

    def fill(self, tokens: list[int], first: int, rows: list[Floats]) -> list[int]:
        """Return tokens for a batch, of which -1 - i stands for row i of all that ``rows`` holds.

        Args:
            tokens: Of position ``first`` and on.
            first: Position in the sequence.
            rows: The rows of images that they stand for are appended.
        """
        filled, end = list(tokens), first + len(tokens)
        taken = sum(len(r) for r in rows)
        for image in self.placed:
            begin, past = max(image.first, first), min(image.end, end)
            if begin >= past:
                continue
            rows.append(image.embedding.rows[begin - image.first : past - image.first])
            filled[begin - first : past - first] = range(-1 - taken, -1 - taken - past + begin, -1)
            taken += past - begin
        return filled

    def blocks(self, first: int, end: int) -> list[tuple[int, int]]:
        """Positions of images whose rows see each other, of those with rows in ``first .. end - 1``."""
        return [
            (i.first, i.end)
            for i in self.placed
            if i.embedding.sees_itself and i.first < end and i.end > first
        ]

    def chunk_end(self, first: int, end: int) -> int:
        """Return where a chunk may end, at ``end`` or near: not within rows that see each other.

        It ends before them, or behind them where it begins with them.
        """
        for begin, past in self.blocks(first, end):
            if end < past:
                return begin if begin > first else past
        return end

    def row_positions(self, first: int, count: int) -> Positions:
        """Return positions on all axes of ``count`` tokens, which may be behind the prompt."""
        assert self.positions is not None
        length = len(self.positions)
        rows = self.positions[first : first + count]
        behind = np.arange(max(first, length), first + count, dtype=np.int32)
        if len(behind) == 0:
            return rows
        shift = self.positions[-1].max() + 1 - length
        more = np.repeat(behind[:, None] + np.int32(shift), self.positions.shape[1], axis=1)
        return np.concatenate([rows, more.astype(np.int32)])


def _positions(length: int, placed: tuple[PlacedImage, ...], axes: int) -> Positions:
    """Return a text's tokens have one position on all axes; an image's their frame, row and column.

    What follows an image goes on behind its largest position.
    """
    result = np.empty((length, axes), np.int32)
    at = next_position = 0

    def add_text(end: int) -> None:
        nonlocal at, next_position
        result[at:end] = np.arange(next_position, next_position + end - at)[:, None]
        next_position += end - at
        at = end

    for image in placed:
        grid = image.embedding.grid
        if grid is None:
            continue
        add_text(image.first)
        on_axes = np.indices(grid).reshape(3, -1).T
        result[at : image.end] = next_position + on_axes[:, :axes]
        next_position += max(grid)
        at = image.end
    add_text(length)
    return result


def check_images(model: Model, prompt: Sequence[int], placed: tuple[PlacedImage, ...]) -> None:
    """RequestError where images don't fit a prompt or a model."""
    end = 0
    for image in placed:
        if image.first < end or image.end > len(prompt) or len(image.embedding) == 0:
            raise RequestError(
                f"a picture at tokens {image.first} to {image.end - 1} does not fit a prompt of "
                f"{len(prompt)} tokens, of which {end} are taken before it"
            )
        end = image.end
        if image.embedding.is_encoded:  # else it was checked when it was encoded first
            model.check_image_rows(image.embedding.rows)
        grid = image.embedding.grid
        if grid is not None and (min(grid) < 1 or np.prod(grid) != len(image.embedding)):
            raise RequestError(f"a picture of {len(image.embedding)} rows has no grid {grid}")


Part = str | ImageEmbedding


def place_images(
    prompt: str,
    images: Sequence[Mapping[str, Any]],
    reader: ImageReader,
    tokenizer: Tokenizer,
    watch: Watch | None,
    *,
    add_special: bool = False,
) -> tuple[list[int], tuple[PlacedImage, ...]]:
    """Encode a rendered conversation or another text, its images in the places of their markers.

    Args:
        prompt: As the chat template rendered it.
        images: Parts of its messages, in order.
        reader: Of the model.
        tokenizer: Of the model.
        watch: As for :func:`oxibonsai.chat.prepare`; told the images' tokens, too.
        add_special: Begin with the bos token where the model has one.

    Raises:
        RequestError: An image can't be read, or the text has markers of its own.
    """
    reader.check_count(len(images))
    texts = prompt.split(reader.tower.marker)
    if len(texts) != len(images) + 1:
        given = "is one picture" if len(images) == 1 else f"are {len(images)} pictures"
        raise RequestError(
            f"there {given}, but the text has {len(texts) - 1} places for pictures "
            f"({reader.tower.marker!r} stands for a picture and may not be part of a text)"
        )
    parts: list[Part] = [texts[0]]
    rows = 0
    for text, image in zip(texts[1:], images, strict=True):
        count = None if watch is None else _adding(watch, rows)
        read = reader.read_part(image, count)
        rows += sum(len(p) for p in read if isinstance(p, ImageEmbedding))
        parts += [*read, text]
    placeholder = reader.tower.placeholder
    return place(_encoded(parts, placeholder, tokenizer, watch, add_special), placeholder)


def _adding(watch: Watch, before: int) -> Callable[[int], None]:
    return lambda count: watch(before + count)


def _encoded(
    parts: list[Part],
    placeholder: int,
    tokenizer: Tokenizer,
    watch: Watch | None,
    add_special: bool,
) -> Iterator[list[int] | ImageEmbedding]:
    """Yield the ids of the texts, between the embeddings.

    The text is encoded as a whole, with the token of a row in the place of each embedding, as
    transformers does: what stands before and behind an image may join texts.
    """
    embeddings = [part for part in parts if isinstance(part, ImageEmbedding)]
    token = tokenizer.vocabulary.texts[placeholder]
    if placeholder not in tokenizer.special_ids:
        # It splits no text by itself.
        for is_text, run in groupby(parts, lambda part: isinstance(part, str)):
            if is_text:
                text = "".join(map(str, run))
                yield tokenizer.encode(
                    text, add_special=add_special, parse_special=True, watch=watch
                )
                add_special = False
            else:
                yield from (part for part in run if isinstance(part, ImageEmbedding))
        return
    text = "".join(part if isinstance(part, str) else token for part in parts)
    ids = tokenizer.encode(text, add_special=add_special, parse_special=True, watch=watch)
    if ids.count(placeholder) != len(embeddings):
        raise RequestError(
            f"the text of the conversation has {token!r} in it, which stands for a picture: take it out"
        )
    start = 0
    for embedding in embeddings:
        end = ids.index(placeholder, start)
        yield ids[start:end]
        yield embedding
        start = end + 1
    yield ids[start:]
