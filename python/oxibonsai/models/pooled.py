"""Layers after pooling: the projection of some embedding models, and the head of a classifier."""

from __future__ import annotations

import numpy as np

from oxibonsai import _core
from oxibonsai.errors import FormatError
from oxibonsai.graph import Builder, Value
from oxibonsai.models.config import ClassifierConfig, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights

# Inputs: one-hot rows of each token's type; pooled hidden states.
TOKEN_TYPES, POOLED = "token_types", "pooled"
_PROJECTIONS = ("dense_2", "dense_3")
_ACTIVATIONS = {"tanh": Builder.tanh, "gelu": Builder.gelu, "gelu_new": Builder.gelu_tanh}


def read_classifier(
    keys: Keys, *, default_pooling: str = "cls", activation: str = "tanh"
) -> ClassifierConfig | None:
    """Return the head of a classifier; None where the file has none.

    Args:
        keys: Of the file.
        default_pooling: What the head reads where the file does not say.
        activation: Between its two layers.
    """
    labels = keys.get("classifier.output_labels")
    pooling = keys.pooling(default_pooling, "classifier.pooling_type")
    if not keys.has_classifier:
        return None
    texts = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    if labels is not None and not texts:
        raise keys.fail(f"{keys.architecture}.classifier.output_labels is no list of texts")
    return ClassifierConfig(
        pooling=pooling,
        labels=tuple(labels or ()),
        yes_or_no=keys.architecture == "qwen3",
        activation=activation,
    )


def read_projections(keys: Keys) -> None:
    """Check what the file says of the layers after pooling against their tensors."""
    for name in _PROJECTIONS:
        sides = [f"{name}_feat_{side}" for side in ("out", "in")]
        if not any(keys.has(side) for side in sides):
            continue
        tensor, stated = f"{name}.weight", [keys.integer(side) for side in sides]
        if not keys.checkpoint.has(tensor) or list(keys.checkpoint.shape(tensor)) != stated:
            raise keys.fail(
                f"{tensor} is not the matrix {stated} that {name}_feat_out and _in state"
            )


def add_token_types(g: Builder, c: ModelConfig, w: Weights, h: Value) -> Value:
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
    """Whether embeddings go through further layers after pooling."""
    return any(w.has(f"{name}.weight") for name in _PROJECTIONS)


def projected_width(w: Weights, hidden: int) -> int:
    """Values of an embedding whose hidden states have ``hidden``."""
    return next(
        (w.rows(name) for name in reversed(_PROJECTIONS) if w.has(f"{name}.weight")), hidden
    )


def project(g: Builder, w: Weights, x: Value) -> Value:
    """Linear layers after pooling, one after the other."""
    for name in _PROJECTIONS:
        if w.has(f"{name}.weight"):
            (x,) = g.linear(x, w.matrix(name, w.rows(name), x.cols))
    return x


def scores(g: Builder, c: ModelConfig, w: Weights, x: Value) -> Value:
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
            raise FormatError(
                f"{w.checkpoint.path}: the head has {x.cols} outputs; a {c.architecture} that scores "
                "texts has two, of the answers yes and no"
            )
        yes, no = g.select_columns(x, 0, 1), g.select_columns(x, 1, 1)
        x = g.sigmoid(g.add(yes, g.scale(no, -1.0)))
    return x
