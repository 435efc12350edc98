"""Families as today's table of architectures has them."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.hadamard import read_rotation
from oxibonsai.models.keys import Keys
from oxibonsai.models.pooled import read_classifier
from oxibonsai.models.weights import Weights

_NAMES = {field.name for field in fields(ModelConfig)}


def architecture_of_family(family: Family[Any]) -> Architecture:
    """Return a family's entry in the table of architectures."""

    def read(keys: Keys) -> ModelConfig:
        return read_config(family, keys)

    def final_norm(g: Builder, c: ModelConfig, w: Weights, h: Value) -> Value:
        return family.final_norm(g, c, w, h)

    return Architecture(
        read, partial(hidden_states, family), final_norm, biases=partial(biases, family)
    )


def read_config(family: Family[Any], keys: Keys) -> ModelConfig:
    """Return the config of a family's model under the names that all models share.

    A family's field that has the name of one of :class:`ModelConfig` must mean the same.
    """
    c, file = family.read_gguf(keys), keys.checkpoint.file
    values = {name: getattr(c, name) for name in _NAMES if hasattr(c, name)}
    return ModelConfig(
        **values,
        architecture=keys.architecture,
        name=str(file.get("general.name", "")),
        causal=keys.causal(True),
        pooling=keys.pooling("last"),
        classifier=read_classifier(keys, default_pooling="last") if family.scores_texts else None,
        hadamard=read_rotation(file, keys.checkpoint.path),
        of_family=c,
    )


def hidden_states(family: Family[Any], g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Return the hidden states of a family's pass, which reads the config that all models share."""
    return family.hidden_states(g, c, w)


def biases(family: Family[Any], c: ModelConfig) -> set[str]:
    """Return the names of the biases that a family's file may have."""
    listed = family.tensors(c.of_family)
    names = {name for entry in listed if isinstance(entry, Tensor) for name in entry.tensors}
    # Files may have q, k and v as one tensor where a folder has three.
    names |= {name.replace(".attn_q.", ".attn_qkv.") for name in names}
    return {name for name in names if name.endswith(".bias")}
