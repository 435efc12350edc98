"""Records a forward pass, plans its buffers and hands it to the executor.

A model page calls the builder's operations once; no Python runs between two operations of a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oxibonsai import _core
from oxibonsai.config import HadamardFold, RopeConfig
from oxibonsai.models.plan import Recorded, Recording, Value, Vector, fuse_rounding, plan


class Builder:
    """The operations that a model page is made of; every method returns new values.

    Args:
        fold: Of the model's weights: rows of a folded table and inputs of folded matrices are
            transformed, and no page knows.
    """

    def __init__(self, fold: HadamardFold | None = None) -> None:
        self._fold = fold
        self._ops: list[Recorded] = []
        self._rounded: dict[Value, Value] = {}
        self._folded: dict[Value, Value] = {}
        self._tables: dict[int, Value] = {}

    def _record(
        self,
        kind: _core.OpKind,
        inputs: list[Value],
        outputs: list[Value],
        weights: list[_core.Weight] | None = None,
        vectors: list[Vector | None] | None = None,
        **options: Any,
    ) -> None:
        self._ops.append(Recorded(kind, inputs, outputs, weights or [], vectors or [], options))

    def embed(self, weight: _core.Weight) -> Value:
        """Rows of the table for the batch's tokens: [n, hidden]."""
        out = Value(weight.cols)
        self._record(_core.OpKind.embed, [], [out], [weight])
        if self._fold is None or not self._fold.has_table(weight.name):
            return out
        return self.hadamard(out, self._fold.block, after=self._fold.signs_of(out.width))

    def positions(self, weight: _core.Weight) -> Value:
        """Rows of the table for the batch's positions: [n, hidden]."""
        out = Value(weight.cols)
        self._record(_core.OpKind.positions, [], [out], [weight])
        return out

    def rms_norm(self, x: Value, weight: Vector, eps: float) -> Value:
        """x / sqrt(mean(x^2) + eps) * weight over each row."""
        out = Value(x.width)
        self._record(_core.OpKind.rms_norm, [x], [out], vectors=[weight], eps=eps)
        return out

    def layer_norm(self, x: Value, weight: Vector, bias: Vector | None, eps: float) -> Value:
        """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over each row."""
        out = Value(x.width)
        self._record(_core.OpKind.layer_norm, [x], [out], vectors=[weight, bias], eps=eps)
        return out

    def head_norm(self, x: Value, weight: Vector, eps: float) -> Value:
        """RMSNorm over each head of ``len(weight)`` values."""
        out = Value(x.width)
        heads = x.width // len(weight)
        self._record(_core.OpKind.rms_norm, [x], [out], vectors=[weight], eps=eps, groups=heads)
        return out

    def linear(
        self,
        x: Value,
        *weights: _core.Weight,
        bias: list[Vector | None] | None = None,
        add: Value | None = None,
    ) -> list[Value]:
        """x times each weight's transpose; quantized weights share one rounding of x.

        Args:
            x: [n, cols of every weight].
            weights: Matrices [rows, cols].
            bias: One vector or None for each weight.
            add: [n, rows], added to the result of a single weight.
        """
        outputs = []
        groups: dict[tuple[Value, bool], list[int]] = {}
        for i, weight in enumerate(weights):
            groups.setdefault((self._read_by(weight, x), weight.integer), []).append(i)
        for (source, integer), chosen in groups.items():
            source = self._round(source) if integer else source
            results = [Value(weights[i].rows) for i in chosen]
            self._record(
                _core.OpKind.linear,
                [source] if add is None else [source, add],
                results,
                [weights[i] for i in chosen],
                [] if bias is None else [bias[i] for i in chosen],
            )
            outputs += list(zip(chosen, results, strict=True))
        return [value for _, value in sorted(outputs, key=lambda pair: pair[0])]

    def rope(self, x: Value, config: RopeConfig, head_dim: int) -> Value:
        """Rotates every head by its position, in place."""
        table = self._table(config)
        self._record(
            _core.OpKind.rope,
            [x, table],
            [],
            groups=x.width // head_dim,
            head_dim=head_dim,
            interleaved=config.interleaved,
        )
        return x

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        *,
        layer: int,
        head_dim: int,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
        causal: bool = True,
    ) -> Value:
        """Attention over the cache of ``layer``, which takes k and v first.

        A query that is not causal sees every position up to the last of its sequence in the batch,
        so its text must come in one step.
        """
        out = Value(q.width)
        self._record(
            _core.OpKind.attention,
            [q, k, v],
            [out],
            layer=layer,
            heads=q.width // head_dim,
            kv_heads=k.width // head_dim,
            head_dim=head_dim,
            scale=scale,
            window=window,
            softcap=softcap,
            causal=causal,
        )
        return out

    def swiglu(self, gate: Value, up: Value) -> Value:
        """silu(gate) * up."""
        return self._pair(_core.OpKind.swiglu, gate, up)

    def geglu(self, gate: Value, up: Value) -> Value:
        """gelu(gate) * up, GELU in its tanh form."""
        return self._pair(_core.OpKind.geglu, gate, up)

    def gelu(self, x: Value) -> Value:
        """x (1 + erf(x / sqrt(2))) / 2."""
        out = Value(x.width)
        self._record(_core.OpKind.gelu, [x], [out])
        return out

    def add_vector(self, x: Value, vector: Vector) -> Value:
        """x + vector in each row."""
        out = Value(x.width)
        self._record(_core.OpKind.add, [x], [out], vectors=[vector])
        return out

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        return self._pair(_core.OpKind.add, a, b)

    def scale(self, x: Value, factor: float) -> Value:
        """x * factor."""
        out = Value(x.width)
        self._record(_core.OpKind.scale, [x], [out], scale=factor)
        return out

    def softcap(self, x: Value, cap: float) -> Value:
        """cap * tanh(x / cap)."""
        out = Value(x.width)
        self._record(_core.OpKind.softcap, [x], [out], softcap=cap)
        return out

    def hadamard(
        self, x: Value, block: int, before: Vector | None = None, after: Vector | None = None
    ) -> Value:
        """after * H(before * x), H the orthonormal Hadamard matrix over each block of a row."""
        out = Value(x.width)
        self._record(
            _core.OpKind.hadamard, [x], [out], vectors=[before, after], groups=x.width // block
        )
        return out

    def select_outputs(self, x: Value) -> Value:
        """Keeps the rows of the batch that want an output; the rest of the pass runs on these."""
        out = Value(x.width)
        self._record(_core.OpKind.select, [x], [out])
        return out

    def _pair(self, kind: _core.OpKind, a: Value, b: Value) -> Value:
        out = Value(a.width)
        self._record(kind, [a, b], [out])
        return out

    def _table(self, config: RopeConfig) -> Value:
        """cos and sin for every row, made once a step for all layers."""
        if id(config) not in self._tables:
            frequencies = np.array(config.frequencies(), dtype=np.float32)
            table = Value(2 * len(frequencies))
            self._record(
                _core.OpKind.rope_table,
                [],
                [table],
                vectors=[frequencies],
                scale=config.magnitude(),
            )
            self._tables[id(config)] = table
        return self._tables[id(config)]

    def _round(self, x: Value) -> Value:
        """x in int8 groups; fused into the operation that makes x, where nothing else reads it."""
        if x not in self._rounded:
            rounded = Value(x.width, quantized=True)
            self._record(_core.OpKind.quantize, [x], [rounded], quantized=True)
            self._rounded[x] = rounded
        return self._rounded[x]

    def _read_by(self, weight: _core.Weight, x: Value) -> Value:
        """What a matrix reads of x, before any rounding."""
        folded = self._fold is not None and self._fold.has_matrix(weight.name)
        return self._fold_input(x) if folded else x

    def _fold_input(self, x: Value) -> Value:
        """x as folded matrices want it, made once for all of them."""
        if x not in self._folded:
            assert self._fold is not None
            signs = self._fold.signs_of(x.width)
            self._folded[x] = self.hadamard(x, self._fold.block, before=signs)
        return self._folded[x]

    def finish(self) -> Recording:
        """Fuses and plans the buffers; the last operation is the result."""
        return plan(fuse_rounding(self._ops))
