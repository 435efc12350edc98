"""InternLM 3: Llama's layers; queries, keys and values alone may have biases. Files call it a Llama."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oxibonsai.architectures import decoder, llama
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family, embed_tokens_and_images
from oxibonsai.architectures.schema.fields import biased, field, fixed
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig

OUTPUT = {"self_attn.o_proj": "attn_output"}


@dataclass(frozen=True, kw_only=True)
class Config(llama.Config):
    """The fields of a model."""

    attention_bias: bool = biased("qkv_bias", *decoder.QKV.values())
    other_bias: bool = fixed(False, name="bias")
    rope: RopeConfig = field(Rope(("default", "linear", "dynamic"), interleaved=True, counted=True))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from decoder.matrices(i, decoder.QKV, decoder.pairs(c), biased=c.attention_bias)
        yield from decoder.matrices(i, {**OUTPUT, **decoder.MLP})


FAMILY = Family(
    "llama", ("internlm3",), "", "InternLM 3", Config, tensors, decoder.layer,
    embed_tokens_and_images, owns_gguf=lambda keys: False, saved_as=llama.FAMILY,
)  # fmt: skip
