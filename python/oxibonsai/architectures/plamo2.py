"""PLaMo 2: layers of Mamba 2 whose time steps, b and c are made of x, and layers of attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Constants
from oxibonsai.architectures.hybrid import (
    FULL_ATTENTION,
    MAMBA,
    ByLayer,
    LayerTypes,
    of_attention,
)
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mamba2 import convolution
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.arithmetic import Add, NegativeExp
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    Checked,
    GgufKeys,
    Kind,
    Known,
    Stated,
    constant,
    count,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, norm, vector
from oxibonsai.errors import UnsupportedError
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "model.layers.layers"
EPSILON = 1e-6  # of queries and keys too, for which nothing states it
MLP = {"mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
ATTENTION = {"mixer.qkv_proj": "attn_qkv", "mixer.o_proj": "attn_output"}
SCAN = {
    "mixer.in_proj": "ssm_in",
    "mixer.bcdt_proj": "ssm_x",
    "mixer.dt_proj": "ssm_dt",
    "mixer.out_proj": "ssm_out",
}


def layer_types(layers: int, step: int) -> tuple[str, ...]:
    """Return the kinds of layers, one of every ``step`` of which attends."""
    first = step // 2 if layers > step // 2 else layers - 1
    attending = range(first, layers, step)
    return tuple(FULL_ATTENTION if i in attending else MAMBA for i in range(layers))


@dataclass(frozen=True)
class EveryFew(LayerTypes):
    """The kinds of layers, of which ``config.json`` says how many come between two that attend."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[str, ...]:
        """Return the kinds that ``config.json`` says."""
        step = config.count(config.get("mamba_step"), "mamba_step")
        if step < 2:
            raise config.fail(f"mamba_step is {step}, not 2 or more")
        return layer_types(known["num_hidden_layers"], step)

    def write_config_json(self, value: tuple[str, ...], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``; UnsupportedError where none says the kinds."""
        layers = len(value)
        steps = range(2, 2 * layers + 2)
        step = next((s for s in steps if layer_types(layers, s) == value), None)
        if step is None:
            raise UnsupportedError("its layers that attend do not come at equal distances")
        return {"mamba_step": step}


@dataclass(frozen=True)
class HeadWidth:
    """The columns of a head of attention, and of a scan."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return config.count(config.get("hidden_size_per_head"), "hidden_size_per_head")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"hidden_size_per_head": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says of keys and of values."""
        width = keys.integer("attention.key_length")
        if keys.integer("attention.value_length", width) != width:
            raise keys.unsupported("keys and values of different lengths are not supported")
        return width

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the keys of both lengths."""
        return dict.fromkeys(("attention.key_length", "attention.value_length"), (value, "u32"))


@dataclass(frozen=True)
class InnerSize:
    """The columns of a scan: its heads are as wide as those of attention."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        heads = config.count(config.get("mamba_num_heads"), "mamba_num_heads")
        return heads * int(known["head_dim"])

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return no field: the heads say it."""
        return {}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("ssm.inner_size")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"ssm.inner_size": (value, "u32")}


@dataclass(frozen=True)
class Window:
    """The window of layers that attend; llama.cpp's files have no key for it."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the tokens that one sees, itself among them."""
        stated = config.get("attention_window_size")
        return config.count(stated, "attention_window_size") + 1

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"attention_window_size": value - 1}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says; 0: there is no window."""
        return keys.count("attention.sliding_window")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key, where there is a window."""
        return {"attention.sliding_window": (value, "u32")} if value else {}


@dataclass(frozen=True)
class LocalLayers:
    """Whether each layer has the window, if it attends."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[bool, ...]:
        """Return what ``config.json`` says by the layers that see all."""
        full = config.get("full_attention_idx") or []
        layers = range(known["num_hidden_layers"])
        if not isinstance(full, list) or not all(type(i) is int and i in layers for i in full):
            raise config.fail(f"full_attention_idx does not name some of {len(layers)} layers")
        return tuple(i not in full for i in layers)

    def write_config_json(self, value: tuple[bool, ...], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"full_attention_idx": [i for i, local in enumerate(value) if not local]}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[bool, ...]:
        """Return what a file says: without a list, all layers have the window."""
        return keys.local_layers(keys.layers() + 1) if known["sliding_window"] else ()

    def write_gguf(self, value: tuple[bool, ...], c: Any) -> GgufKeys:
        """Return the key, where there is a window."""
        key = "attention.sliding_window_pattern"
        return {key: (list(value), "arr[bool]")} if value else {}


def _heads_problem(known: Known, heads: int) -> str:
    inner = known["mamba_d_ssm"]
    return f"{inner} inner values are no multiple of {heads} heads" if inner % heads else ""


def _shared_heads_problem(known: Known, shared: int) -> str:
    heads = known["num_attention_heads"]
    return (
        f"{heads} attention heads are no multiple of {shared} key-value heads"
        if heads % shared
        else ""
    )


def _one_epsilon(config: ConfigJson, value: Any, name: str) -> float:
    number = config.number(value, name, 1.0)
    if not math.isclose(number, EPSILON, rel_tol=1e-6):  # files round it
        raise config.unsupported(f"{name} is {value!r}; known is {EPSILON}")
    return number


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model, in the order of a file's keys."""

    num_hidden_layers: int = decoder.layer_count("num_hidden_layers")
    max_position_embeddings: int = count("max_position_embeddings", "context_length")
    hidden_size: int = count("hidden_size", "embedding_length")
    intermediate_size: int = count("intermediate_size", "feed_forward_length")
    head_dim: int = field(HeadWidth())
    vocab_size: int = decoder.vocabulary()
    mamba_d_conv: int = count("mamba_d_conv", "ssm.conv_kernel")
    mamba_d_ssm: int = field(InnerSize())
    mamba_d_state: int = count("mamba_d_state", "ssm.state_size")
    mamba_n_heads: int = field(
        Checked(Stated(COUNT, ("mamba_num_heads",), "ssm.time_step_rank"), _heads_problem)
    )
    mamba_n_groups: int = fixed(0, key="ssm.group_count", kind="u32")  # all heads are one
    num_attention_heads: int = field(of_attention("num_attention_heads", "attention.head_count"))
    num_key_value_heads: int = field(
        Checked(
            of_attention("num_key_value_heads", "attention.head_count_kv"), _shared_heads_problem
        )
    )
    rms_norm_eps: float = real(
        "rms_norm_eps", "attention.layer_norm_rms_epsilon",
        Kind("f32", _one_epsilon, lambda keys, key, default: keys.real(key, default)),
        default=EPSILON,
    )  # fmt: skip
    layer_norm_eps: float = constant(0.0)
    rope: RopeConfig = field(Rope(("default",), theta=10000.0))


@dataclass(frozen=True, kw_only=True)
class Config(Constants, Sizes, ByLayer):
    """The fields of a model."""

    layer_types: tuple[str, ...] = field(EveryFew({}, MAMBA))
    tie_word_embeddings: bool = decoder.tied(True)
    sliding_window: int = field(Window())
    local_layers: tuple[bool, ...] = field(LocalLayers())
    mamba_enabled: bool = fixed(True, name="mamba_enabled")
    linear_type: str = fixed("normal", None, name="linear_type", written=False)

    @property
    def mamba_dt_rank(self) -> int:
        """Return the columns that time steps are made of."""
        return max(64, self.hidden_size // 16)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, Add(1.0))
    for i in range(c.num_hidden_layers):
        p, b = f"{LAYERS}.{i}", f"blk.{i}"
        yield norm(f"{p}.pre_mixer_norm", f"{b}.attn_norm", Add(1.0))
        yield vector(f"{p}.post_mixer_norm.weight", f"{b}.post_attention_norm", Add(1.0 / 5.0))
        yield norm(f"{p}.pre_mlp_norm", f"{b}.ffn_norm", Add(1.0))
        yield vector(f"{p}.post_mlp_norm.weight", f"{b}.post_ffw_norm", Add(1.0 / 5.0**1.5))
        yield from decoder.matrices(i, MLP, layers=LAYERS)
        if c.attends(i):
            yield from decoder.matrices(i, ATTENTION, layers=LAYERS)
            yield vector(f"{p}.mixer.q_weight", f"{b}.attn_q_norm.weight")
            yield vector(f"{p}.mixer.k_weight", f"{b}.attn_k_norm.weight")
        else:
            yield from decoder.matrices(i, SCAN, layers=LAYERS)
            yield from scan_vectors(f"{p}.mixer", b)


def scan_vectors(module: str, b: str) -> Iterator[Tensor]:
    """Yield what stays float32 of a layer of Mamba."""
    yield from convolution(f"{module}.conv1d", f"{b}.ssm_conv1d")
    yield vector(f"{module}.dt_bias", f"{b}.ssm_dt.bias")
    yield vector(f"{module}.A_log", f"{b}.ssm_a", NegativeExp())
    yield vector(f"{module}.D", f"{b}.ssm_d")
    for theirs, ours in {"dt": "dt", "B": "b", "C": "c"}.items():
        yield vector(f"{module}.{theirs}_norm_weight", f"{b}.ssm_{ours}_norm")


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b = f"blk.{i}"
    x = apply_norm(g, c, w, h, f"{b}.attn_norm")
    x = (attention if c.attends(i) else scan)(g, c, w, i, x)
    h = g.add(h, post_norm(g, c, w, x, f"{b}.post_attention_norm"))
    x = apply_norm(g, c, w, h, f"{b}.ffn_norm")
    x = blocks.gated_mlp(g, c, w, x, i, g.swiglu)
    return g.add(h, post_norm(g, c, w, x, f"{b}.post_ffw_norm"))


def post_norm(g: Builder, c: Config, w: Weights, x: Value, name: str) -> Value:
    """Return the norm of what a half of a layer adds; the names of these tensors end in no ``weight``."""
    return g.rms_norm(x, w.vector(name, c.hidden_size), c.rms_norm_eps)


def scan(g: Builder, c: Config, w: Weights, i: int, x: Value) -> Value:
    """Return the layer's normed input x through its scan: [tokens, hidden]."""
    b, inner, rank, state = f"blk.{i}", c.mamba_d_ssm, c.mamba_dt_rank, c.mamba_d_state
    heads = c.mamba_n_heads
    width = inner // heads
    (both,) = g.linear(x, w.matrix(f"{b}.ssm_in", 2 * inner, c.hidden_size))
    # Each head has its gate, then its input.
    gate = g.select_columns(both, 0, width, 2 * width)
    x = g.conv1d(
        g.select_columns(both, width, width, 2 * width),
        w.floats(f"{b}.ssm_conv1d.weight", inner, c.mamba_d_conv),
        silu=True,
    )
    (parts,) = g.linear(x, w.matrix(f"{b}.ssm_x", rank + 2 * state, inner))
    sizes = {"b": (0, state), "c": (state, state), "dt": (2 * state, rank)}
    normed = {
        name: g.rms_norm(
            g.select_columns(parts, first, size),
            w.vector(f"{b}.ssm_{name}_norm", size),
            c.rms_norm_eps,
        )
        for name, (first, size) in sizes.items()
    }
    (dt,) = g.linear(normed["dt"], w.matrix(f"{b}.ssm_dt", heads, rank))
    y = g.mamba2_scan(
        g.join_heads(x, g.join_heads(normed["b"], normed["c"], 1), 1),
        dt,
        dt_bias=w.vector(f"{b}.ssm_dt.bias", heads),
        decay=w.vector(f"{b}.ssm_a", heads),
        skip=w.vector(f"{b}.ssm_d", heads),
        groups=1,
        state_dim=state,
    )
    (out,) = g.linear(g.swiglu(gate, y), w.matrix(f"{b}.ssm_out", c.hidden_size, inner))
    return out


def attention(g: Builder, c: Config, w: Weights, i: int, x: Value) -> Value:
    """Return the layer's normed input x through its attention: [tokens, hidden]."""
    q, k, v = blocks.query_key_value(g, c, w, x, i)

    def rotated(name: str, part: Value) -> Value:
        heads = part.cols // c.head_dim
        weights = w.floats(f"blk.{i}.attn_{name}_norm.weight", heads, c.head_dim)
        normed = g.group_norm(part, weights.ravel(), c.rms_norm_eps, heads)
        return g.rope(normed, c.rope, c.head_dim)

    window = c.sliding_window if c.sliding_window and c.local_layers[i] else 0
    q, k = rotated("q", q), rotated("k", k)
    a = blocks.attention(g, c, q, k, v, c.cached_layer(i), window=window)
    return blocks.attention_output(g, c, w, a, i)


FAMILY = Family("plamo2", ("plamo2",), "", "PLaMo 2", Config, tensors, layer)
