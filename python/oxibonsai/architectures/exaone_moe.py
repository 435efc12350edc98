"""K-EXAONE: Qwen3's layers, a few dense ones, then sigmoid routing beside shared experts.

Every fourth layer sees all keys and rotates nothing; the others are rotated and see a window. The layer
that predicts a further token is no part of the pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, mixture, qwen3
from oxibonsai.architectures.drafting import DraftingLayers, layers_of_pass
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import RoutedMixture, Scoring, SharedExperts
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT_OR_ZERO,
    FACTOR,
    Known,
    Stated,
    count,
    field,
    fixed,
    flag,
    real,
)
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.architectures.windows import LocalLayers, window_of
from oxibonsai.graph import Builder, RopeConfig, Value

_PERIOD = 4
_DENSE, _SPARSE = "dense", "sparse"
# Either name of the bias by which experts are chosen is in folders.
_PUBLISHED_BIAS, _BIAS = ".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"


@dataclass(frozen=True)
class DenseLayers(Stated):
    """The first layers, which are dense: a folder counts them, or says of each layer what it is."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        layers: int = known["num_hidden_layers"]
        kinds = config.fields.get("mlp_layer_types")
        if kinds is None:
            return int(super().read_config_json(config, known))
        if not isinstance(kinds, list) or len(kinds) != layers:
            raise config.fail(f"mlp_layer_types does not list {layers} layers")
        dense = kinds.count(_DENSE)
        if kinds != [_DENSE] * dense + [_SPARSE] * (layers - dense):
            raise config.unsupported(
                f"mlp_layer_types is {kinds!r}; known are {_DENSE} layers before {_SPARSE} ones"
            )
        return dense


@dataclass(frozen=True)
class Pattern(LocalLayers):
    """The layers that see a window, whose pattern a folder may state in place of each layer's kind."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[bool, ...]:
        """Return the value that ``config.json`` says."""
        pattern = config.fields.get("sliding_window_pattern", self.period)
        if config.fields.get("layer_types") is None and pattern not in (self.period, "LLLG"):
            raise config.unsupported(
                f"sliding_window_pattern is {pattern!r} without layer_types; known are "
                f"{self.period} and 'LLLG'"
            )
        return super().read_config_json(config, known)


@dataclass(frozen=True, kw_only=True)
class Config(RoutedMixture):
    """The fields of a model."""

    num_hidden_layers: int = layers_of_pass()
    attention_bias: bool = fixed(False, name="attention_bias")
    shared_intermediate_size: int = field(SharedExperts("num_shared_experts"))
    first_dense_layers: int = field(
        DenseLayers(
            COUNT_OR_ZERO, ("first_k_dense_replace",), "leading_dense_block_count", default=1,
            key_default=0,
        )
    )  # fmt: skip
    scoring: str = field(Scoring("sigmoid", "scoring_func"))
    norm_topk_prob: bool = flag(
        "norm_topk_prob", "expert_weights_norm", default=True, key_default=False
    )
    routed_scaling_factor: float = real(
        "routed_scaling_factor", "expert_weights_scale", FACTOR, default=2.5, key_default=1.0
    )
    sliding_window: int = count("sliding_window", "attention.sliding_window")
    local_layers: tuple[bool, ...] = field(Pattern(_PERIOD))
    num_nextn_predict_layers: int = field(DraftingLayers(lambda names, layers: 0))
    rope: RopeConfig = field(Rope(("default", "llama3")))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    yield from decoder.rope_factors(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, {**decoder.NORMS, **decoder.HEAD_NORMS})
        yield from decoder.matrices(i, decoder.ATTENTION)
        yield from mixture.feed_forward(c, i)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    window = window_of(c, i)
    h = qwen3.add_attention(g, c, w, i, h, window=window, rotates=window > 0)
    return mixture.feed_forward_pass(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, add=h)


def spelled(parameter: str) -> str:
    """Return transformers' name of the bias of a router, which published folders have beside it."""
    return parameter.replace(_PUBLISHED_BIAS, _BIAS)


FAMILY = Family(
    "exaone-moe", ("exaone_moe",), "ExaoneMoe", "K-EXAONE", Config, tensors, layer,
    ignored=("*.self_attn.rotary_emb.inv_freq", "mtp.*"), spelled=spelled,
)  # fmt: skip
