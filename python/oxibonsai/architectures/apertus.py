"""Apertus: q and k normalised per head, xIELU without a gate, whose constants each layer has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from typing import Any

import numpy as np

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import Decoder
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import GgufKeys, Known, field, fixed
from oxibonsai.architectures.schema.operations import Array
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value

NORMS = {
    "attention_layernorm": "attn_norm",
    "feedforward_layernorm": "ffn_norm",
    **decoder.HEAD_NORMS,
}
MLP = {"mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
# The constants of a layer's activation, with the shapes that transformers has them in.
CONSTANTS: dict[str, tuple[int, ...]] = {"alpha_n": (1,), "alpha_p": (1,), "beta": (), "eps": ()}

Constants = tuple[tuple[float, ...], ...]  # of each part, those of all layers


def parameter(layer: int, part: str) -> str:
    """Return Hugging Face's name of a constant."""
    return f"model.layers.{layer}.mlp.act_fn.{part}"


@dataclass(frozen=True)
class Activations:
    """The constants of all layers: parameters of a folder, keys of a file."""

    def read_config_json(self, config: ConfigJson, known: Known) -> Constants:
        """Return the constants that a folder holds; FormatError where one is missing."""
        held, layers = config.parameters(), range(known["num_hidden_layers"])

        def number(name: str) -> float:
            if name not in held or (values := held[name].values()).size != 1:
                raise config.fail(f"the folder has no number {name}")
            return float(values.reshape(-1)[0])

        return tuple(tuple(number(parameter(i, part)) for i in layers) for part in CONSTANTS)

    def write_config_json(self, value: Constants, c: Any) -> dict[str, Any]:
        """Return no field."""
        return {}

    def read_gguf(self, keys: Keys, known: Known) -> Constants:
        """Return the constants that a file says."""
        return tuple(_listed(keys, part, known["num_hidden_layers"]) for part in CONSTANTS)

    def write_gguf(self, value: Constants, c: Any) -> GgufKeys:
        """Return the key of each part."""
        parts = zip(CONSTANTS, value, strict=True)
        return {f"/xielu.{part}": (list(numbers), "arr[f32]") for part, numbers in parts}


def _listed(keys: Keys, part: str, layers: int) -> tuple[float, ...]:
    value = keys.get(f"/xielu.{part}")
    numbers = np.full(layers, value) if isinstance(value, float) else value
    if not isinstance(numbers, np.ndarray) or numbers.shape != (layers,):
        raise keys.fail(f"xielu.{part} is {value!r}, not a number for each of {layers} layers")
    if not np.isfinite(numbers).all() or np.abs(numbers).max() > 64.0:
        raise keys.fail(f"xielu.{part} has a number that is not within -64 and 64")
    return tuple(float(n) for n in numbers)


@dataclass(frozen=True, kw_only=True)
class Config(Decoder):
    """The fields of a model."""

    rope: RopeConfig = field(Rope(("default", "linear", "llama3"), counted=True))
    activation: str = fixed("xielu", name="hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    constants: Constants = field(Activations())

    @cached_property
    def xielu(self) -> tuple[tuple[float, float, float, float], ...]:
        """alpha_p, alpha_n, beta and eps of each layer; stored are both alphas before a softplus."""
        return tuple(
            (_softplus(p), beta + _softplus(n), beta, eps)
            for n, p, beta, eps in zip(*self.constants, strict=True)
        )


def _softplus(x: float) -> float:
    """Return ln(1 + e^x), in decimals: libm differs between machines, and results must not."""
    with localcontext() as context:
        context.prec = 40
        return float((1 + Decimal(x).exp()).ln())


def numbers(c: Config) -> Mapping[str, Array]:
    """Return the parameters that a file has among its keys."""
    return {
        parameter(i, part): np.array(number, np.float32).reshape(CONSTANTS[part])
        for part, listed in zip(CONSTANTS, c.constants, strict=True)
        for i, number in enumerate(listed)
    }


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    yield from decoder.rope_factors(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS)
        yield from decoder.matrices(i, {**decoder.ATTENTION, **MLP})


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    q, k, v = blocks.query_key_value(g, c, w, norm(g, c, w, h, f"blk.{i}.attn_norm"), i)
    q, k = blocks.head_norms(g, c, w, q, k, i)
    q, k = g.rope(q, c.rope, c.head_dim), g.rope(k, c.rope, c.head_dim)
    h = blocks.attention_output(g, c, w, blocks.attention(g, c, q, k, v, i), i, add=h)
    alpha_p, alpha_n, beta, eps = c.xielu[i]

    def xielu(up: Value) -> Value:
        return g.xielu(up, alpha_p=alpha_p, alpha_n=alpha_n, beta=beta, eps=eps)

    return blocks.plain_mlp(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, xielu, add=h)


FAMILY = Family(
    "apertus", ("apertus",), "Apertus", "Apertus", Config, tensors, layer,
    ignored=("*.self_attn.rotary_emb.inv_freq", "*.mlp.act_fn.*"), numbers=numbers,
)  # fmt: skip
