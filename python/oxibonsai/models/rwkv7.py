"""RWKV-7: a generalised delta rule instead of attention; each token is mixed with the one before."""

from __future__ import annotations

import numpy as np

from oxibonsai.graph import Builder, Value, Vector
from oxibonsai.models.architecture import Architecture, norm
from oxibonsai.models.config import RWKV, ModelConfig, RwkvConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.mamba import attention_free
from oxibonsai.models.weights import Weights

# Of the norm over each head of a layer's result; no file has it.
_HEAD_EPS = 64e-5
# Of the length of a removal key, as its square.
_LENGTH_EPS = 1e-24
_TOKEN_SHIFTS = 2  # of a layer: one before the time mix, one before the channel mix


def read_config(keys: Keys) -> ModelConfig:
    """Dimensions and the ranks of the small matrices."""
    if keys.integer("token_shift_count", _TOKEN_SHIFTS) != _TOKEN_SHIFTS:
        raise keys.unsupported(f"{keys.architecture}.token_shift_count is not {_TOKEN_SHIFTS}")
    shared = attention_free(keys, RWKV)
    head = keys.integer("wkv.head_size")
    if shared["hidden_size"] % head != 0:
        raise keys.fail(f"{shared['hidden_size']} columns are no whole heads of {head}")
    return ModelConfig(
        **shared,
        rms_norm_eps=0.0,
        layer_norm_eps=keys.positive("attention.layer_norm_epsilon"),
        rwkv=RwkvConfig(
            head_size=head,
            decay_rank=keys.integer("attention.decay_lora_rank"),
            rate_rank=keys.integer("attention.iclr_lora_rank"),
            value_rank=keys.integer("attention.value_residual_mix_lora_rank"),
            gate_rank=keys.integer("attention.gate_lora_rank"),
        ),
    )


def _difference(g: Builder, x: Value) -> Value:
    """Return the token before minus the token."""
    taps = np.tile(np.array([1.0, -1.0], np.float32), (x.cols, 1))
    return g.conv1d(x, taps)


class _TimeMix:
    """One layer's time mix; GGUF's names begin with ``blk.LAYER.time_mix_``."""

    def __init__(self, g: Builder, c: ModelConfig, w: Weights, layer: int) -> None:
        assert c.rwkv is not None
        self._g, self._w, self._hidden, self._config = g, w, c.hidden_size, c.rwkv
        self._heads = c.hidden_size // c.rwkv.head_size
        self._prefix = f"blk.{layer}.time_mix"

    def _vector(self, name: str) -> Vector:
        return self._w.vector(f"{self._prefix}_{name}.weight", self._hidden)

    def _linear(self, name: str, x: Value) -> Value:
        weight = self._w.matrix(f"{self._prefix}_{name}", self._hidden, x.cols)
        return self._g.linear(x, weight)[0]

    def _inner(self, name: str, x: Value, rank: int) -> Value:
        """Return the value between the two small matrices of ``name``."""
        return self._g.linear(x, self._w.matrix(f"{self._prefix}_{name}1", rank, self._hidden))[0]

    def _outer(self, name: str, x: Value) -> Value:
        """Return the second of them, and its bias."""
        weight = self._w.matrix(f"{self._prefix}_{name}2", self._hidden, x.cols)
        return self._g.linear(x, weight, bias=[self._vector(f"{name}0")])[0]

    def _removal_key(self, k: Value) -> Value:
        """Return k with a weight for each column, each head divided by its length."""
        g, size = self._g, self._config.head_size
        even = np.full(self._hidden, size**-0.5, np.float32)
        scaled = g.scale_columns(k, self._vector("k_k"))
        return g.group_norm(scaled, even, _LENGTH_EPS / size, self._heads)

    def run(self, x: Value, first_value: Value | None) -> tuple[Value, Value]:
        """Return the result, [n, hidden], and the layer's values, of which those of the first are kept.

        Args:
            x: Normed input, [n, hidden].
            first_value: Values of the first layer; None in that layer.
        """
        g, r = self._g, self._config
        difference = _difference(g, x)
        shares = self._w.floats(f"{self._prefix}_lerp_fused.weight", 6, 1, 1, self._hidden)
        mixed = {
            name: g.add(x, g.scale_columns(difference, share.ravel()))
            for name, share in zip("rwkvag", shares, strict=True)
        }
        receptance = self._linear("receptance", mixed["r"])
        decay = self._outer("w", g.tanh(self._inner("w", mixed["w"], r.decay_rank)))
        key, value = self._linear("key", mixed["k"]), self._linear("value", mixed["v"])
        own = value
        if first_value is not None:
            share = self._outer("v", self._inner("v", mixed["v"], r.value_rank))
            rest = g.add(first_value, g.scale(value, -1.0))
            value = g.add(value, g.sigmoid_gate(share, rest))
        gate = self._linear("g2", g.sigmoid(self._inner("g", mixed["g"], r.gate_rank)))
        rate = g.sigmoid(self._outer("a", self._inner("a", mixed["a"], r.rate_rank)))
        removal = self._removal_key(key)
        # key * (1 + (rate - 1) * k_a)
        share_of_rate = self._vector("k_a")
        key = g.add(
            g.scale_columns(key, np.float32(1.0) - share_of_rate),
            g.multiply(rate, g.scale_columns(key, share_of_rate)),
        )
        y = g.wkv7_scan(receptance, decay, key, value, removal, rate, head_dim=r.head_size)
        bias = self._w.bias(f"{self._prefix}_ln", self._hidden)
        y = g.layer_norm(y, self._vector("ln"), bias, _HEAD_EPS, groups=self._heads)
        sums = self._w.head_sums(f"{self._prefix}_r_k", self._heads, r.head_size)
        bonus = g.head_linear(g.multiply(key, receptance), sums)
        y = g.add(y, g.multiply(bonus, value))
        return self._linear("output", g.multiply(y, gate)), own


def _channel_mix(g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value) -> Value:
    """Return the feed-forward part: [n, hidden]."""
    b, hidden, ff = f"blk.{layer}.channel_mix", c.hidden_size, c.intermediate_size
    share = w.vector(f"{b}_lerp_k.weight", hidden)
    mixed = g.add(x, g.scale_columns(_difference(g, x), share))
    (k,) = g.linear(mixed, w.matrix(f"{b}_key", ff, hidden))
    return g.linear(g.relu2(k), w.matrix(f"{b}_value", hidden, ff))[0]


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = norm(g, c, w, g.embed(w.embedding(c)), "token_embd_norm")
    w.leave_out("blk.0.time_mix_v0")  # nobody reads these three
    w.leave_out("blk.0.time_mix_v1")
    w.leave_out("blk.0.time_mix_v2")
    first_value: Value | None = None
    for i in range(c.num_hidden_layers):
        x = norm(g, c, w, h, f"blk.{i}.attn_norm")
        y, value = _TimeMix(g, c, w, i).run(x, first_value)
        first_value = value if first_value is None else first_value
        h = g.add(h, y)
        x = norm(g, c, w, h, f"blk.{i}.attn_norm_2")
        h = g.add(h, _channel_mix(g, c, w, i, x))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
