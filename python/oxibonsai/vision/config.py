"""Keys of a tower's file, in every family."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.models.keys import Keys

_LARGEST = 1 << 16  # of an image's side in pixels
_LARGEST_SQUARE = 64  # patches that become one row, on each axis


@dataclass(frozen=True)
class VisionConfig:
    """Dimensions and constants of a tower; fields carry Hugging Face's names.

    Attributes:
        projection_dim: Width of the language model's embeddings.
        image_size: Side of a tile in pixels; of towers for any size, that of the grid of places which
            the learned embeddings have.
        image_mean, image_std: Of the channels.
    """

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    patch_size: int
    image_size: int
    layer_norm_eps: float
    projection_dim: int
    image_mean: tuple[float, float, float]
    image_std: tuple[float, float, float]

    @cached_property
    def head_dim(self) -> int:
        """Return the dims of an attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def side(self) -> int:
        """Return the patches of a tile on each axis."""
        return self.image_size // self.patch_size


def clip_keys(checkpoint: Checkpoint) -> tuple[Keys, str]:
    """Return the keys of a tower's file, and which projector it has.

    Raises:
        FormatError: It is no such file.
        UnsupportedError: It reads sound.
    """
    if checkpoint.architecture != "clip":
        raise FormatError(
            f"{checkpoint.path} is no vision tower (its architecture is {checkpoint.architecture}): "
            "give an mmproj file"
        )
    keys = Keys(checkpoint)
    if keys.flag("has_audio_encoder", False):
        raise keys.unsupported("the file reads sound, which this version does not")
    if not keys.flag("has_vision_encoder", False):
        raise keys.fail("clip.has_vision_encoder is missing: the file reads no pictures")
    projector = keys.get("vision.projector_type", keys.get("projector_type"))
    if not isinstance(projector, str):
        raise keys.fail("clip.projector_type is missing")
    return keys, projector


def read_vision(keys: Keys) -> VisionConfig:
    """Return the keys that all families share."""
    config = VisionConfig(
        hidden_size=keys.integer("vision.embedding_length"),
        intermediate_size=keys.integer("vision.feed_forward_length"),
        num_hidden_layers=_layers(keys),
        num_attention_heads=keys.integer("vision.attention.head_count"),
        patch_size=keys.integer("vision.patch_size"),
        image_size=keys.integer("vision.image_size"),
        layer_norm_eps=keys.positive("vision.attention.layer_norm_epsilon"),
        projection_dim=keys.integer("vision.projection_dim"),
        image_mean=_channels(keys, "vision.image_mean"),
        image_std=_channels(keys, "vision.image_std"),
    )
    if min(config.image_std) <= 0.0:
        raise keys.fail(f"clip.vision.image_std is {config.image_std}, not above zero")
    if config.hidden_size % config.num_attention_heads != 0 or config.head_dim % 4 != 0:
        raise keys.fail(
            f"{config.num_attention_heads} heads do not divide {config.hidden_size} columns into "
            "multiples of 4"
        )
    if config.image_size > _LARGEST or config.image_size % config.patch_size != 0:
        raise keys.fail(
            f"tiles of {config.image_size} pixels are no whole patches of {config.patch_size}, or have "
            f"more than {_LARGEST}"
        )
    return config


def read_square(keys: Keys, key: str, default: int | None = None, side: int = 0) -> int:
    """Return how many patches on each axis become one row.

    Args:
        keys: Of the file.
        key: Which one says it.
        default: Where it is missing; None: that is an error.
        side: Patches of a tile, of which it must be a divisor; 0: there are no tiles.
    """
    count = keys.integer(key, default)
    if count > _LARGEST_SQUARE or side % count != 0:
        raise keys.fail(
            f"clip.{key} is {count}, above {_LARGEST_SQUARE} or no divisor of {side} patches"
        )
    return count


def _layers(keys: Keys) -> int:
    """Return the number of layers; each has tensors, so that a file can't claim any number."""
    count, tensors = keys.integer("vision.block_count"), len(keys.checkpoint.tensor_names)
    if count > tensors:
        raise keys.fail(f"clip.vision.block_count is {count}, of {tensors} tensors")
    return count


def _channels(keys: Keys, key: str) -> tuple[float, float, float]:
    values = keys.get(key)
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(listed, list) or len(listed) != 3:
        raise keys.fail(f"clip.{key} is {values!r}, no value for each of three channels")
    if not all(isinstance(v, int | float) and np.isfinite(v) for v in listed):
        raise keys.fail(f"clip.{key} is {values!r}, which holds what is not finite")
    red, green, blue = (float(v) for v in listed)
    return red, green, blue


def unknown_projector(keys: Keys, projector: str, known: list[str]) -> UnsupportedError:
    """Return the error for a family that this version does not have."""
    return keys.unsupported(
        f"the projector {projector} is not supported; known are {', '.join(known)}"
    )
