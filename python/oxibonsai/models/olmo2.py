"""OLMo 2 and 3: norms after each half only, q and k normalised over all heads at once."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, RopeConfig, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """In OLMo 3 some layers see a window; their rotary embedding is not scaled."""
    shared = dimensions(keys)
    rope = keys.rope(shared["head_dim"])
    window = keys.window()
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=keys.real("attention.layer_norm_rms_epsilon"),
        pooling=keys.pooling("last"),
        rope=rope,
        rope_local=RopeConfig(rope.rotary_dim, keys.theta("rope.freq_base_swa", rope.theta)),
        sliding_window=window,
        local_layers=keys.local_layers(4) if window else (),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        q, k, v = blocks.query_key_value(g, c, w, h, i)
        q, k = norm(g, c, w, q, f"{b}.attn_q_norm"), norm(g, c, w, k, f"{b}.attn_k_norm")
        local = c.is_local(i)
        rope = c.rope_local if local and c.rope_local is not None else c.rope
        q, k = g.rope(q, rope, c.head_dim), g.rope(k, rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i, window=c.sliding_window if local else 0)
        a = blocks.attention_output(g, c, w, a, i)
        h = g.add(h, norm(g, c, w, a, f"{b}.post_attention_norm"))
        x = blocks.gated_mlp(g, c, w, h, i, g.swiglu)
        h = g.add(h, norm(g, c, w, x, f"{b}.post_ffw_norm"))
    return h


ARCHITECTURE = Architecture(read_config, hidden_states)
