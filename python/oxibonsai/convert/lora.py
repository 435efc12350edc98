"""Adapters that PEFT saved as the GGUF files of llama.cpp."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from oxibonsai import _core
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.operations import Transpose, keep_rows
from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.convert.exact_blocks import Bytes
from oxibonsai.convert.families import FamilyConverter
from oxibonsai.convert.float_types import PLAIN, Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.parameters import FloatParameter
from oxibonsai.convert.peft_config import PeftConfig, read_peft_config
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.recipes import RECIPES
from oxibonsai.convert.safetensors_file import StoredTensor, read_header
from oxibonsai.convert.stored_types import encode
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.files.whole_file import written_whole
from oxibonsai.models.config import ModelConfig
from oxibonsai.quantize.weight_types import WeightType, type_named

_TENSORS = "adapter_model.safetensors"
_FROZEN = ".base_layer.weight"  # the model's own, which PEFT keeps beside an adapted head
_PART = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")


@dataclass(frozen=True)
class _Part:
    """One of the two matrices of a module, as it is stored."""

    held: FloatParameter
    module: str
    letter: str  # A or B
    tensor: str  # of the model, by GGUF's name
    names: _Names

    @property
    def name(self) -> str:
        return f"{self.tensor}.lora_{self.letter.lower()}"

    @property
    def where(self) -> str:
        return f"{self.held.stored.path}: tensor {self.held.stored.name}"


def convert_lora(
    folder: str | os.PathLike[str], out: str | os.PathLike[str], base: ModelConfig
) -> None:
    """Write an adapter as one GGUF file, which appears under its name when it is complete.

    Matrices stay as they are stored. Where a pattern gives a module a scale of its own, which GGUF has
    no place for, its B is multiplied with the ratio and stored as f32.

    Args:
        folder: With ``adapter_config.json`` and ``adapter_model.safetensors``.
        out: The file; replaced where it exists.
        base: The model that it is for; says how tensors are called and how rows lie.

    Raises:
        FormatError: A file is missing or damaged, or contradicts the other.
        UnsupportedError: The adapter is no plain LoRA of linear layers.
    """
    folder, out = Path(folder), Path(out)
    config = read_peft_config(folder)
    parts = _parts(folder, base)
    for part in parts:
        _check_rank(part, config)
    with written_whole(out) as sink:
        writer = _core.GgufWriter(sink)
        for key, value in _keys(folder, base, config).items():
            writer.add_metadata(key, *value)
        for part in parts:
            kind = _type(part, config)
            writer.add_tensor(
                part.name, part.held.shape, kind.gguf_id, kind.size(math.prod(part.held.shape))
            )
        writer.write_header()
        for part in parts:
            writer.write_tensor(_blocks(part, config))
        writer.close()


def _keys(folder: Path, base: ModelConfig, config: PeftConfig) -> Metadata:
    return {
        "general.architecture": (base.architecture, "str"),
        "general.type": ("adapter", "str"),
        "general.name": (folder.resolve().name, "str"),
        "adapter.type": ("lora", "str"),
        "adapter.lora.alpha": (config.full_alpha(), "f32"),
    }


def _parts(folder: Path, base: ModelConfig) -> list[_Part]:
    path = folder / _TENSORS
    if not path.is_file():
        raise FormatError(f"{folder} has no {_TENSORS}; save the adapter in that format first")
    header = read_header(path)
    names = _names(base, header)
    found: dict[str, _Part] = {}
    for stored in header.values():
        if stored.name.endswith(_FROZEN):
            continue
        part = _part(stored, names)
        if part.name in found:
            raise FormatError(
                f"{path} has two tensors of one meaning: {found[part.name].held.stored.name}, "
                f"{stored.name}"
            )
        found[part.name] = part
    return [found[name] for name in sorted(found)]


def _part(stored: StoredTensor, names: _Names) -> _Part:
    where = f"{stored.path}: tensor {stored.name}"
    match = _PART.fullmatch(stored.name)
    if match is None:
        raise UnsupportedError(
            f"{where} is no part of a plain LoRA of linear layers, "
            "base_model.model.NAME.lora_A.weight or lora_B.weight"
        )
    prefix = "model." if match[1].startswith("layers.") else ""  # one trained without a head
    tensor = names.tensor(f"{prefix}{match[1]}.weight")
    if tensor is None:
        raise UnsupportedError(f"{where} changes no linear layer of {names.architecture}")
    if stored.dtype not in PLAIN:
        raise UnsupportedError(f"{where} is of type {stored.dtype}; known are {', '.join(PLAIN)}")
    if len(stored.shape) != 2 or 0 in stored.shape:
        raise FormatError(f"{where} has shape {stored.shape}: no matrix")
    return _Part(FloatParameter(stored), match[1], match[2], tensor, names)


def _check_rank(part: _Part, config: PeftConfig) -> None:
    rank = part.held.shape[0 if part.letter == "A" else 1]
    if rank != config.rank_of(part.module):
        raise FormatError(
            f"{part.where} has rank {rank}, but {config.path.name} says {config.rank_of(part.module)}"
        )


def _ratio(part: _Part, config: PeftConfig) -> float:
    """Return the factor of a part, since the file has one alpha for all modules."""
    return config.full_alpha(part.module) / config.full_alpha() if part.letter == "B" else 1.0


class _Names(Protocol):
    """The names of the model's tensors, and the order of their rows and columns."""

    architecture: str

    def tensor(self, parameter: str) -> str | None:
        """Return GGUF's name of a matrix of linear layers; None: it is none."""
        ...

    def in_order(self, part: _Part, values: Floats) -> Floats:
        """Return the values of a part in the order of the model's file."""
        ...


class _FamilyNames:
    """Names and order as a family's table has them.

    The table has the layers that the adapter names: one too many is told by the model, which lacks it.
    """

    def __init__(
        self, family: Family[Any], base: ModelConfig, header: Mapping[str, StoredTensor]
    ) -> None:
        self.architecture, self._family, self._header = family.name, family, header
        numbers = [int(n) for name in header for n in re.findall(r"\.([0-9]{1,4})\.", name)]
        config = replace(base.of_family, num_hidden_layers=max(numbers, default=0) + 1)
        self._table = family.table(config, family.name)
        self._entries: dict[str, Tensor] = {}

    def tensor(self, parameter: str) -> str | None:
        try:
            entry = self._table.entry_of(self._family.spelled(parameter))
        except UnsupportedError:
            return None
        if entry is None or not entry.matrix:
            return None
        return self._entries.setdefault(entry.tensors[0], entry).tensors[0]

    def in_order(self, part: _Part, values: Floats) -> Floats:
        entry = self._entries[part.tensor]
        # Whatever its model's matrices are, an adapter's are those of a linear layer.
        steps = [step for step in entry.operations if not isinstance(step, Transpose)]
        b = self._header.get(part.held.stored.name.replace(".lora_A.", ".lora_B."))
        try:
            whole = b is None or keep_rows(steps, b.shape)  # a part without B is refused elsewhere
        except ValueError as e:
            assert b is not None
            raise FormatError(f"{b.path}: tensor {b.name} has {b.shape[0]} rows, but {e}") from e
        if not whole or len(entry.tensors) > 1 or not entry.moves:
            raise UnsupportedError(
                f"{part.where} changes a matrix that its file has in other parts"
            )
        arrays = [values]
        for step in steps if part.letter == "B" else ():
            arrays = step.apply(arrays)
        return arrays[0]


class _RecipeNames:
    """Names and order as a recipe has them, which asks a folder for sizes; the model answers."""

    def __init__(self, recipe: Recipe, base: ModelConfig) -> None:
        self.architecture, self._recipe = recipe.architecture, recipe
        self._sizes = {
            "head_dim": base.head_dim,
            "hidden_size": base.hidden_size,
            "num_attention_heads": base.num_attention_heads,
            "num_key_value_heads": base.num_key_value_heads,
        }

    def tensor(self, parameter: str) -> str | None:
        try:
            name = self._recipe.tensor_name(parameter)
        except UnsupportedError:
            return None
        return name if name is not None and self._recipe.is_matrix(name) else None

    def in_order(self, part: _Part, values: Floats) -> Floats:
        sizes = cast(ModelFolder, _Sizes(self._sizes, part.where))
        axis = 0 if part.letter == "B" else 1
        order_of = self._recipe.row_order if part.letter == "B" else self._recipe.column_order
        order = order_of(sizes, part.tensor)
        if order is None:
            return values
        if len(order) != values.shape[axis]:
            raise FormatError(
                f"{part.where} has {values.shape[axis]} {('rows', 'columns')[axis]}, but {part.tensor} of "
                f"the model has {len(order)}"
            )
        return values.take(order, axis=axis)


class _Sizes:
    """A model's answers to what recipes ask of a folder about the order of rows."""

    def __init__(self, sizes: dict[str, int], where: str) -> None:
        self.config, self._where = sizes, where

    def count(self, key: str) -> int:
        """As of :class:`ModelFolder`."""
        if key not in self.config:
            raise UnsupportedError(
                f"{self._where} changes a part of the model whose rows lie as {key} says, which convert "
                "does not know without the model's folder"
            )
        return self.config[key]


def _names(base: ModelConfig, header: Mapping[str, StoredTensor]) -> _Names:
    found = next((r for r in RECIPES.values() if r.architecture == base.architecture), None)
    if isinstance(found, FamilyConverter):
        return _FamilyNames(found.family, base, header)
    if not isinstance(found, Recipe):
        raise UnsupportedError(
            f"adapters for {base.architecture} cannot be converted: convert does not know its names"
        )
    return _RecipeNames(found, base)


def _type(part: _Part, config: PeftConfig) -> WeightType:
    return type_named("f32" if _ratio(part, config) != 1.0 else part.held.exact_type)


def _blocks(part: _Part, config: PeftConfig) -> Bytes:
    values = part.names.in_order(part, part.held.values())
    if (ratio := _ratio(part, config)) != 1.0:
        with np.errstate(over="ignore"):  # refused below
            values = values * np.float32(ratio)
    return encode(values, _type(part, config).name, part.where)
