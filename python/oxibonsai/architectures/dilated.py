"""Llama's layers whose tokens see a window, with gaps or without, and the first tokens of the text.

These are Longformer's windows (arXiv 2004.05150) in a decoder: ``attention_window`` keys, of which each
is ``attention_dilation`` positions before the next one, and ``global_tokens`` first tokens. Each layer may
have its own numbers; the keys of the files are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import llama
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT_OR_ZERO,
    Checked,
    GgufKeys,
    Known,
    Stated,
    field,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.graph import Builder, KeyPattern, Value


@dataclass(frozen=True)
class OfLayers:
    """A count of each layer.

    Attributes:
        name: In ``config.json``, which has a list or one number for all layers.
        key: Of the file, which has a list.
        least: The smallest.
        usual: Where nothing says; None: something must.
    """

    name: str
    key: str
    least: int
    usual: int | None = None

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[int, ...]:
        """Return the values that ``config.json`` says."""
        layers, stated = known["num_hidden_layers"], config.get(self.name)
        stated = self.usual if stated is None else stated
        values = stated if isinstance(stated, list) else [stated] * layers
        return self._checked(config, self.name, values, layers)

    def write_config_json(self, value: tuple[int, ...], c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.name: list(value)}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[int, ...]:
        """Return the values that a file says."""
        layers: int = known["num_hidden_layers"]
        if self.usual is not None and keys.get(self.key) is None:
            return (self.usual,) * layers
        return self._checked(keys, self.key, keys.counts(self.key, layers), layers)

    def write_gguf(self, value: tuple[int, ...], c: Any) -> GgufKeys:
        """Return the key."""
        return {self.key: (list(value), "arr[u32]")}

    def _checked(
        self, source: ConfigJson | Keys, name: str, values: list[Any], layers: int
    ) -> tuple[int, ...]:
        counts = all(type(n) is int and self.least <= n < 2**31 for n in values)
        if not counts or len(values) != layers:
            raise source.fail(
                f"{name} is {values!r}, not {self.least} or more for each of {layers} layers"
            )
        return tuple(values)


def _span_problem(known: Known, dilations: tuple[int, ...]) -> str:
    """Return what is wrong with the gaps of windows; empty: nothing is."""
    spans = [window * n for window, n in zip(known["windows"], dilations, strict=True)]
    if any(dilations[i] > 1 and window == 0 for i, window in enumerate(known["windows"])):
        return "a layer without a window has gaps between the keys that a token sees"
    return "" if max(spans) < 2**31 else "windows and their gaps are longer than 2^31 positions"


def _tokens_problem(known: Known, tokens: int) -> str:
    """Return what is wrong with the count of global tokens; empty: nothing is."""
    most = known["max_position_embeddings"]
    return "" if tokens <= most else f"a text of up to {most} tokens has {tokens} global ones"


@dataclass(frozen=True, kw_only=True)
class Config(llama.UnwindowedConfig):
    """The fields of a model."""

    windows: tuple[int, ...] = field(OfLayers("attention_window", "attention.sliding_window", 0))
    dilations: tuple[int, ...] = field(
        Checked(OfLayers("attention_dilation", "attention.window_dilation", 1, 1), _span_problem)
    )
    global_tokens: int = field(
        Checked(
            Stated(
                COUNT_OR_ZERO,
                ("global_tokens",),
                "attention.global_token_count",
                default=0,
                key_default=0,
            ),
            _tokens_problem,
        )
    )


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = norm(g, c, w, h, f"blk.{i}.attn_norm")
    pattern = KeyPattern(dilation=c.dilations[i], global_tokens=c.global_tokens)
    a = blocks.rotated_attention(
        g, c, w, x, i,
        window=c.windows[i] * c.dilations[i], pattern=pattern if c.windows[i] > 0 else None,
    )  # fmt: skip
    h = blocks.attention_output(g, c, w, a, i, add=h)
    return blocks.gated_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, g.swiglu, add=h)


FAMILY = Family(
    "dilated", ("dilated",), "Dilated", "decoder with dilated windows", Config, llama.tensors, layer
)
