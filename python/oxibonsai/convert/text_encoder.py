"""The text encoder of an image model: a Qwen3 of which a folder may hold the first layers alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from oxibonsai.architectures import qwen3
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.tensors import Entry, LeftOut, weight
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.checkpoint.packs.affine import AffineParameter
from oxibonsai.checkpoint.packs.affine_blocks import same_values_type
from oxibonsai.checkpoint.parameters import Parameter
from oxibonsai.convert.families import FamilyConverter, read_config
from oxibonsai.convert.target import Target
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.convert.writing import PlannedModel, plan_model
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.graph import Builder, Value

_LAYER = re.compile(r"(?:model\.)?layers\.([0-9]{1,4})\.")


class _FirstLayers(Family[qwen3.Config]):
    """A Qwen3 whose hidden states are all that is wanted."""

    def whole_pass(self, g: Builder, c: Any, w: Weights) -> Value:
        """Return the hidden states: [tokens, hidden]."""
        return self.hidden_states(g, c, w)


def _tensors(c: qwen3.Config) -> Iterator[Entry]:
    yield weight("model.embed_tokens", "token_embd")
    yield from qwen3.tensors_of_layers(c)
    yield LeftOut("model.norm.weight")
    yield LeftOut("lm_head.weight")


def _spelled(parameter: str) -> str:
    """Return a parameter's name in a whole model: encoders are saved without what is around them."""
    return parameter if parameter.startswith(("model.", "lm_head.")) else f"model.{parameter}"


class _SameValues(Target):
    """Chooses types that hold packs without loss, float32 where there is no other."""

    def types(self, matrices: Mapping[str, Parameter]) -> dict[str, str]:
        """Return the type of each matrix, by its name in the file."""
        return {
            name: same_values_type(held) if isinstance(held, AffineParameter) else held.exact_type
            for name, held in matrices.items()
        }


def plan_text_encoder(path: Path, tokenizer: Path | None = None) -> PlannedModel:
    """Return the keys and tensors of the GGUF file of a text encoder.

    Args:
        path: A folder with ``config.json`` and safetensors, or the file in such a folder.
        tokenizer: A folder with ``tokenizer.json``; None: ``path`` has one.

    Raises:
        FormatError: A file is damaged, or lacks a tensor of a layer that it has others of.
        UnsupportedError: The model is no Qwen3.
    """
    source = ModelFolder(path)
    if (kind := source.config.get("model_type")) != qwen3.FAMILY.name:
        raise UnsupportedError(f"a text encoder of type {kind!r}; this version runs qwen3")
    held = [int(found[1]) for name in source.parameters if (found := _LAYER.match(name))]
    if not held:
        raise FormatError(f"{source.path} holds no layer of a text encoder")
    layers = min(max(held) + 1, source.count("num_hidden_layers"))
    vocabulary = source.at(tokenizer) if tokenizer is not None else source
    base = qwen3.FAMILY
    family = _FirstLayers(
        **{f.name: getattr(base, f.name) for f in fields(base)}
        | {"tensors": _tensors, "spelled": _spelled}
    )
    converter = FamilyConverter(
        base.name,
        partial(_metadata, family, vocabulary),
        family=family,
        config=lambda folder: {**folder.config, "num_hidden_layers": layers},
    )
    return plan_model(source, converter, dtype="auto", name="", threads=1, choose=_SameValues)


def _metadata(family: Family[Any], vocabulary: ModelFolder, folder: ModelFolder) -> Metadata:
    return {**family.write_gguf(read_config(family, folder)), **tokenizer_keys(vocabulary)}
