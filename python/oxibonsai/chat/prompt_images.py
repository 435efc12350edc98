"""The ids of a prompt with pictures, and where in it they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.tokenizer import Tokenizer, Watch
from oxibonsai.vision import ImageEmbedding, ImageReader, PlacedImage, place

Part = str | ImageEmbedding


def place_images(
    prompt: str,
    pictures: Sequence[Mapping[str, Any]],
    reader: ImageReader,
    tokenizer: Tokenizer,
    watch: Watch | None,
    *,
    add_special: bool = False,
) -> tuple[list[int], tuple[PlacedImage, ...]]:
    """Encode a rendered conversation or another text, its pictures in the places of their markers.

    Args:
        prompt: As the chat template rendered it.
        pictures: Parts of its messages, in order.
        reader: Of the model.
        tokenizer: Of the model.
        watch: As for :func:`oxibonsai.chat.prepare`; told the pictures' tokens, too.
        add_special: Begin with the bos token where the model has one.

    Raises:
        RequestError: A picture can't be read, or the text has markers of its own.
    """
    reader.check_count(len(pictures))
    texts = prompt.split(reader.tower.marker)
    if len(texts) != len(pictures) + 1:
        given = "is one picture" if len(pictures) == 1 else f"are {len(pictures)} pictures"
        raise RequestError(
            f"there {given}, but the text has {len(texts) - 1} places for pictures "
            f"({reader.tower.marker!r} stands for a picture and may not be part of a text)"
        )
    parts: list[Part] = [texts[0]]
    rows = 0
    for text, picture in zip(texts[1:], pictures, strict=True):
        count = None if watch is None else _adding(watch, rows)
        read = reader.read_part(picture, count)
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
    """Ids of the texts, between the embeddings.

    The text is encoded as a whole, with the token of a row in the place of each embedding, as
    transformers does: what stands before and behind a picture may join texts.
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
