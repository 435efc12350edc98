"""Longformer: a token sees a window, and global tokens see all. The keys of its files are ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, encoder
from oxibonsai.architectures.bert import LAYERS
from oxibonsai.architectures.encoder import Encoder, EncoderFamily, Segmented
from oxibonsai.architectures.heads import classifies
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.fields import (
    Derived,
    GgufKeys,
    Known,
    constant,
    field,
    fixed,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, Value

GLOBAL = {
    "attention.self.query_global": "attn_q_global",
    "attention.self.key_global": "attn_k_global",
    "attention.self.value_global": "attn_v_global",
}


@dataclass(frozen=True)
class Windows:
    """The keys that a token of each layer sees, on both sides together."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[int, ...]:
        """Return the value that ``config.json`` says."""
        layers, stated = known["num_hidden_layers"], config.fields.get("attention_window", 512)
        windows = stated if isinstance(stated, list) else [stated] * layers
        if len(windows) != layers:
            raise config.fail(f"attention_window lists {len(windows)} of {layers} layers")
        for window in windows:
            if type(window) is not int or not 0 < window < 2**31 or window % 2 != 0:
                raise config.fail(f"attention_window is {window!r}, no even count above 0")
        dilation = config.get("attention_dilation")
        if dilation not in (None, 1) and dilation != [1] * layers:
            raise config.unsupported(
                f"attention_dilation is {dilation!r}; convert knows windows without gaps"
            )
        return tuple(windows)

    def write_config_json(self, value: tuple[int, ...], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"attention_window": list(value)}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[int, ...]:
        """Return the value that a file says."""
        key = "attention.sliding_window"
        windows = keys.counts(key, known["num_hidden_layers"])
        for window in windows:
            if window == 0 or window % 2 != 0:
                raise keys.fail(f"{key} is {window}, not even and above 0")
        return tuple(windows)

    def write_gguf(self, value: tuple[int, ...], c: Any) -> GgufKeys:
        """Return the key."""
        return {"attention.sliding_window": (list(value), "arr[u32]")}


@dataclass(frozen=True)
class GlobalTokens(Derived):
    """The first tokens of a text, which see and are seen by all of it; 0: there are none."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return 0 where sentence-transformers, which has none, embeds texts; else 1."""
        embeds = (config.path.parent / "modules.json").is_file() and not classifies(config)
        return 0 if embeds else 1

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        count, most = (
            keys.count("attention.global_token_count", 1),
            known["max_position_embeddings"],
        )
        if count > most:
            raise keys.fail(
                f"attention.global_token_count is {count}, of a text of up to {most} tokens"
            )
        return count

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"attention.global_token_count": (value, "u32")}


@dataclass(frozen=True, kw_only=True)
class Windowed(Encoder):
    """The fields of its own."""

    windows: tuple[int, ...] = field(Windows())
    global_tokens: int = field(GlobalTokens())

    @property
    def layer_windows(self) -> tuple[int, ...]:
        """Tokens on each side of a token that each layer sees."""
        return tuple(n // 2 for n in self.windows)


@dataclass(frozen=True, kw_only=True)
class Config(Segmented, Windowed):
    """The fields of a model."""

    max_position_embeddings: int = encoder.positions_behind_padding()
    token_types: int = constant(1)  # its tokenizer has separators alone
    activation: str = fixed("gelu", name="hidden_act")
    position_embedding_type: str = fixed("absolute", None, name="position_embedding_type")
    first_position: int = encoder.first_position_field()


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; nothing reads the projections of global tokens if it has none."""
    yield from encoder.embeddings()
    yield from encoder.positions(c.first_position)
    more = GLOBAL if c.global_tokens else {}
    for i in range(c.num_hidden_layers):
        parts = {**encoder.ATTENTION, **more, **encoder.MLP}
        yield from decoder.matrices(i, parts, biased=True, layers=LAYERS)
        yield from encoder.layer_norms(i, encoder.NORMS, LAYERS)
    yield from encoder.head(c, encoder.CLASSIFIER)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    q, k, v = encoder.queries_keys_values(g, c, w, i, h)
    x = encoder.add_attention(g, c, w, i, h, attend(g, c, w, i, h, q, k, v))
    return encoder.layer_norm(g, c, w, i, blocks.plain_mlp(g, c, w, x, i, g.gelu, add=x))


def attend(
    g: Builder, c: Config, w: Weights, i: int, h: Value, q: Value, k: Value, v: Value
) -> Value:
    """Return what tokens of layer i see, of whom the global ones have projections of their own."""
    window, tokens = c.layer_windows[i], c.global_tokens
    if tokens == 0:
        return blocks.local_attention(g, c, q, k, v, window=window)
    sizes: dict[str, Any] = {"head_dim": c.head_dim, "scale": c.attention_scale}
    sizes["global_tokens"] = tokens
    names = [f"blk.{i}.attn_{part}_global" for part in "qkv"]
    weights = [w.matrix(name, q.cols, c.hidden_size) for name in names]
    made = g.linear(h, *weights, bias=[w.bias(name, q.cols) for name in names])
    of_global = g.attend_local(*made, **sizes, queries="global")
    # Each result is zero where the other is not.
    return g.add(g.attend_local(q, k, v, **sizes, queries="others", window=window), of_global)


FAMILY = EncoderFamily(
    "longformer", ("longformer",), "", "Longformer", Config, tensors, layer,
    encoder.embed_with_positions, spelled=encoder.without_prefix("longformer."),
    ignored=(*encoder.IGNORED, f"{LAYERS}.*_global.*"),
)  # fmt: skip
