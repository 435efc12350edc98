"""Converters of folders to GGUF files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Converter:
    """The protocol of converters from a folder of one architecture to a GGUF file.

    Attributes:
        architecture: GGUF's name.
        metadata: Its keys and those of its tokenizer; raises where the folder asks for more.
        config: The configuration of the part of the model that is converted.
        variant: What converts one model, where a model type has several architectures.
        notes: What the user should know.
    """

    architecture: str
    metadata: Callable[[ModelFolder], Metadata]
    config: Callable[[ModelFolder], dict[str, Any]] = field(
        default=lambda folder: folder.config, kw_only=True
    )
    variant: Callable[[ModelFolder], Converter] | None = field(default=None, kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, kw_only=True)
class TowerConverter(Converter):
    """How the vision tower of a folder becomes a GGUF file.

    Attributes:
        tensor: The entry of a parameter; None where it is no part of the tower; UnsupportedError for
            one that is not known.
        is_matrix: Whether a tensor, by GGUF's name, is stored in the chosen type; the others are f32.
        shapes: Of the tensors that a tower must have, by GGUF's name.
    """

    tensor: Callable[[ModelFolder, str], Tensor | None]
    is_matrix: Callable[[str], bool]
    shapes: Callable[[ModelFolder], Shapes]
