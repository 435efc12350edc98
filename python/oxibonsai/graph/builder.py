"""Describes a forward pass as a graph, which a device compiles.

A model page calls the builder's ops once; no Python runs between two ops of a step.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.graph.hadamard import HadamardRotation
from oxibonsai.graph.key_pattern import KeyPattern
from oxibonsai.graph.op_methods import Value, Vector
from oxibonsai.graph.recurrence import RecurrenceMethods
from oxibonsai.graph.rope import Rotation


class Routing(NamedTuple):
    """Which experts each token goes to.

    Attributes:
        weights: [tokens, k].
        places: [tokens, k]: the routed row of each choice.
        panels: [routed, 3]: how the routed rows are sorted by expert.
    """

    weights: Value
    places: Value
    panels: Value


class Builder(RecurrenceMethods):
    """The ops that a model page is made of. Values are pure: every op makes new ones.

    Args:
        rotation: Of the model's weights: rows of a folded table and inputs of folded matrices are
            transformed, and no page knows.

    Attributes:
        graph: What has been described so far.
    """

    def __init__(self, rotation: HadamardRotation | None = None) -> None:
        self.graph = _core.Graph()
        self._rotation = rotation
        self._folded: dict[Value, Value] = {}
        self._tables: dict[Rotation, Value] = {}

    def embed(self, weight: _core.Weight) -> Value:
        """Return the rows of the table for the batch's tokens: [tokens, hidden]."""
        out = self.graph.embed(weight)
        if self._rotation is None or not self._rotation.has_table(weight.name):
            return out
        return self.hadamard(out, self._rotation.block, after=self._rotation.signs_of(out.cols))

    def input(
        self,
        name: str,
        cols: int,
        *,
        own_rows: bool = False,
        sequences: bool = False,
        pixels: int = 1,
    ) -> Value:
        """Return a float32 matrix that comes with each batch.

        Args:
            name: What the batch calls it.
            cols: Its columns.
            own_rows: It has rows of its own; else one for each token.
            sequences: It has one row for each sequence.
            pixels: It is an image with ``pixels`` x ``pixels`` rows for each token of a grid.
        """
        return self.graph.input(name, cols, own_rows, sequences, pixels)

    def rms_norm(self, x: Value, weight: Vector, eps: float) -> Value:
        """Return x / sqrt(mean(x^2) + eps) * weight over each row."""
        return self.graph.rms_norm(x, weight, eps)

    def group_norm(self, x: Value, weight: Vector, eps: float, groups: int) -> Value:
        """Return RMSNorm over each of ``groups`` equal parts of a row, with a weight for each column."""
        return self.graph.rms_norm(x, weight, eps, groups=groups)

    def head_norm(self, x: Value, weight: Vector, eps: float) -> Value:
        """Return RMSNorm over each head of ``len(weight)`` values."""
        return self.graph.rms_norm(x, weight, eps, groups=x.cols // len(weight))

    def linear(
        self,
        x: Value,
        *weights: _core.Weight,
        bias: list[Vector | None] | None = None,
        add: Value | None = None,
    ) -> list[Value]:
        """Return x times each weight's transpose; quantized weights share one rounding of x.

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

    def rope(self, x: Value, config: Rotation, head_dim: int) -> Value:
        """Return every head rotated by its position, or its positions on several axes."""
        return self.graph.rope(x, self._table(config), head_dim, config.interleaved)

    def temper(self, x: Value, config: Rotation, head_dim: int) -> Value:
        """Return x times the temperature of its position, as ``config`` says; nothing is rotated."""
        still = np.zeros(head_dim // 2, dtype=np.float32)
        table = self.graph.rope_table(
            still, 1.0, config.temperature, config.temperature_step, config.temperature_offset
        )
        return self.graph.rope(x, table, head_dim)

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
        slopes: Vector | None = None,
        sinks: Vector | None = None,
        chunk: int = 0,
        pattern: KeyPattern | None = None,
    ) -> Value:
        """Return causal attention over the pages of ``layer``, which take k and v first.

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
            slopes: Of each head's linear biases: a score loses its slope times the key's distance.
            sinks: The score of one more key for each head, whose value is zero.
            chunk: A query sees no key before the multiple of this at or below its position; 0: all.
            pattern: What a query sees of the window, and besides it; None: all of it.
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
        return self.graph.attend(
            q, layer, q.cols // head_dim, scale, window, softcap, slopes, sinks, chunk,
            **({} if pattern is None else asdict(pattern)),
        )  # fmt: skip

    def attend_to(
        self,
        q: Value,
        *,
        layer: int,
        head_dim: int,
        scale: float,
        window: int = 0,
        position_bias: Vector | None = None,
        part: str = "all",
    ) -> Value:
        """Return attention over pages that hold their keys and values already, of another layer say.

        Args:
            q: [tokens, heads * head_dim].
            layer: Of the cache; it has got this step's keys and values already.
            head_dim: Dimensions of a head.
            scale: Factor of the scores.
            window: Keys that a query may look back on, itself counted; 0: all.
            position_bias: As of :meth:`attend_local`.
            part: ``"all"`` positions up to the query's, or in a decoder behind an encoder those of the
                encoder (``"encoded"``, all of them) or those behind them (``"own"``).
        """
        bias = None if position_bias is None else position_bias.ravel()
        return self.graph.attend(
            q, layer, q.cols // head_dim, scale, window, position_bias=bias, part=part
        )

    def add_paged_layer(self, kv_heads: int, head_dim: int) -> int:
        """Declare keys and values of one more layer of the cache; return its number.

        For passes that store and attend apart; :meth:`attention` does all three.
        """
        self.graph.add_paged_layer(_core.PagedLayer(kv_heads, head_dim, head_dim))
        return len(self.graph.paged_layers) - 1

    def attend_local(
        self,
        q: Value,
        k: Value,
        v: Value,
        *,
        head_dim: int,
        scale: float,
        segments: str = "",
        causal: bool = False,
        window: int = 0,
        slopes: Vector | None = None,
        position_bias: Vector | None = None,
        global_tokens: int = 0,
        queries: str = "all",
        block_size: int = 0,
        random_blocks: int = 0,
    ) -> Value:
        """Return attention among the tokens of a sequence, before and after each other; nothing is kept.

        A sequence must be whole within its step.

        Args:
            q: [tokens, heads * head_dim].
            k: [tokens, kv_heads * head_dim].
            v: As k.
            head_dim: Dimensions of a head.
            scale: Factor of the scores.
            segments: Name of runs of rows that see each other, and no others, as the batch gives
                them (windows of an image); ``""``: those of a sequence.
            causal: A token sees itself and those before it, but no padding (``visible`` of the
                batch). Not with segments, nor with a window.
            window: How far from a query, on each side, a key may be; 0: any distance.
            slopes: Of each head's linear biases: a score loses its slope times the key's distance.
            position_bias: [heads, 2 * reach + 1]: joins a score, by the key's position minus the
                query's, which counts as -reach or reach where it is beyond.
            global_tokens: So many first tokens of a sequence see all and are seen by all; only with
                ``queries``.
            queries: Whose results are computed, those of others are zeros: ``"all"``; ``"global"``:
                the global tokens, which have projections of their own; ``"others"``.
            block_size: Tokens of a block (BigBird); 0: none. A token sees the blocks beside its own,
                the first and the last; those of the first and the last see all. Not with a window.
            random_blocks: So many more times all but the first and the last block see the first one.
                A sequence of up to (5 + 2 * random_blocks) * block_size tokens has no blocks.
        """
        bias = None if position_bias is None else position_bias.ravel()
        return self.graph.attend_local(
            q, k, v, head_dim, scale, segments, causal, window, slopes, bias,
            global_tokens, queries, block_size, random_blocks,
        )  # fmt: skip

    def swiglu(self, gate: Value, up: Value) -> Value:
        """Return silu(gate) * up."""
        return self.graph.gated(gate, up, "silu")

    def geglu(self, gate: Value, up: Value) -> Value:
        """Return gelu(gate) * up, GELU in its tanh form."""
        return self.graph.gated(gate, up, "gelu_tanh")

    def exact_geglu(self, gate: Value, up: Value) -> Value:
        """Return gelu(gate) * up, GELU with erf."""
        return self.graph.gated(gate, up, "gelu")

    def sigmoid_gate(self, gate: Value, up: Value) -> Value:
        """Return sigmoid(gate) * up."""
        return self.graph.gated(gate, up, "sigmoid")

    def clamped_swiglu(self, gate: Value, up: Value) -> Value:
        """Return g * sigmoid(1.702 g) * (u + 1) with g = min(gate, 7) and u = up within -7 and 7."""
        return self.graph.gated(gate, up, "swiglu_oai")

    def multiply(self, a: Value, b: Value) -> Value:
        """Return a * b."""
        return self.graph.gated(a, b, "identity")

    def multiply_vector(self, x: Value, vector: Vector) -> Value:
        """Return x * vector in each row."""
        # No op of its own: so few models need it, and it costs nothing beside a linear layer.
        return self.multiply(x, self.add_vector(self.scale(x, 0.0), vector))

    def gated_relu2(self, gate: Value, up: Value) -> Value:
        """Return max(gate, 0)^2 * up."""
        return self.graph.gated(gate, up, "relu2")

    def silu(self, x: Value) -> Value:
        """Return x / (1 + exp(-x))."""
        return self.graph.activate(x, "silu")

    def gelu(self, x: Value) -> Value:
        """Return x (1 + erf(x / sqrt(2))) / 2."""
        return self.graph.activate(x, "gelu")

    def gelu_tanh(self, x: Value) -> Value:
        """Return GELU in its tanh form."""
        return self.graph.activate(x, "gelu_tanh")

    def relu(self, x: Value) -> Value:
        """Return max(x, 0)."""
        return self.graph.activate(x, "relu")

    def tanh(self, x: Value) -> Value:
        """Return the hyperbolic tangent of x."""
        return self.softcap(x, 1.0)

    def sigmoid(self, x: Value) -> Value:
        """Return 1 / (1 + exp(-x))."""
        return self.graph.activate(x, "sigmoid")

    def relu2(self, x: Value) -> Value:
        """Return max(x, 0)^2."""
        return self.graph.activate(x, "relu2")

    def scale_columns(self, x: Value, factors: Vector) -> Value:
        """Return x * factors in each row: a transform of blocks of one value."""
        return self.graph.hadamard(x, 1, None, factors)

    def route(
        self,
        scores: Value,
        k: int,
        *,
        scoring: str = "softmax",
        selection_bias: Vector | None = None,
        normalize: bool = False,
        scale: float = 1.0,
        groups: int = 1,
        kept_groups: int = 1,
        best_of_group: int = 1,
        expert_scale: Vector | None = None,
    ) -> Routing:
        """Choose k experts for each token, and say how much each counts.

        Args:
            scores: [tokens, experts].
            k: Experts of a token.
            scoring: ``"softmax"`` over all experts, ``"softmax_of_chosen"``, ``"sigmoid"``, or
                ``"sparse_mixer"``: one expert after the other, the best of those that are left, by its
                share of a softmax over those of them that score at most 2 % less.
            selection_bias: [experts], added to what experts are chosen by, and not to their weights.
            normalize: Divide the weights of the chosen experts by their sum.
            scale: Of the weights, at last.
            groups: Of neighbouring experts, of which only some are kept.
            kept_groups: Those with the highest scores.
            best_of_group: How many of its experts' scores, the highest, make up a group's.
            expert_scale: [experts], of each expert's weight, after all else.
        """
        made = self.graph.route(
            scores,
            k,
            scoring,
            selection_bias,
            normalize,
            scale,
            groups,
            kept_groups,
            best_of_group,
            expert_scale,
        )
        return Routing(*made)

    def dispatch(self, x: Value, routing: Routing, *, weighted: bool = False) -> Value:
        """Return the rows of x, each once for each of its experts: [routed, cols].

        Args:
            x: [tokens, cols].
            routing: Which experts.
            weighted: Multiply the rows by the experts' weights.
        """
        return self.graph.dispatch(x, routing.panels, routing.weights if weighted else None)

    def expert_linear(
        self, x: Value, routing: Routing, weight: _core.Weight, bias: Vector | None = None
    ) -> Value:
        """Return each row times the transposed matrix of its expert: [routed, rows of a matrix].

        Args:
            x: [routed, cols].
            routing: Which experts.
            weight: A matrix [rows, cols] for each expert.
            bias: [experts * rows], those of each expert.
        """
        return self.graph.expert_linear(self._read_by(weight, x), routing.panels, weight, bias)

    def combine(self, x: Value, routing: Routing, *, weighted: bool = True) -> Value:
        """Return the sum of what a token's experts gave, by their weights or plain: [tokens, cols]."""
        return self.graph.combine(x, routing.places, routing.weights if weighted else None)

    def head_linear(self, x: Value, weight: _core.Weight) -> Value:
        """Return each head of x times a matrix of its own, transposed.

        Args:
            x: [n, heads * cols].
            weight: A matrix [rows, cols] for each head.
        """
        if self._rotation is not None and self._rotation.has_matrix(weight.name):
            raise RequestError(f"{weight.name} is folded, which a matrix for each head cannot be")
        return self.graph.head_linear(x, weight)

    def select_columns(self, x: Value, first: int, count: int, period: int | None = None) -> Value:
        """Return columns ``first`` to ``first + count - 1`` of each ``period``; None: of the row."""
        return self.graph.select_columns(x, first, count, period or x.cols)

    def conv2d(
        self,
        x: Value,
        weight: npt.NDArray[np.float32],
        bias: Vector | None = None,
        *,
        moments: Value | None = None,
        norm: tuple[Vector, Vector] | None = None,
        silu: bool = False,
        stride: int = 1,
        upsample: int = 1,
        pad: int = 0,
        add: Value | None = None,
    ) -> Value:
        """Return the convolution of an image, whose group norm may come before it.

        Args:
            x: [pixels, channels].
            weight: [out, channels, kernel, kernel].
            bias: [out].
            moments: Of x, by which it is normalised first; None: it is not.
            norm: Weight and bias of that norm.
            silu: Whether silu of what is normalised is taken.
            stride: Rows and columns of the enlarged x for one of the result.
            upsample: Times that each pixel of x is repeated, down and across.
            pad: Rows and columns of zeros at the top and on the left; at the bottom and on the right
                there are as many as the result reads.
            add: Added to the result.

        Returns:
            [pixels * upsample^2 / stride^2, out].
        """
        gain, shift = norm or (None, None)
        return self.graph.conv2d(
            x, weight, bias, moments, gain, shift, silu, stride, upsample, pad, add
        )

    def images(self, h: Value, part: int = 0, *, added: bool = False) -> Value:
        """Return h with rows of images in place of their tokens; in a pass over text alone, h as it is.

        Args:
            h: [tokens, cols], after what scales the embeddings of tokens.
            part: Which ``cols`` columns of an image's rows are read; those behind the first are for
                later layers.
            added: They are added to h.
        """
        del part, added
        return h

    def output(self, name: str, value: Value) -> None:
        """Name a value as a result of the pass."""
        self.graph.set_output(name, value)

    def _table(self, config: Rotation) -> Value:
        """Return cos and sin for every row, made once a step for all layers."""
        if config not in self._tables:
            frequencies = np.array(config.frequencies(), dtype=np.float32)
            self._tables[config] = self.graph.rope_table(
                frequencies,
                config.magnitude(),
                config.temperature,
                config.temperature_step,
                config.temperature_offset,
                config.axes,
            )
        return self._tables[config]

    def regroup_values(self, x: Value, weight: _core.Weight, key_heads: int, heads: int) -> Value:
        """Return the input of a gated delta rule's output matrix, heads in the order of the rotation.

        Args:
            x: [tokens, heads * value_dim]; value head h shares key head ``h % key_heads``.
            weight: The output matrix.
            key_heads: Of the rule.
            heads: Value heads.
        """
        grouped = self._rotation is not None and self._rotation.grouped_values
        if not grouped or self._rotation is None or not self._rotation.has_matrix(weight.name):
            return x
        return self.transpose_heads(x, heads // key_heads, key_heads)

    def _read_by(self, weight: _core.Weight, x: Value) -> Value:
        """Return a matrix's input x before any rounding."""
        rotated = self._rotation is not None and self._rotation.has_matrix(weight.name)
        return self._rotate_input(x) if rotated else x

    def _rotate_input(self, x: Value) -> Value:
        """Return x as folded matrices want it, made once for all of them."""
        if x not in self._folded:
            assert self._rotation is not None
            signs = self._rotation.signs_of(x.cols)
            self._folded[x] = self.hadamard(x, self._rotation.block, before=signs)
        return self._folded[x]
