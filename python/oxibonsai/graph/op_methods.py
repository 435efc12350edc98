"""The builder's methods that are an op and nothing more.

Written by tests/truth/make/make_op_methods.py from the fields that each op lists in csrc/graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from oxibonsai import _core

Vector = npt.NDArray[np.float32]
Value = _core.Value


class OpMethods:
    """Ops that a pass calls as they are; see the comments of their structs in csrc/graph.

    Attributes:
        graph: What has been described so far.
    """

    graph: _core.Graph

    def embed_positions(self, weight: _core.Weight) -> Value:
        """Return rows of the table for the batch's positions: [tokens, cols]."""
        return self.graph.embed_positions(weight)

    def insert_rows(self, x: Value, rows: Value, first: int = 0, added: bool = False) -> Value:
        """Return x with rows of an input in place of the tokens that stand for them: [tokens, cols].

        A token -1 - i stands for row i.

        Args:
            x: [tokens, cols].
            rows: An input with rows of its own.
            first: The first of its columns that are read.
            added: Add the rows to x instead.
        """
        return self.graph.insert_rows(x, rows, first, added)

    def select_outputs(self, x: Value) -> Value:
        """Return the rows of the batch that want an output: [outputs, cols]."""
        return self.graph.select_outputs(x)

    def layer_norm(
        self, x: Value, weight: Vector, bias: Vector | None, eps: float, groups: int = 1
    ) -> Value:
        """Return (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over each of ``groups`` parts of a row.

        The weight has the width of a part, which all share, or of the whole row; so has the bias.
        """
        return self.graph.layer_norm(x, weight, bias, eps, groups)

    def hadamard(
        self, x: Value, block: int, before: Vector | None = None, after: Vector | None = None
    ) -> Value:
        """Return after * H(before * x), H the orthonormal Hadamard matrix over each block of a row."""
        return self.graph.hadamard(x, block, before, after)

    def observe(self, x: Value, sums: _core.InputSums) -> None:
        """Add the squares of x to ``sums``."""
        self.graph.observe(x, sums)

    def rope_table(
        self,
        frequencies: Vector,
        scale: float,
        temperature: float = 0.0,
        temperature_step: int = 0,
        temperature_offset: int = 0,
        axes: Sequence[int] = [],
    ) -> Value:
        """Return cos, then sin, of position * frequency, times ``scale``: [tokens, 2 * pairs].

        With a temperature they are also multiplied by
        ``1 + temperature * ln(1 + floor((position + temperature_offset) / temperature_step))``.
        """
        return self.graph.rope_table(
            frequencies, scale, temperature, temperature_step, temperature_offset, axes
        )

    def store_kv(self, k: Value, v: Value | None, layer: int) -> None:
        """Write the tokens' keys and values to the pages of a layer."""
        self.graph.store_kv(k, v, layer)

    def attend(
        self,
        q: Value,
        layer: int,
        heads: int,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
        slopes: Vector | None = None,
        sinks: Vector | None = None,
        chunk: int = 0,
        position_bias: Vector | None = None,
        part: str = "all",
        dilation: int = 1,
        global_tokens: int = 0,
        block_size: int = 0,
        block_stride: int = 0,
        head_step: int = 0,
        first_head: int = 0,
    ) -> Value:
        """Return attention of q over the pages of a layer: [tokens, heads * value_dim]."""
        return self.graph.attend(
            q,
            layer,
            heads,
            scale,
            window,
            softcap,
            slopes,
            sinks,
            chunk,
            position_bias,
            part,
            dilation,
            global_tokens,
            block_size,
            block_stride,
            head_step,
            first_head,
        )

    def gated(self, gate: Value, up: Value, activation: str) -> Value:
        """Return act(gate) * up."""
        return self.graph.gated(gate, up, activation)

    def activate(self, x: Value, activation: str) -> Value:
        """Return act(x)."""
        return self.graph.activate(x, activation)

    def add(self, a: Value, b: Value) -> Value:
        """Return a + b."""
        return self.graph.add(a, b)

    def add_vector(self, x: Value, vector: Vector) -> Value:
        """Return x + vector in each row."""
        return self.graph.add_vector(x, vector)

    def scale(self, x: Value, factor: float) -> Value:
        """Return x * factor."""
        return self.graph.scale(x, factor)

    def xielu(self, x: Value, alpha_p: float, alpha_n: float, beta: float, eps: float) -> Value:
        """Return alpha_p x^2 + beta x where x > 0, else alpha_n (exp(min(x, eps)) - 1 - x) + beta x."""
        return self.graph.xielu(x, alpha_p, alpha_n, beta, eps)

    def clamp(self, x: Value, limit: float) -> Value:
        """Return x within -limit and limit."""
        return self.graph.clamp(x, limit)

    def softcap(self, x: Value, cap: float) -> Value:
        """Return cap * tanh(x / cap)."""
        return self.graph.softcap(x, cap)

    def gate_rows(self, x: Value, gate: Value) -> Value:
        """Return x * sigmoid(gate), with one gate for each row."""
        return self.graph.gate_rows(x, gate)

    def transpose_heads(self, x: Value, outer: int, inner: int) -> Value:
        """Return x with rows [outer, inner, width] of heads as rows [inner, outer, width]."""
        return self.graph.transpose_heads(x, outer, inner)

    def join_heads(self, a: Value, b: Value, heads: int) -> Value:
        """Return heads of a and of b side by side: [n, a.cols + b.cols]."""
        return self.graph.join_heads(a, b, heads)

    def join_rows(self, a: Value, b: Value) -> Value:
        """Return the rows of two inputs, those of a first: [tokens, cols]. A step takes one sequence."""
        return self.graph.join_rows(a, b)

    def split_rows(self, x: Value, first: Value, last: Value) -> tuple[Value, Value]:
        """Return the rows of x, apart again: as many as ``first`` has, and as ``last`` has."""
        return self.graph.split_rows(x, first, last)

    def sinusoids(self, x: Value, frequencies: Vector) -> Value:
        """Return cos, then sin, of x * frequency: [n, 2 * frequencies]; x has one column."""
        return self.graph.sinusoids(x, frequencies)

    def modulate(self, x: Value, scale: Value, shift: Value) -> Value:
        """Return x * (1 + scale) + shift in every row; scale and shift are one row of the sequence."""
        return self.graph.modulate(x, scale, shift)

    def add_gated(self, x: Value, y: Value, gate: Value) -> Value:
        """Return x + gate * y in every row; the gate is one row of the sequence."""
        return self.graph.add_gated(x, y, gate)

    def group_moments(self, x: Value, groups: int, eps: float) -> Value:
        """Return mean and 1 / sqrt(variance + eps) of groups of channels over a whole picture."""
        return self.graph.group_moments(x, groups, eps)

    def mix_parts(self, x: Value, weights: Value, parts: int) -> Value:
        """Return weighted sums of the parts of a row: [n, results * width].

        Args:
            x: [n, parts * width].
            weights: [n, results * parts]: for each result, those of all parts.
            parts: Their number.
        """
        return self.graph.mix_parts(x, weights, parts)

    def match_rms(self, x: Value, like: Value, floor: float) -> Value:
        """Return x * sqrt(mean(like^2) / max(mean(x^2), floor)) over each row."""
        return self.graph.match_rms(x, like, floor)

    def gaussian_top_k(self, x: Value, deviations: float) -> Value:
        """Return max(x - (mean(x) + deviations * sqrt(var(x))), 0) over each row."""
        return self.graph.gaussian_top_k(x, deviations)
