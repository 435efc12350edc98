"""InternLM 2: Llama's layers; a folder has queries, keys and values in one, group by group of heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, llama
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import biased, field
from oxibonsai.architectures.schema.operations import MergeAxes, OnPart, Split, SplitAxis
from oxibonsai.architectures.schema.tensors import Entry, Tensor, norm, weight
from oxibonsai.graph import RopeConfig

NORMS = {"attention_norm": "attn_norm", "ffn_norm": "ffn_norm"}
OUTPUT = {"attention.wo": "attn_output"}
MLP = {
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
}


@dataclass(frozen=True, kw_only=True)
class Config(llama.Config):
    """The fields of a model."""

    attention_bias: bool = biased("bias", *decoder.ATTENTION.values())
    rope: RopeConfig = field(Rope(("default", "linear", "dynamic"), interleaved=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield weight("model.tok_embeddings", "token_embd")
    yield norm("model.norm", "output_norm")
    yield weight("output", "output", optional=c.tie_word_embeddings)
    groups, width = c.num_key_value_heads, c.head_dim
    queries, pairs = c.num_attention_heads // groups * width, decoder.pairs(c)
    apart = (
        SplitAxis(groups),
        Split((queries, width, width), axis=1),
        MergeAxes(groups),
        *(OnPart(0, step) for step in pairs["attn_q"]),
        *(OnPart(1, step) for step in pairs["attn_k"]),
    )
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS)
        for kind in ("weight", "bias"):
            whole = f"model.layers.{i}.attention.wqkv.{kind}"
            parts = tuple(f"blk.{i}.{part}.{kind}" for part in decoder.QKV.values())
            matrix = kind == "weight"
            yield Tensor((whole,), parts, apart, matrix, not matrix and not c.attention_bias)
        yield from decoder.matrices(i, OUTPUT, biased=c.attention_bias)
        yield from decoder.matrices(i, MLP)


FAMILY = Family(
    "internlm2", ("internlm2",), "", "InternLM 2", Config, tensors, decoder.layer,
    embed_tokens_and_images, saved_as=llama.FAMILY,
)  # fmt: skip
