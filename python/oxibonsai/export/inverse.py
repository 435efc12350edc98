"""A family read backwards: tensors of a GGUF file as parameters, and whether all is kept.

What ``convert`` would write of a configuration must describe the model that the file does. So a
configuration that leaves something out is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures.hybrid import FULL_ATTENTION
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.operations import inverse_of, keep_rows
from oxibonsai.architectures.schema.sources import key_name
from oxibonsai.architectures.schema.tensors import Lazy, Tensor, TensorTable
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import as_read
from oxibonsai.checkpoint.parameters import Parameter
from oxibonsai.checkpoint.reader import TensorInfo
from oxibonsai.convert.families import CONVERTERS, FamilyConverter
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.export.safetensors_writer import Exported, Floats, PackedRows
from oxibonsai.export.sentences import PROJECTIONS
from oxibonsai.models import ModelConfig, read_config
from oxibonsai.models.config import config_of
from oxibonsai.models.keys import Keys


@dataclass(frozen=True)
class _Held:
    """A parameter as converters see it."""

    exported: Exported
    exact_type = "f32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.exported.shape

    def values(self) -> Floats:
        return self.exported.values()


class _Stated(ModelFolder):
    """A folder that is not written yet: its configuration, and the parameters known so far."""

    def __init__(
        self, path: Path, config: dict[str, Any], known: Callable[[], dict[str, Parameter]]
    ) -> None:
        self._file = None
        self.path = path
        self.config = config
        self._known = known

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters that are known when somebody asks."""
        return self._known()


class _Converted(Keys):
    """The keys that ``convert`` would write, in the place of the file's own."""

    def __init__(
        self, checkpoint: Checkpoint, architecture: str, stated: Mapping[str, Any]
    ) -> None:
        super().__init__(checkpoint)
        self.architecture = architecture
        self._stated = stated

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value as a file has it."""
        return self._stated.get(key_name(self.architecture, key), default)


class Inverse:
    """The way back from one file.

    Args:
        checkpoint: Of the model.
        config: The ``config.json`` to write.
        family: Under whose names the model is saved.

    Attributes:
        config: As given.

    Raises:
        UnsupportedError: The configuration has no place for something in the file, or a tensor has no
            decoder; what it is, is said.
    """

    def __init__(self, checkpoint: Checkpoint, config: dict[str, Any], family: Family[Any]) -> None:
        self.config = config
        self._checkpoint, self._family = checkpoint, family
        self._model = read_config(checkpoint)
        self._tensors = {t.name: t for t in checkpoint.file.tensors}
        folder = _Stated(checkpoint.path, dict(config), self._known_parameters)
        converter = CONVERTERS[family.model_types[0]]
        folder.config = converter.config(folder)
        if converter.variant is not None:
            converter = converter.variant(folder)
        try:
            lost = self._lost_constants(converter, folder)
            if not lost:
                self._parameters = [
                    *self._of_folder(converter, folder), *self._numbers(converter.family)
                ]  # fmt: skip
        except (FormatError, UnsupportedError) as e:
            raise UnsupportedError(f"{checkpoint.path} can be saved as gguf only: {e}") from e
        if lost:
            raise UnsupportedError(
                f"{checkpoint.path}: a configuration of type {config['model_type']} has no place for "
                f"its {lost}; save it as gguf"
            )

    @property
    def makes_vectors(self) -> bool:
        """Whether what follows the hidden states is a folder of sentence-transformers'."""
        return self._model.classifier is None and self._family.task in ("Model", "EncoderModel")

    @property
    def generates(self) -> bool:
        """Whether the model continues texts."""
        tasks = ("ForCausalLM", "ForConditionalGeneration")
        return self._model.classifier is None and self._family.task in tasks

    def _lost_constants(self, converter: FamilyConverter, folder: ModelFolder) -> str:
        """Return fields in which the model of the configuration differs; empty: none."""
        stated = {
            key: as_read(value, kind) for key, (value, kind) in converter.metadata(folder).items()
        }
        keys = _Converted(self._checkpoint, converter.architecture, stated)
        found, wanted = config_of(converter.family, keys), self._model
        found = replace(found, architecture=wanted.architecture)
        kinds = getattr(wanted.of_family, "layer_types", ())
        if kinds and FULL_ATTENTION not in kinds:
            # Such a model ends at no position; files and configurations state one or another.
            found = replace(found, max_position_embeddings=wanted.max_position_embeddings)
        if self.makes_vectors:  # which the files of sentence-transformers say
            found = replace(found, pooling=wanted.pooling)
        names = [f.name for f in fields(ModelConfig) if f.compare and f.name != "of_family"]
        lost = [n for n in names if getattr(found, n) != getattr(wanted, n)]
        ours, theirs = found.of_family, wanted.of_family
        own = [f.name for f in fields(ours) if f.compare and f.name not in names]
        lost += [n for n in own if getattr(ours, n) != getattr(theirs, n)]
        return ", ".join(lost)

    def _known_parameters(self) -> dict[str, Parameter]:
        """Return the parameters that the file has by its own keys; errors of :meth:`_of_table`."""
        family = self._family
        table = family.table(self._model.of_family, str(self._checkpoint.path))
        known = (*self._of_table(family, table), *self._numbers(family))
        return {e.name: _Held(e) for e in known}

    def _numbers(self, family: Family[Any]) -> list[Exported]:
        """Return the parameters that a file has among its keys."""
        held = family.numbers(self._model.of_family)
        return [
            Exported(name, values.shape, lambda values=values: values)  # type: ignore[misc]
            for name, values in held.items()
        ]

    def _of_folder(self, converter: FamilyConverter, folder: ModelFolder) -> Iterator[Exported]:
        """Yield the parameters that the file's tensors are, in the file's order.

        Raises:
            FormatError: The file lacks a tensor that the configuration asks for.
            UnsupportedError: It has one that the configuration has no place for.
        """
        checkpoint = self._checkpoint
        _, table = converter.table(folder)
        for name, values in table.from_config.items():
            held = checkpoint.vector(name)
            if held.shape != values.shape or not np.allclose(held, values, 1e-5, 0.0):
                raise UnsupportedError(f"{name} holds other values than the configuration says")
        yield from self._of_table(converter.family, table)

    def _of_table(self, family: Family[Any], table: TensorTable) -> Iterator[Exported]:
        after = PROJECTIONS if self.makes_vectors else ()
        for entry in table.of_tensors(n for n in self._tensors if n not in after):
            tensors = [self._tensors[name] for name in entry.tensors]
            made = entry.backwards([self._lazy(tensor) for tensor in tensors])
            for place, (name, lazy) in enumerate(zip(entry.parameters, made, strict=True)):
                packed = self._packed(entry, tensors, place) if len(lazy.shape) == 2 else None
                yield Exported(
                    family.parameter(name), lazy.shape, lazy.read, packed, tuple(entry.tensors)
                )

    def _packed(
        self, entry: Tensor, tensors: list[TensorInfo], place: int
    ) -> Callable[[], PackedRows] | None:
        """Return what reads a matrix as stored rows; None where its values are no rows of the file."""
        operations, types = inverse_of(entry.operations), {t.quant_type for t in tensors}
        whole = entry.moves and all(len(t.shape) == 2 for t in tensors) and len(types) == 1
        if not (whole and keep_rows(operations, [tuple(t.shape) for t in tensors])):
            return None

        def read() -> PackedRows:
            file = self._checkpoint.file
            arrays = [file.tensor_bytes(t.name).reshape(t.shape[0], -1) for t in tensors]
            for operation in operations:
                arrays = operation.apply(arrays)
            return PackedRows(tensors[0].quant_type, arrays[place])

        return read

    def _lazy(self, tensor: TensorInfo) -> Lazy:
        shape, file = tuple(tensor.shape), self._checkpoint.file

        def read() -> Floats:
            return decoded(file.tensor_bytes(tensor.name), shape)

        def read_part(place: int) -> Floats:
            held = file.tensor_bytes(tensor.name).reshape(shape[0], -1)
            return decoded(held[place], shape[1:])

        def decoded(held: npt.NDArray[np.uint8], of_shape: tuple[int, ...]) -> Floats:
            return _core.decode(tensor.quant_type, held).reshape(of_shape)

        matrices = shape[0] if len(shape) == 3 else 0
        parts = tuple(Lazy(shape[1:], partial(read_part, i)) for i in range(matrices))
        return Lazy(shape, read, parts)

    def parameters(self) -> list[Exported]:
        """Return all parameters, in the order of the file.

        Raises:
            UnsupportedError: A tensor has no decoder, or weights are folded.
        """
        checkpoint = self._checkpoint
        if self._model.hadamard is not None:
            raise UnsupportedError(
                f"{checkpoint.path} has Hadamard-folded weights, for which Hugging Face's configurations "
                "have no place; it can be saved as gguf only"
            )
        for tensor in checkpoint.file.tensors:
            if not tensor.decodable:
                raise UnsupportedError(
                    f"{checkpoint.path}: tensor {tensor.name} has type {tensor.quant_type}, which has no "
                    "decoder"
                )
        return self._parameters
