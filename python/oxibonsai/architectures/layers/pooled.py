"""Layers around an encoder's: token types; after pooling, projections and a classifier's head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oxibonsai import _core
from oxibonsai.architectures.layers.sizes import Layered, Weights
from oxibonsai.graph import Builder, Value

# Inputs: one-hot rows of each token's type; pooled hidden states.
TOKEN_TYPES, POOLED = "token_types", "pooled"
PROJECTIONS = ("dense_2", "dense_3")
_ACTIVATIONS = {"tanh": Builder.tanh, "gelu": Builder.gelu, "gelu_new": Builder.gelu_tanh}


@dataclass(frozen=True)
class ClassifierConfig:
    """A head that gives scores of a text, or of a pair of texts, in place of the next token.

    Attributes:
        pooling: The hidden states that it reads: ``"cls"``, ``"mean"`` or ``"last"``.
        labels: What its scores are of; empty where the file does not say.
        yes_or_no: The scores are those of the answers yes and no, which make one probability.
        activation: Between the head's two layers: ``"tanh"``, ``"gelu"`` or ``"gelu_new"``.
    """

    pooling: str
    labels: tuple[str, ...] = ()
    yes_or_no: bool = False
    activation: str = "tanh"


class Classifying(Protocol):
    """A model that may have the head of a classifier."""

    @property
    def classifier(self) -> ClassifierConfig | None:
        """The head; None: there is none."""
        ...

    @property
    def layer_norm_eps(self) -> float:
        """Epsilon of LayerNorms."""
        ...


class Typed(Layered, Protocol):
    """A model that may tell apart the types of tokens."""

    @property
    def token_types(self) -> int:
        """Types that the pass tells apart by its input of this name; 1: it has no such input."""
        ...


def add_token_types(g: Builder, c: Typed, w: Weights, h: Value) -> Value:
    """Add each token's row of the table of types to h; the input ``token_types`` chooses it.

    A product with a one-hot row is exact, so this gives the bytes of adding the row itself.
    """
    count = c.token_types
    table = w.floats("token_types.weight", count, c.hidden_size)
    columns = _core.encode(np.ascontiguousarray(table.T), "F32")
    weight = _core.Weight.from_blocks("token_types", "F32", columns, count)
    (out,) = g.linear(g.input(TOKEN_TYPES, count), weight, add=h)
    return out


def has_projection(w: Weights) -> bool:
    """Return whether embeddings go through further layers after pooling."""
    return any(w.has(f"{name}.weight") for name in PROJECTIONS)


def projected_width(w: Weights, hidden: int) -> int:
    """Return the values of an embedding whose hidden states have ``hidden``."""
    return next((w.rows(name) for name in reversed(PROJECTIONS) if w.has(f"{name}.weight")), hidden)


def project(g: Builder, w: Weights, x: Value) -> Value:
    """Return x after the linear layers that follow pooling, one after the other."""
    for name in PROJECTIONS:
        if w.has(f"{name}.weight"):
            (x,) = g.linear(x, w.matrix(name, w.rows(name), x.cols))
    return x


def scores(g: Builder, c: Classifying, w: Weights, x: Value) -> Value:
    """Return a classifier's scores of pooled hidden states: [texts, labels]."""
    assert c.classifier is not None
    if w.has("cls.weight"):
        rows = w.rows("cls")
        (x,) = g.linear(x, w.matrix("cls", rows, x.cols), bias=[w.bias("cls", rows)])
        x = _ACTIVATIONS[c.classifier.activation](g, x)
        if w.has("cls.norm.weight"):
            x = g.layer_norm(x, w.vector("cls.norm.weight", rows), None, c.layer_norm_eps)
    if w.has("cls.output.weight"):
        rows = w.rows("cls.output")
        weight = w.matrix("cls.output", rows, x.cols)
        (x,) = g.linear(x, weight, bias=[w.bias("cls.output", rows)])
    if c.classifier.yes_or_no:
        if x.cols != 2:
            raise w.fail(f"the head has {x.cols} outputs; a model that answers yes or no has two")
        yes, no = g.select_columns(x, 0, 1), g.select_columns(x, 1, 1)
        x = g.sigmoid(g.add(yes, g.scale(no, -1.0)))
    return x
