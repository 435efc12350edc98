"""The parameters of a Qwen3 in an ONNX graph: packed and float products, the token table, norms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from oxibonsai.checkpoint.float_types import PLAIN, Floats, widened
from oxibonsai.checkpoint.onnx_file import OnnxFile
from oxibonsai.checkpoint.onnx_names import norm_parameter, product_parameter, table_parameter
from oxibonsai.checkpoint.packs.block_codes import block_parameter
from oxibonsai.checkpoint.parameters import FloatParameter, Parameter
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True)
class TransposedParameter:
    """A matrix of plain floats that is stored the other way round, [in, out]."""

    stored: StoredTensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the matrix's shape, [out, in]."""
        return self.stored.shape[::-1]

    @property
    def exact_type(self) -> str:
        """The tensor's own."""
        return PLAIN[self.stored.dtype]

    def values(self) -> Floats:
        """Return the tensor, widened and turned."""
        return np.ascontiguousarray(widened(self.stored).T)


def onnx_parameters(path: Path, layers: int, *, tied: bool) -> dict[str, Parameter]:
    """Return the parameters by Hugging Face's names, in the order of names.

    Args:
        path: The ONNX file.
        layers: Of the model.
        tied: Whether the token table is the output matrix too: a head that reads it is left out.

    Raises:
        FormatError: The file is damaged, or parts of a matrix do not fit together.
        UnsupportedError: A layer's product is none of those known, or stored in another way.
    """
    return _Reader(OnnxFile(path), layers, tied).read()


class _Reader:
    def __init__(self, file: OnnxFile, layers: int, tied: bool) -> None:
        self._file = file
        self._layers = layers
        self._tied = tied
        self._found: dict[str, Parameter] = {}
        self._source: dict[str, str] = {}  # tensor behind each parameter

    def read(self) -> dict[str, Parameter]:
        for node in self._file.nodes:
            if node.op_type in ("Gather", "GatherBlockQuantized"):
                self._table(node)
        for node in self._file.nodes:
            if node.op_type == "MatMulNBits":
                self._packed_product(node)
            elif node.op_type == "MatMul":
                self._product(node)
        for name in self._file.tensor_names:
            if (parameter := norm_parameter(name, self._layers)) is not None:
                self._add(parameter, name, FloatParameter(self._floats(name, 1)))
        return dict(sorted(self._found.items()))

    def _add(self, parameter: str, tensor: str, held: Parameter) -> None:
        """Add a parameter once: branches of a merged graph may read a tensor more than once."""
        if (other := self._source.setdefault(parameter, tensor)) != tensor:
            raise FormatError(
                f"{self._file.path} has two tensors for {parameter}: {other} and {tensor}"
            )
        self._found[parameter] = held

    def _table(self, node: NodeProto) -> None:
        name = node.input[0] if node.input else ""
        parameter = table_parameter(node.name, name)
        if parameter is None or not self._file.has(name):
            return
        if node.op_type == "Gather":
            return self._add(parameter, name, FloatParameter(self._floats(name, 2)))
        axes = {"gather_axis": 0, "quantize_axis": 1, "block_size": 128} | _integers(node)
        stored, scales = self._file.tensor(name), self._input(node, 2)
        if scales is None or len(stored.shape) != 2 or len(scales.shape) != 2:
            raise FormatError(f"{self._where(node)} has no scales, or is no table")
        if (axes["gather_axis"], axes["quantize_axis"] % 2) != (0, 1):
            raise UnsupportedError(f"{self._where(node)} packs columns of the table, not rows")
        cols = scales.shape[1] * axes["block_size"]
        bits = stored.shape[1] * 8 // cols if cols > 0 else 0
        held = block_parameter(
            stored, scales, self._input(node, 3), (stored.shape[0], cols), bits, axes["block_size"]
        )
        return self._add(parameter, name, held)

    def _packed_product(self, node: NodeProto) -> None:
        name, parameter = self._product_parameter(node)
        if parameter is None or self._is_table(parameter, name):
            return
        facts = {"N": 0, "K": 0, "bits": 4, "block_size": 0, "weight_prepacked": 0}
        facts |= _integers(node)
        scales = self._input(node, 2)
        if scales is None:
            raise FormatError(f"{self._where(node)} has no scales")
        if facts["weight_prepacked"] != 0 or _given(node, 4):
            raise UnsupportedError(
                f"{self._where(node)} has its columns in another order (g_idx or weight_prepacked)"
            )
        shape = (facts["N"], facts["K"])
        stored, zeros = self._file.tensor(name), self._input(node, 3)
        held = block_parameter(stored, scales, zeros, shape, facts["bits"], facts["block_size"])
        self._add(parameter, name, held)
        if _given(node, 5):
            bias = FloatParameter(self._floats(node.input[5], 1))
            self._add(parameter.replace(".weight", ".bias"), node.input[5], bias)

    def _product(self, node: NodeProto) -> None:
        name, parameter = self._product_parameter(node)
        if parameter is None or self._is_table(parameter, name):
            return
        stored = self._floats(name, 2)
        _, turned = self._file.origin(node.input[1]) or ("", False)
        held = FloatParameter(stored) if turned else TransposedParameter(stored)
        self._add(parameter, name, held)

    def _product_parameter(self, node: NodeProto) -> tuple[str, str | None]:
        """Return the tensor behind a product's second factor, and the parameter that it is."""
        value = node.input[1] if len(node.input) > 1 else ""
        origin = self._file.origin(value)
        parameter = product_parameter(node.name, *([origin[0]] if origin else []))
        packed = node.op_type == "MatMulNBits"
        if parameter is None and (packed or (origin is not None and "layers" in node.name)):
            raise UnsupportedError(f"{self._where(node)} is none of Qwen3's products")
        if parameter is not None and origin is None:
            raise UnsupportedError(
                f"{self._where(node)} computes its weights in the graph; convert knows MatMulNBits and "
                "floats: export without QDQ"
            )
        return (origin[0] if origin else "", parameter)

    def _is_table(self, parameter: str, tensor: str) -> bool:
        head = parameter == "lm_head.weight"
        return head and self._tied and self._source.get("model.embed_tokens.weight") == tensor

    def _input(self, node: NodeProto, index: int) -> StoredTensor | None:
        """Return an input that may be left out."""
        if not _given(node, index):
            return None
        origin = self._file.origin(node.input[index])
        if origin is None or origin[1]:
            raise UnsupportedError(f"{self._where(node)} computes {node.input[index]} in the graph")
        return self._file.tensor(origin[0])

    def _floats(self, name: str, dimensions: int) -> StoredTensor:
        if not self._file.has(name):
            raise UnsupportedError(f"{self._file.path} computes {name} in the graph")
        stored = self._file.tensor(name)
        if stored.dtype not in PLAIN or len(stored.shape) != dimensions:
            raise FormatError(
                f"{self._file.path}: {name} is {stored.dtype} {stored.shape}, not floats of "
                f"{dimensions} dimensions"
            )
        return stored

    def _where(self, node: NodeProto) -> str:
        return f"{self._file.path}: the {node.op_type} {node.name or node.output[:1]}"


def _given(node: NodeProto, index: int) -> bool:
    """Return whether an input that may be left out is there."""
    return len(node.input) > index and bool(node.input[index])


def _integers(node: NodeProto) -> dict[str, int]:
    return {a.name: a.i for a in node.attribute if a.HasField("i")}
