"""What one architecture's conversion consists of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oxibonsai.convert.folder import ModelFolder

# GGUF key -> value, and its type as `_core.GgufWriter.add_metadata` names it.
Metadata = dict[str, tuple[Any, str]]


@dataclass(frozen=True)
class Recipe:
    """How a folder of one architecture becomes a GGUF file.

    Attributes:
        architecture: GGUF's name.
        metadata: Its keys and those of its tokenizer; raises where the folder asks for more.
        tensor_name: GGUF's name of a parameter, None where the file leaves it out; UnsupportedError
            for one that is not known.
        is_matrix: Whether a tensor, by GGUF's name, is stored in the chosen type; the others are f32.
    """

    architecture: str
    metadata: Callable[[ModelFolder], Metadata]
    tensor_name: Callable[[str], str | None]
    is_matrix: Callable[[str], bool]
