"""T5, mT5 and UMT5: biases by bucketed distance in place of positions, RMSNorm before each part of a layer.

The encoder alone (``t5encoder``), or with a decoder whose layers attend to it (``t5``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder, encoder
from oxibonsai.architectures.encoder import EncoderFamily
from oxibonsai.architectures.heads import LabelCount, Pooling, Projections
from oxibonsai.architectures.layers.pooled import ClassifierConfig
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    COUNT_OR_ZERO,
    EPSILON,
    FLAG,
    Checked,
    Derived,
    GgufKeys,
    Known,
    Stated,
    constant,
    count,
    field,
    fixed,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, norm, vector, weight
from oxibonsai.graph import Builder, RopeConfig, Value, Vector

MAX_DISTANCE = 128  # distances from here on share a bucket; every published T5 has this number
POSITIONS = 512  # where the configuration does not say; no weight depends on it
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # of the token table
RELU, GATED = "relu", "gated-gelu"


@dataclass(frozen=True)
class DecoderConfig:
    """The decoder of a model whose prompts go through an encoder.

    Attributes:
        num_layers: Of the decoder.
        start_token_id: What each of its texts begins with.
    """

    num_layers: int
    start_token_id: int


class Epsilon(Stated):
    """The epsilon of the norms, which stands under the names of both kinds of norms."""

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        keys.get("attention.layer_norm_epsilon")
        return keys.real(self.key)

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return the keys."""
        names = ("attention.layer_norm_epsilon", self.key)
        return dict.fromkeys(names, (value, self.kind.gguf))


class HeadWidth(Stated):
    """The columns of a head, of keys and of values."""

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        hidden, heads = known["hidden_size"], known["num_attention_heads"]
        width = keys.integer(self.key, hidden // heads if hidden % heads == 0 else None)
        if keys.integer("attention.value_length", width) != width:
            raise keys.unsupported("keys and values of different lengths are not supported")
        return width

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the keys."""
        return dict.fromkeys((self.key, "attention.value_length"), (value, self.kind.gguf))


@dataclass(frozen=True)
class Gated(Derived):
    """Whether the feed-forward parts have a gate (version 1.1 on)."""

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return the value that ``config.json`` says."""
        stated = config.fields.get("feed_forward_proj", RELU)
        if stated not in (RELU, GATED):
            raise config.unsupported(
                f"feed_forward_proj is {stated!r}; known are {RELU!r} and {GATED!r}"
            )
        return bool(stated == GATED)

    def write_config_json(self, value: bool, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"feed_forward_proj": GATED if value else RELU}

    def read_gguf(self, keys: Keys, known: Known) -> bool:
        """Return the value that a file's tensors tell."""
        return "enc.blk.0.ffn_gate.weight" in keys.tensor_names


def _buckets_problem(known: Known, buckets: int) -> str:
    if buckets % 4 == 0 and 4 <= buckets // 2 <= MAX_DISTANCE:
        return ""
    return f"{buckets} buckets of distances are no multiple of 4 from 8 to {2 * MAX_DISTANCE}"


def _heads(known: Known) -> int:
    return int(known["num_attention_heads"])


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The fields of both kinds; sizes are those of both sides."""

    num_hidden_layers: int = decoder.layer_count(
        "num_hidden_layers", "num_layers", also_written=("num_layers",)
    )
    n_positions: int = count(
        ("max_position_embeddings", "n_positions"), "context_length", default=POSITIONS,
        also_written=("n_positions",),
    )  # fmt: skip
    hidden_size: int = count(
        ("hidden_size", "d_model"), "embedding_length", also_written=("d_model",)
    )
    intermediate_size: int = count(
        ("intermediate_size", "d_ff"), "feed_forward_length", also_written=("d_ff",)
    )
    num_attention_heads: int = count(
        ("num_attention_heads", "num_heads"), "attention.head_count", also_written=("num_heads",)
    )
    num_key_value_heads: int = count(
        "num_key_value_heads", "attention.head_count_kv", default=_heads, key_default=_heads,
        unsaid=True,
    )  # fmt: skip
    relative_buckets: int = field(
        Checked(
            Stated(COUNT, ("relative_attention_num_buckets",), "attention.relative_buckets_count"),
            _buckets_problem,
        )
    )
    max_distance: int = fixed(MAX_DISTANCE, name="relative_attention_max_distance")
    head_dim: int = field(HeadWidth(COUNT, ("d_kv", "head_dim"), "attention.key_length"))
    vocab_size: int = field(encoder.Vocabulary())
    rms_norm_eps: float = field(
        Epsilon(EPSILON, ("layer_norm_epsilon",), "attention.layer_norm_rms_epsilon", default=1e-6)
    )
    gated: bool = field(Gated())
    layer_norm_eps: float = constant(0.0)
    attention_scale: float = constant(1.0)
    attn_logit_softcapping: float = constant(0.0)
    clamp_kqv: float = constant(0.0)
    alibi_max_bias: float = constant(0.0)
    rope: RopeConfig = constant(RopeConfig(0, 10000.0))


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(Shared):
    """The fields of an encoder alone."""

    causal: bool = field(
        Checked(
            Stated(FLAG, (), "attention.causal", default=False, key_default=False, unsaid=True),
            lambda known, value: "attention.causal is True" if value else "",
        )
    )
    is_encoder_decoder: bool = fixed(False, True, name="is_encoder_decoder")
    tied: bool = fixed(True, False, None, name="tie_word_embeddings")  # it has no output matrix
    num_labels: int = field(LabelCount())
    stated_pooling: str | None = field(Pooling(projects=True), compare=False)
    projections: None = field(Projections())
    token_types: int = constant(1)

    @property
    def classifier(self) -> ClassifierConfig | None:
        """None: there is no head."""
        return None

    @property
    def pooling(self) -> str:
        """How vectors are made of hidden states."""
        return self.stated_pooling or "mean"

    @property
    def max_position_embeddings(self) -> int:
        """Positions that texts have."""
        return self.n_positions


class DecoderLayers(Stated):
    """The layers of the decoder, each of which has tensors."""

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        layers = keys.integer(self.key, known["num_hidden_layers"])
        if layers > len(keys.tensor_names):
            raise keys.fail(f"{self.key} is {layers}, more than tensors")
        return layers


def _start_problem(known: Known, start: int) -> str:
    return "" if start < known["vocab_size"] else f"decoder_start_token_id is {start}, no token"


@dataclass(frozen=True)
class OwnHead(Derived):
    """Whether there is an output matrix: a model without one was trained with scaled outputs."""

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return whether the folder has the matrix; UnsupportedError where its fields do not suit."""
        # Before version 5 of transformers one field said both; mT5 in this version never scales.
        tied = config.fields.get("tie_word_embeddings") is not False
        usual = tied and config.get("model_type") != "mt5"
        scaled = config.fields.get("scale_decoder_outputs", usual)
        own = "lm_head.weight" in config.parameters()
        if scaled is own or not isinstance(scaled, bool):
            raise config.unsupported(
                f"there is {'an' if own else 'no'} lm_head.weight, and logits are "
                f"{'' if scaled else 'not '}scaled, which a GGUF file cannot express"
            )
        return own

    def write_config_json(self, value: bool, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return {"scale_decoder_outputs": not value, "tie_word_embeddings": not value}

    def read_gguf(self, keys: Keys, known: Known) -> bool:
        """Return whether a file has the matrix."""
        return "output.weight" in keys.tensor_names


@dataclass(frozen=True, kw_only=True)
class Config(Shared):
    """The fields of an encoder with a decoder."""

    is_encoder_decoder: bool = fixed(True, False, name="is_encoder_decoder")
    num_decoder_layers: int = field(
        DecoderLayers(COUNT, ("num_decoder_layers",), "decoder_block_count")
    )
    decoder_start_token_id: int = field(
        Checked(
            Stated(
                COUNT_OR_ZERO, ("decoder_start_token_id",), "decoder_start_token_id", key_default=0
            ),
            _start_problem,
        )
    )
    own_head: bool = field(OwnHead())
    final_logit_softcapping: float = constant(0.0)

    @property
    def decoder(self) -> DecoderConfig:
        """Return the decoder of the model."""
        return DecoderConfig(self.num_decoder_layers, self.decoder_start_token_id)

    @property
    def max_position_embeddings(self) -> int:
        """Positions of both sides."""
        return 2 * self.n_positions

    @property
    def logit_scale(self) -> float:
        """Factor of the logits."""
        return 1.0 if self.own_head else float(self.hidden_size**-0.5)


def _attention(parameter: str, tensor: str, *, layer: int | None = None) -> Iterator[Tensor]:
    """Yield the matrices of an attention, and its biases by distance."""
    for part in "qkvo":
        yield weight(f"{parameter}.{part}", f"{tensor}_{part}")
    name = f"{parameter}.relative_attention_bias.weight"
    yield vector(name, f"{tensor}_rel_b.weight", optional=layer != 0)


def _feed_forward_tensors(c: Shared, parameter: str, tensor: str) -> Iterator[Tensor]:
    yield norm(f"{parameter}.layer_norm", f"{tensor}.ffn_norm")
    dense = f"{parameter}.DenseReluDense"
    if c.gated:
        yield weight(f"{dense}.wi_0", f"{tensor}.ffn_gate")
    yield weight(f"{dense}.wi_1" if c.gated else f"{dense}.wi", f"{tensor}.ffn_up")
    yield weight(f"{dense}.wo", f"{tensor}.ffn_down")


def encoder_tensors(c: Shared) -> Iterator[Entry]:
    """Yield the token table and all tensors of the encoder."""
    yield weight("shared", "token_embd")
    yield norm("encoder.final_layer_norm", "enc.output_norm")
    for i in range(c.num_hidden_layers):
        b, e = f"encoder.block.{i}.layer", f"enc.blk.{i}"
        yield norm(f"{b}.0.layer_norm", f"{e}.attn_norm")
        yield from _attention(f"{b}.0.SelfAttention", f"{e}.attn", layer=i)
        yield from _feed_forward_tensors(c, f"{b}.1", e)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of both sides."""
    yield from encoder_tensors(c)
    yield weight("lm_head", "output", optional=not c.own_head)
    yield norm("decoder.final_layer_norm", "dec.output_norm")
    for i in range(c.num_decoder_layers):
        b, d = f"decoder.block.{i}.layer", f"dec.blk.{i}"
        yield norm(f"{b}.0.layer_norm", f"{d}.attn_norm")
        yield from _attention(f"{b}.0.SelfAttention", f"{d}.attn", layer=i)
        yield norm(f"{b}.1.layer_norm", f"{d}.cross_attn_norm")
        # Old models have biases there that nothing reads.
        yield from _attention(f"{b}.1.EncDecAttention", f"{d}.cross_attn")
        yield from _feed_forward_tensors(c, f"{b}.2", d)


def bucket_of(distance: int, buckets: int) -> int:
    """Return the bucket of a distance, which is that of a key after its query, in an encoder.

    Half of the buckets are for keys after the query, the others as in a decoder.
    """
    own = buckets // 2
    return (own if distance > 0 else 0) + _bucket_of_size(abs(distance), own)


def causal_bucket_of(distance: int, buckets: int) -> int:
    """Return the bucket of a distance in a decoder, where no key is after its query."""
    return _bucket_of_size(max(-distance, 0), buckets)


def _bucket_of_size(distance: int, buckets: int) -> int:
    """Return the bucket of a distance.

    Half of the buckets have a distance of their own each, the others ever larger ranges, in equal steps
    of the logarithm; whole numbers decide, so that no rounding can.
    """
    exact = buckets // 2
    if distance < exact:
        return distance
    # The largest k with log(distance / exact) / log(max / exact) * (buckets - exact) >= k.
    steps = buckets - exact
    reached = distance**steps
    k = 0
    while k < steps - 1 and reached * exact ** (k + 1) >= MAX_DISTANCE ** (k + 1) * exact**steps:
        k += 1
    return exact + k


def position_bias(c: Shared, w: Weights, name: str) -> Vector:
    """Return the bias of each head and distance: [heads, 2 * reach + 1]."""
    table = w.floats(f"{name}.weight", c.relative_buckets, c.num_attention_heads)
    bucket = causal_bucket_of if name.startswith("dec.") else bucket_of
    distances = range(-MAX_DISTANCE, MAX_DISTANCE + 1)
    return np.ascontiguousarray(table[[bucket(d, c.relative_buckets) for d in distances]].T)


def _layer_bias(c: Shared, w: Weights, side: str, layer: int) -> Vector:
    """Return the bias of a layer with a table of its own; the others share the first one's."""
    own = w.has(f"{side}.blk.{layer}.attn_rel_b.weight")
    return position_bias(c, w, f"{side}.blk.{layer if own else 0}.attn_rel_b")


def _norm(g: Builder, c: Shared, w: Weights, x: Value, name: str) -> Value:
    return g.rms_norm(x, w.vector(f"{name}.weight", c.hidden_size), c.rms_norm_eps)


def _key_value(g: Builder, c: Shared, w: Weights, x: Value, prefix: str) -> tuple[Value, Value]:
    kv, hidden = c.num_key_value_heads * c.head_dim, c.hidden_size
    k, v = g.linear(x, w.matrix(f"{prefix}_k", kv, hidden), w.matrix(f"{prefix}_v", kv, hidden))
    return k, v


def _query(g: Builder, c: Shared, w: Weights, x: Value, prefix: str) -> Value:
    width = c.num_attention_heads * c.head_dim
    return g.linear(x, w.matrix(f"{prefix}_q", width, c.hidden_size))[0]


def _output(g: Builder, c: Shared, w: Weights, a: Value, prefix: str, add: Value) -> Value:
    return g.linear(a, w.matrix(f"{prefix}_o", c.hidden_size, a.cols), add=add)[0]


def _feed_forward(g: Builder, c: Shared, w: Weights, h: Value, b: str) -> Value:
    """Return h with what the feed-forward part adds."""
    hidden, ff = c.hidden_size, c.intermediate_size
    x = _norm(g, c, w, h, f"{b}.ffn_norm")
    up = w.matrix(f"{b}.ffn_up", ff, hidden)
    if w.has(f"{b}.ffn_gate.weight"):  # version 1.1 on
        gate, x = g.linear(x, w.matrix(f"{b}.ffn_gate", ff, hidden), up)
        x = g.geglu(gate, x)
    else:
        x = g.relu(g.linear(x, up)[0])
    (h,) = g.linear(x, w.matrix(f"{b}.ffn_down", hidden, ff), add=h)
    return h


def embed(g: Builder, c: Shared, w: Weights) -> Value:
    """Return the rows of the token table."""
    return g.embed(w.embedding(c))


def encoder_layer(g: Builder, c: Shared, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i of the encoder."""
    b = f"enc.blk.{i}"
    x = _norm(g, c, w, h, f"{b}.attn_norm")
    q, (k, v) = _query(g, c, w, x, f"{b}.attn"), _key_value(g, c, w, x, f"{b}.attn")
    bias = _layer_bias(c, w, "enc", i)
    a = g.attend_local(q, k, v, head_dim=c.head_dim, scale=c.attention_scale, position_bias=bias)
    h = _output(g, c, w, a, f"{b}.attn", h)
    return _feed_forward(g, c, w, h, b)


def encoder_norm(g: Builder, c: Shared, w: Weights, h: Value) -> Value:
    """Return the norm that ends the encoder."""
    return _norm(g, c, w, h, "enc.output_norm")


def _paged_layers(g: Builder, c: Config) -> tuple[list[int], list[int]]:
    """Return layers of the cache, declared by both passes: of self-attention, of cross-attention."""
    layers = range(c.num_decoder_layers)
    own = [g.add_paged_layer(c.num_key_value_heads, c.head_dim) for _ in layers]
    return own, [g.add_paged_layer(c.num_key_value_heads, c.head_dim) for _ in layers]


def encode(g: Builder, c: Config, w: Weights) -> Value:
    """Return the encoder's states, of which each layer of the decoder has keys and values of its own."""
    _, cross = _paged_layers(g, c)
    h = embed(g, c, w)
    for i in range(c.num_hidden_layers):
        h = encoder_layer(g, c, w, i, h)
    h = encoder_norm(g, c, w, h)
    for i, layer in enumerate(cross):
        g.store_kv(*_key_value(g, c, w, h, f"dec.blk.{i}.cross_attn"), layer)
    return h


def decoder_states(g: Builder, c: Config, w: Weights) -> Value:
    """Return the hidden states after the decoder's last layer."""
    layers = list(zip(*_paged_layers(g, c), strict=True))
    h = embed(g, c, w)
    for i, (own, cross) in enumerate(layers):
        h = decoder_layer(g, c, w, i, h, own, cross)
    return h


def decoder_layer(
    g: Builder, c: Config, w: Weights, i: int, h: Value, own: int, cross: int
) -> Value:
    """Return the hidden states after layer i of the decoder, whose layers of the cache are given."""
    b = f"dec.blk.{i}"
    w.leave_out(f"{b}.cross_attn_rel_b.")  # nobody reads it
    x = _norm(g, c, w, h, f"{b}.attn_norm")
    g.store_kv(*_key_value(g, c, w, x, f"{b}.attn"), own)
    a = g.attend_to(
        _query(g, c, w, x, f"{b}.attn"),
        layer=own,
        head_dim=c.head_dim,
        scale=c.attention_scale,
        position_bias=_layer_bias(c, w, "dec", i),
        part="own",
    )
    h = _output(g, c, w, a, f"{b}.attn", h)
    x = _norm(g, c, w, h, f"{b}.cross_attn_norm")
    a = g.attend_to(
        _query(g, c, w, x, f"{b}.cross_attn"),
        layer=cross,
        head_dim=c.head_dim,
        scale=c.attention_scale,
        part="encoded",
    )
    h = _output(g, c, w, a, f"{b}.cross_attn", h)
    return _feed_forward(g, c, w, h, b)


def decoder_norm(g: Builder, c: Shared, w: Weights, h: Value) -> Value:
    """Return the norm before the output matrix."""
    return _norm(g, c, w, h, "dec.output_norm")


@dataclass(frozen=True)
class EncoderDecoder(Family[Config]):
    """A family of encoders with a decoder."""

    def hidden_states(self, g: Builder, c: Config, w: Weights) -> Value:
        """Return the hidden states after the decoder's last layer: [tokens, hidden]."""
        return decoder_states(g, c, w)

    def whole_pass(self, g: Builder, c: Any, w: Weights) -> Value:
        """Return the logits, and describe the pass of prompts, too."""
        encode(type(g)(), c, w)  # in a graph of its own, with the same layers of the cache
        return super().whole_pass(g, c, w)


def _is_encoder(config: ConfigJson) -> bool:
    return str(config.fields.get("architectures")).endswith("EncoderModel']")


def _biased_by_layer(keys: Keys) -> bool:
    """Return whether every layer has biases of its own."""
    return "enc.blk.1.attn_rel_b.weight" in keys.tensor_names


def _encoder(kind: str, *model_types: str, owns: Callable[[Keys], bool]) -> EncoderFamily[Any]:
    return EncoderFamily(
        "t5encoder", model_types, kind, "T5", EncoderConfig, encoder_tensors, encoder_layer, embed,
        encoder_norm, ignored=COPIES, task="EncoderModel", owns_gguf=owns,
        owns_config_json=_is_encoder, projects=True,
    )  # fmt: skip


def _whole(kind: str, *model_types: str, owns: Callable[[Keys], bool]) -> EncoderDecoder:
    return EncoderDecoder(
        "t5", model_types, kind, "T5", Config, tensors, encoder_layer, embed, decoder_norm,
        ignored=COPIES, task="ForConditionalGeneration", owns_gguf=owns, encode=encode,
        owns_config_json=lambda config: not _is_encoder(config),
    )  # fmt: skip


def _any(keys: Keys) -> bool:
    return True


UMT5_ENCODER = _encoder("UMT5", "umt5", owns=_biased_by_layer)
T5_ENCODER = _encoder("T5", "t5", "mt5", owns=_any)
UMT5 = _whole("UMT5", "umt5", owns=_biased_by_layer)
T5 = _whole("T5", "t5", "mt5", owns=_any)
