"""A model's configuration in Hugging Face's words: dimensions and constants."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from oxibonsai.graph import HadamardRotation, RopeConfig

# Values of ModelConfig.layer_types.
FULL_ATTENTION, LINEAR_ATTENTION = "full_attention", "linear_attention"
MAMBA, CONVOLUTION, FEED_FORWARD, RWKV = "mamba", "conv", "mlp", "rwkv"


@dataclass(frozen=True)
class GatedDeltaConfig:
    """Gated DeltaNet: layers of linear attention with a state of fixed size.

    Attributes:
        conv_kernel_dim: Taps of the convolution before the scan.
        num_key_heads, num_value_heads: Heads of queries and keys; of values, gates and states.
        key_head_dim, value_head_dim: A head's state is a matrix of both.
    """

    conv_kernel_dim: int
    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int

    @property
    def key_width(self) -> int:
        """Return the width of all queries, or of all keys."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        """Return the width of all values."""
        return self.num_value_heads * self.value_head_dim


@dataclass(frozen=True)
class ExpertsConfig:
    """A mixture of experts in place of the feed-forward part of a layer.

    Attributes:
        num_experts, num_experts_per_tok: All, and those of one token.
        intermediate_size: Width of an expert.
        shared_intermediate_size: Of the expert that all tokens share; 0: there is none.
        first_dense_layers: The first layers, which have no experts.
        layer_step: Only every so many-th layer has them.
        latent_size: Columns that the experts read and write, between two matrices that all share;
            0: the hidden size.
        scoring: What the scores of a router become: ``"softmax"`` over all experts,
            ``"softmax_of_chosen"``, ``"sigmoid"`` or ``"sparse_mixer"``.
        normalize: A token's weights are divided by their sum.
        scale: Of the weights, at last.
        groups: Of neighbouring experts, of which only some are kept.
        kept_groups: Those with the highest scores.
        best_of_group: How many of its experts' scores, the highest, make up a group's.
    """

    num_experts: int
    num_experts_per_tok: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    first_dense_layers: int = 0
    layer_step: int = 1
    latent_size: int = 0
    scoring: str = "softmax"
    normalize: bool = True
    scale: float = 1.0
    groups: int = 1
    kept_groups: int = 1
    best_of_group: int = 1


@dataclass(frozen=True)
class LatentConfig:
    """Latent attention: the cache holds one vector for all heads, of which keys and values are made.

    Attributes:
        q_lora_rank: Width of the queries' latent vector; 0: queries are projected directly.
        kv_lora_rank: Of that of keys and values.
        qk_nope_head_dim, qk_rope_head_dim: Dims of a head's query that are not rotated, and that are.
        v_head_dim: Of a head's value.
        norm_eps: Of the norms of both; 0: that of the other norms.
    """

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    norm_eps: float = 0.0

    @property
    def cache_dim(self) -> int:
        """Values that a token has in the cache of a layer."""
        return self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True)
class MambaConfig:
    """State space layers of Mamba 1 or 2.

    Attributes:
        conv_kernel: Taps of the convolution before the scan.
        intermediate_size: Columns of the scan's input and result.
        state_size: Of a channel's state in Mamba 1; a head's in Mamba 2 is a matrix of that and the
            dims of a head.
        time_step_rank: Columns that all time steps are made of (Mamba 1).
        num_heads: That share the columns and have a time step each (Mamba 2).
        n_groups: Of heads that share what is read and written (Mamba 2).
    """

    conv_kernel: int
    intermediate_size: int
    state_size: int
    time_step_rank: int = 0
    num_heads: int = 0
    n_groups: int = 0


@dataclass(frozen=True)
class RwkvConfig:
    """RWKV-7: layers whose state is a matrix for each head.

    Attributes:
        head_size: Of a head.
        decay_rank, rate_rank, value_rank, gate_rank: Columns between the two matrices that make decays,
            learning rates, shares of the first layer's values, and gates.
    """

    head_size: int
    decay_rank: int
    rate_rank: int
    value_rank: int
    gate_rank: int


@dataclass(frozen=True)
class DecoderConfig:
    """The decoder of a model whose prompts go through an encoder.

    Attributes:
        num_layers: Of the decoder.
        start_token_id: What each of its texts begins with.
    """

    num_layers: int
    start_token_id: int


@dataclass(frozen=True)
class StreamsConfig:
    """Several streams of hidden states, of which one goes through a layer (AltUp).

    Attributes:
        count: Their number.
        active: The one that does.
        sparsity: Of each layer, how many deviations above their mean gates must be to count; minus
            infinity: all do.
    """

    count: int
    active: int
    sparsity: tuple[float, ...]


@dataclass(frozen=True)
class ClassifierConfig:
    """A head that gives scores of a text, or of a pair of texts, in place of the next token.

    Attributes:
        pooling: The hidden states that it reads: ``"cls"``, ``"mean"`` or ``"last"``.
        labels: What its scores are of; empty where the file does not say.
        yes_or_no: The scores are those of the answers yes and no, which make one probability.
        activation: Between the head's two layers: ``"tanh"``, ``"gelu"`` or ``"gelu_new"``.
    """

    pooling: str
    labels: tuple[str, ...] = ()
    yes_or_no: bool = False
    activation: str = "tanh"


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions and constants of one model; fields carry Hugging Face's names.

    Attributes:
        rope: Rotary embedding of the (global) attention layers.
        rope_local: That of sliding-window layers, where it differs.
        rope_query: That of queries, where it differs.
        sliding_window: Keys that a query of a local layer sees, itself counted; 0: all.
        sliding_window_pattern: Every n-th layer is global, the others local; 0: all are global.
        local_layers: Whether each layer is local, where the pattern has no period.
        layer_windows: Tokens on each side of a query that each layer of an encoder sees.
        global_tokens: The first tokens of a text, which see and are seen by all of it where others
            have a window; 0: none.
        block_size: Of blocks of tokens that see their neighbours, the first and the last; 0: all
            tokens see each other.
        num_random_blocks: How many more times such blocks see the first one.
        local_head_dim: Of layers with a window, where it differs; 0: ``head_dim``.
        num_kv_shared_layers: The last layers, which use keys and values of earlier ones.
        hidden_size_per_layer_input: Of what each layer gets beside the hidden states; 0: nothing.
        attention_chunk_size: A query of a local layer sees the keys of its own chunk only; 0: all.
        use_qk_norm: Queries and keys of local layers are normalised, without weights.
        num_nextn_predict_layers: Layers of the file past those of the pass, which predict further
            tokens.
        attention_scale: Factor of the scores.
        attn_logit_softcapping, final_logit_softcapping: 0 where absent.
        rms_norm_eps, layer_norm_eps: Of the kind of norm that the model has; 0 for the other.
        logit_scale: Factor of the logits.
        embedding_scale: Factor of the token embeddings.
        residual_scale: Factor of what each half of a layer adds to the hidden states.
        clamp_kqv: Largest magnitude of queries, keys and values; 0: any.
        alibi_max_bias: Steepness of attention with linear biases; 0: there are none.
        parallel_residual: Both halves of a layer read the same hidden states.
        layer_sizes: Heads, key-value heads and the width of the MLP of each layer, where they differ;
            the fields for all then hold the largest.
        xielu: alpha_p, alpha_n, beta and eps of each layer's activation.
        causal: A token sees those before it; False for encoders, which see the whole text, end with
            a norm of their own and have no output matrix.
        pooling: How the model's embeddings are made of its hidden states: ``"last"``, ``"mean"`` or
            ``"cls"``.
        classifier: The head of a model that scores texts; None: it has none.
        token_types: That the pass tells apart by its input of this name, one for each text of a pair;
            1: it has no such input.
        hidden_act: Of the MLP, where the architecture leaves it open.
        relative_buckets: Of distances that have a bias of their own; 0: none has.
        expert_layers: Whether each layer has experts, where not all from one layer on do.
        deepstack_layers: Of the first layers, behind each of which more of a picture's rows are added.
        layer_types: Of each layer, ``"full_attention"`` or what it has instead of attention and of
            keys and values in the cache; empty: all attend.
        gated_delta: Of the layers of type ``"linear_attention"``.
        experts: Of the layers that have them; None: none does.
        latent: How layers attend, if by a latent vector.
        mamba: Of the layers of type ``"mamba"``.
        rwkv: Of the layers of type ``"rwkv"``.
        streams: Of hidden states; None: there is one.
        decoder: Of a model with an encoder too, whose sizes the other fields are; None: there is one
            pass for all tokens.
        inner_norm_eps: Of norms without weights within a layer of type ``"mamba"``; 0: there are none.
        conv_kernel: Taps of the layers of type ``"conv"``.
        hadamard: How weights are folded; None: they are not.
        of_family: The family's own config; None: the architecture is not described as a family yet.
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
    rope_query: RopeConfig | None = None
    sliding_window: int = 0
    sliding_window_pattern: int = 0
    local_layers: tuple[bool, ...] = ()
    layer_windows: tuple[int, ...] = ()
    global_tokens: int = 0
    block_size: int = 0
    num_random_blocks: int = 0
    local_head_dim: int = 0
    num_kv_shared_layers: int = 0
    hidden_size_per_layer_input: int = 0
    attention_chunk_size: int = 0
    use_qk_norm: bool = False
    num_nextn_predict_layers: int = 0
    attn_logit_softcapping: float = 0.0
    final_logit_softcapping: float = 0.0
    layer_norm_eps: float = 0.0
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    clamp_kqv: float = 0.0
    alibi_max_bias: float = 0.0
    parallel_residual: bool = False
    layer_sizes: tuple[tuple[int, int, int], ...] = ()
    xielu: tuple[tuple[float, float, float, float], ...] = ()
    causal: bool = True
    pooling: str = "last"
    name: str = ""
    classifier: ClassifierConfig | None = None
    token_types: int = 1
    hidden_act: str = ""
    relative_buckets: int = 0
    expert_layers: tuple[bool, ...] = ()
    deepstack_layers: int = 0
    layer_types: tuple[str, ...] = ()
    gated_delta: GatedDeltaConfig | None = None
    experts: ExpertsConfig | None = None
    latent: LatentConfig | None = None
    mamba: MambaConfig | None = None
    rwkv: RwkvConfig | None = None
    streams: StreamsConfig | None = None
    decoder: DecoderConfig | None = None
    inner_norm_eps: float = 0.0
    conv_kernel: int = 0
    hadamard: HadamardRotation | None = field(default=None, repr=False, compare=False)
    of_family: Any = field(default=None, repr=False, compare=False)

    @property
    def generates(self) -> bool:
        """Whether the model continues texts; encoders and classifiers do not."""
        return self.causal and self.classifier is None

    @property
    def image_width(self) -> int:
        """Columns of a row of a picture: in place of a token's embedding, and those added later."""
        return self.hidden_size * (1 + self.deepstack_layers)

    def cached_layer(self, layer: int) -> int:
        """Which layer of the cache a layer that attends has."""
        return sum(self.attends(i) for i in range(layer))

    def attends(self, layer: int) -> bool:
        """Whether the layer has keys and values in the cache."""
        return not self.layer_types or self.layer_types[layer] == FULL_ATTENTION

    def of_layer(self, layer: int) -> ModelConfig:
        """Return the configuration with the sizes of one layer."""
        if not self.layer_sizes:
            return self
        heads, kv_heads, width = self.layer_sizes[layer]
        return replace(
            self,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            intermediate_size=width,
        )

    def is_local(self, layer: int) -> bool:
        """Whether the layer attends within the sliding window only."""
        if self.sliding_window == 0:
            return False
        if self.local_layers:
            return self.local_layers[layer]
        if self.sliding_window_pattern == 0:
            return True
        return (layer + 1) % self.sliding_window_pattern != 0
