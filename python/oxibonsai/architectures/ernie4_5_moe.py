"""ERNIE 4.5 with experts: a few dense layers, then a shared expert beside the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Mixture, SharedExperts
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import Implied, Known, count, count_or_zero, field, fixed
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import Builder, RopeConfig, Value


@dataclass(frozen=True)
class LastLayer(Implied):
    """The last layer with experts, which is the last of all; null and -1 say so, too."""

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value; UnsupportedError where ``config.json`` says another layer."""
        if config.fields.get(self.name) in (None, -1):
            return self.value(known)
        return super().read_config_json(config, known)


@dataclass(frozen=True, kw_only=True)
class Config(Mixture):
    """The fields of a model."""

    tie_word_embeddings: bool = decoder.tied(True)
    num_experts: int = count("moe_num_experts", "expert_count")
    num_experts_per_tok: int = field(mixture.used_experts("moe_k"))
    use_bias: bool = fixed(False, name="use_bias")
    moe_layer_interval: int = fixed(
        1, name="moe_layer_interval", key="interleave_moe_layer_step", kind="u32"
    )
    first_dense_layers: int = count_or_zero(
        "moe_layer_start_index", "leading_dense_block_count", default=0
    )
    last_layer: int = field(
        LastLayer("moe_layer_end_index", lambda known: known["num_hidden_layers"] - 1)
    )
    shared_intermediate_size: int = field(SharedExperts("moe_num_shared_experts"))
    rope: RopeConfig = field(Rope(("default", "linear"), interleaved=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.ATTENTION)
        if i < c.first_dense_layers:
            yield from decoder.matrices(i, decoder.MLP)
            continue
        yield from mixture.router(i, "mlp.gate")
        yield from mixture.selection_bias(i, "mlp.moe_statics.e_score_correction_bias")
        yield from mixture.each_expert(c, i)
        if c.shared_intermediate_size:
            yield from decoder.matrices(i, mixture.shared_names("mlp.shared_experts"))


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    h = mixture.add_attention(g, c, w, i, h)
    return mixture.feed_forward_pass(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, add=h)


FAMILY = Family(
    "ernie4_5-moe", ("ernie4_5_moe",), "Ernie4_5_Moe", "ERNIE 4.5 with experts", Config, tensors,
    layer, ignored=("*.self_attn.rotary_emb.inv_freq", "*mtp"),
)  # fmt: skip
