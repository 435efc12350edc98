"""Parts that encoders share: their fields, the names of BERT's tensors, its layer, the family itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import HeadDim, LayerNormed
from oxibonsai.architectures.heads import Head, LabelCount, Pooling
from oxibonsai.architectures.layers import blocks, pooled
from oxibonsai.architectures.layers.pooled import POOLED, ClassifierConfig, Typed
from oxibonsai.architectures.layers.sizes import Blocked, FeedForward, Normed, Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    POSITIVE_EPSILON,
    Derived,
    GgufKeys,
    Known,
    OfFolder,
    Stated,
    constant,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.operations import SkipRows
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Tensor, bias, vector, weight
from oxibonsai.graph import Builder, RopeConfig, Value

# Parameters that neither vectors nor scores need, and lists of the numbers from 0 on.
IGNORED = (
    "cls.*", "lm_head.*", "pooler.*", "embeddings.position_ids*", "embeddings.token_type_ids*",
)  # fmt: skip


def layer_norm_epsilon(name: str) -> Any:
    """Return the field of the epsilon of an encoder's norms, by its name in ``config.json``."""
    return real(name, "attention.layer_norm_epsilon", POSITIVE_EPSILON, default=1e-12)


@dataclass(frozen=True)
class Vocabulary(Derived):
    """The rows of the token table, which a file shows by the table alone."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        return config.count(config.get("vocab_size"), "vocab_size")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"vocab_size": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the rows of a file's table."""
        return keys.tensor_shape("token_embd.weight")[0]


@dataclass(frozen=True)
class Segments:
    """The rows of the table of token types; 0: there is none."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        stated = config.get("type_vocab_size")
        return config.count(stated, "type_vocab_size") if stated else 0

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"type_vocab_size": value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the rows of a file's table."""
        name = "token_types.weight"
        return keys.tensor_shape(name)[0] if name in keys.tensor_names else 0

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key, which is one of the tokenizer's."""
        return {"/tokenizer.ggml.token_type_count": (max(value, 1), "u32")}


@dataclass(frozen=True)
class TokenTypes(Derived):
    """The token types that a classifier tells apart; 1: separators alone tell texts apart."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return as many as the table has rows, of a classifier."""
        return 1 if known["head"] is None else max(known["type_vocab_size"], 1)

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return as many as the table has rows, of a classifier whose tokenizer has types."""
        apart = known["head"] is not None and keys.tells_texts_apart
        return max(known["type_vocab_size"], 1) if apart else 1


def first_position(config: ConfigJson) -> int:
    """Return the row of the first position: those up to the id of the padding are no position's."""
    pad = config.get("pad_token_id")
    if pad is None:
        return 0
    if isinstance(pad, bool) or not isinstance(pad, int) or not 0 <= pad < 2**31:
        raise config.fail(f"pad_token_id is {pad!r}, no id")
    return pad + 1


class Positions(Stated):
    """The positions that texts have, of which ``config.json`` counts the rows."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        rows = super().read_config_json(config, known)
        return config.count(rows - first_position(config), self.names[0])


def positions_behind_padding() -> Any:
    """Return the field of the positions of a model that has rows for others, too."""
    return field(Positions(COUNT, ("max_position_embeddings",), "context_length"))


def first_position_field() -> Any:
    """Return the field of the row of the first position; a file has no others."""
    return field(OfFolder(first_position, 0))


@dataclass(frozen=True)
class PlainRope(Rope):
    """A rotary embedding without scaling, which ``config.json`` has as an object."""

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the object of ``config.json``."""
        return {"rope_parameters": rope_object(value)}


def rope_object(rope: RopeConfig) -> dict[str, Any]:
    """Return the object that describes a rotary embedding without scaling."""
    return {"rope_type": "default", "rope_theta": rope.theta}


@dataclass(frozen=True, kw_only=True)
class Encoder(LayerNormed):
    """Fields of an encoder whose norms are LayerNorms."""

    num_key_value_heads: int = decoder.key_value_heads("num_key_value_heads", unsaid=True)
    head_dim: int = field(HeadDim(written=False, keyed=False))
    vocab_size: int = field(Vocabulary())
    layer_norm_eps: float = layer_norm_epsilon("layer_norm_eps")
    tie_word_embeddings: bool = decoder.tied()
    attention_scale: float = decoder.attention_scale()
    causal: bool = fixed(False, key="attention.causal", kind="bool")
    num_labels: int = field(LabelCount())
    head: ClassifierConfig | None = field(Head())
    rope: RopeConfig = constant(RopeConfig(0, 10000.0))
    attn_logit_softcapping: float = constant(0.0)
    clamp_kqv: float = constant(0.0)
    alibi_max_bias: float = constant(0.0)

    @property
    def block_size(self) -> int:
        """Tokens of a block; 0: a token sees all."""
        return 0

    @property
    def num_random_blocks(self) -> int:
        """Random blocks that a token sees."""
        return 0

    @property
    def classifier(self) -> ClassifierConfig | None:
        """The head of a classifier; None: the model has none."""
        return self.head


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """The field of what follows hidden states; in front of a family's other fields as a base."""

    stated_pooling: str | None = field(Pooling(), compare=False)  # not what config.json says

    @property
    def pooling(self) -> str:
        """How vectors are made of hidden states."""
        return self.stated_pooling or "mean"


@dataclass(frozen=True, kw_only=True)
class Segmented(Pooled):
    """The fields of token types besides."""

    type_vocab_size: int = field(Segments())
    token_types: int = field(TokenTypes())


class Embedding(Typed, Normed, Protocol):
    """The fields that the first layer of an encoder reads."""


class Positioned(Embedding, Protocol):
    """A model with learned positions."""

    @property
    def max_position_embeddings(self) -> int:
        """Rows of the table of positions."""
        ...


class Encoded(Blocked, Normed, FeedForward, Protocol):
    """The fields that the layers of an encoder read."""

    @property
    def rope(self) -> RopeConfig:
        """The rotary embedding; without rotated dims nothing is rotated."""
        ...


# What BERT's layers are made of, and its kin's; norms have a bias.
ATTENTION = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
}
MLP = {"intermediate.dense": "ffn_up", "output.dense": "ffn_down"}
NORMS = {
    "attention.output.LayerNorm": "attn_output_norm",
    "output.LayerNorm": "layer_output_norm",
}
# The heads of classifiers: BERT's begins with its pooler, others have a part of their own.
POOLER = {"pooler.dense": "cls", "classifier": "cls.output"}
CLASSIFIER = {"classifier.dense": "cls", "classifier.out_proj": "cls.output"}


def embeddings(embedding_norm: str = "embeddings.LayerNorm") -> Iterator[Tensor]:
    """Yield what makes hidden states of tokens."""
    yield weight("embeddings.word_embeddings", "token_embd")
    yield vector("embeddings.token_type_embeddings.weight", "token_types.weight", optional=True)
    yield from biased_norm(embedding_norm, "token_embd_norm")


def positions(first: int = 0) -> Iterator[Tensor]:
    """Yield the table of learned positions, whose rows before the first one nothing reads."""
    name = "embeddings.position_embeddings.weight"
    yield vector(name, "position_embd.weight", *([SkipRows(first)] if first else []))


def biased_norm(parameter: str, tensor: str, *, optional: bool = False) -> Iterator[Tensor]:
    """Yield weight and bias of a norm; both names without ``.weight``."""
    yield vector(f"{parameter}.weight", f"{tensor}.weight", optional=optional)
    yield bias(parameter, tensor, optional=optional)


def head(c: Encoder, names: Mapping[str, str]) -> Iterator[Tensor]:
    """Yield the head of a classifier, if the model has one."""
    if c.head is not None:
        for both in names.items():
            yield weight(*both)
            yield bias(*both)


def layer_norms(
    i: int, names: Mapping[str, str], layers: str, *, optional: bool = False
) -> Iterator[Tensor]:
    """Yield the norms of a layer, by their names on both sides."""
    for parameter, tensor in names.items():
        both = f"{layers}.{i}.{parameter}", f"blk.{i}.{tensor}"
        yield from biased_norm(*both, optional=optional)


def without_prefix(*prefixes: str) -> Callable[[str], str]:
    """Return what gives a parameter the family's name, before which one of these may stand."""
    kinds = {".gamma": ".weight", ".beta": ".bias"}  # of norms in old checkpoints

    def spelled(parameter: str) -> str:
        for prefix in prefixes:
            parameter = parameter.removeprefix(prefix)
        for old, new in kinds.items():
            if parameter.endswith(old):
                parameter = parameter.removesuffix(old) + new
        return parameter

    return spelled


def norm(g: Builder, c: Normed, w: Weights, x: Value, name: str) -> Value:
    """Return the LayerNorm ``name`` over x, which has a bias."""
    weight, bias = w.vector(f"{name}.weight", x.cols), w.vector(f"{name}.bias", x.cols)
    return g.layer_norm(x, weight, bias, c.layer_norm_eps)


def embed(g: Builder, c: Embedding, w: Weights) -> Value:
    """Return the sum of token embeddings and those of types, normalised.

    Where the pass does not tell types apart, all tokens have the first one.
    """
    return norm(g, c, w, add_types(g, c, w, g.embed(w.embedding(c))), "token_embd_norm")


def add_types(g: Builder, c: Typed, w: Weights, h: Value) -> Value:
    """Return h with the embeddings of token types, if the model has them."""
    if c.token_types > 1:
        return pooled.add_token_types(g, c, w, h)
    if w.has("token_types.weight"):
        h = g.add_vector(h, w.first_row("token_types", c.hidden_size))
    return h


def add_positions(g: Builder, c: Positioned, w: Weights, h: Value) -> Value:
    """Return h with the rows of the table of positions."""
    positions = w.matrix("position_embd", c.max_position_embeddings, c.hidden_size)
    return g.add(h, g.embed_positions(positions))


def embed_with_positions(g: Builder, c: Positioned, w: Weights) -> Value:
    """Return the sum of token embeddings, those of types and those of positions, normalised."""
    h = add_types(g, c, w, g.embed(w.embedding(c)))
    return norm(g, c, w, add_positions(g, c, w, h), "token_embd_norm")


def queries_keys_values(
    g: Builder, c: Encoded, w: Weights, i: int, h: Value
) -> tuple[Value, Value, Value]:
    """Return the projections of layer i over h, normalised and rotated where the model does so."""
    b = f"blk.{i}"
    q, k, v = blocks.query_key_value(g, c, w, h, i)
    if w.has(f"{b}.attn_q_norm.weight"):
        q, k = norm(g, c, w, q, f"{b}.attn_q_norm"), norm(g, c, w, k, f"{b}.attn_k_norm")
    if c.rope.rotary_dim > 0:
        q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    return q, k, v


def add_attention(g: Builder, c: Encoded, w: Weights, i: int, h: Value, seen: Value) -> Value:
    """Return what the MLP of layer i reads: h plus the projection of what it has seen, normalised."""
    a = blocks.attention_output(g, c, w, seen, i, add=h)
    x = norm(g, c, w, a, f"blk.{i}.attn_output_norm")
    if w.has(f"blk.{i}.attn_norm_2.weight"):
        x = norm(g, c, w, g.add(x, h), f"blk.{i}.attn_norm_2")
    return x


def attend(g: Builder, c: Encoded, w: Weights, i: int, h: Value) -> Value:
    """Return what the MLP of layer i reads, whose tokens see the whole text."""
    q, k, v = queries_keys_values(g, c, w, i, h)
    return add_attention(g, c, w, i, h, blocks.local_attention(g, c, q, k, v))


def layer_norm(g: Builder, c: Normed, w: Weights, i: int, x: Value) -> Value:
    """Return the norm that ends layer i over x."""
    return norm(g, c, w, x, f"blk.{i}.layer_output_norm")


def layer(g: Builder, c: Encoded, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i, whose MLP has GELU units."""
    x = attend(g, c, w, i, h)
    return layer_norm(g, c, w, i, blocks.plain_mlp(g, c, w, x, i, g.gelu, add=x))


def no_norm(g: Builder, c: Any, w: Weights, h: Value) -> Value:
    """Return the hidden states as they are: each layer ends with a norm."""
    return h


E = TypeVar("E", bound=Encoder)


@dataclass(frozen=True)
class EncoderFamily(Family[E]):
    """A family whose hidden states are read themselves: vectors or scores of texts are made of them.

    Attributes:
        prefix: What transformers' classes write before the names of all parameters but those of a head;
            empty: none of them is a classifier.
        projects: Whether files may have linear layers after pooling.
    """

    final_norm: Callable[[Builder, Any, Weights, Value], Value] = no_norm
    ignored: tuple[str, ...] = IGNORED
    task: str = "Model"
    prefix: str = ""
    projects: bool = False

    def class_name(self, c: E) -> str:
        """Return the name of transformers' class."""
        return f"{self.kind}{self.task if c.classifier is None else 'ForSequenceClassification'}"

    def parameter(self, name: str) -> str:
        """Return what transformers' classes call a parameter."""
        return name if name.startswith(("classifier.", "head.")) else f"{self.prefix}{name}"

    def hidden_states(self, g: Builder, c: E, w: Weights) -> Value:
        """Return the hidden states after the last norm: [tokens, hidden]."""
        return self.final_norm(g, c, w, super().hidden_states(g, c, w))

    def whole_pass(self, g: Builder, c: Any, w: Weights) -> Value:
        """Return the hidden states, and describe what follows pooling, too."""
        h = self.hidden_states(g, c, w)
        if c.classifier is not None:
            pooled.scores(g, c, w, g.input(POOLED, c.hidden_size))
        if pooled.has_projection(w):
            pooled.project(g, w, g.input(POOLED, c.hidden_size))
        return h
