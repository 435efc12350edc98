"""Protocols of the config and the weights that shared passes read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from oxibonsai import _core
from oxibonsai.errors import FormatError
from oxibonsai.graph import RopeConfig, Vector


class Layered(Protocol):
    """A model of layers between a token table and an output matrix."""

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers."""
        ...

    @property
    def hidden_size(self) -> int:
        """Columns of the hidden states."""
        ...

    @property
    def vocab_size(self) -> int:
        """Rows of the token table."""
        ...


class Normed(Protocol):
    """A model whose norms are all of one kind."""

    @property
    def rms_norm_eps(self) -> float:
        """Epsilon of RMSNorms; 0: norms are LayerNorms."""
        ...

    @property
    def layer_norm_eps(self) -> float:
        """Epsilon of LayerNorms; 0: norms are RMSNorms."""
        ...


class Attending(Layered, Protocol):
    """A model whose layers attend with heads of one width."""

    @property
    def num_attention_heads(self) -> int:
        """Heads of queries."""
        ...

    @property
    def num_key_value_heads(self) -> int:
        """Heads of keys and of values."""
        ...

    @property
    def head_dim(self) -> int:
        """Columns of a head."""
        ...

    @property
    def attention_scale(self) -> float:
        """Factor of the scores."""
        ...

    @property
    def attn_logit_softcapping(self) -> float:
        """Cap of the scores; 0: there is none."""
        ...

    @property
    def clamp_kqv(self) -> float:
        """Largest magnitude of queries, keys and values; 0: any."""
        ...

    @property
    def alibi_max_bias(self) -> float:
        """Steepness of linear biases; 0: there are none."""
        ...


class NormedHeads(Attending, Normed, Protocol):
    """A model that normalises each head of queries and keys."""


class Rotated(Protocol):
    """A model with a rotary embedding."""

    @property
    def rope(self) -> RopeConfig:
        """The rotary embedding."""
        ...


class Rotating(Rotated, Attending, Protocol):
    """A model whose layers rotate q and k alike."""


class Blocked(Attending, Protocol):
    """A model whose tokens see the blocks of a pattern."""

    @property
    def block_size(self) -> int:
        """Tokens of a block; 0: a token sees all."""
        ...

    @property
    def num_random_blocks(self) -> int:
        """Random blocks that a token sees, beside its neighbours."""
        ...


class Scored(Layered, Protocol):
    """A model with an output matrix."""

    @property
    def logit_scale(self) -> float:
        """Factor of the logits."""
        ...

    @property
    def final_logit_softcapping(self) -> float:
        """Cap of the logits; 0: there is none."""
        ...


class FeedForward(Protocol):
    """A model whose layers have MLPs of one width."""

    @property
    def hidden_size(self) -> int:
        """Columns of the hidden states."""
        ...

    @property
    def intermediate_size(self) -> int:
        """Columns between the MLP's matrices."""
        ...


class Drafting(Layered, Protocol):
    """A model whose last layers may predict further tokens."""

    @property
    def num_nextn_predict_layers(self) -> int:
        """Their number, which the number of layers does not include."""
        ...


class Weights(Protocol):
    """The tensors of a model, by GGUF's names without ``.weight``; a wrong shape is FormatError."""

    def has(self, name: str) -> bool:
        """Return whether there is a tensor; its whole name."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor that is there; its whole name."""
        ...

    def matrix(self, name: str, rows: int, cols: int) -> _core.Weight:
        """Return a matrix in its stored form."""
        ...

    def rows(self, name: str) -> int:
        """Return the rows of a matrix of any number of rows."""
        ...

    def experts(self, name: str, count: int, rows: int, cols: int) -> _core.Weight:
        """Return ``count`` matrices in their stored form."""
        ...

    def keys_and_values(
        self, name: str, heads: int, key_dim: int, value_dim: int, cols: int
    ) -> tuple[_core.Weight, _core.Weight]:
        """Return the matrices of keys and of values of each head, which are one tensor."""
        ...

    def head_sums(self, name: str, heads: int, dim: int) -> _core.Weight:
        """Return a matrix for each head, which times the head is its sum with the weights ``name``."""
        ...

    def row(self, name: str, cols: int) -> _core.Weight:
        """Return a matrix of one row, which may be stored as a vector."""
        ...

    def split(self, name: str, rows: Sequence[int], cols: int) -> list[_core.Weight]:
        """Return the parts of a matrix, one below the other."""
        ...

    def vector(self, name: str, size: int) -> Vector:
        """Return a vector; its whole name."""
        ...

    def floats(self, name: str, *shape: int) -> Vector:
        """Return a small tensor of any shape; its whole name."""
        ...

    def first_row(self, name: str, cols: int) -> Vector:
        """Return row 0 of a matrix of any number of rows."""
        ...

    def bias(self, name: str, size: int) -> Vector | None:
        """Return a bias; None where there is none."""
        ...

    def expert_bias(self, name: str, count: int, size: int) -> Vector | None:
        """Return the biases of ``count`` matrices, one after the other; None where there are none."""
        ...

    def split_bias(self, name: str, rows: Sequence[int]) -> list[Vector | None]:
        """Return the parts of a bias; None for each where there is none."""
        ...

    def leave_out_drafting(self, config: Drafting) -> None:
        """Leave out the layers that predict further tokens."""
        ...

    def embedding(self, config: Layered) -> _core.Weight:
        """Return the token table."""
        ...

    def head(self, config: Layered) -> _core.Weight:
        """Return the output matrix, which may be the token table."""
        ...

    def leave_out(self, prefix: str) -> None:
        """Leave tensors unused whose names begin so."""
        ...

    def fail(self, problem: str) -> FormatError:
        """Return an error that names the file."""
        ...
