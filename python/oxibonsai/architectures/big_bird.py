"""BigBird: a token of a long text sees blocks of the others. The keys of its files are ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from oxibonsai.architectures import decoder, encoder
from oxibonsai.architectures.bert import LAYERS
from oxibonsai.architectures.encoder import Encoder, EncoderFamily, Segmented
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.pooled import ClassifierConfig
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.fields import (
    GgufKeys,
    Known,
    Word,
    biased,
    constant,
    field,
    fixed,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, Value

# Transformers' names of GELU; the tanh form has several.
ACTIVATIONS = {
    "gelu_new": "gelu_new",
    "gelu": "gelu",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
}
SPARSE, FULL = "block_sparse", "original_full"
MOST_RANDOM_BLOCKS = 64  # as the op has it
OUTPUTS = {"attention.output.dense": "attn_output", **encoder.MLP}
QKV = {name: part for name, part in encoder.ATTENTION.items() if part != "attn_output"}


@dataclass(frozen=True)
class StatedBlocks:
    """Tokens of a block and the number of random ones; None: all tokens see each other."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[int, int] | None:
        """Return the value that ``config.json`` says."""
        kind = config.fields.get("attention_type", SPARSE)
        if kind not in (SPARSE, FULL):
            raise config.unsupported(f"attention_type is {kind!r}; known are {SPARSE} and {FULL}")
        if kind == FULL:
            return None
        random = config.get("num_random_blocks") or 0
        return (
            config.count(config.get("block_size"), "block_size"),
            config.count(random, "num_random_blocks") if random else 0,
        )

    def write_config_json(self, value: tuple[int, int] | None, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        if c.block_size == 0:
            return {"attention_type": FULL}
        sizes = {"block_size": c.block_size, "num_random_blocks": c.num_random_blocks}
        return {"attention_type": SPARSE, **sizes}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[int, int] | None:
        """Return the value that a file says."""
        if keys.get("attention.block_size") is None:
            return None
        size = keys.integer("attention.block_size")
        random = keys.count("attention.random_block_count")
        if random > MOST_RANDOM_BLOCKS and _fit(size, random, known["max_position_embeddings"]):
            raise keys.unsupported(
                f"attention.random_block_count is {random}; known are 0 to {MOST_RANDOM_BLOCKS}"
            )
        return size, random

    def write_gguf(self, value: tuple[int, int] | None, c: Any) -> GgufKeys:
        """Return the keys, where there are blocks."""
        if value is None:
            return {}
        return {
            "attention.block_size": (value[0], "u32"),
            "attention.random_block_count": (value[1], "u32"),
        }


def _fit(size: int, random: int, positions: int) -> bool:
    """Return whether a text may be long enough for blocks."""
    return (5 + 2 * random) * size < positions


@dataclass(frozen=True)
class EmbeddingScale:
    """The factor of the token embeddings."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the root of the hidden size, if ``config.json`` asks for it."""
        stated = config.get("rescale_embeddings")
        rescaled = False if stated is None else config.flag(stated, "rescale_embeddings")
        root: float = known["hidden_size"] ** 0.5
        return root if rescaled else 1.0

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"rescale_embeddings": value != 1.0}

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        return keys.positive("embedding_scale", 1.0)

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return the key, if there is a factor."""
        return {} if value == 1.0 else {"embedding_scale": (value, "f32")}


@dataclass(frozen=True, kw_only=True)
class Sparse(Encoder):
    """The fields of its own."""

    hidden_act: str = field(Word("hidden_act", "hidden_activation", ACTIVATIONS))
    blocks: tuple[int, int] | None = field(StatedBlocks(), compare=False)  # but what fits
    embedding_scale: float = field(EmbeddingScale())

    @property
    def classifier(self) -> ClassifierConfig | None:
        """The head of a classifier; None: the model has none."""
        return None if self.head is None else replace(self.head, activation=self.hidden_act)

    @property
    def block_size(self) -> int:
        """Tokens of a block; 0: no text is long enough for blocks."""
        fit = self.blocks is not None and _fit(*self.blocks, self.max_position_embeddings)
        return self.blocks[0] if fit and self.blocks is not None else 0

    @property
    def num_random_blocks(self) -> int:
        """Random blocks that a token sees, beside its neighbours."""
        return self.blocks[1] if self.block_size and self.blocks is not None else 0


@dataclass(frozen=True, kw_only=True)
class Config(Segmented, Sparse):
    """The fields of a model."""

    token_types: int = constant(1)  # its tokenizer has separators alone
    position_embedding_type: str = fixed("absolute", None, name="position_embedding_type")
    is_decoder: bool = fixed(False, name="is_decoder")
    use_bias: bool = biased("use_bias", *QKV.values(), default=True)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from encoder.embeddings()
    yield from encoder.positions()
    for i in range(c.num_hidden_layers):
        yield from decoder.matrices(i, QKV, biased=c.use_bias, layers=LAYERS)
        yield from decoder.matrices(i, OUTPUTS, biased=True, layers=LAYERS)
        yield from encoder.layer_norms(i, encoder.NORMS, LAYERS)
    yield from encoder.head(c, encoder.CLASSIFIER)


def embed(g: Builder, c: Config, w: Weights) -> Value:
    """Return the sum of token embeddings, those of types and those of positions, normalised."""
    h = g.embed(w.embedding(c))
    if c.embedding_scale != 1.0:
        h = g.scale(h, c.embedding_scale)
    h = encoder.add_positions(g, c, w, encoder.add_types(g, c, w, h))
    return encoder.norm(g, c, w, h, "token_embd_norm")


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    activation = g.gelu if c.hidden_act == "gelu" else g.gelu_tanh
    x = encoder.attend(g, c, w, i, h)
    return encoder.layer_norm(g, c, w, i, blocks.plain_mlp(g, c, w, x, i, activation, add=x))


FAMILY = EncoderFamily(
    "big-bird", ("big_bird",), "BigBird", "BigBird", Config, tensors, layer, embed,
    spelled=encoder.without_prefix("bert."), prefix="bert.",
)  # fmt: skip
