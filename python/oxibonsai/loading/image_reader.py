"""From the name of a vision tower to what reads images for an engine."""

from __future__ import annotations

import os
import warnings
from itertools import chain

import numpy as np

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Pipeline
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.loading import discovered_mmproj, open_tower
from oxibonsai.models import Model
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.vision import ImageReader
from oxibonsai.vision.tower import Tower

Source = str | os.PathLike[str]


def load_image_reader(
    model: Model,
    tokenizer: Tokenizer | None,
    source: Source | None,
    mmproj: Source | bool | None,
    *,
    image_min_tokens: int | None = None,
    image_max_tokens: int | None = None,
) -> ImageReader | None:
    """Return the reader of images for a model; None for a model of texts only.

    Args:
        model: The language model.
        tokenizer: Its tokenizer.
        source: What it was named.
        mmproj: The file of its tower, or the folder of the whole model; None: the first one beside the
            model, in its repository or in its own folder, that fits it; False: none.
        image_min_tokens, image_max_tokens: Bounds on the tokens of an image; None: the model's own.

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
        _check_sees(model)
        reader = _loaded(open_tower(mmproj), model, tokenizer)
    elif mmproj is not False and tokenizer is not None:
        reader = _discovered(source, model, tokenizer)
    if reader is None:
        if image_min_tokens is not None or image_max_tokens is not None:
            raise RequestError(
                "image_min_tokens and image_max_tokens are for models that see: give a tower (--mmproj)"
            )
        return None
    return reader.with_tokens(image_min_tokens, image_max_tokens)


def _discovered(source: Source | None, model: Model, tokenizer: Tokenizer) -> ImageReader | None:
    """Return the first that fits. Nobody asked for the others, but why none of them fits is said."""
    found = discovered_mmproj(source, model.weights.checkpoint.path)
    first = next(found, None)
    if first is None:  # as usual; the pass that reads images is not compiled then
        return None
    try:
        _check_sees(model)
    except UnsupportedError as e:
        # Whatever lies beside a model of texts is another model's.
        if isinstance(model.device, Pipeline):
            warnings.warn(f"the model does not see: {e}", stacklevel=2)
        return None
    misfit = ""
    for path, open_file in chain([first], found):
        try:
            return _loaded(open_file(), model, tokenizer)
        except (FormatError, UnsupportedError, RequestError) as e:
            misfit = misfit or f"the vision tower in {path.name} is not used: {e}"
    if misfit:
        warnings.warn(misfit, stacklevel=2)
    return None


def _check_sees(model: Model) -> None:
    """Raise UnsupportedError where the architecture reads texts only."""
    model.check_image_rows(np.zeros((1, model.config.image_width), np.float32))


def _loaded(checkpoint: Checkpoint, model: Model, tokenizer: Tokenizer) -> ImageReader:
    texts = tokenizer.vocabulary.texts

    def token_id(text: str) -> int | None:
        return texts.index(text) if text in texts else None

    width = model.config.image_width
    tower = Tower.of_checkpoint(checkpoint, model.device, token_id)
    if tower.width != width:
        raise RequestError(
            f"{checkpoint.path} is the tower of another model: it makes rows of {tower.width} values, and "
            f"this model reads {width}"
        )
    return ImageReader.of_tower(tower)
