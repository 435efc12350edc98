"""What a builder records, and the plan made of it: fused operations, buffers used again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import RequestError

Vector = npt.NDArray[np.float32]


@dataclass(eq=False)
class Value:
    """A row-wise result: ``width`` float32 values, or int8 groups of 32, for each row of a batch."""

    width: int
    quantized: bool = False


@dataclass
class Recorded:
    """One operation as the builder was asked for it."""

    kind: _core.OpKind
    inputs: list[Value]
    outputs: list[Value]
    weights: list[_core.Weight] = field(default_factory=list)
    vectors: list[Vector | None] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recording:
    """A forward pass, ready to run."""

    ops: list[_core.Op]
    slots: list[tuple[int, bool]]
    matrices: list[_core.Weight]  # of all linear layers, each once

    def program(self, pool: _core.ThreadPool, tier: str = "") -> _core.Program:
        """Checks every shape and hands the pass to the executor, for the best tier or a named one."""
        return _core.Program(self.ops, self.slots, pool, tier)


_FUSED_WITH_ROUNDING = (
    _core.OpKind.rms_norm,
    _core.OpKind.layer_norm,
    _core.OpKind.swiglu,
    _core.OpKind.geglu,
    _core.OpKind.gelu,
    _core.OpKind.hadamard,
)


def fuse_rounding(ops: list[Recorded]) -> list[Recorded]:
    """Lets a norm or activation write int8 directly where its float result has no other reader."""
    readers: dict[Value, int] = {}
    maker: dict[Value, Recorded] = {}
    for op in ops:
        for v in op.inputs:
            readers[v] = readers.get(v, 0) + 1
        for v in op.outputs:
            maker[v] = op
    kept = []
    for op in ops:
        if op.kind == _core.OpKind.quantize:
            source = maker[op.inputs[0]]
            if source.kind in _FUSED_WITH_ROUNDING and readers[op.inputs[0]] == 1:
                source.outputs = op.outputs
                source.options["quantized"] = True
                continue
        kept.append(op)
    return kept


def plan_slots(ops: list[Recorded]) -> tuple[list[tuple[int, bool]], dict[Value, int]]:
    """Gives every value a buffer; one is used again once its last reader is done."""
    last_use: dict[Value, int] = {}
    for i, op in enumerate(ops):
        for v in (*op.inputs, *op.outputs):
            last_use[v] = i
    slots: list[tuple[int, bool]] = []
    free: list[int] = []
    slot_of: dict[Value, int] = {}
    result = ops[-1].outputs[0]
    for i, op in enumerate(ops):
        for v in op.outputs:
            kind = (v.width, v.quantized)
            match = next((s for s in free if slots[s] == kind and v is not result), None)
            if match is None:
                slots.append(kind)
                match = len(slots) - 1
            else:
                free.remove(match)
            slot_of[v] = match
        for v in {*op.inputs, *op.outputs}:
            if v not in slot_of:
                raise RequestError("an operation reads a value that no operation has made")
            if last_use[v] == i:
                free.append(slot_of[v])
    return slots, slot_of


def plan(ops: list[Recorded]) -> Recording:
    """The operations with their values' buffers."""
    slots, slot_of = plan_slots(ops)
    flat = [
        _core.Op(
            op.kind,
            [slot_of[v] for v in op.inputs],
            [slot_of[v] for v in op.outputs],
            op.weights,
            op.vectors,
            **op.options,
        )
        for op in ops
    ]
    linear = [op for op in ops if op.kind == _core.OpKind.linear]
    return Recording(flat, slots, list(dict.fromkeys(w for op in linear for w in op.weights)))
