"""StableLM: LayerNorm, a part of each head rotated; in the 12B model halves side by side."""

from __future__ import annotations

from oxibonsai.architectures.layers import blocks
from oxibonsai.graph import Builder, Value
from oxibonsai.models.architecture import Architecture, dimensions, norm
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """Layers without a second norm have their halves side by side.

    Converters write ``use_parallel_residual`` as true for models that are not, so that the tensors
    decide, as they do in llama.cpp.
    """
    keys.flag("use_parallel_residual", True)
    shared = dimensions(keys)
    return ModelConfig(
        **shared,
        causal=keys.causal(True),
        rms_norm_eps=0.0,
        layer_norm_eps=keys.positive("attention.layer_norm_epsilon"),
        pooling=keys.pooling("last"),
        rope=keys.rope(shared["head_dim"]),
        parallel_residual=not keys.checkpoint.has("blk.0.ffn_norm.weight"),
    )


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last layer: [n, hidden]."""
    h = g.embed(w.embedding(c))
    for i in range(c.num_hidden_layers):
        b = f"blk.{i}"
        x = norm(g, c, w, h, f"{b}.attn_norm")
        q, k, v = blocks.query_key_value(g, c, w, x, i)
        if w.has(f"{b}.attn_q_norm.weight"):
            q = _head_norm(g, c, w, q, f"{b}.attn_q_norm")
            k = _head_norm(g, c, w, k, f"{b}.attn_k_norm")
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
        a = blocks.attention(g, c, q, k, v, i)
        h = blocks.attention_output(g, c, w, a, i, add=h)
        if not c.parallel_residual:
            x = norm(g, c, w, h, f"{b}.ffn_norm")
        h = blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=h)
    return h


def _head_norm(g: Builder, c: ModelConfig, w: Weights, x: Value, name: str) -> Value:
    """LayerNorm over each head, with weights of its own."""
    heads = x.cols // c.head_dim
    weight = w.floats(f"{name}.weight", heads, c.head_dim).ravel()
    return g.layer_norm(x, weight, None, c.layer_norm_eps, groups=heads)


ARCHITECTURE = Architecture(read_config, hidden_states)
