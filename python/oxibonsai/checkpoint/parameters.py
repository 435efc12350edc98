"""A model's parameters, put together from the tensors that a checkpoint stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai.checkpoint.float_types import BITS, EIGHT_BIT, PLAIN, Floats, widened
from oxibonsai.checkpoint.packs.affine import AffineParameter, affine_parameter
from oxibonsai.checkpoint.packs.bitnet import bitnet_parameter
from oxibonsai.checkpoint.packs.compressed_schemes import METHOD, Schemes
from oxibonsai.checkpoint.packs.compressed_tensors import compressed_parameters
from oxibonsai.checkpoint.packs.mxfp4 import mxfp4_parameter
from oxibonsai.checkpoint.packs.zero_points import ZeroPointParameter, zero_point_parameter
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError, UnsupportedError


class Parameter(Protocol):
    """One parameter of a model, whatever tensors it is stored in."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Slowest dimension first."""

    @property
    def exact_type(self) -> str:
        """The type of GGUF, by ``convert``'s names, that holds it without loss."""

    def values(self) -> Floats:
        """Return all of it as float32."""


def sources_of(held: object) -> Iterator[StoredTensor]:
    """Yield the stored tensors that a parameter, or what is made of several, consists of."""
    if isinstance(held, StoredTensor):
        yield held
    elif dataclasses.is_dataclass(held):
        for field in dataclasses.fields(held):
            yield from sources_of(getattr(held, field.name))
    elif isinstance(held, list | tuple):
        for part in held:
            yield from sources_of(part)


@dataclass(frozen=True)
class FloatParameter:
    """A tensor of plain floats."""

    stored: StoredTensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's."""
        return self.stored.shape

    @property
    def exact_type(self) -> str:
        """The tensor's own."""
        if self.stored.dtype not in PLAIN:
            return "f32"
        return PLAIN[self.stored.dtype]

    def values(self) -> Floats:
        """Return the tensor, widened."""
        return widened(self.stored)

    def bits(self) -> npt.NDArray[np.unsignedinteger]:
        """Return the tensor as it is stored, each number as an integer of its size."""
        return self.stored.read(BITS[self.exact_type])


@dataclass(frozen=True)
class ScaledParameter:
    """Eight-bit floats with a scale for all, for each row or for each block."""

    stored: StoredTensor
    scale: StoredTensor
    block: tuple[int, int]  # rows and columns that share a scale

    exact_type = "f32"

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's."""
        return self.stored.shape

    def values(self) -> Floats:
        """Return products in float32, as a dequantizing forward pass has them."""
        scales = widened(self.scale).reshape(-1)
        if not np.isfinite(scales).all():
            raise FormatError(f"{self.scale.path}: {self.scale.name} is not finite")
        rows, cols = self.shape
        block_rows, block_cols = self.block
        across = -(-cols // block_cols)
        each = scales.reshape(-1, across)
        each = each.repeat(block_rows, axis=0)[:rows].repeat(block_cols, axis=1)[:, :cols]
        with np.errstate(over="ignore", invalid="ignore"):  # refused by their tensor
            found: Floats = widened(self.stored) * each
        return found


__all__ = ["AffineParameter", "Parameter", "ZeroPointParameter", "put_together"]

# What a scale of `NAME.weight` is called after `NAME.`; scales of activations are not ours: these
# are rounded as the type of the weights says.
_SCALES = ("weight_scale_inv", "weight_scale")
_ACTIVATION_SCALES = ("input_scale", "activation_scale")


def put_together(
    tensors: dict[str, StoredTensor], quantization: dict[str, Any]
) -> dict[str, Parameter]:
    """Return the parameters of a checkpoint's tensors, in the order of names.

    Args:
        tensors: By name.
        quantization: ``quantization`` (MLX) or ``quantization_config`` of ``config.json``.

    Raises:
        FormatError: A packed tensor has no scales, or scales of another shape.
        UnsupportedError: A tensor has a type that is not known.
    """
    found: dict[str, Parameter] = {}
    used: set[str] = set()
    if quantization.get("quant_method") == METHOD and tensors:
        where = str(next(iter(tensors.values())).path.parent / "config.json")
        compressed, used = compressed_parameters(tensors, Schemes(quantization, where))
        found |= compressed
    for name, stored in sorted(tensors.items()):
        if name in used:
            continue
        if stored.dtype == "U32" and name.endswith(".weight"):
            found[name] = packed = affine_parameter(name, tensors, quantization)
            used |= {packed.scales.name, packed.biases.name}
        if name.endswith("_blocks") and (scales := tensors.get(f"{name[:-7]}_scales")) is not None:
            found[name] = mxfp4_parameter(stored, scales)
            used |= {name, scales.name}
        if name.endswith(".qweight"):
            module = name.removesuffix(".qweight")
            found[f"{module}.weight"] = zero_point_parameter(module, tensors, quantization)
            used |= {f"{module}.{part}" for part in ("qweight", "qzeros", "scales", "g_idx")}
        if stored.dtype == "U8" and name.endswith(".weight"):
            scale_name = f"{name}_scale"
            found[name] = bitnet_parameter(stored, tensors.get(scale_name), quantization)
            used.add(scale_name)
        if stored.dtype not in EIGHT_BIT or not name.endswith(".weight"):
            continue
        module = name.removesuffix(".weight")
        scale = next((tensors[s] for k in _SCALES if (s := f"{module}.{k}") in tensors), None)
        if scale is None:
            raise FormatError(f"{stored.path}: {name} is {stored.dtype} but has no weight_scale")
        found[name] = ScaledParameter(stored, scale, _block(stored, scale, quantization))
        used |= {scale.name, *(f"{module}.{k}" for k in _ACTIVATION_SCALES)}
    for name, stored in sorted(tensors.items()):
        if name in used or name in found or stored.dtype == "I64":  # positions: no weights
            continue
        if stored.dtype not in PLAIN:
            raise UnsupportedError(
                f"{stored.path}: parameter {name} is of type {stored.dtype}; convert knows "
                + ", ".join([*PLAIN, *EIGHT_BIT])
            )
        found[name] = FloatParameter(stored)
    return dict(sorted(found.items()))


def _block(
    stored: StoredTensor, scale: StoredTensor, quantization: dict[str, Any]
) -> tuple[int, int]:
    """Return the rows and columns that share a scale, from its shape and the configuration."""
    if len(stored.shape) != 2 or 0 in stored.shape:
        raise FormatError(f"{stored.path}: {stored.name} of shape {stored.shape} is no matrix")
    rows, cols = stored.shape
    if int(np.prod(scale.shape)) == 1:
        return rows, cols
    if scale.shape in ((rows,), (rows, 1)):
        return 1, cols
    size: Any = quantization.get("weight_block_size")
    pair = isinstance(size, list) and len(size) == 2 and all(type(n) is int and n > 0 for n in size)
    if pair and scale.shape == (-(-rows // size[0]), -(-cols // size[1])):
        return size[0], size[1]
    raise FormatError(
        f"{scale.path}: {scale.name} has shape {scale.shape}, which scales neither all of a matrix "
        f"{stored.shape}, nor its rows, nor blocks of weight_block_size ({size!r})"
    )
