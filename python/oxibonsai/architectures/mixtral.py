"""Mixtral: Llama with experts in place of the MLP; files call it Llama."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.mixture import NUMBERED, Mixture
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import count, count_or_zero, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig

MODULE = "block_sparse_moe"


@dataclass(frozen=True, kw_only=True)
class Config(Mixture):
    """The fields of a model."""

    num_experts: int = count(("num_local_experts", "num_experts"), "expert_count")
    moe_intermediate_size: int = mixture.dense_width()
    router_jitter_noise: float = fixed(0.0, name="router_jitter_noise")
    window_of_folder: None = fixed(None, name="sliding_window")
    sliding_window: int = count_or_zero((), "attention.sliding_window", default=0, unsaid=True)
    rope: RopeConfig = field(
        Rope(("default", "linear", "dynamic", "yarn", "llama3"), interleaved=True, counted=True)
    )


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    yield from decoder.rope_factors(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.ATTENTION, decoder.pairs(c))
        yield from mixture.router(i, f"{MODULE}.gate")
        yield from mixture.each_expert(c, i, f"{MODULE}.experts", NUMBERED)


FAMILY = Family(
    "llama", ("mixtral",), "Mixtral", "Mixtral", Config, tensors, mixture.layer,
    embed_tokens_and_images, owns_gguf=lambda keys: keys.count("expert_count") > 0,
)  # fmt: skip
