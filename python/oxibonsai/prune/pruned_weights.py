"""A model's files with weights set to zero, in float32 until they are encoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.reader import Reader, TensorInfo
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.models import describe
from oxibonsai.prune.masks import Floats, Mask, Sparsity, magnitude_mask, wanda_mask
from oxibonsai.prune.overlay import Overlay
from oxibonsai.quantize.importance import ImportanceMatrix
from oxibonsai.quantize.type_choice import Tensor, is_matrix

_F32 = 0  # GGUF's id
_IN_A_LAYER = re.compile(r"(enc\.|dec\.)?blk\.[0-9]+\.")

# The mask of a matrix [rows, cols] of a tensor: its name, which of its matrices it is, the weights.
ChooseMask = Callable[[str, int, Floats], Mask]


@dataclass(frozen=True)
class FloatTensor:
    """A tensor in float32; fields as of :class:`TensorInfo`."""

    name: str
    shape: tuple[int, ...]
    quant_type: str = "F32"
    decodable: bool = True
    gguf_id: int = _F32

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return 4 * int(np.prod(self.shape))


class PrunedWeights(Overlay):
    """A model's files with weights of some matrices set to zero.

    Args:
        under: The files.
        names: Of the tensors that are pruned.
        sparsity: How many weights, and where.
        choose: The mask of each matrix.

    Attributes:
        pruned: The names.
        zeros: Weights of each tensor that are zero, once its bytes have been asked for.

    Raises:
        RequestError: Groups of weights don't divide the rows of a matrix.
    """

    def __init__(
        self, under: Reader, names: Sequence[str], sparsity: Sparsity, choose: ChooseMask
    ) -> None:
        super().__init__(under)
        self._choose = choose
        self.pruned = frozenset(names)
        self.zeros: dict[str, int] = {}
        self._tensors: list[TensorInfo] = [
            FloatTensor(t.name, tuple(t.shape)) if t.name in self.pruned else t
            for t in under.tensors
        ]
        self._infos = {t.name: t for t in self._tensors}
        for name in self.pruned:
            cols = self._infos[name].shape[-1]
            if sparsity.group and cols % sparsity.group:
                raise RequestError(
                    f"{name} has rows of {cols} weights, which {sparsity.structure} does not divide into "
                    f"groups of {sparsity.group}: leave it out with --ignore"
                )

    @property
    def tensors(self) -> Sequence[TensorInfo]:
        """Return the tensors in the order of the file."""
        return self._tensors

    def tensor(self, name: str) -> TensorInfo:
        """Return a tensor's description; FormatError where there is none."""
        return self._infos[name] if name in self._infos else super().tensor(name)

    def tensor_bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """Return a tensor's bytes."""
        stored = super().tensor_bytes(name)
        if name not in self.pruned:
            return stored
        info = super().tensor(name)
        rows, cols = info.shape[-2:]
        values = np.array(_core.decode(info.quant_type, stored)).reshape(-1, rows, cols)
        for i, matrix in enumerate(values):
            if not np.isfinite(matrix).all():
                raise FormatError(
                    f"{self.paths[0]}: tensor {name} holds values that are not finite"
                )
            matrix[self._choose(name, i, matrix)] = 0
        self.zeros[name] = values.size - int(np.count_nonzero(values))
        return values.reshape(-1).view(np.uint8)

    def weight(self, name: str) -> _core.Weight:
        """Return a tensor as a matrix of its own."""
        if name not in self.pruned:
            return super().weight(name)
        *outer, _, cols = self._infos[name].shape
        return _core.Weight.from_blocks(name, "F32", self.tensor_bytes(name), cols, prod(outer))


def matrices_of_layers(checkpoint: Checkpoint) -> list[str]:
    """Return the tensors whose matrices a model's layers multiply by, but for routers'; in their order.

    Raises:
        FormatError, UnsupportedError: As of :func:`oxibonsai.models.describe`.
    """
    used = {weight.name for weight in describe(checkpoint).matrices}
    tensors = [Tensor(t.name, tuple(t.shape), t.quant_type) for t in checkpoint.file.tensors]
    return [t.name for t in tensors if t.name in used and _is_of_layer(t)]


def _is_of_layer(tensor: Tensor) -> bool:
    return is_matrix(tensor) and _IN_A_LAYER.match(tensor.name) is not None


def without(names: Sequence[str], ignored: Sequence[str]) -> list[str]:
    """Return the names in which none of some regular expressions is found.

    Raises:
        RequestError: An expression is none or matches nothing, or all names do match.
    """
    names = list(names)
    for text in ignored:
        try:
            pattern = re.compile(text)
        except re.error as e:
            raise RequestError(f"--ignore {text!r} is no regular expression: {e}") from e
        left = [name for name in names if not pattern.search(name)]
        if len(left) == len(names):
            raise RequestError(f"--ignore {text!r} matches no matrix that would be pruned")
        names = left
    if not names:
        raise RequestError("no matrix of the model's layers is left to prune")
    return names


def by_magnitude(sparsity: Sparsity) -> ChooseMask:
    """Return the choice of the weights with the smallest absolute values."""
    return lambda name, place, weights: magnitude_mask(weights, sparsity)


def by_inputs(imatrix: ImportanceMatrix, sparsity: Sparsity) -> ChooseMask:
    """Return the choice of the weights whose products with their inputs are smallest (Wanda).

    Args:
        imatrix: Mean squares of the inputs of each matrix.
        sparsity: How many, and where.
    """

    def choose(name: str, place: int, weights: Floats) -> Mask:
        means, cols = imatrix.importance(name), weights.shape[1]
        if means is None:
            raise RequestError(
                f"the inputs of {name} were not measured: give --imatrix with a file of llama-imatrix "
                f"that has them, or leave it out with --ignore"
            )
        if means.size % cols or not 0 <= place < means.size // cols:
            raise FormatError(
                f"the importance matrix has {means.size} columns for {name}, whose matrices have {cols}: "
                "it is of another model"
            )
        return wanda_mask(weights, means[place * cols : (place + 1) * cols], sparsity)

    return choose
