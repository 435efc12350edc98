"""EmbeddingGemma: Gemma 3's layers as an encoder, whose tokens see both sides."""

from __future__ import annotations

from oxibonsai.architectures.layers.blocks import local_attention
from oxibonsai.graph import Builder, Value
from oxibonsai.models import gemma3
from oxibonsai.models.architecture import Architecture
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.keys import Keys
from oxibonsai.models.pooled import read_projections
from oxibonsai.models.weights import Weights


def read_config(keys: Keys) -> ModelConfig:
    """As of Gemma 3; the window counts the keys on both sides."""
    read_projections(keys)
    keys.integer("attention.sliding_window")  # no layer with a window may go without one
    return gemma3.read_config(keys, causal=False)


def hidden_states(g: Builder, c: ModelConfig, w: Weights) -> Value:
    """Hidden states after the last norm: [n, hidden]."""

    def attend(q: Value, k: Value, v: Value, layer: int, window: int) -> Value:
        del layer
        return local_attention(g, c, q, k, v, window=window // 2)

    h = gemma3.layers(g, c, w, attend)
    return g.rms_norm(h, w.vector("output_norm.weight", c.hidden_size), c.rms_norm_eps)


ARCHITECTURE = Architecture(read_config, hidden_states)
