"""Small graphs with every op and every type of weights, to compare devices on without a model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from oxibonsai import _core
from oxibonsai.devices import Device
from oxibonsai.errors import UnsupportedError
from oxibonsai.graph import AxialRope, Builder, KeyPattern, RopeConfig, section_axes
from oxibonsai.models.parity import compare_ops
from oxibonsai.models.parity_graphs import Describe, graph_of, random_matrix, random_values
from oxibonsai.models.parity_wide import WIDE_COLUMNS, compare_wide

# Rows that no tile divides, and columns that every block does.
_ROWS, _COLS = 77, 512
_WIDTH, _HEADS, _KV_HEADS, _DIM = 256, 4, 2, 64
_TAPS, _EXPERTS = 4, 8


def compare_all_ops(
    device: Device,
    definition: Device,
    *,
    wide: bool = False,
    columns: tuple[int, ...] = WIDE_COLUMNS,
) -> Iterator[tuple[str, list[str] | UnsupportedError]]:
    """Yield each graph's name, and the ops that give other bytes: none, if all is well.

    Where the device lacks an op or a type, the error that says so takes the place of the ops.

    Args:
        device: To compare.
        definition: With what.
        wide: Compare steps as an engine makes them too, of graphs with ops that devices join.
        columns: Of the matrices of those.
    """
    for name, describe in _suite():
        try:
            yield name, compare_ops(graph_of(describe), device, definition)
        except UnsupportedError as e:
            yield name, e
    if wide:
        yield from compare_wide(device, definition, columns)


def _suite() -> Iterator[tuple[str, Describe]]:
    for quant_type, importance in _core.encoders().items():
        yield f"linear {quant_type}", _linear(quant_type, importance != "unused")
    yield "norms, rope and activations", _elementwise
    yield "attention", _attention
    yield "attention with a window and a soft-cap", _windowed_attention
    yield "attention within chunks", _chunked_attention
    yield "attention in a window with gaps", _dilated_attention
    yield "attention to blocks", _strided_attention
    yield "attention with linear biases", _biased_attention
    yield "attention with sinks", _attention_with_sinks
    yield "latent attention", _latent_attention
    yield "attention without a cache", _local_attention
    yield "rope with a temperature", _rope_with_temperature
    yield "rope over several axes", _axial_rope
    yield "xIELU", _xielu
    yield "Hadamard transform", _hadamard
    yield "experts", _experts
    yield "parts of rows", _parts
    yield "heads and columns", _heads_and_columns
    yield "a matrix for each head", _head_linear
    yield "convolution", _convolution
    yield "gated delta rule", _gated_delta
    yield "scans of Mamba", _mamba
    yield "scan of RWKV-7", _wkv7


def _linear(quant_type: str, importance: bool) -> Describe:
    def describe(b: Builder) -> None:
        weight = random_matrix(_ROWS, _COLS, quant_type, importance=importance)
        (y,) = b.linear(b.input("x", _COLS), weight, bias=[random_values(_ROWS)])
        b.output("y", y)
        b.output("row", b.embed(weight))

    return describe


def _elementwise(b: Builder) -> None:
    x, y = b.input("x", _WIDTH), b.input("y", _WIDTH)
    weight, bias = random_values(_WIDTH), random_values(_WIDTH + 1)[1:]
    values = [
        b.rms_norm(x, weight, 1e-6),
        b.layer_norm(x, weight, bias, 1e-5),
        b.layer_norm(x, weight, bias, 1e-5, groups=_HEADS),
        b.head_norm(x, weight[:_DIM], 1e-6),
        b.group_norm(x, weight, 1e-6, _HEADS),
        b.swiglu(x, y),
        b.geglu(x, y),
        b.gelu(x),
        b.gelu_tanh(x),
        b.relu(x),
        b.sigmoid(x),
        b.exact_geglu(x, y),
        b.silu(x),
        b.relu2(x),
        b.sigmoid_gate(x, y),
        b.gated_relu2(x, y),
        b.clamped_swiglu(x, y),
        b.clamp(x, 0.8),
        b.add(x, y),
        b.add_vector(x, weight),
        b.scale(x, 0.37),
        b.softcap(x, 30.0),
        b.select_outputs(b.scale(y, 2.0)),
    ]
    for interleaved in (False, True):
        rope = RopeConfig(_DIM, theta=10000.0, interleaved=interleaved)
        values.append(b.rope(x, rope, _DIM))
    for i, value in enumerate(values):
        b.output(str(i), value)


def _heads(b: Builder) -> tuple[_core.Value, _core.Value, _core.Value]:
    kv = _KV_HEADS * _DIM
    return b.input("q", _HEADS * _DIM), b.input("k", kv), b.input("v", kv)


def _attention(b: Builder) -> None:
    out = b.attention(*_heads(b), layer=0, head_dim=_DIM, scale=0.125)
    b.output("out", out)


def _windowed_attention(b: Builder) -> None:
    out = b.attention(*_heads(b), layer=0, head_dim=_DIM, scale=0.125, window=17, softcap=20.0)
    b.output("out", out)


def _chunked_attention(b: Builder) -> None:
    q, k, v = _heads(b)
    rope = RopeConfig(
        _DIM, theta=10000.0, temperature=0.1, temperature_step=4, temperature_offset=1
    )
    q = b.temper(q, rope, _DIM)
    b.output("out", b.attention(q, k, v, layer=0, head_dim=_DIM, scale=0.125, chunk=17))


def _dilated_attention(b: Builder) -> None:
    pattern = KeyPattern(dilation=3, global_tokens=2)
    out = b.attention(*_heads(b), layer=0, head_dim=_DIM, scale=0.125, window=12, pattern=pattern)
    b.output("out", out)


def _strided_attention(b: Builder) -> None:
    pattern = KeyPattern(block_size=4, block_stride=3, head_step=1)
    out = b.attention(*_heads(b), layer=0, head_dim=_DIM, scale=0.125, window=8, pattern=pattern)
    b.output("out", out)


def _biased_attention(b: Builder) -> None:
    slopes = np.exp2(-np.arange(1.0, 1.0 + _HEADS, dtype=np.float32))
    q, k, v = _heads(b)
    b.output("out", b.attention(q, k, v, layer=0, head_dim=_DIM, scale=0.125, slopes=slopes))


def _attention_with_sinks(b: Builder) -> None:
    q, k, v = _heads(b)
    b.output(
        "out",
        b.attention(q, k, v, layer=0, head_dim=_DIM, scale=0.125, sinks=random_values(_HEADS)),
    )


def _latent_attention(b: Builder) -> None:
    q, k = b.input("q", _HEADS * _DIM), b.input("k", _DIM)
    out = b.attention(q, k, None, layer=0, head_dim=_DIM, scale=0.125, value_dim=_DIM - 16)
    b.output("out", out)


def _rope_with_temperature(b: Builder) -> None:
    rope = RopeConfig(_DIM, theta=10000.0, temperature=0.1, temperature_step=4)
    b.output("out", b.rope(b.input("x", _WIDTH), rope, _DIM))


def _axial_rope(b: Builder) -> None:
    x = b.input("x", _WIDTH)
    b.output("rows and columns", b.rope(x, AxialRope((_DIM // 2, _DIM // 2), 10000.0), _DIM))
    b.output("pairs", b.rope(x, AxialRope((16,) * 4, 2000.0, interleaved=True), _DIM))
    axes = section_axes((8, 6, 6), _DIM // 2, interleaved=True)
    b.output("sections", b.rope(x, RopeConfig(_DIM, theta=10000.0, axes=axes), _DIM))


def _xielu(b: Builder) -> None:
    b.output("out", b.xielu(b.input("x", _WIDTH), alpha_p=0.8, alpha_n=0.7, beta=0.5, eps=-1e-6))


def _local_attention(b: Builder) -> None:
    q, k, v = _heads(b)
    slopes = np.exp2(-np.arange(1.0, 1.0 + _HEADS, dtype=np.float32))
    values = [
        b.attend_local(q, k, v, head_dim=_DIM, scale=0.125),
        b.attend_local(q, k, v, head_dim=_DIM, scale=0.125, window=5, slopes=slopes),
        b.attend_local(
            q, k, v, head_dim=_DIM, scale=1.0, position_bias=random_values(_HEADS, 2 * 9 + 1)
        ),
        b.attend_local(q, k, v, head_dim=_DIM, scale=0.125, global_tokens=3, queries="global"),
        b.attend_local(
            q, k, v, head_dim=_DIM, scale=0.125, global_tokens=3, queries="others", window=5
        ),
        b.attend_local(q, k, v, head_dim=_DIM, scale=0.125, block_size=6, random_blocks=2),
    ]
    for i, value in enumerate(values):
        b.output(str(i), value)


def _hadamard(b: Builder) -> None:
    x = b.input("x", _WIDTH)
    b.output("out", b.hadamard(x, 128, before=np.sign(random_values(_WIDTH))))


def _experts(b: Builder) -> None:
    router = random_matrix(_EXPERTS, _WIDTH, "F32")
    gate, up = (random_matrix(_WIDTH, _WIDTH, t, experts=_EXPERTS) for t in ("Q1_0", "Q4_0"))
    down = random_matrix(_WIDTH, _WIDTH, "Q4_K", experts=_EXPERTS)
    x = b.input("x", _WIDTH)
    (scores,) = b.linear(x, router)
    routing = b.route(scores, 2, normalize=True)
    rows = b.dispatch(x, routing)
    hidden = b.swiglu(b.expert_linear(rows, routing, gate), b.expert_linear(rows, routing, up))
    b.output("out", b.combine(b.expert_linear(hidden, routing, down), routing))
    grouped = b.route(
        scores,
        2,
        scoring="sigmoid",
        selection_bias=random_values(_EXPERTS),
        scale=2.5,
        groups=4,
        kept_groups=2,
        best_of_group=2,
    )
    b.output("grouped", b.combine(b.dispatch(x, grouped), grouped))
    scaled = b.route(scores, 2, normalize=True, expert_scale=random_values(_EXPERTS))
    b.output("scaled", b.combine(b.dispatch(x, scaled), scaled))
    sparse = b.route(scores, 2, scoring="sparse_mixer")
    b.output("sparse", b.combine(b.dispatch(x, sparse), sparse))


def _convolution(b: Builder) -> None:
    x, taps = b.input("x", _WIDTH), random_values(_WIDTH, _TAPS)
    b.output("out", b.conv1d(x, taps, random_values(_WIDTH)))
    b.output("silu", b.conv1d(x, taps, silu=True))


def _parts(b: Builder) -> None:
    x = b.input("x", _WIDTH)
    b.output("mixed", b.mix_parts(x, b.input("weights", 3 * 4), 4))
    b.output("matched", b.match_rms(x, b.input("like", _WIDTH), 1e-5))
    b.output("kept", b.gaussian_top_k(x, 1.2))


def _heads_and_columns(b: Builder) -> None:
    x = b.input("x", _WIDTH)
    values = [
        b.join_heads(x, b.input("y", _WIDTH // 2), _HEADS),
        b.select_columns(x, 3, 17, _DIM),
        b.transpose_heads(x, 2, _HEADS),
        b.gate_rows(x, b.input("gate", 1)),
        b.embed_positions(random_matrix(_ROWS, _WIDTH, "F16")),
    ]
    for i, value in enumerate(values):
        b.output(str(i), value)


def _head_linear(b: Builder) -> None:
    weight = random_matrix(_DIM, _DIM, "Q8_0", experts=_HEADS)
    b.output("out", b.head_linear(b.input("x", _WIDTH), weight))


def _gated_delta(b: Builder) -> None:
    qkv = b.input("qkv", 2 * _KV_HEADS * _DIM + _HEADS * _DIM)
    alpha, beta = b.input("alpha", _HEADS), b.input("beta", _HEADS)
    for tiled in (False, True):
        out = b.gated_delta(
            qkv,
            alpha,
            beta,
            dt_bias=random_values(_HEADS),
            decay=-np.exp(random_values(_HEADS)),
            key_heads=_KV_HEADS,
            key_dim=_DIM,
            value_dim=_DIM,
            tiled=tiled,
            eps=1e-6,
        )
        b.output("tiled" if tiled else "out", out)


def _wkv7(b: Builder) -> None:
    r, w, k, v = (b.input(name, _WIDTH) for name in "rwkv")
    # A removal key longer than 1 would let the state grow without end.
    kk, a = b.scale(b.input("kk", _WIDTH), 0.1), b.sigmoid(b.input("a", _WIDTH))
    b.output("out", b.wkv7_scan(r, w, k, v, kk, a, head_dim=_DIM))


def _mamba(b: Builder) -> None:
    states = 16
    x, time_step = b.input("x", _WIDTH), b.input("step", _WIDTH)
    vectors = {"dt_bias": random_values(_WIDTH), "skip": random_values(_WIDTH)}
    decay = -np.exp(random_values(_WIDTH, states))
    first = b.mamba_scan(
        x, time_step, b.input("b", states), b.input("c", states), decay=decay, **vectors
    )
    second = b.mamba2_scan(
        b.input("xbc", _WIDTH + 4 * states),
        b.input("step2", _HEADS),
        dt_bias=random_values(_HEADS),
        decay=-np.exp(random_values(_HEADS)),
        skip=random_values(_HEADS),
        groups=2,
        state_dim=states,
    )
    b.output("1", first)
    b.output("2", second)
