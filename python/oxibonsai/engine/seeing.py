"""From the name of a vision tower to what reads pictures for an engine."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.models import Model
from oxibonsai.sources.beside import find_towers, resolve_tower
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.vision import PictureReader
from oxibonsai.vision.tower import Tower

Source = str | os.PathLike[str]


def open_pictures(
    model: Model,
    tokenizer: Tokenizer | None,
    source: Source | None,
    mmproj: Source | bool | None,
    *,
    image_min_tokens: int | None = None,
    image_max_tokens: int | None = None,
) -> PictureReader | None:
    """What reads pictures for a model; None: it reads text only.

    Args:
        model: The language model.
        tokenizer: Its tokenizer.
        source: What it was named.
        mmproj: The file of its tower; None: the first one beside the model, or in its repository, that
            fits it; False: none.
        image_min_tokens, image_max_tokens: Bounds on the tokens of a picture; None: the model's own.

    Raises:
        SourceError: There is no such file.
        FormatError, UnsupportedError: It is damaged, or none that is known, or the model reads text
            alone.
        RequestError: It is the tower of another model, or there are bounds but no tower.
    """
    reader = None
    if isinstance(mmproj, str | os.PathLike):
        if tokenizer is None:
            raise RequestError(
                "a model that sees needs a tokenizer, and this model's file has none"
            )
        reader = _opened(resolve_tower(mmproj), model, tokenizer)
    elif mmproj is not False and tokenizer is not None:
        reader = _beside(source, model, tokenizer)
    if reader is None:
        if image_min_tokens is not None or image_max_tokens is not None:
            raise RequestError(
                "image_min_tokens and image_max_tokens are for models that see: give a tower (--mmproj)"
            )
        return None
    return reader.with_tokens(image_min_tokens, image_max_tokens)


def _beside(source: Source | None, model: Model, tokenizer: Tokenizer) -> PictureReader | None:
    for path in find_towers(source, model.weights.checkpoint.path):
        try:
            return _opened(path, model, tokenizer)
        except (FormatError, UnsupportedError, RequestError):
            continue  # nobody asked for this one: it may be another model's
    return None


def _opened(path: Path, model: Model, tokenizer: Tokenizer) -> PictureReader:
    texts = tokenizer.vocabulary.texts

    def token_id(text: str) -> int | None:
        return texts.index(text) if text in texts else None

    width = model.config.image_width
    model.check_image_rows(np.zeros((1, width), np.float32))  # not every architecture reads them
    tower = Tower.open(path, model.device, token_id)
    if tower.width != width:
        raise RequestError(
            f"{path} is the tower of another model: it makes rows of {tower.width} values, and this "
            f"model reads {width}"
        )
    return PictureReader.of_tower(tower)
