"""Describes a forward pass as a graph, which a device compiles.

A model page calls the builder's ops once; no Python runs between two ops of a step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.graph.hadamard import HadamardFold
from oxibonsai.graph.rope import RopeConfig

Vector = npt.NDArray[np.float32]
Value = _core.Value


class Builder:
    """The ops that a model page is made of. Values are pure: every op makes new ones.

    Args:
        fold: Of the model's weights: rows of a folded table and inputs of folded matrices are
            transformed, and no page knows.

    Attributes:
        graph: What has been described so far.
    """

    def __init__(self, fold: HadamardFold | None = None) -> None:
        self.graph = _core.Graph()
        self._fold = fold
        self._folded: dict[Value, Value] = {}
        self._tables: dict[int, Value] = {}

    def embed(self, weight: _core.Weight) -> Value:
        """Rows of the table for the batch's tokens: [tokens, hidden]."""
        out = self.graph.embed(weight)
        if self._fold is None or not self._fold.has_table(weight.name):
            return out
        return self.hadamard(out, self._fold.block, after=self._fold.signs_of(out.cols))

    def embed_positions(self, weight: _core.Weight) -> Value:
        """Rows of the table for the batch's positions: [tokens, hidden]."""
        return self.graph.embed_positions(weight)

    def input(self, name: str, cols: int, *, own_rows: bool = False) -> Value:
        """A float32 matrix that comes with each batch.

        Args:
            name: What the batch calls it.
            cols: Its columns.
            own_rows: It has rows of its own; else one for each token.
        """
        return self.graph.input(name, cols, own_rows)

    def rms_norm(self, x: Value, weight: Vector, eps: float) -> Value:
        """x / sqrt(mean(x^2) + eps) * weight over each row."""
        return self.graph.rms_norm(x, weight, eps)

    def layer_norm(self, x: Value, weight: Vector, bias: Vector | None, eps: float) -> Value:
        """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over each row."""
        return self.graph.layer_norm(x, weight, bias, eps)

    def head_norm(self, x: Value, weight: Vector, eps: float) -> Value:
        """RMSNorm over each head of ``len(weight)`` values."""
        return self.graph.rms_norm(x, weight, eps, groups=x.cols // len(weight))

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
        # Weights that read the same of x are one op, and share the threads.
        groups: dict[Value, list[int]] = {}
        for i, weight in enumerate(weights):
            groups.setdefault(self._read_by(weight, x), []).append(i)
        outputs: dict[int, Value] = {}
        for source, chosen in groups.items():
            biases = [] if bias is None else [bias[i] for i in chosen]
            made = self.graph.linear(source, [weights[i] for i in chosen], biases, add)
            outputs.update(zip(chosen, made, strict=True))
        return [outputs[i] for i in range(len(weights))]

    def rope(self, x: Value, config: RopeConfig, head_dim: int) -> Value:
        """Every head rotated by its position."""
        return self.graph.rope(x, self._table(config), head_dim, config.interleaved)

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value | None,
        *,
        layer: int,
        head_dim: int,
        scale: float,
        value_dim: int | None = None,
        window: int = 0,
        softcap: float = 0.0,
        sinks: Vector | None = None,
    ) -> Value:
        """Causal attention over the pages of ``layer``, which take k and v first.

        Args:
            q: [tokens, heads * head_dim].
            k: [tokens, kv_heads * head_dim].
            v: [tokens, kv_heads * value_dim]; None: each value is the first ``value_dim`` dims of its
                key (latent attention), and is not stored besides.
            layer: Layers are used from 0 on, one after the other.
            head_dim: Dimensions of a head's query and key.
            scale: Factor of the scores.
            value_dim: Those of a head's value; None: ``head_dim``.
            window: Keys that a query may look back on, itself counted; 0: all.
            softcap: ``softcap * tanh(score / softcap)``; 0: none.
            sinks: The score of one more key for each head, whose value is zero.
        """
        paged = self.graph.paged_layers
        if layer == len(paged):
            dims = head_dim, value_dim or head_dim
            self.graph.add_paged_layer(
                _core.PagedLayer(k.cols // head_dim, *dims, value_in_key=v is None)
            )
        elif layer > len(paged):
            raise RequestError(f"attention uses layer {layer} of the cache before {len(paged)}")
        self.graph.store_kv(k, v, layer)
        return self.graph.attend(q, layer, q.cols // head_dim, scale, window, softcap, sinks)

    def attend_local(self, q: Value, k: Value, v: Value, *, head_dim: int, scale: float) -> Value:
        """Attention among the tokens of a sequence, which all see each other; nothing is kept.

        A sequence must be whole within its step.
        """
        return self.graph.attend_local(q, k, v, head_dim, scale)

    def swiglu(self, gate: Value, up: Value) -> Value:
        """silu(gate) * up."""
        return self.graph.gated(gate, up, "silu")

    def geglu(self, gate: Value, up: Value) -> Value:
        """gelu(gate) * up, GELU in its tanh form."""
        return self.graph.gated(gate, up, "gelu_tanh")

    def gelu(self, x: Value) -> Value:
        """x (1 + erf(x / sqrt(2))) / 2."""
        return self.graph.gelu(x)

    def add_vector(self, x: Value, vector: Vector) -> Value:
        """x + vector in each row."""
        return self.graph.add_vector(x, vector)

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        return self.graph.add(a, b)

    def scale(self, x: Value, factor: float) -> Value:
        """x * factor."""
        return self.graph.scale(x, factor)

    def softcap(self, x: Value, cap: float) -> Value:
        """cap * tanh(x / cap)."""
        return self.graph.softcap(x, cap)

    def hadamard(
        self, x: Value, block: int, before: Vector | None = None, after: Vector | None = None
    ) -> Value:
        """after * H(before * x), H the orthonormal Hadamard matrix over each block of a row."""
        return self.graph.hadamard(x, block, before, after)

    def experts(
        self,
        x: Value,
        router: _core.Weight,
        gate: _core.Weight,
        up: _core.Weight,
        down: _core.Weight,
        *,
        k: int,
        normalize: bool,
    ) -> Value:
        """A mixture of SwiGLU experts, of which a softmax over the router's scores chooses k.

        Args:
            x: [tokens, hidden].
            router: [experts, hidden].
            gate: A matrix [ff, hidden] for each expert; ``up`` likewise.
            up: As gate.
            down: A matrix [hidden, ff] for each expert.
            k: Experts of a token.
            normalize: Divide the weights of the chosen experts by their sum.
        """
        g = self.graph
        (scores,) = self.linear(x, router)
        experts, weights = g.route(scores, k, normalize=normalize)
        hidden = self.swiglu(g.expert_linear(x, experts, gate), g.expert_linear(x, experts, up))
        return g.combine(g.expert_linear(hidden, experts, down), weights)

    def conv1d(self, x: Value, weight: Vector, bias: Vector | None = None) -> Value:
        """Causal depthwise convolution over a sequence's tokens.

        Args:
            x: [tokens, channels].
            weight: float32 [channels, taps], the earliest token's tap first.
            bias: [channels].
        """
        channels, taps = weight.shape
        slot = self.graph.add_slot(channels * (taps - 1))
        return self.graph.conv1d(x, weight, bias, taps, slot)

    def select_outputs(self, x: Value) -> Value:
        """The rows of the batch that want an output: [outputs, cols]."""
        return self.graph.select_outputs(x)

    def output(self, name: str, value: Value) -> None:
        """Names a value as a result of the pass."""
        self.graph.set_output(name, value)

    def _table(self, config: RopeConfig) -> Value:
        """cos and sin for every row, made once a step for all layers."""
        if id(config) not in self._tables:
            frequencies = np.array(config.frequencies(), dtype=np.float32)
            self._tables[id(config)] = self.graph.rope_table(frequencies, config.magnitude())
        return self._tables[id(config)]

    def _read_by(self, weight: _core.Weight, x: Value) -> Value:
        """What a matrix reads of x, before any rounding."""
        folded = self._fold is not None and self._fold.has_matrix(weight.name)
        return self._fold_input(x) if folded else x

    def _fold_input(self, x: Value) -> Value:
        """x as folded matrices want it, made once for all of them."""
        if x not in self._folded:
            assert self._fold is not None
            signs = self._fold.signs_of(x.cols)
            self._folded[x] = self.hadamard(x, self._fold.block, before=signs)
        return self._folded[x]
