"""The tensors of a network that draws, by diffusers' names: in a GGUF file or in a folder."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.float_types import Bytes, Floats
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.lazy_model import LazyModel
from oxibonsai.checkpoint.packs.affine import AffineParameter
from oxibonsai.checkpoint.packs.affine_blocks import same_values_blocks, same_values_type
from oxibonsai.checkpoint.parameters import FloatParameter, Parameter, put_together, sources_of
from oxibonsai.checkpoint.safetensors_file import read_header
from oxibonsai.convert.plan import Planned
from oxibonsai.diffusion.network import Network
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.quantize.blocks import Loss
from oxibonsai.quantize.weight_types import type_named

_STEM = "diffusion_pytorch_model"  # as diffusers names its files
# Before the name of a tensor whose shape GGUF could not hold, or whose rows were no whole blocks: city96's
# key of the shape that it had, slowest dimension first.
_SHAPE_KEY = "comfy.gguf.orig_shape."
_NUMBER_BYTES = 4  # of the largest number that a stored block has


class NetworkTensors:
    """Tensors of a checkpoint whose names begin with a prefix.

    Args:
        checkpoint: The file or folder.
        prefix: Of the tensors' names there; left out here.
        others: Prefixes of tensors that belong to other networks.
        complete_names: Add the ``.weight`` that OxiBonsai's files leave away from packed matrices.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str = "",
        others: tuple[str, ...] = (),
        *,
        complete_names: bool = True,
    ) -> None:
        self._checkpoint = checkpoint
        self._stored: dict[str, str] = {}
        for name in checkpoint.tensor_names:
            if name.startswith(prefix) and not (others and name.startswith(others)):
                own = name.removeprefix(prefix)
                self._stored[_with_suffix(own) if complete_names else own] = name

    @property
    def path(self) -> str:
        """The file or folder."""
        return str(self._checkpoint.path)

    @property
    def names(self) -> set[str]:
        """Return the names of all tensors."""
        return set(self._stored)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, slowest dimension first."""
        stored = self._checkpoint.shape(self._stored[name])
        given = self._checkpoint.file.get(_SHAPE_KEY + self._stored[name])
        if given is None:
            return stored
        shape = tuple(given.tolist()) if isinstance(given, np.ndarray) else ()
        if not shape or any(type(n) is not int or n < 1 for n in shape):
            raise FormatError(f"{self.path}: {_SHAPE_KEY}{self._stored[name]} is no shape")
        if math.prod(shape) != math.prod(stored):
            raise FormatError(
                f"{self.path}: {name} has {math.prod(stored)} values, but the shape {shape} by its key"
            )
        return shape

    def matrix(self, name: str) -> _core.Weight:
        """Return a matrix in its stored form; FormatError for values that are not finite."""
        stored = self._stored[name]
        if stored == name and self._checkpoint.file.get(_SHAPE_KEY + stored) is None:
            weight = self._checkpoint.weight(stored)
            _check_finite(self.path, weight)
            return weight
        return checked_matrix(
            self.path, name, self.quant_type(name), self.stored(name), self.shape(name)
        )

    def quant_type(self, name: str) -> str:
        """Return the type that a tensor is stored in; F32 where its rows are no whole blocks."""
        kind = self._checkpoint.file.tensor(self._stored[name]).quant_type
        return kind if self._has_whole_blocks(name, kind) else "F32"

    def stored(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the stored bytes of a tensor of any shape."""
        kind = self._checkpoint.file.tensor(self._stored[name]).quant_type
        if not self._has_whole_blocks(name, kind):
            return self.array(name).reshape(-1).view(np.uint8)
        return self._checkpoint.file.tensor_bytes(self._stored[name])

    def _has_whole_blocks(self, name: str, kind: str) -> bool:
        """Return whether a row of the tensor's own shape is whole blocks, which the file's rows are."""
        if self._checkpoint.file.get(_SHAPE_KEY + self._stored[name]) is None:
            return True
        return self.shape(name)[-1] % type_named(kind).group == 0

    def release(self) -> None:
        """Take the weights out of memory, once they are packed for a device."""
        for stored in self._stored.values():
            self._checkpoint.file.release(stored)

    def array(self, name: str) -> Floats:
        """Return a tensor of any shape as float32."""
        info = self._checkpoint.file.tensor(self._stored[name])
        if not info.decodable:
            raise UnsupportedError(f"{self.path}: tensor {info.name} has type {info.quant_type}")
        values = _core.decode(info.quant_type, self._checkpoint.file.tensor_bytes(info.name))
        self._checkpoint.file.check_unchanged()
        return values.reshape(self.shape(name))


def checked_matrix(
    path: str, name: str, quant_type: str, stored: npt.NDArray[np.uint8], shape: tuple[int, ...]
) -> _core.Weight:
    """Return a matrix of stored bytes under the name that it has in its network.

    Args:
        path: Errors name it.
        name: The matrix's.
        quant_type: Of the bytes.
        stored: Its blocks, row after row.
        shape: Rows and columns.

    Raises:
        FormatError: A value is not finite.
    """
    blocks = stored.reshape(shape[0], -1)
    if blocks.ctypes.data % _NUMBER_BYTES:  # in a file that does not align its tensors
        blocks = blocks.copy()
    weight = _core.Weight.from_blocks(name, quant_type, blocks, shape[1])
    _check_finite(path, weight)
    return weight


def _check_finite(path: str, weight: _core.Weight) -> None:
    if weight.inspect()["not_finite"]:
        raise FormatError(f"{path}: {weight.name} holds values that are not finite")


def _with_suffix(name: str) -> str:
    if name.endswith((".weight", ".bias", ".running_mean", ".running_var", ".num_batches_tracked")):
        return name
    return f"{name}.weight"


def network_of_folder(path: Path) -> Network:
    """Return a network as diffusers, MLX or PrismML lay it out.

    Floats stay in the file, which is mapped. Codes of MLX become the blocks of GGUF that mean the same,
    or float32 where there are none.

    Args:
        path: A folder with ``config.json`` and safetensors, or the file in such a folder.

    Raises:
        FormatError: Something is missing or damaged; it is named.
        UnsupportedError: A tensor has a type that is not known.
    """
    folder = ModelFolder(path, _STEM)
    return Network(folder.config, NetworkTensors(_lazy(path, folder.parameters)))


def tensors_of_file(path: Path) -> NetworkTensors:
    """Return the tensors of one file of safetensors, which nothing beside it describes.

    Raises:
        FormatError, UnsupportedError: As of :func:`network_of_folder`.
    """
    parameters = put_together(read_header(path), {})
    return NetworkTensors(_lazy(path, parameters), complete_names=False)


def _lazy(path: Path, parameters: dict[str, Parameter]) -> Checkpoint:
    turned = _channels_last(parameters)
    planned = [
        _convolution(name, held) if turned and len(held.shape) == 4 else _planned(name, held)
        for name, held in parameters.items()
    ]
    return Checkpoint(path, reader=LazyModel(path, {}, planned))


def _planned(name: str, held: Parameter) -> Planned:
    """Return a tensor in the type that holds it without loss."""
    as_stored = isinstance(held, FloatParameter)
    kind = same_values_type(held) if isinstance(held, AffineParameter) else held.exact_type

    def encode() -> tuple[Bytes, Loss]:
        if as_stored:
            return next(sources_of(held)).raw(), Loss()
        if isinstance(held, AffineParameter) and kind != "f32":
            return same_values_blocks(held, kind), Loss()
        return np.ascontiguousarray(held.values(), np.float32).reshape(-1).view(np.uint8), Loss()

    return Planned(name, held.shape, type_named(kind), encode, tuple(sources_of(held)), as_stored)


def _convolution(name: str, held: Parameter) -> Planned:
    """Return a convolution whose channels are last as [out, in, height, width]."""
    out, height, width, channels = held.shape

    def encode() -> tuple[Bytes, Loss]:
        values = np.ascontiguousarray(held.values().transpose(0, 3, 1, 2), np.float32)
        return values.reshape(-1).view(np.uint8), Loss()

    shape = (out, channels, height, width)
    return Planned(name, shape, type_named("f32"), encode, tuple(sources_of(held)))


def _channels_last(parameters: dict[str, Parameter]) -> bool:
    """Return whether convolutions are [out, height, width, in], as MLX keeps them.

    Seen by those of kernels of 3 x 3 whose other two dimensions are none of 3.
    """
    shapes = [p.shape for p in parameters.values() if len(p.shape) == 4]
    last = {
        s[1:3] == (3, 3) for s in shapes if 3 in s[1:] and (s[1:3] == (3, 3)) != (s[2:] == (3, 3))
    }
    if len(last) > 1:
        raise FormatError("some convolutions have their channels last, others do not")
    return last == {True}
