"""BitNet b1.58: ternary weights, units of SiLU or squared ReLU, a norm before each output projection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.arithmetic import Computing
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import GgufKeys, Known, field, fixed
from oxibonsai.architectures.schema.operations import Array, OneWay
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

PARTS = {**decoder.ATTENTION, **decoder.MLP}
NORMS = {
    **decoder.NORMS,
    "self_attn.attn_sub_norm": "attn_sub_norm",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
}
ACTIVATIONS = ("relu2", "silu")


@dataclass(frozen=True)
class Ternary(Computing):
    """Makes a matrix -1, 0 and 1 times its mean magnitude; what is ternary stays."""

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the ternary matrices."""
        return [a if _has_three_values(a) else _rounded(a) for a in arrays]

    @property
    def inverse(self) -> KeptTernary:
        """Return the step for what is ternary already."""
        return KeptTernary()


@dataclass(frozen=True)
class KeptTernary(Computing):
    """Leaves ternary matrices as they are: what they were rounded from is lost."""

    def apply(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the matrices; ValueError for one that is not ternary, which would be rounded."""
        if not all(_has_three_values(a) for a in arrays):
            raise ValueError(
                "has more than three values, which BitNet's layers would round; save it as gguf"
            )
        return list(arrays)

    @property
    def inverse(self) -> Ternary:
        """Return the step that makes matrices ternary."""
        return Ternary()


def _has_three_values(values: Array) -> bool:
    """Return whether there are minus a number, zero and the number itself at most."""
    magnitudes = np.abs(values)
    return bool(np.isin(magnitudes, (0.0, magnitudes.max())).all())


def _rounded(values: Array) -> Array:
    scale = max(np.float32(np.abs(values).mean(dtype=np.float32)), np.float32(1e-5))
    found: Array = np.clip(np.rint(values / scale), -1, 1).astype(np.float32) * scale
    return found


@dataclass(frozen=True)
class Activation:
    """The activation of the units.

    Attributes:
        unsaid: That of a file without the key.
    """

    unsaid: str

    def read_config_json(self, config: ConfigJson, known: Known) -> str:
        """Return the value that ``config.json`` says."""
        stated = config.fields.get("hidden_act", "relu2")
        if stated not in ACTIVATIONS:
            known_ones = ", ".join(map(repr, ACTIVATIONS))
            raise config.unsupported(f"hidden_act is {stated!r}; known are {known_ones}")
        return str(stated)

    def write_config_json(self, value: str, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"hidden_act": value}

    def read_gguf(self, keys: Keys, known: Known) -> str:
        """Return the value that a file says."""
        return keys.text("hidden_activation", self.unsaid, ACTIVATIONS)

    def write_gguf(self, value: str, c: Any) -> GgufKeys:
        """Return the key, where files need it."""
        return {"hidden_activation": (value, "str")} if value != self.unsaid else {}


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model; llama.cpp runs every file of ``bitnet`` with SiLU."""

    tie_word_embeddings: bool = decoder.tied(True)
    rope: RopeConfig = field(Rope(("default", "linear")))
    hidden_act: str = field(Activation("silu"))
    attention_bias: bool = fixed(False, name="attention_bias")


@dataclass(frozen=True, kw_only=True)
class B158Config(Config):
    """The fields of a file of Microsoft's converter."""

    hidden_act: str = field(Activation("relu2"))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; matrices become ternary, as the model's layers round them."""
    yield from decoder.outside(c)
    ternary = dict.fromkeys(PARTS.values(), (OneWay((Ternary(),), (KeptTernary(),)),))
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS)
        yield from decoder.matrices(i, PARTS, ternary)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    b = f"blk.{i}"
    gated = g.gated_relu2 if c.hidden_act == "relu2" else g.swiglu
    a = blocks.rotated_attention(g, c, w, norm(g, c, w, h, f"{b}.attn_norm"), i)
    a = norm(g, c, w, a, f"{b}.attn_sub_norm")
    h = blocks.attention_output(g, c, w, a, i, add=h)
    x = norm(g, c, w, h, f"{b}.ffn_norm")

    def unit(gate: Value, up: Value) -> Value:
        return norm(g, c, w, gated(gate, up), f"{b}.ffn_sub_norm")

    return blocks.gated_mlp(g, c, w, x, i, unit, add=h)


FAMILY = Family("bitnet", ("bitnet",), "BitNet", "BitNet", Config, tensors, layer)
B158 = Family(
    "bitnet-b1.58", (), "BitNet", "BitNet b1.58", B158Config, tensors, layer, saved_as=FAMILY
)
