"""PLaMo 2: layers of Mamba 2 whose time steps, b and c are made of x, and layers of attention."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, hybrid_dimensions, norm
from oxibonsai.models.config import MAMBA, MambaConfig, ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Return the columns that time steps are made of are a function of the hidden size."""
    if not keys.is_zero("ssm.group_count", 0):
        raise keys.unsupported(f"{keys.architecture}.ssm.group_count is not 0")
    shared = hybrid_dimensions(keys, MAMBA)
    heads, inner = keys.integer("ssm.time_step_rank"), keys.integer("ssm.inner_size")
    window = keys.window()
    if inner % heads != 0:
        raise keys.fail(f"{inner} inner values are no multiple of {heads} heads")
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        sliding_window=window,
        local_layers=keys.local_layers(shared["num_hidden_layers"] + 1) if window else (),
        mamba=MambaConfig(
            conv_kernel=keys.integer("ssm.conv_kernel"),
            intermediate_size=inner,
            state_size=keys.integer("ssm.state_size"),
            time_step_rank=max(64, shared["hidden_size"] // 16),
            num_heads=heads,
            n_groups=1,
        ),
    )


def _scan_layer(g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value) -> Value:
    """Return the layer's normed input x through its scan: [n, hidden]."""
    m, b = c.mamba, f"blk.{layer}"
    assert m is not None
    inner, rank, state = m.intermediate_size, m.time_step_rank, m.state_size
    width = inner // m.num_heads
    (both,) = g.linear(x, w.matrix(f"{b}.ssm_in", 2 * inner, c.hidden_size))
    # Each head has its gate, then its input.
    gate = g.select_columns(both, 0, width, 2 * width)
    x = g.conv1d(
        g.select_columns(both, width, width, 2 * width),
        w.floats(f"{b}.ssm_conv1d.weight", inner, m.conv_kernel),
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
    (dt,) = g.linear(normed["dt"], w.matrix(f"{b}.ssm_dt", m.num_heads, rank))
    y = g.mamba2_scan(
        g.join_heads(x, g.join_heads(normed["b"], normed["c"], 1), 1),
        dt,
        dt_bias=w.vector(f"{b}.ssm_dt.bias", m.num_heads),
        decay=w.vector(f"{b}.ssm_a", m.num_heads),
        skip=w.vector(f"{b}.ssm_d", m.num_heads),
        groups=m.n_groups,
        state_dim=state,
    )
    (out,) = g.linear(g.swiglu(gate, y), w.matrix(f"{b}.ssm_out", c.hidden_size, inner))
    return out


def _attention_layer(g: Builder, c: ModelConfig, w: Weights, layer: int, x: Value) -> Value:
    """Return the layer's normed input x through its attention: [n, hidden]."""
    q, k, v = blocks.query_key_value(g, c, w, x, layer)

    def turned(name: str, part: Value) -> Value:
        heads = part.cols // c.head_dim
        weight = w.floats(f"blk.{layer}.attn_{name}_norm.weight", heads, c.head_dim)
        return g.rope(g.group_norm(part, weight.ravel(), c.rms_norm_eps, heads), c.rope, c.head_dim)

    window = c.sliding_window if c.is_local(layer) else 0
    q, k = turned("q", q), turned("k", k)
    a = blocks.attention(g, c, q, k, v, c.cached_layer(layer), window=window)
    return blocks.attention_output(g, c, w, a, layer)


def _post_norm(g: Builder, c: ModelConfig, w: Weights, x: Value, name: str) -> Value:
    """Return the norm of what a half of a layer adds; the names of these tensors end in no ``weight``."""
    return g.rms_norm(x, w.vector(name, c.hidden_size), c.rms_norm_eps)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        mix = _attention_layer if c.attends(i) else _scan_layer
        h = g.add(h, _post_norm(g, c, w, mix(g, c, w, i, x), f"{b}.post_attention_norm"))
        x = norm(g, c, w, h, f"{b}.ffn_norm")
        x = blocks.gated_mlp(g, c, w, x, i, g.swiglu)
        h = g.add(h, _post_norm(g, c, w, x, f"{b}.post_ffw_norm"))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
