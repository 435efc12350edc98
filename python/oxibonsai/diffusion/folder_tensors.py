"""The tensors of a network in a folder of safetensors: floats, or packs of MLX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.convert.affine import AffineParameter
from oxibonsai.convert.affine_blocks import encode_affine
from oxibonsai.convert.parameters import FloatParameter, Parameter, put_together
from oxibonsai.convert.safetensors_file import StoredTensor, read_header
from oxibonsai.diffusion.mapped_bytes import MappedBytes
from oxibonsai.errors import FormatError

_STEMS = ("diffusion_pytorch_model", "model")  # as diffusers and transformers name their files
_PLAIN = ("F32", "F16", "BF16")
_MOST_JSON_BYTES = 1 << 24

Floats = npt.NDArray[np.float32]


def read_json(path: Path) -> dict[str, Any]:
    """Return an object that a file holds; FormatError where it holds something else."""
    try:
        if path.stat().st_size > _MOST_JSON_BYTES:
            raise FormatError(f"{path} is too large for a configuration")
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as e:
        raise FormatError(f"{path} is missing") from e
    except (OSError, ValueError, RecursionError) as e:
        raise FormatError(f"cannot read {path}: {e}") from e
    if not isinstance(value, dict):
        raise FormatError(f"{path} is no JSON object")
    return value


class FolderTensors:
    """Tensors of one network, by diffusers' names.

    Floats stay in the file, which is mapped. Codes of MLX become the blocks of GGUF that mean the same,
    or float32 where there are none, in a file without a name.

    Args:
        source: A folder as diffusers saves a network, or one safetensors file.

    Raises:
        FormatError: Something is missing or damaged; it is named.
        UnsupportedError: A tensor has a type that is not known.
    """

    def __init__(self, source: Path) -> None:
        self.path = str(source)
        folder = source if source.is_dir() else source.parent
        stored = _stored(source) if source.is_dir() else read_header(source)
        quantization = _quantization(folder)
        self._parameters = put_together(stored, quantization)
        self._channels_last = _channels_last(self._parameters)
        self._bytes = MappedBytes()

    @property
    def names(self) -> set[str]:
        """Return the names of all tensors."""
        return set(self._parameters)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, slowest dimension first; of a convolution [out, in, height, width]."""
        shape = self._parameters[name].shape
        if self._channels_last and len(shape) == 4:
            return shape[0], shape[3], shape[1], shape[2]
        return shape

    def matrix(self, name: str) -> _core.Weight:
        """Return a matrix in its stored form; FormatError for values that are not finite."""
        held = self._parameters[name]
        kind, data = self._blocks(held)
        weight = _core.Weight.from_blocks(
            name, kind, data.reshape(held.shape[0], -1), held.shape[1]
        )
        return require_finite(weight, self.path)

    def stored(self, name: str) -> tuple[str, npt.NDArray[np.uint8]]:
        """Return a tensor of any shape as a type of the core and its bytes."""
        held = self._parameters[name]
        if self._channels_last and len(held.shape) == 4:
            return "F32", self.array(name).view(np.uint8)
        return self._blocks(held)

    def release(self) -> None:
        """Take the weights out of memory, once they are packed for a device."""
        self._bytes.release()

    def _blocks(self, held: Parameter) -> tuple[str, npt.NDArray[np.uint8]]:
        """Return a matrix as a type of the core and its bytes."""
        if isinstance(held, FloatParameter) and held.stored.dtype in _PLAIN:
            stored = held.stored
            return stored.dtype, self._bytes.part(stored.path, stored.first, stored.last)
        packed = _packed(held) if isinstance(held, AffineParameter) else None
        if packed is None:
            packed = "F32", np.ascontiguousarray(held.values(), np.float32).view(np.uint8)
        return packed[0], self._bytes.keep(packed[1])

    def array(self, name: str) -> Floats:
        """Return a tensor of any shape as float32."""
        values = self._parameters[name].values()
        if self._channels_last and values.ndim == 4:
            values = values.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(values, np.float32)


def _stored(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of the one file of a folder, or of those that its index names."""
    for stem in _STEMS:
        if (index := folder / f"{stem}.safetensors.index.json").is_file():
            return _sharded(folder, index)
        if (plain := folder / f"{stem}.safetensors").is_file():
            return read_header(plain)
    raise FormatError(f"{folder} has no {_STEMS[0]}.safetensors and no {_STEMS[1]}.safetensors")


def _sharded(folder: Path, index: Path) -> dict[str, StoredTensor]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(f"{index} has no weight_map")
    found: dict[str, StoredTensor] = {}
    for name in sorted({str(n) for n in weight_map.values()}):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise FormatError(f"{index} names {name!r}, no file of the folder")
        for tensor, stored in read_header(folder / name).items():
            if weight_map.get(tensor) != name:
                raise FormatError(
                    f"{folder / name} holds {tensor}, which {index.name} puts elsewhere"
                )
            found[tensor] = stored
    if missing := sorted(set(weight_map) - set(found)):
        raise FormatError(f"{folder} lacks the tensor {missing[0]}, which {index.name} names")
    return found


def _quantization(folder: Path) -> dict[str, Any]:
    """Bits and group of packed matrices, from the configuration or the file beside it."""
    own = folder / "quantization_config.json"
    if own.is_file():
        found = read_json(own)
        for key in ("quantization", "quantization_config"):
            if isinstance(found.get(key), dict):
                found = found[key]
        return found
    config = folder / "config.json"
    if config.is_file():
        for key in ("quantization", "quantization_config"):
            found = read_json(config).get(key)  # type: ignore[assignment]
            if isinstance(found, dict):
                return found
    return {}


def _channels_last(parameters: dict[str, Parameter]) -> bool:
    """Whether convolutions are [out, height, width, in], as MLX keeps them.

    Seen by those of kernels of 3 x 3 whose other two dimensions are none of 3.
    """
    shapes = [p.shape for p in parameters.values() if len(p.shape) == 4]
    last = {
        s[1:3] == (3, 3) for s in shapes if 3 in s[1:] and (s[1:3] == (3, 3)) != (s[2:] == (3, 3))
    }
    if len(last) > 1:
        raise FormatError("some convolutions have their channels last, others do not")
    return last == {True}


def require_finite(weight: _core.Weight, path: str) -> _core.Weight:
    """Return the weight; FormatError where a value or a scale is not finite."""
    if weight.inspect()["not_finite"]:
        raise FormatError(f"{path}: {weight.name} holds values that are not finite")
    return weight


def _packed(held: AffineParameter) -> tuple[str, npt.NDArray[np.uint8]] | None:
    """Blocks of GGUF that decode to the very same values, and their type; None: there are none."""
    where = f"{held.stored.path}: {held.stored.name}"
    scales, biases = held.affine()
    rows, groups = scales.shape
    codes = held.stored.read("<u4").view(np.uint8).reshape(rows, groups, -1)
    if held.group == 128 and held.bits == 2:
        if not (biases == -scales).all():
            return None
        if (codes & (codes >> np.uint8(1)) & np.uint8(0x55)).any():
            raise FormatError(f"{where} holds the code 3, which is no ternary weight")
        return _with_scales("TQ2_0_g128", codes, scales, scale_first=False)
    if held.group == 128 and held.bits == 1:
        if not (biases * np.float32(-2) == scales).all():
            return None
        return _with_scales("Q1_0", codes, -biases, scale_first=True)
    if held.group % 32 == 0 and held.bits in (4, 8):
        kind = held.exact_type
        try:
            blocks = encode_affine(held.codes(), scales, biases, kind, where)
        except FormatError:  # constants that float16 lacks
            return None
        return kind.upper(), blocks
    return None


def _with_scales(
    kind: str, codes: npt.NDArray[np.uint8], scales: Floats, *, scale_first: bool
) -> tuple[str, npt.NDArray[np.uint8]] | None:
    """Codes of groups with float16 scales; None where a scale is no float16."""
    with np.errstate(over="ignore"):
        halves = scales.astype("<f2")
    if not (halves == scales).all():
        return None
    scale_bytes = halves.view(np.uint8).reshape(*scales.shape, 2)
    parts = [scale_bytes, codes] if scale_first else [codes, scale_bytes]
    return kind, np.concatenate(parts, axis=2).reshape(-1)
