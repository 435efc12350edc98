"""Phi-3.5 with experts: LayerNorms, biases, LongRoPE, two experts chosen one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.decoder import HeadDim
from oxibonsai.architectures.long_rope import LongRope, Tables, table_tensors
from oxibonsai.architectures.mixture import NUMBERED, LayerNormMixture
from oxibonsai.architectures.phi3 import OriginalContext, PartialRope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    EPSILON,
    Kind,
    Known,
    Stated,
    biased,
    constant,
    count,
    count_or_zero,
    field,
    fixed,
    real,
    told_by_tensors,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Either, Entry, bias
from oxibonsai.graph import RopeConfig

MODULE = "block_sparse_moe"
# Experts score within 2 % of the best, which is twice this; files have no key for it.
JITTER = 0.01
# Noise that models were trained with, which nothing adds to what they read.
OF_TRAINING = Kind("", lambda config, value, name: 0.0, lambda keys, key, default: default)


@dataclass(frozen=True)
class TwoExperts(Stated):
    """The experts of a token: two are known."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value; UnsupportedError where it is not two."""
        if (used := int(super().read_config_json(config, known))) != 2:
            raise config.unsupported(f"{used} experts of a token, where two are known")
        return used

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value; UnsupportedError where it is not two."""
        if (used := int(super().read_gguf(keys, known))) != 2:
            raise keys.unsupported(f"{used} experts of a token, where two are known")
        return used


@dataclass(frozen=True)
class StatedMagnitude(PartialRope):
    """The rotary embedding, of which ``config.json`` states the factor of cos and sin."""

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json`` that describe the embedding."""
        found = super().write_config_json(value, c)
        if c.long_rope is not None:
            both = dict.fromkeys(("short_mscale", "long_mscale"), c.long_rope.magnitude)
            found["rope_scaling"] = {**found["rope_scaling"], **both}
        return found


@dataclass(frozen=True, kw_only=True)
class Config(LayerNormMixture):
    """The fields of a model; the key of the epsilon is that of RMSNorms, though they are none."""

    head_dim: int = field(HeadDim(written=False))
    layer_norm_eps: float = real(
        "rms_norm_eps", "attention.layer_norm_rms_epsilon", EPSILON, default=1e-6
    )
    num_experts: int = count(("num_local_experts", "num_experts"), "expert_count")
    num_experts_per_tok: int = field(
        TwoExperts(COUNT, ("num_experts_per_tok",), "expert_used_count")
    )
    moe_intermediate_size: int = mixture.dense_width()
    scoring: str = constant("sparse_mixer")
    norm_topk_prob: bool = constant(False)
    rope: RopeConfig = field(StatedMagnitude())
    original: int = field(OriginalContext())
    long_rope: LongRope | None = field(Tables(PartialRope()))
    activation: str = fixed("silu", name="hidden_act")
    router_jitter_noise: float = fixed(JITTER, name="router_jitter_noise")
    input_jitter_noise: float = field(
        Stated(OF_TRAINING, ("input_jitter_noise",), "", default=0.0, key_default=0.0)
    )
    attention_bias: bool = biased("attention_bias", *decoder.ATTENTION.values())
    lm_head_bias: bool = told_by_tensors("lm_head_bias", "output.bias")
    sliding_window: int = count_or_zero(
        "sliding_window", "attention.sliding_window", default=0, none_is=0
    )


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, biased=True)
    yield bias("lm_head", "output", optional=not c.lm_head_bias)
    yield from table_tensors(c.long_rope)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS, biased=True)
        yield from decoder.matrices(i, decoder.ATTENTION, biased=c.attention_bias)
        names = (f"{MODULE}.gate", "mlp.router")
        yield Either(tuple(tuple(mixture.router(i, name)) for name in names))
        yield from mixture.each_expert(c, i, f"{MODULE}.experts", NUMBERED)


FAMILY = Family("phimoe", ("phimoe",), "Phimoe", "Phi-3.5 MoE", Config, tensors, mixture.layer)
