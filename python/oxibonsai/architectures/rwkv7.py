"""RWKV-7: a generalised delta rule instead of attention; each token is mixed with the one before.

Folders are those of flash-linear-attention, which registers the model with transformers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder, hybrid
from oxibonsai.architectures.hybrid import RWKV, WithoutAttention
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema import tensors as entries
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    POSITIVE_EPSILON,
    Checked,
    GgufKeys,
    Known,
    Stated,
    constant,
    count,
    count_or_zero,
    field,
    fixed,
)
from oxibonsai.architectures.schema.operations import (
    Duplicate,
    MergeAxes,
    Operation,
    SplitAxis,
    Stack,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import (
    Either,
    Entry,
    LeftOut,
    Tensor,
    bias,
    vector,
)
from oxibonsai.graph import Builder, Value, Vector

# Of the norm over each head of a layer's result, head_dim times that of the others; no file has it.
HEAD_EPSILON = 64e-5
LENGTH_EPSILON = 1e-24  # of the length of a removal key, as its square
TOKEN_SHIFTS = 2  # of a layer: one before the time mix, one before the channel mix
LAYERS = "model.layers"
# What is mixed with the token before: receptance, decay, key, value, rate and gate.
MIXED = "rwkvag"
NORMS = {"attn_norm": "attn_norm", "ffn_norm": "attn_norm_2", "attn.g_norm": "time_mix_ln"}
MATRICES = {
    "attn.r_proj": "time_mix_receptance",
    "attn.k_proj": "time_mix_key",
    "attn.v_proj": "time_mix_value",
    "attn.o_proj": "time_mix_output",
    "ffn.key": "channel_mix_key",
    "ffn.value": "channel_mix_value",
}
# Of a pair of small matrices, with the numbers of their tensors; gates have no bias.
PARTS = {"0.weight": 1, "2.weight": 2, "2.bias": 0}
PAIRS = {"w": PARTS, "a": PARTS, "v": PARTS, "g": {"0.weight": 1, "2.weight": 2}}

# Hidden states, and the first layer's values, which later layers mix with their own.
Carried = tuple[Value, Value | None]


@dataclass(frozen=True)
class HeadSize:
    """The columns of a head, which ``config.json`` states, or how many heads there are."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        if (stated := config.get("head_dim")) is not None:
            return config.count(stated, "head_dim")
        heads = config.count(config.get("num_heads"), "num_heads")
        return max(int(known["hidden_size"]) // heads, 1)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return {"head_dim": value, "num_heads": c.hidden_size // value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("wkv.head_size")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"wkv.head_size": (value, "u32")}


@dataclass(frozen=True)
class Rank(Stated):
    """The columns between two small matrices: stated, or those that the matrices have.

    Attributes:
        letter: In the matrices' names.
    """

    letter: str = ""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says, or that the first matrix shows."""
        if config.get(*self.names) is not None:
            stated: int = super().read_config_json(config, known)
            return stated
        layer = 1 if self.letter == "v" else 0  # the first layer mixes no values
        held = config.parameters().get(f"{LAYERS}.{layer}.attn.{self.letter}_lora.lora.0.weight")
        if held is None:
            raise config.fail(f"it lacks {self.names[0]}")
        return held.shape[0]


def rank(letter: str, name: str, key: str) -> Any:
    """Return the field of the rank of a pair of small matrices."""
    return field(Rank(COUNT, (name,), key, letter=letter))


class Epsilon(Stated):
    """The epsilon of norms, which decides that of the norms of heads."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value; UnsupportedError where the norms of heads have another than files."""
        value: float = super().read_config_json(config, known)
        head: int = known["head_size"]
        if abs(value * head / HEAD_EPSILON - 1.0) > 1e-6:
            raise config.unsupported(
                f"norm_eps is {value} with heads of {head} values; GGUF has no place for an epsilon of "
                f"their norms other than {HEAD_EPSILON:g}"
            )
        return value


def _head_problem(known: Known, head: int) -> str:
    hidden = known["hidden_size"]
    return "" if hidden % head == 0 else f"{hidden} columns are no whole heads of {head}"


def _shift_problem(known: Known, count: int) -> str:
    return "" if count == TOKEN_SHIFTS else f"token_shift_count is {count}, not {TOKEN_SHIFTS}"


def _four_times(known: Known) -> int:
    return 4 * int(known["hidden_size"])


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model, in the order of a file's keys."""

    max_position_embeddings: int = count(
        (), "context_length", default=hybrid.ENDLESS, also_written=("max_position_embeddings",)
    )
    hidden_size: int = count("hidden_size", "embedding_length")
    num_hidden_layers: int = decoder.layer_count("num_hidden_layers")
    intermediate_size: int = count_or_zero(
        "intermediate_size", "feed_forward_length", default=_four_times
    )
    num_attention_heads: int = fixed(0, key="attention.head_count", kind="u32")
    vocab_size: int = decoder.vocabulary()
    head_size: int = field(Checked(HeadSize(), _head_problem))
    decay_rank: int = rank("w", "decay_low_rank_dim", "attention.decay_lora_rank")
    rate_rank: int = rank("a", "a_low_rank_dim", "attention.iclr_lora_rank")
    value_rank: int = rank("v", "v_low_rank_dim", "attention.value_residual_mix_lora_rank")
    gate_rank: int = rank("g", "gate_low_rank_dim", "attention.gate_lora_rank")
    layer_norm_eps: float = field(
        Epsilon(POSITIVE_EPSILON, ("norm_eps",), "attention.layer_norm_epsilon", default=1e-5)
    )


@dataclass(frozen=True, kw_only=True)
class Config(WithoutAttention, Sizes):
    """The fields of a model."""

    rms_norm_eps: float = constant(0.0)
    token_shift_count: int = field(
        Checked(
            Stated(
                COUNT, (), "token_shift_count", default=TOKEN_SHIFTS, key_default=TOKEN_SHIFTS,
                unsaid=True,
            ),
            _shift_problem,
        )
    )  # fmt: skip
    activation: str = fixed("sqrelu", name="hidden_act")
    norm_first: bool = fixed(True, name="norm_first")
    norm_bias: bool = fixed(True, name="norm_bias")
    attention: None = fixed(None, name="attn")

    @property
    def layer_types(self) -> tuple[str, ...]:
        """The kinds of all layers."""
        return (RWKV,) * self.num_hidden_layers

    @property
    def num_heads(self) -> int:
        """Heads of a layer."""
        return self.hidden_size // self.head_size


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, embedding="model.embeddings", biased=True)
    before = f"{LAYERS}.0.pre_norm", "token_embd_norm"
    yield from (entries.norm(*before), bias(*before))
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, biased=True)
        yield from decoder.matrices(i, MATRICES)
        yield shares(i)
        p, b = f"{LAYERS}.{i}.attn", f"blk.{i}"
        yield vector(f"{LAYERS}.{i}.ffn.x_k", f"{b}.channel_mix_lerp_k.weight")
        for name in ("k_k", "k_a"):
            yield vector(f"{p}.{name}", f"{b}.time_mix_{name}.weight")
        yield vector(f"{p}.r_k", f"{b}.time_mix_r_k.weight", MergeAxes(c.num_heads))
        for letter in PAIRS:
            yield from pair(i, letter)


def shares(i: int) -> Either:
    """Return how much of the token before joins what is mixed: six parameters, or one in older folders."""
    p, tensor = f"{LAYERS}.{i}.attn", (f"blk.{i}.time_mix_lerp_fused.weight",)
    names = tuple(f"{p}.x_{letter}" for letter in MIXED)
    apart = Tensor(names, tensor, (Stack(len(MIXED)),), matrix=False)
    axes = (SplitAxis(1, axis=1), SplitAxis(1, axis=1))
    return Either(((apart,), (Tensor((f"{p}.x_x",), tensor, axes, matrix=False),)))


def pair(i: int, letter: str) -> Iterator[Entry]:
    """Yield two small matrices of a layer, and the bias of the second.

    The first layer mixes no values; llama.cpp wants their matrices all the same, and its files have
    those of the rates there.
    """
    p, b = f"{LAYERS}.{i}.attn.{letter}_lora", f"blk.{i}.time_mix"
    if i == 0 and letter == "v":
        yield LeftOut(f"{p}.*")
        return
    twice: tuple[Operation, ...] = (Duplicate(),) if i == 0 and letter == "a" else ()
    for part, number in PAIRS[letter].items():
        names = tuple(f"{b}_{n}{number}.weight" for n in ("av" if twice else letter))
        matrix = letter != "w" and number != 0  # those of decays stay float32
        yield Tensor((f"{p}.lora.{part}",), names, twice, matrix=matrix)


def embed(g: Builder, c: Config, w: Weights) -> Carried:
    """Return the rows of the token table, normalised; nobody has values yet."""
    return norm(g, c, w, g.embed(w.embedding(c)), "token_embd_norm"), None


def layer(g: Builder, c: Config, w: Weights, i: int, carried: Carried) -> Carried:
    """Return the hidden states after layer i, and the values of the first layer."""
    h, first_value = carried
    if i == 0:
        for number in PARTS.values():
            w.leave_out(f"blk.0.time_mix_v{number}")  # nobody reads them
    y, value = _TimeMix(g, c, w, i).run(norm(g, c, w, h, f"blk.{i}.attn_norm"), first_value)
    h = g.add(h, y)
    x = norm(g, c, w, h, f"blk.{i}.attn_norm_2")
    h = g.add(h, _channel_mix(g, c, w, i, x))
    return h, value if first_value is None else first_value


def _difference(g: Builder, x: Value) -> Value:
    """Return the token before minus the token."""
    taps = np.tile(np.array([1.0, -1.0], np.float32), (x.cols, 1))
    return g.conv1d(x, taps)


class _TimeMix:
    """One layer's time mix; GGUF's names begin with ``blk.LAYER.time_mix_``."""

    def __init__(self, g: Builder, c: Config, w: Weights, layer: int) -> None:
        self._g, self._w, self._config = g, w, c
        self._hidden, self._heads = c.hidden_size, c.num_heads
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
        return g.group_norm(scaled, even, LENGTH_EPSILON / size, self._heads)

    def run(self, x: Value, first_value: Value | None) -> tuple[Value, Value]:
        """Return the result, [n, hidden], and the layer's values, of which those of the first are kept.

        Args:
            x: Normed input, [n, hidden].
            first_value: Values of the first layer; None in that layer.
        """
        g, c = self._g, self._config
        difference = _difference(g, x)
        shares = self._w.floats(f"{self._prefix}_lerp_fused.weight", 6, 1, 1, self._hidden)
        mixed = {
            name: g.add(x, g.scale_columns(difference, share.ravel()))
            for name, share in zip(MIXED, shares, strict=True)
        }
        receptance = self._linear("receptance", mixed["r"])
        decay = self._outer("w", g.tanh(self._inner("w", mixed["w"], c.decay_rank)))
        key, value = self._linear("key", mixed["k"]), self._linear("value", mixed["v"])
        own = value
        if first_value is not None:
            share = self._outer("v", self._inner("v", mixed["v"], c.value_rank))
            rest = g.add(first_value, g.scale(value, -1.0))
            value = g.add(value, g.sigmoid_gate(share, rest))
        gate = self._linear("g2", g.sigmoid(self._inner("g", mixed["g"], c.gate_rank)))
        rate = g.sigmoid(self._outer("a", self._inner("a", mixed["a"], c.rate_rank)))
        removal = self._removal_key(key)
        # key * (1 + (rate - 1) * k_a)
        share_of_rate = self._vector("k_a")
        key = g.add(
            g.scale_columns(key, np.float32(1.0) - share_of_rate),
            g.multiply(rate, g.scale_columns(key, share_of_rate)),
        )
        y = g.wkv7_scan(receptance, decay, key, value, removal, rate, head_dim=c.head_size)
        bias = self._w.bias(f"{self._prefix}_ln", self._hidden)
        y = g.layer_norm(y, self._vector("ln"), bias, HEAD_EPSILON, groups=self._heads)
        sums = self._w.head_sums(f"{self._prefix}_r_k", self._heads, c.head_size)
        bonus = g.head_linear(g.multiply(key, receptance), sums)
        y = g.add(y, g.multiply(bonus, value))
        return self._linear("output", g.multiply(y, gate)), own


def _channel_mix(g: Builder, c: Config, w: Weights, layer: int, x: Value) -> Value:
    """Return the feed-forward part: [n, hidden]."""
    b, hidden, ff = f"blk.{layer}.channel_mix", c.hidden_size, c.intermediate_size
    share = w.vector(f"{b}_lerp_k.weight", hidden)
    mixed = g.add(x, g.scale_columns(_difference(g, x), share))
    (k,) = g.linear(mixed, w.matrix(f"{b}_key", ff, hidden))
    return g.linear(g.relu2(k), w.matrix(f"{b}_value", hidden, ff))[0]


FAMILY = Family(
    "rwkv7", ("rwkv7",), "RWKV7", "RWKV-7", Config, tensors, layer, embed,
    after_layers=lambda g, c, w, carried: carried[0],
)  # fmt: skip
