"""What a model is, in Hugging Face's words: dimensions and constants."""

from __future__ import annotations

from dataclasses import dataclass, field

from oxibonsai import _core
from oxibonsai.graph import HadamardFold, RopeConfig


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions and constants of one model; fields carry Hugging Face's names.

    Attributes:
        rope: Rotary embedding of the (global) attention layers.
        rope_local: That of sliding-window layers, where it differs.
        sliding_window: Keys that a query of a local layer sees, itself counted; 0: all.
        sliding_window_pattern: Every n-th layer is global, the others local; 0: all are global.
        attention_scale: Factor of the scores.
        attn_logit_softcapping, final_logit_softcapping: 0 where absent.
        rms_norm_eps, layer_norm_eps: Of the kind of norm that the model has; 0 for the other.
        causal: A token sees those before it; False for encoders, which see the whole text, end with
            a norm of their own and have no output matrix.
        pooling: How the model's embeddings are made of its hidden states: ``"last"``, ``"mean"`` or
            ``"cls"``.
        hadamard: How weights are folded; None: they are not.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    attention_scale: float
    rope_local: RopeConfig | None = None
    sliding_window: int = 0
    sliding_window_pattern: int = 0
    attn_logit_softcapping: float = 0.0
    final_logit_softcapping: float = 0.0
    layer_norm_eps: float = 0.0
    causal: bool = True
    pooling: str = "last"
    name: str = ""
    hadamard: HadamardFold | None = field(default=None, repr=False, compare=False)

    @property
    def paged_layers(self) -> list[_core.PagedLayer]:
        """The layers of the cache."""
        if not self.causal:
            return []
        layer = _core.PagedLayer(self.num_key_value_heads, self.head_dim, self.head_dim)
        return [layer] * self.num_hidden_layers

    def is_local(self, layer: int) -> bool:
        """Whether the layer attends within the sliding window only."""
        if self.sliding_window == 0:
            return False
        if self.sliding_window_pattern == 0:
            return True
        return (layer + 1) % self.sliding_window_pattern != 0
