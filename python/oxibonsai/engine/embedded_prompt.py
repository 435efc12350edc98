"""Prompts of embeddings, in place of token ids."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from oxibonsai.engine.pooling import Floats
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.models import Model
from oxibonsai.vision.image import ImageEmbedding, PlacedImage

# Stands for every row; no pass reads it, and no penalty counts it.
_PLACEHOLDER = 0


def embedded_prompt(model: Model, inputs_embeds: Any) -> tuple[list[int], tuple[PlacedImage, ...]]:
    """Return ids that stand for the rows of a prompt of embeddings, and the rows in their places.

    Args:
        model: Reads them in place of the rows of its token table, after what scales those.
        inputs_embeds: [n, hidden], of numpy, torch or what else speaks DLPack; copied.

    Raises:
        RequestError: They are no such rows of finite numbers.
        UnsupportedError: The model's layers read more than embeddings, or it has no pass for them.
    """
    rows = _as_rows(inputs_embeds)
    c = model.config
    model.check_generates()
    model.check_decoder_only("prompts of embeddings")
    try:
        model.prepare(images=True)
    except UnsupportedError as e:
        raise UnsupportedError(
            f"inputs_embeds needs a model of one device whose architecture takes pictures, such as "
            f"llama, qwen2, qwen3 and gemma3: give token ids ({e})"
        ) from e
    if c.image_width != c.hidden_size:
        raise UnsupportedError(
            f"{model.weights.checkpoint.path} ({c.architecture}) reads more of a token than its "
            "embedding: give token ids"
        )
    if rows.ndim != 2 or rows.shape[1] != c.hidden_size or len(rows) == 0:
        raise RequestError(
            f"inputs_embeds has shape {list(rows.shape)}; of one prompt it is [n, {c.hidden_size}], "
            "with n of at least 1"
        )
    if not np.isfinite(rows).all():
        raise RequestError("inputs_embeds has values that are not finite")
    digest = hashlib.blake2b(rows.tobytes(), digest_size=16, person=b"inputs_embeds").digest()
    return [_PLACEHOLDER] * len(rows), (PlacedImage(0, ImageEmbedding(rows, digest)),)


def _as_rows(values: Any) -> Floats:
    """Return a copy of the values as float32."""
    try:
        array = np.from_dlpack(values) if hasattr(values, "__dlpack__") else np.asarray(values)
        if array.dtype not in (np.float16, np.float32):
            raise TypeError(f"its type is {array.dtype}")
        return np.array(array, np.float32, order="C")
    except (TypeError, ValueError, BufferError, RuntimeError) as e:
        raise RequestError(
            f"inputs_embeds is no array of float32 or float16 in the machine's memory: {e}"
        ) from e
