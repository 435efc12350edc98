"""Nomic BERT: queries and keys are rotated, an MLP has a gate; or experts in every second layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import decoder, encoder
from oxibonsai.architectures.encoder import Encoder, EncoderFamily, PlainRope, Segmented
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.experts import ExpertsConfig
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import used_problem
from oxibonsai.architectures.schema.fields import (
    COUNT,
    POSITIVE_EPSILON,
    Checked,
    Known,
    Stated,
    count,
    field,
    fixed,
    real,
)
from oxibonsai.architectures.schema.operations import SplitAxis, Transpose
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Entry, Tensor, vector
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "encoder.layers"
ATTENTION = {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output"}
MLP = {"mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down"}
PLAIN_MLP = {"mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
NORMS = {"norm1": "attn_output_norm", "norm2": "layer_output_norm"}
# Tokens that the models were trained for, where their tables of positions are longer.
TRAINED = 2048


class TrainedPositions(Stated):
    """The positions that a model was trained for."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says, or that is known of the published models."""
        stated = config.fields.get("n_positions")
        if "n_positions" in config.fields and (
            config.fields.get("max_trained_positions", TRAINED) == TRAINED
        ):
            rows = config.count(stated, "n_positions")
            # The model with experts, which states 2048, was trained with a quarter of that.
            return {8192: TRAINED, TRAINED: 512}.get(rows, rows)
        count: int = super().read_config_json(config, known)
        return count


@dataclass(frozen=True, kw_only=True)
class Shared(Segmented, Encoder):
    """The fields of both kinds."""

    num_hidden_layers: int = decoder.layer_count("num_hidden_layers", "n_layer")
    max_position_embeddings: int = field(
        TrainedPositions(COUNT, ("max_position_embeddings", "n_positions"), "context_length")
    )
    hidden_size: int = count(("hidden_size", "n_embd"), "embedding_length")
    intermediate_size: int = count(("intermediate_size", "n_inner"), "feed_forward_length")
    num_attention_heads: int = count(("num_attention_heads", "n_head"), "attention.head_count")
    layer_norm_eps: float = real(
        ("layer_norm_eps", "layer_norm_epsilon"), "attention.layer_norm_epsilon",
        POSITIVE_EPSILON, default=1e-12,
    )  # fmt: skip
    rope: RopeConfig = field(PlainRope(("default",), theta_name="rotary_emb_base"))
    # What the code of published folders could do besides.
    bidirectional: bool = fixed(False, None, name="causal", written=False)
    prenorm: bool = fixed(False, None, name="prenorm", written=False)
    rotary_emb_fraction: float = fixed(1.0, 1, None, name="rotary_emb_fraction", written=False)
    rotary_emb_interleaved: bool = fixed(False, None, name="rotary_emb_interleaved", written=False)
    rotary_emb_scale_base: None = fixed(None, name="rotary_emb_scale_base", written=False)
    use_rms_norm: bool = fixed(False, None, name="use_rms_norm", written=False)


@dataclass(frozen=True, kw_only=True)
class Config(Shared):
    """The fields of a model without experts."""

    activation: str = fixed("silu", "swiglu", name="hidden_act")
    older_activation: str = fixed("swiglu", "silu", name="activation_function", written=False)
    qkv_proj_bias: bool = fixed(False, name="qkv_proj_bias")
    mlp_fc1_bias: bool = fixed(False, name="mlp_fc1_bias")
    mlp_fc2_bias: bool = fixed(False, name="mlp_fc2_bias")


def few_layers(known: Known, every: int) -> str:
    """Return what is wrong with the period of layers with experts."""
    return "" if every > 1 else f"moe_every_n_layers is {every}; known are 2 and more"


def dense_width(known: Known) -> int:
    """Return the width of an MLP, which experts have, too."""
    return int(known["intermediate_size"])


@dataclass(frozen=True, kw_only=True)
class ExpertConfig(Shared):
    """The fields of a model with experts."""

    activation: str = fixed("gelu", name="hidden_act")
    older_activation: str = fixed("gelu", name="activation_function", written=False)
    qkv_proj_bias: bool = fixed(True, name="qkv_proj_bias")
    mlp_fc1_bias: bool = fixed(True, name="mlp_fc1_bias")
    mlp_fc2_bias: bool = fixed(True, name="mlp_fc2_bias")
    moe_every_n_layers: int = field(
        Checked(Stated(COUNT, ("moe_every_n_layers",), "moe_every_n_layers"), few_layers)
    )
    num_experts: int = count("num_experts", "expert_count")
    num_experts_per_tok: int = field(
        Checked(Stated(COUNT, ("moe_top_k",), "expert_used_count"), used_problem)
    )
    expert_width: int = count(
        (), "expert_feed_forward_length", default=dense_width, key_default=dense_width, unsaid=True
    )

    @property
    def experts(self) -> ExpertsConfig:
        """Return the sizes and the routing of the experts."""
        sizes = self.num_experts, self.num_experts_per_tok, self.expert_width
        return ExpertsConfig(*sizes, normalize=False)

    @property
    def expert_layers(self) -> tuple[bool, ...]:
        """Whether each layer has experts: every n-th, from the second on."""
        return tuple(i % self.moe_every_n_layers == 1 for i in range(self.num_hidden_layers))


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model without experts."""
    yield from encoder.embeddings("emb_ln")
    for i in range(c.num_hidden_layers):
        yield from decoder.matrices(i, {**ATTENTION, **MLP}, layers=LAYERS)
        yield from encoder.layer_norms(i, NORMS, LAYERS)


def expert_tensors(c: ExpertConfig) -> Iterator[Entry]:
    """Yield all tensors of a model with experts, whose matrices a folder has one below the other."""
    yield from encoder.embeddings("emb_ln")
    stack = SplitAxis(c.num_experts)
    for i in range(c.num_hidden_layers):
        parts = ATTENTION if c.expert_layers[i] else {**ATTENTION, **PLAIN_MLP}
        yield from decoder.matrices(i, parts, biased=True, layers=LAYERS)
        yield from encoder.layer_norms(i, NORMS, LAYERS)
        if c.expert_layers[i]:
            mlp, ffn = f"{LAYERS}.{i}.mlp", f"blk.{i}.ffn"
            yield vector(f"{mlp}.router.layer.weight", f"{ffn}_gate_inp.weight")
            yield Tensor((f"{mlp}.experts.mlp.w1",), (f"{ffn}_up_exps.weight",), (stack,))
            down = (stack, Transpose())
            yield Tensor((f"{mlp}.experts.mlp.w2",), (f"{ffn}_down_exps.weight",), down)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x = encoder.attend(g, c, w, i, h)
    return encoder.layer_norm(g, c, w, i, blocks.gated_mlp(g, c, w, x, i, g.swiglu, add=x))


def expert_layer(g: Builder, c: ExpertConfig, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i, whose MLP or experts have no gate."""
    x = encoder.attend(g, c, w, i, h)
    if c.expert_layers[i]:
        routing = experts.route(g, c, w, x, i)
        made = g.add(x, experts.plain_experts(g, c, w, x, i, routing, g.gelu))
    else:
        made = blocks.plain_mlp(g, c, w, x, i, g.gelu, add=x)
    return encoder.layer_norm(g, c, w, i, made)


def with_padding(config: dict[str, Any]) -> dict[str, Any]:
    """Return ``config.json`` with an id of the padding, which transformers wants."""
    return {**config, "pad_token_id": config.get("pad_token_id") or 0}


NOMIC_BERT = EncoderFamily(
    "nomic-bert", ("nomic_bert",), "NomicBert", "Nomic BERT", Config, tensors, layer,
    encoder.embed, spelled=encoder.without_prefix("bert."), with_special_tokens=with_padding,
)  # fmt: skip
NOMIC_BERT_MOE = EncoderFamily(
    "nomic-bert-moe", ("nomic_bert_moe",), "", "Nomic BERT", ExpertConfig, expert_tensors,
    expert_layer, encoder.embed, spelled=encoder.without_prefix("bert."),
    ignored=(*encoder.IGNORED, "*.mlp.experts.bias"),  # llama.cpp's files do not have it either
)  # fmt: skip
