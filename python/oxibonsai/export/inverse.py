"""A recipe of ``convert`` read backwards: tensors of a GGUF file as parameters, and whether all is kept.

What ``convert`` would write of a configuration must describe the model that the file does. So a
configuration that leaves something out is never written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from oxibonsai import _core
from oxibonsai.architectures.schema.tensors import Lazy
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.decoder import ExactNamer, Namer
from oxibonsai.convert.encoder import EncoderNamer
from oxibonsai.convert.families import FamilyConverter
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.parameters import Parameter
from oxibonsai.convert.recipe import Converter, Recipe
from oxibonsai.convert.recipes import RECIPES
from oxibonsai.convert.t5 import T5Namer
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.export.joined import Joined, joined_parameters
from oxibonsai.export.safetensors_writer import Exported, Floats
from oxibonsai.export.saved import Saved
from oxibonsai.export.sentences import PROJECTIONS
from oxibonsai.models import ARCHITECTURES, ModelConfig, read_config
from oxibonsai.models.keys import Keys

# What the names of a classifier's own parameters begin with.
_HEADS = ("classifier.", "head.")


@dataclass(frozen=True)
class _Held:
    """A parameter as recipes see it."""

    exported: Exported
    exact_type = "f32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.exported.shape

    def values(self) -> Floats:
        return self.exported.values()


class _Stated(ModelFolder):
    """A folder that is not written yet: its configuration, and the parameters known so far."""

    parameters: dict[str, Parameter]  # in the place of a property

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self._onnx = None
        self.path = path
        self.config = config
        self.parameters = {}


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
        return self._stated.get(f"{self.architecture}.{key}", default)


class Inverse:
    """The way back from one file.

    Args:
        checkpoint: Of the model.
        config: The ``config.json`` to write.
        saved: How transformers calls the architecture.

    Attributes:
        config: As given.

    Raises:
        UnsupportedError: The configuration has no place for something in the file, or a tensor has no
            decoder; what it is, is said.
    """

    def __init__(self, checkpoint: Checkpoint, config: dict[str, Any], saved: Saved) -> None:
        self.config = config
        self._checkpoint = checkpoint
        self._tensors = {t.name: t for t in checkpoint.file.tensors}
        self._saved = saved
        converter = RECIPES[saved.recipe_name]
        folder = _Stated(checkpoint.path, dict(config))
        folder.config = converter.config(folder)
        if converter.variant is not None:
            converter = converter.variant(folder)
        self._folder = folder
        self._joined: list[Joined] = []
        try:
            if isinstance(converter, FamilyConverter):
                lost = self._lost_constants(converter, folder)
                if not lost:
                    self._alone = list(self._of_family(converter))
            else:
                assert isinstance(converter, Recipe)  # there are two kinds of converters
                self._recipe = converter
                self._joined = joined_parameters(checkpoint, converter, folder, saved.joined)
                self._in_joined = {
                    piece.tensor for joined in self._joined for piece in joined.pieces
                }
                self._alone = [*self._whole_tensors(), *self._keys()]
                folder.parameters = {e.name: _Held(e) for e in self._alone}
                lost = self._lost_constants(converter, folder)
                lost = lost or self._lost_tensors(converter, folder)
        except (FormatError, UnsupportedError) as e:
            raise UnsupportedError(f"{checkpoint.path} can be saved as gguf only: {e}") from e
        if lost:
            raise UnsupportedError(
                f"{checkpoint.path}: a configuration of type {config['model_type']} has no place for "
                f"its {lost}; save it as gguf"
            )

    @property
    def makes_vectors(self) -> bool:
        """As of :class:`Saved`."""
        return self._saved.makes_vectors

    @property
    def generates(self) -> bool:
        """Whether the model continues texts."""
        return self._saved.task in ("ForCausalLM", "ForConditionalGeneration")

    def _lost_constants(self, recipe: Converter, folder: ModelFolder) -> str:
        """Fields in which the model of the configuration differs; empty: none."""
        stated = {
            key: _as_read(value, kind) for key, (value, kind) in recipe.metadata(folder).items()
        }
        keys = _Converted(self._checkpoint, recipe.architecture, stated)
        found = ARCHITECTURES[recipe.architecture].read_config(keys)
        wanted = read_config(self._checkpoint)
        found = replace(found, architecture=wanted.architecture)
        if not any(wanted.attends(i) for i in range(wanted.num_hidden_layers)):
            # Such a model ends at no position; files and configurations state one or another.
            found = replace(found, max_position_embeddings=wanted.max_position_embeddings)
        if self._saved.makes_vectors:  # which the files of sentence-transformers say
            found = replace(found, pooling=wanted.pooling)
        names = [f.name for f in fields(ModelConfig) if f.compare]
        return ", ".join(n for n in names if getattr(found, n) != getattr(wanted, n))

    def _of_family(self, converter: FamilyConverter) -> Iterator[Exported]:
        """Yield the parameters that the tensors of a family's file are, in the file's order.

        Raises:
            FormatError: The file lacks a tensor that the configuration asks for.
            UnsupportedError: It has one that the configuration has no place for.
        """
        checkpoint = self._checkpoint
        _, table = converter.table(self._folder)
        for name, values in table.from_config.items():
            held = checkpoint.vector(name)
            if held.shape != values.shape or not np.allclose(held, values, 1e-5, 0.0):
                raise UnsupportedError(f"{name} holds other values than the configuration says")
        for entry in table.of_tensors(self._tensors):
            tensors = [self._tensors[name] for name in entry.tensors]
            made = entry.backwards([self._lazy(tensor) for tensor in tensors])
            for name, lazy in zip(entry.parameters, made, strict=True):
                yield Exported(name, lazy.shape, lazy.read)

    def _lazy(self, tensor: _core.TensorInfo) -> Lazy:
        shape, file = tuple(tensor.shape), self._checkpoint.file

        def read() -> Floats:
            held = file.tensor_bytes(tensor.name)
            return _core.decode(tensor.quant_type, held).reshape(shape)

        return Lazy(shape, read)

    def _lost_tensors(self, recipe: Recipe, folder: ModelFolder) -> str:
        """Return a tensor that the configuration asks for and the file lacks, or the other way round."""
        checkpoint, shapes, extra = self._checkpoint, recipe.shapes(folder), recipe.extra(folder)
        after = PROJECTIONS if self._saved.makes_vectors else ()
        for name, shape in shapes.items():
            if not checkpoint.has(name) or checkpoint.shape(name) != shape:
                return f"lack of {name} of shape {shape}"
        for name in sorted(checkpoint.tensor_names):
            if name in extra:
                held = checkpoint.vector(name)
                if held.shape != extra[name].shape or not np.allclose(held, extra[name], 1e-5, 0.0):
                    return name
            elif name not in self._in_joined and name not in after and self.parameter(name) is None:
                return name
        return next((name for name in extra if not checkpoint.has(name)), "")

    def parameter(self, tensor: str) -> str | None:
        """Hugging Face's name of a tensor; None where it has none."""
        names = self._recipe.tensor_name
        # As of all recipes in SAVED, which a test goes through.
        assert isinstance(names, Namer | ExactNamer | EncoderNamer | T5Namer)
        name = names.parameter(tensor)
        if name is None or name.startswith(_HEADS):
            return name
        return f"{self._saved.prefix}{name}"

    def parameters(self) -> list[Exported]:
        """All parameters, in the order of the file.

        Raises:
            UnsupportedError: A tensor has no decoder, or weights are folded.
        """
        checkpoint = self._checkpoint
        if read_config(checkpoint).hadamard is not None:
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
        return self._alone + [self._put_together(parameter) for parameter in self._joined]

    def _whole_tensors(self) -> list[Exported]:
        """Parameters that are one tensor."""
        return [
            self._exported(tensor, name)
            for tensor in self._checkpoint.file.tensors
            if tensor.name not in self._in_joined
            and (name := self.parameter(tensor.name)) is not None
        ]

    def _keys(self) -> list[Exported]:
        """Parameters that are keys of the file."""
        held = self._saved.numbers(self._checkpoint)
        return [
            Exported(name, values.shape, lambda values=values: values)  # type: ignore[misc]
            for name, values in held.items()
        ]

    def _exported(self, tensor: _core.TensorInfo, name: str) -> Exported:
        shape = self._parameter_shape(tensor.name, tuple(tensor.shape))
        return Exported(name, shape, lambda: self._values(tensor))

    def _put_together(self, parameter: Joined) -> Exported:
        def values() -> Floats:
            held = [self._values(self._tensors[p.tensor], p.place) for p in parameter.pieces]
            return parameter.values(held)

        return Exported(parameter.name, parameter.shape, values)

    def _parameter_shape(self, tensor: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._recipe.transposed(tensor):
            shape = shape[::-1]
        return self._recipe.parameter_shape(self._folder, tensor, shape)

    def _values(self, tensor: _core.TensorInfo, place: int | None = None) -> Floats:
        """Return the values of a tensor's parameter, or of one matrix of a stack."""
        held, shape = self._checkpoint.file.tensor_bytes(tensor.name), tuple(tensor.shape)
        if place is not None:
            held, shape = held.reshape(shape[0], -1)[place], shape[1:]
        return self._undone(tensor.name, _core.decode(tensor.quant_type, held).reshape(shape))

    def _undone(self, tensor: str, values: Floats) -> Floats:
        """Undo what ``convert`` does to a parameter's values, from the last step to the first."""
        recipe, folder = self._recipe, self._folder
        if (offset := recipe.offset(tensor)) != 0.0:
            values = values - np.float32(offset)
        values = recipe.parameter_values(folder, tensor, values)
        if (columns := recipe.column_order(folder, tensor)) is not None:
            values = values[:, np.argsort(columns)]
        if (rows := recipe.row_order(folder, tensor)) is not None:
            values = values[np.argsort(rows)]
        values = values.T if recipe.transposed(tensor) else values
        return np.ascontiguousarray(
            values.reshape(recipe.parameter_shape(folder, tensor, values.shape))
        )


def _as_read(value: Any, kind: str) -> Any:
    """Return a value as it comes back from a file."""
    if kind == "f32":
        return float(np.float32(value))
    if kind == "arr[f32]":
        return np.array(value, np.float32)
    return np.array(value) if kind in ("arr[i32]", "arr[u32]") else value
