"""Importance of columns: whether a type needs it, and whether a matrix of importance has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.quantize.blocks import Floats
from oxibonsai.quantize.type_choice import Choice, Tensor
from oxibonsai.quantize.weight_types import encodable_types


class ImportanceMatrix(Protocol):
    """The protocol of ``oxibonsai.imatrix.Imatrix`` for this package, which lies below it."""

    @property
    def entries(self) -> Mapping[str, object]:
        """By the names of the weights."""

    @property
    def datasets(self) -> Sequence[str]:
        """Return the names of the texts that it was computed from."""

    @property
    def chunk_count(self) -> int:
        """Return the pieces of text that the model ran over; 0: not known."""

    def importance(self, tensor_name: str) -> Floats | None:
        """Return the mean squares of a weight's inputs, by column; None for a weight that has no entry."""


def check_importance(choices: Sequence[Choice], imatrix: ImportanceMatrix | None) -> None:
    """Check that importance exists for all tensors whose type needs it, and has the right size.

    Raises:
        RequestError, FormatError: As :func:`oxibonsai.quantize.make_plan`.
    """
    for choice in choices:
        tensor, name = choice.tensor, choice.type.name
        if choice.kept:
            continue
        if imatrix is not None:
            importance_of(choice, imatrix)
        elif encodable_types()[name] == "needed":
            raise RequestError(
                f"{name}, the type of {tensor.name}, needs an importance matrix: make one with oxibonsai "
                "imatrix, and give it to oxibonsai quantize with --imatrix"
            )


def importance_of(choice: Choice, imatrix: ImportanceMatrix) -> Floats | None:
    """Return the importance of a tensor's columns; None where it has none and needs none.

    Columns of embeddings and of the output count alike, where the type needs an importance that
    nobody measured.

    Raises:
        FormatError: The matrix has it for another number of columns, or lacks what is needed.
    """
    tensor, cols = choice.tensor, choice.tensor.shape[-1]
    use = encodable_types()[choice.type.name]
    if use == "unused":
        return None
    values = importance_for(tensor, imatrix)
    if values is None and use == "needed":
        if tensor.role not in ("token_embd", "output"):
            raise FormatError(
                f"the importance matrix has no entry for {tensor.name}, which {choice.type.name} needs: "
                "it is of another model, or of too short a text"
            )
        return np.ones(cols, np.float32)
    return values


def importance_for(tensor: Tensor, imatrix: ImportanceMatrix) -> Floats | None:
    """Return the importance of a tensor's columns, whatever its type; None: it has no entry.

    Raises:
        FormatError: The matrix has it for another number of columns.
    """
    values, cols = imatrix.importance(tensor.name), tensor.shape[-1]
    if values is not None and values.size != cols:
        raise FormatError(
            f"the importance matrix has {values.size} columns for {tensor.name}, which has {cols}: it is "
            "of another model"
        )
    return values
