"""Jina BERT 2, with linear biases for positions, and Jina Embeddings 3, an XLM-RoBERTa that rotates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, encoder
from oxibonsai.architectures.encoder import Encoder, EncoderFamily, PlainRope, Segmented
from oxibonsai.architectures.layers import blocks
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.fields import POSITIVE, field, fixed, real
from oxibonsai.architectures.schema.tensors import Entry, bias, weight
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "encoder.layer"
# Version 2 has two generations, that of texts and that of code, beside BERT's own names.
OLDER_NAMES = {
    "mlp.gated_layers": "intermediate.dense",
    "mlp.up_gated_layer": "intermediate.dense",
    "mlp.wo": "output.dense",
    "mlp.down_layer": "output.dense",
    "mlp.layernorm": "output.LayerNorm",
    "layer_norm_2": "output.LayerNorm",
}
# Of the generation of code.
MORE_NORMS = {
    "attention.self.layer_norm_q": "attn_q_norm",
    "attention.self.layer_norm_k": "attn_k_norm",
    "layer_norm_1": "attn_norm_2",
}
LAYERS_V3 = "encoder.layers"
PARTS_V3 = {
    "mixer.Wqkv": "attn_qkv",
    "mixer.out_proj": "attn_output",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
NORMS_V3 = {"norm1": "attn_output_norm", "norm2": "layer_output_norm"}


@dataclass(frozen=True, kw_only=True)
class ConfigV2(Segmented, Encoder):
    """The fields of a model of version 2."""

    alibi_max_bias: float = real(
        (), "attention.max_alibi_bias", POSITIVE, default=8.0, key_default=8.0, unsaid=True
    )
    position_embedding_type: str = fixed("alibi", name="position_embedding_type")
    feed_forward_type: str = fixed("original", "geglu", name="feed_forward_type")
    activation: str = fixed("gelu", name="hidden_act")
    is_decoder: bool = fixed(False, name="is_decoder")


def spelled_v2(parameter: str) -> str:
    """Return BERT's name of a parameter."""
    parameter = encoder.without_prefix("bert.")(parameter)
    found = re.fullmatch(rf"({re.escape(LAYERS)}\.[0-9]+)\.(.+)\.(weight|bias)", parameter)
    if found is None or found[2] not in OLDER_NAMES:
        return parameter
    return f"{found[1]}.{OLDER_NAMES[found[2]]}.{found[3]}"


def tensors_v2(c: ConfigV2) -> Iterator[Entry]:
    """Yield all tensors of a model of version 2."""
    yield from encoder.embeddings()
    for i in range(c.num_hidden_layers):
        yield from decoder.matrices(i, encoder.ATTENTION, biased=True, layers=LAYERS)
        yield from decoder.matrices(i, encoder.MLP, biased=False, layers=LAYERS)
        yield from encoder.layer_norms(i, encoder.NORMS, LAYERS)
        yield from encoder.layer_norms(i, MORE_NORMS, LAYERS, optional=True)
    if c.head is not None:
        yield weight("classifier", "cls")
        yield bias("classifier", "cls")


def layer_v2(g: Builder, c: ConfigV2, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i, whose MLP has a gate in most models."""
    x, up = encoder.attend(g, c, w, i, h), f"blk.{i}.ffn_up"
    if w.has(f"blk.{i}.ffn_gate.weight") or w.rows(up) != c.intermediate_size:
        made = blocks.gated_mlp(g, c, w, x, i, g.exact_geglu, add=x)
    else:
        made = blocks.plain_mlp(g, c, w, x, i, g.gelu, add=x)
    return encoder.layer_norm(g, c, w, i, made)


@dataclass(frozen=True, kw_only=True)
class ConfigV3(Segmented, Encoder):
    """The fields of a model of version 3."""

    max_position_embeddings: int = encoder.positions_behind_padding()
    rope: RopeConfig = field(PlainRope(("default",), theta_name="rotary_emb_base"))
    activation: str = fixed("gelu", name="hidden_act")
    position_embedding_type: str = fixed(
        "rotary", None, name="position_embedding_type", written=False
    )


def spelled_v3(parameter: str) -> str:
    """Return the name of the model's own matrix, which stands beside those of its adapters."""
    parameter = encoder.without_prefix("roberta.")(parameter)
    return parameter.replace(".parametrizations.", ".").removesuffix(".original")


def tensors_v3(c: ConfigV3) -> Iterator[Entry]:
    """Yield all tensors of a model of version 3."""
    yield from encoder.embeddings("emb_ln")
    for i in range(c.num_hidden_layers):
        yield from decoder.matrices(i, PARTS_V3, biased=True, layers=LAYERS_V3)
        yield from encoder.layer_norms(i, NORMS_V3, LAYERS_V3)


def with_rows_of_padding(config: dict[str, Any]) -> dict[str, Any]:
    """Return ``config.json`` with the rows that a table of positions has."""
    pad = config.get("pad_token_id")
    rows = config["max_position_embeddings"] + (0 if pad is None else pad + 1)
    return {**config, "max_position_embeddings": rows}


V2 = EncoderFamily(
    "jina-bert-v2", ("jina_bert_v2",), "", "Jina BERT", ConfigV2, tensors_v2, layer_v2,
    encoder.embed, spelled=spelled_v2,
)  # fmt: skip
V3 = EncoderFamily(
    "jina-bert-v3", ("jina_embeddings_v3",), "JinaEmbeddingsV3", "Jina Embeddings 3", ConfigV3,
    tensors_v3, encoder.layer, encoder.embed, spelled=spelled_v3,
    ignored=(*encoder.IGNORED, "*.lora_A", "*.lora_B"), with_special_tokens=with_rows_of_padding,
    notes=("the adapters of single tasks, where the folder has them, are left out",),
)  # fmt: skip
