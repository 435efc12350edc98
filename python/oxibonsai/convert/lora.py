"""Adapters that PEFT saved as the GGUF files of llama.cpp."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from oxibonsai.architectures.schema.operations import Transpose, keep_rows
from oxibonsai.architectures.schema.tensors import Tensor
from oxibonsai.checkpoint.float_types import PLAIN, Bytes, Floats
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.checkpoint.parameters import FloatParameter
from oxibonsai.checkpoint.safetensors_file import StoredTensor, read_header
from oxibonsai.convert.peft_config import PeftConfig, read_peft_config
from oxibonsai.convert.plan import Planned
from oxibonsai.convert.stored_types import encode
from oxibonsai.convert.writing import PlannedModel
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.models.config import ModelConfig
from oxibonsai.quantize.blocks import Loss
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
    plan_lora(folder, base).write(Path(out), None)


def plan_lora(folder: str | os.PathLike[str], base: ModelConfig) -> PlannedModel:
    """Return the keys and tensors of the file that :func:`convert_lora` writes; arguments as there."""
    folder = Path(folder)
    config = read_peft_config(folder)
    parts = _parts(folder, base)
    for part in parts:
        _check_rank(part, config)
    return PlannedModel(
        folder, _keys(folder, base, config), [_planned(p, config) for p in parts], []
    )


def _planned(part: _Part, config: PeftConfig) -> Planned:
    return Planned(
        part.name,
        part.held.shape,
        _type(part, config),
        lambda: (_blocks(part, config), Loss()),
        (part.held.stored,),
    )


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
    names = _Names(base, header)
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


class _Names:
    """The names of the model's tensors, and the order of their rows and columns.

    The table has the layers that the adapter names: one too many is told by the model, which lacks it.
    """

    def __init__(self, base: ModelConfig, header: Mapping[str, StoredTensor]) -> None:
        family = base.family
        self.architecture, self._family, self._header = family.name, family, header
        numbers = [int(n) for name in header for n in re.findall(r"\.([0-9]{1,4})\.", name)]
        layers = max(base.num_hidden_layers, max(numbers, default=0) + 1)
        try:
            config = replace(base.of_family, num_hidden_layers=layers)
            self._table = family.table(config, family.name)
        except IndexError:  # the config lists what each layer is, and has none for further ones
            self._table = family.table(base.of_family, family.name)
        self._entries: dict[str, Tensor] = {}

    def tensor(self, parameter: str) -> str | None:
        """Return GGUF's name of a matrix of linear layers; None: it is none."""
        wrapper = self._family.wrapper
        own = parameter if wrapper is None else wrapper.text_name(parameter)
        try:
            entry = None if own is None else self._table.entry_of(self._family.spelled(own))
        except UnsupportedError:
            return None
        if entry is None or not entry.matrix or len(entry.parameters) > 1:
            return None
        return self._entries.setdefault(entry.tensors[0], entry).tensors[0]

    def in_order(self, part: _Part, values: Floats) -> Floats:
        """Return the values of a part in the order of the model's file."""
        entry = self._entries[part.tensor]
        # Whatever its model's matrices are, an adapter's are those of a linear layer.
        steps = [step for step in entry.operations if not isinstance(step, Transpose)]
        b = self._header.get(part.held.stored.name.replace(".lora_A.", ".lora_B."))
        try:
            whole = b is None or keep_rows(
                steps, [b.shape]
            )  # a part without B is refused elsewhere
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


def _type(part: _Part, config: PeftConfig) -> WeightType:
    return type_named("f32" if _ratio(part, config) != 1.0 else part.held.exact_type)


def _blocks(part: _Part, config: PeftConfig) -> Bytes:
    values = part.names.in_order(part, part.held.values())
    if (ratio := _ratio(part, config)) != 1.0:
        with np.errstate(over="ignore"):  # refused below
            values = values * np.float32(ratio)
    return encode(values, _type(part, config).name, part.where)
