"""Access to a checkpoint's tensors by what they are for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import accumulate

import numpy as np

from oxibonsai import _core
from oxibonsai.architectures.layers.sizes import Drafting, Layered
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.graph import Vector

# Part of the configuration.
_ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


class Weights:
    """A checkpoint's tensors, each opened once, with their shapes checked against the caller's.

    Shared, never copied, by everything that runs the model.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._matrices: dict[str, _core.Weight] = {}
        self._parts: dict[str, list[_core.Weight]] = {}
        self._made: dict[str, tuple[_core.Weight, _core.Weight]] = {}
        self._sums: dict[str, _core.Weight] = {}
        self._used = set(_ROPE_FACTORS)
        self._biases: frozenset[str] | None = None

    def with_matrices(self, matrices: Mapping[str, _core.Weight]) -> Weights:
        """Return the same with other matrices in the place of some, by the tensors' names."""
        other = copy(self)
        other._matrices = {**self._matrices, **matrices}
        other._parts = {n: parts for n, parts in self._parts.items() if n not in matrices}
        return other

    def has(self, name: str) -> bool:
        """Return whether the file has a tensor, and the family of its model knows it."""
        bias_of_layer = name.startswith("blk.") and name.endswith(".bias")
        if bias_of_layer and self._biases is not None and name not in self._biases:
            return False
        return self.checkpoint.has(name)

    def know_biases(self, names: Iterable[str]) -> None:
        """Leave other biases of layers unused, so that :meth:`refuse_unused` names them."""
        self._biases = frozenset(names)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor that the file has."""
        return self.checkpoint.shape(name)

    def rows(self, name: str) -> int:
        """Return the rows of a matrix ``name.weight`` whose number the file decides."""
        shape = self.checkpoint.shape(f"{name}.weight")
        if len(shape) != 2:
            raise FormatError(f"{self.checkpoint.path}: tensor {name}.weight is no matrix: {shape}")
        return shape[0]

    def matrix(self, name: str, rows: int, cols: int) -> _core.Weight:
        """Return the tensor ``name.weight``, [rows, cols], in its stored form."""
        return self._stored(f"{name}.weight", (rows, cols))

    def experts(self, name: str, count: int, rows: int, cols: int) -> _core.Weight:
        """Return the tensor ``name.weight``, ``count`` matrices [rows, cols], in its stored form."""
        return self._stored(f"{name}.weight", (count, rows, cols))

    def row(self, name: str, cols: int) -> _core.Weight:
        """Return the tensor ``name.weight``, a matrix of one row, or a vector as older files have it."""
        return self._stored(f"{name}.weight", (1, cols), (cols,))

    def expert_bias(self, name: str, count: int, size: int) -> Vector | None:
        """Return ``name.bias``, [count, size], one after the other, where the file has it."""
        full = f"{name}.bias"
        return self.floats(full, count, size).ravel() if self.checkpoint.has(full) else None

    def split(self, name: str, rows: Sequence[int], cols: int) -> list[_core.Weight]:
        """Return the parts of the tensor ``name.weight``, [sum of rows, cols], one below the other."""
        full = f"{name}.weight"
        if full not in self._parts:
            whole = self.matrix(name, sum(rows), cols)
            del self._matrices[full]  # a device packs the parts
            ends = list(accumulate(rows))
            self._parts[full] = [whole.slice(e - n, e) for e, n in zip(ends, rows, strict=True)]
        return self._parts[full]

    def split_bias(self, name: str, rows: Sequence[int]) -> list[Vector | None]:
        """Return the parts of ``name.bias``; None for each part where the file has none."""
        whole = self.bias(name, sum(rows))
        if whole is None:
            return [None] * len(rows)
        return list(np.split(whole, list(accumulate(rows))[:-1]))

    def vector(self, name: str, size: int) -> Vector:
        """Return a one-dimensional tensor as float32."""
        return self.floats(name, size)

    def floats(self, name: str, *shape: int) -> Vector:
        """Return a small tensor of any shape as float32, for ops that take no stored weights."""
        self._check(name, shape)
        return self.checkpoint.vector(name).reshape(shape)

    def keys_and_values(
        self, name: str, heads: int, key_dim: int, value_dim: int, cols: int
    ) -> tuple[_core.Weight, _core.Weight]:
        """Return the tensor ``name.weight``, [heads * (key_dim + value_dim), cols], taken apart.

        Returns:
            The matrices of keys, transposed, [heads, cols, key_dim], and those of values, [heads,
            value_dim, cols]; in float32, since blocks of weights cannot be transposed.
        """
        full = f"{name}.weight"
        if full not in self._made:
            whole = self.floats(full, heads * (key_dim + value_dim), cols)
            by_head = whole.reshape(heads, key_dim + value_dim, cols)
            keys = np.ascontiguousarray(by_head[:, :key_dim].swapaxes(1, 2))
            values = np.ascontiguousarray(by_head[:, key_dim:])
            self._made[full] = (
                _made_of(f"{name}.keys", keys),
                _made_of(f"{name}.values", values),
            )
        return self._made[full]

    def head_sums(self, name: str, heads: int, dim: int) -> _core.Weight:
        """Return a matrix [dim, dim] for each head, whose rows are its parts of ``name.weight``.

        A head times its matrix is in all dims its sum with these weights.
        """
        full = f"{name}.weight"
        if full not in self._sums:
            rows = self.floats(full, heads * dim).reshape(heads, 1, dim)
            self._sums[full] = _made_of(f"{name}.sums", np.repeat(rows, dim, axis=1))
        return self._sums[full]

    def leave_out_drafting(self, config: Drafting) -> None:
        """Leave out the layers that predict further tokens: a pass gives the same without them."""
        for i in range(config.num_nextn_predict_layers):
            prefix = f"blk.{config.num_hidden_layers + i}."
            self.leave_out(prefix)

    def leave_out(self, prefix: str) -> None:
        """Leave out tensors whose names begin so: the pass does not need them."""
        self._used |= {n for n in self.checkpoint.tensor_names if n.startswith(prefix)}

    def first_row(self, name: str, cols: int) -> Vector:
        """Return the row 0 of the tensor ``name.weight``, [any, cols], as float32."""
        full = f"{name}.weight"
        self._used.add(full)
        shape = self.checkpoint.shape(full)
        if len(shape) != 2 or shape[1] != cols:
            raise FormatError(
                f"{self.checkpoint.path}: tensor {full} has shape {shape}, but the model's dimensions "
                f"need rows of {cols}"
            )
        return self.checkpoint.vector(full)[:cols]

    def bias(self, name: str, size: int) -> Vector | None:
        """Return ``name.bias`` where the file has it."""
        full = f"{name}.bias"
        return self.vector(full, size) if self.has(full) else None

    def embedding(self, config: Layered) -> _core.Weight:
        """Return the token embedding, [vocabulary, hidden]."""
        return self.matrix("token_embd", config.vocab_size, config.hidden_size)

    def head(self, config: Layered) -> _core.Weight:
        """Return the output matrix; the embedding where the model ties them."""
        if not self.checkpoint.has("output.weight"):
            return self.embedding(config)
        return self.matrix("output", config.vocab_size, config.hidden_size)

    def _stored(self, name: str, *shapes: tuple[int, ...]) -> _core.Weight:
        """Return a tensor in its stored form, opened once."""
        self._check(name, *shapes)
        if name not in self._matrices:
            self._matrices[name] = self.checkpoint.weight(name)
        return self._matrices[name]

    def _check(self, name: str, *shapes: tuple[int, ...]) -> None:
        """Note a tensor as used; FormatError where its shape is none of those given."""
        self._used.add(name)
        if self.checkpoint.shape(name) not in shapes:
            raise FormatError(
                f"{self.checkpoint.path}: tensor {name} has shape {self.checkpoint.shape(name)}, but "
                f"the model's dimensions need {shapes[0]}"
            )

    def fail(self, problem: str) -> FormatError:
        """Return an error that names the file."""
        return FormatError(f"{self.checkpoint.path}: {problem}")

    def refuse_unused(self) -> None:
        """Raise UnsupportedError for a tensor that nobody asked for: the result would be wrong."""
        unused = sorted(self.checkpoint.tensor_names - self._used)
        if unused:
            raise UnsupportedError(
                f"{self.checkpoint.path} has the tensor {unused[0]}, which architecture "
                f"{self.checkpoint.architecture} does not use in this version"
            )

    @property
    def matrices(self) -> list[_core.Weight]:
        """Every matrix that has been asked for."""
        parts = [p for parts in self._parts.values() for p in parts]
        return [*self._matrices.values(), *parts]


def _made_of(name: str, values: Vector) -> _core.Weight:
    """Return a matrix [rows, cols] for each head, of float32."""
    heads, rows, cols = values.shape
    blocks = values.reshape(heads * rows, cols).view(np.uint8)
    return _core.Weight.from_blocks(name, "F32", blocks, cols, heads)
