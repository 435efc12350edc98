"""The tensors of a network that draws, by diffusers' names: in a GGUF file or in a folder."""

from __future__ import annotations

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
from oxibonsai.checkpoint.parameters import FloatParameter, Parameter, sources_of
from oxibonsai.convert.plan import Planned
from oxibonsai.diffusion.network import Network
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.quantize.blocks import Loss
from oxibonsai.quantize.weight_types import type_named

_STEM = "diffusion_pytorch_model"  # as diffusers names its files


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
        return self._checkpoint.shape(self._stored[name])

    def matrix(self, name: str) -> _core.Weight:
        """Return a matrix in its stored form; FormatError for values that are not finite."""
        weight = self._checkpoint.weight(self._stored[name])
        if weight.inspect()["not_finite"]:
            raise FormatError(f"{self.path}: {name} holds values that are not finite")
        return weight

    def quant_type(self, name: str) -> str:
        """Return the type that a tensor is stored in."""
        return self._checkpoint.file.tensor(self._stored[name]).quant_type

    def stored(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the stored bytes of a tensor of any shape."""
        return self._checkpoint.file.tensor_bytes(self._stored[name])

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
        return values.reshape(info.shape)


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
    turned = _channels_last(folder.parameters)
    planned = [
        _convolution(name, held) if turned and len(held.shape) == 4 else _planned(name, held)
        for name, held in folder.parameters.items()
    ]
    reader = LazyModel(path, {}, planned)
    return Network(folder.config, NetworkTensors(Checkpoint(path, reader=reader)))


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
