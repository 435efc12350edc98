"""CodeShell: GPT-2's layers with rotary embeddings and shared key-value heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder
from oxibonsai.architectures.decoder import KeyValueHeads
from oxibonsai.architectures.gpt2 import LAYERS, MASKS, NORMS, PARTS, Gpt, layer
from oxibonsai.architectures.rotary import Rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import Known, field, fixed
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry
from oxibonsai.graph import RopeConfig


class QueryGroups(KeyValueHeads):
    """The heads of keys and values: the groups of queries, where there are any."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        groups = config.get("num_query_groups") if config.get("group_query_attention") else None
        return config.count(groups or known["num_attention_heads"], "num_query_groups")

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return {"group_query_attention": True, "num_query_groups": value}


@dataclass(frozen=True, kw_only=True)
class Config(Gpt):
    """The fields of a model."""

    num_key_value_heads: int = field(QueryGroups())
    activation: str = fixed("gelu_pytorch_tanh", "gelu_new", name="activation_function")
    positions: str = fixed("rope", name="position_embedding_type")
    scaled: bool = fixed(True, name="scale_attn_weights", written=False)
    rope_scaling: None = fixed(None, name="rope_scaling", written=False)
    rope: RopeConfig = field(Rope(("default",), theta=10000.0))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(
        c, embedding="transformer.wte", final="transformer.ln_f", biased=True
    )
    for i in range(c.num_hidden_layers):
        yield from decoder.norms(i, NORMS, layers=LAYERS, biased=True)
        yield from decoder.matrices(i, PARTS, biased=True, layers=LAYERS)


FAMILY = Family(
    "codeshell", ("codeshell",), "", "CodeShell", Config, tensors, layer,
    ignored=(*MASKS, "*.attn.rotary_emb.inv_freq"),
)  # fmt: skip
