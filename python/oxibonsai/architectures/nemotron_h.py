"""Nemotron-H: each layer is a Mamba 2, attention without positions, or a feed-forward part.

The feed-forward parts of Nemotron 3 are mixtures of experts without gates. Files have no place for
``time_step_min``, below which transformers raises time steps and NVIDIA's own code does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from oxibonsai.architectures import decoder, hybrid, mamba2, mixture
from oxibonsai.architectures.decoder import Constants, HeadDim
from oxibonsai.architectures.hybrid import (
    FEED_FORWARD,
    FULL_ATTENTION,
    LINEAR_ATTENTION,
    MAMBA,
    ByLayer,
    LayerTypes,
    NoPositions,
)
from oxibonsai.architectures.layers import blocks, experts
from oxibonsai.architectures.layers.blocks import norm as apply_norm
from oxibonsai.architectures.layers.experts import ExpertsConfig
from oxibonsai.architectures.layers.mamba import mamba2_scan
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import GroupedExperts
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    Checked,
    GgufKeys,
    Known,
    Stated,
    constant,
    count,
    count_or_zero,
    field,
    fixed,
    flag,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, bias, norm, vector, weight
from oxibonsai.graph import Builder, RopeConfig, Value

LAYERS = "backbone.layers"
MLP, MOE = "mlp", "moe"  # in config.json
# Kinds of layers, as older configurations write them and as newer ones do.
KINDS = {
    **{"M": LINEAR_ATTENTION, "*": FULL_ATTENTION, "-": MLP, "E": MOE, "mamba": LINEAR_ATTENTION},
    **{kind: kind for kind in (LINEAR_ATTENTION, FULL_ATTENTION, MLP, MOE)},
}
ATTENTION = {
    f"mixer.{name.rpartition('.')[2]}": tensor for name, tensor in decoder.ATTENTION.items()
}
PARTS = {"mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down"}
SHARED = {
    "mixer.shared_experts.up_proj": "ffn_up_shexp",
    "mixer.shared_experts.down_proj": "ffn_down_shexp",
}
SHARED_WIDTH = "moe_shared_expert_intermediate_size"
LATENT = {
    "mixer.fc1_latent_proj": "ffn_latent_down",
    "mixer.fc2_latent_proj": "ffn_latent_up",
}


def listed_kinds(config: ConfigJson) -> list[str]:
    """Return the kinds of layers that ``config.json`` lists, by the newer names."""
    found = config.fields.get("hybrid_override_pattern") or config.fields.get("layers_block_type")
    if not isinstance(found, str | list) or not found:
        raise config.fail("it does not say what its layers are")
    for kind in found:
        if not isinstance(kind, str) or kind not in KINDS:
            known = ", ".join(sorted(set(KINDS.values())))
            raise config.unsupported(f"it has layers of kind {kind!r}; convert knows {known}")
    return [KINDS[kind] for kind in found]


@dataclass(frozen=True)
class LayerCount(Stated):
    """The number of layers, which older configurations say by listing them."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the number of layers that are listed."""
        return len(listed_kinds(config))


@dataclass(frozen=True)
class Kinds(LayerTypes):
    """The kinds of layers; a file lists the heads and the feed-forward columns of each.

    Attributes:
        feed_forward: What ``config.json`` calls layers with a feed-forward part.
    """

    feed_forward: str = MLP

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[str, ...]:
        """Return the kinds that ``config.json`` says."""
        listed = listed_kinds(config)
        if {MLP, MOE} <= set(listed):
            raise config.unsupported(
                "it has layers with experts and others without, which GGUF lacks"
            )
        ours = {LINEAR_ATTENTION: MAMBA, FULL_ATTENTION: FULL_ATTENTION}
        return tuple(ours.get(kind, FEED_FORWARD) for kind in listed)

    def write_config_json(self, value: tuple[str, ...], c: Any) -> dict[str, Any]:
        """Return the list of kinds."""
        theirs = {MAMBA: LINEAR_ATTENTION, FEED_FORWARD: self.feed_forward}
        return {"layers_block_type": [theirs.get(kind, kind) for kind in value]}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[str, ...]:
        """Return the kinds that a file says."""
        layers: int = known["num_hidden_layers"]
        heads = keys.counts("attention.head_count_kv", layers)
        widths = keys.counts("feed_forward_length", layers)
        both = list(zip(heads, widths, strict=True))
        if any(of_layer and width for of_layer, width in both):
            raise keys.fail("a layer has key-value heads and a feed-forward length")
        return tuple(FULL_ATTENTION if h else FEED_FORWARD if ff else MAMBA for h, ff in both)


@dataclass(frozen=True)
class OfKind(Stated):
    """A count that all layers of a kind share, and that a file lists with zeros for the others.

    Attributes:
        layers: The kind.
        absent: What it is where no layer is of the kind.
    """

    layers: str = FULL_ATTENTION
    absent: int = 0

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the count; UnsupportedError where layers have several."""
        found = set(keys.counts(self.key, known["num_hidden_layers"])) - {0}
        if len(found) > 1:
            raise keys.unsupported("layers of one kind have different dimensions")
        return found.pop() if found else self.absent

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key with the counts of all layers."""
        listed = [value if kind == self.layers else 0 for kind in c.layer_types]
        return {self.key: (listed, "arr[i32]")}


def _shared_heads_problem(known: Known, shared: int) -> str:
    if (heads := known["num_attention_heads"]) % shared == 0:
        return ""
    return f"{heads} attention heads are no multiple of {shared} key-value heads"


@dataclass(frozen=True)
class InnerSize:
    """The columns of a scan, of which ``config.json`` states heads and the width of each."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        heads, width = "mamba_num_heads", "mamba_head_dim"
        return config.count(config.get(heads), heads) * config.count(config.get(width), width)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the width of a head."""
        return {"mamba_head_dim": value // c.mamba_n_heads}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says."""
        return keys.integer("ssm.inner_size")

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the key."""
        return {"ssm.inner_size": (value, "u32")}


@dataclass(frozen=True)
class Epsilon:
    """The epsilon of all norms, under both of GGUF's names; one of layers that draft is not read."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that ``config.json`` says."""
        stated = config.get("layer_norm_epsilon")
        return 1e-5 if stated is None else config.number(stated, "layer_norm_epsilon", 1.0)

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"layer_norm_epsilon": value}

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        other = keys.real("attention.layer_norm_epsilon", 0.0) or None
        return keys.real("attention.layer_norm_rms_epsilon", other)

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return both keys."""
        names = ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon")
        return dict.fromkeys(names, (value, "f32"))


@dataclass(frozen=True)
class CountedDims(NoPositions):
    """No positions, though files state dims that would be rotated."""

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the key."""
        return {"rope.dimension_count": (c.head_dim, "u32")}


@dataclass(frozen=True)
class TimeStepMin:
    """The bound that transformers raises time steps to: nothing, in effect."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that is written."""
        return 1e-12

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"time_step_min": value}

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that is written."""
        return 1e-12

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a model, in the order of a file's keys."""

    num_hidden_layers: int = field(
        LayerCount(decoder.LAYER_COUNT, ("num_hidden_layers",), "block_count")
    )
    max_position_embeddings: int = hybrid.endless()
    hidden_size: int = count("hidden_size", "embedding_length")
    num_attention_heads: int = count("num_attention_heads", "attention.head_count")
    head_dim: int = field(HeadDim(shared=False))
    rope: RopeConfig = field(CountedDims())
    vocab_size: int = decoder.vocabulary()
    mamba_d_conv: int = count("conv_kernel", "ssm.conv_kernel")
    mamba_d_state: int = count("ssm_state_size", "ssm.state_size")
    mamba_n_groups: int = count("n_groups", "ssm.group_count")
    mamba_d_ssm: int = field(InnerSize())
    mamba_n_heads: int = field(
        Checked(
            Stated(COUNT, ("mamba_num_heads",), "ssm.time_step_rank"),
            lambda known, heads: hybrid.heads_problem(
                known["mamba_d_ssm"], heads, known["mamba_n_groups"]
            ),
        )
    )
    num_key_value_heads: int = field(
        Checked(
            OfKind(
                COUNT, ("num_key_value_heads",), "attention.head_count_kv", absent=1,
                default=lambda known: known["num_attention_heads"],
            ),
            _shared_heads_problem,
        )
    )  # fmt: skip
    intermediate_size: int = field(
        OfKind(COUNT, ("intermediate_size",), "feed_forward_length", layers=FEED_FORWARD)
    )
    rms_norm_eps: float = field(Epsilon())
    layer_norm_eps: float = constant(0.0)
    rotated: bool = fixed(False, key="rope.scaling.finetuned", kind="bool")


@dataclass(frozen=True, kw_only=True)
class Config(Constants, Sizes, ByLayer):
    """The fields of a model."""

    layer_types: tuple[str, ...] = field(Kinds({}, MAMBA))
    mamba_hidden_act: str = fixed("silu", name="mamba_hidden_act")
    mlp_hidden_act: str = fixed("relu2", name="mlp_hidden_act")
    attention_bias: bool = fixed(False, name="attention_bias")
    mlp_bias: bool = fixed(False, name="mlp_bias")
    use_bias: bool = fixed(False, name="use_bias")
    mamba_proj_bias: bool = fixed(False, name="mamba_proj_bias")
    use_conv_bias: bool = field(hybrid.ConvolutionBias("use_conv_bias"))
    time_step_limit: list[Any] = field(hybrid.TIME_STEP_LIMIT)
    time_step_min: float = field(TimeStepMin())

    @property
    def experts(self) -> ExpertsConfig | None:
        """Return None: no layer has experts."""
        return None


@dataclass(frozen=True)
class SharedExpert(mixture.SharedExperts):
    """The width of the one expert that every token goes through."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        if (stated := config.fields.get(self.name, 1)) != 1:
            raise config.unsupported(f"{self.name} is {stated!r}; known is 1")
        return config.count(config.get(SHARED_WIDTH), SHARED_WIDTH)

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return {self.name: 1, SHARED_WIDTH: value}

    def read_gguf(self, keys: Keys, known: Known) -> int:
        """Return the value that a file says; FormatError where there is none."""
        width = super().read_gguf(keys, known)
        if width == 0:
            raise keys.fail("it has no shared expert, which every mixture of the architecture has")
        return width

    def write_gguf(self, value: int, c: Any) -> GgufKeys:
        """Return the keys."""
        return {
            "expert_shared_feed_forward_length": (value, "u32"),
            "expert_shared_count": (1, "u32"),
        }


@dataclass(frozen=True, kw_only=True)
class MixedConfig(GroupedExperts, Config):
    """The fields of a model whose feed-forward parts are mixtures of experts."""

    layer_types: tuple[str, ...] = field(Kinds({}, MAMBA, feed_forward=MOE))
    intermediate_size: int = field(
        OfKind(
            COUNT, ("moe_intermediate_size",), "feed_forward_length", layers=FEED_FORWARD,
            also_written=("intermediate_size",),
        )
    )  # fmt: skip
    num_experts: int = count("n_routed_experts", "expert_count")
    shared_intermediate_size: int = field(SharedExpert("n_shared_experts"))
    scoring: str = constant("sigmoid")
    norm_topk_prob: bool = flag(
        "norm_topk_prob", "expert_weights_norm", default=True, key_default=False
    )
    moe_latent_size: int = count_or_zero(
        "moe_latent_size", "moe_latent_size", default=0, unsaid=True, none_is=0
    )

    @property
    def experts(self) -> ExpertsConfig:
        """Return the sizes and the routing of the experts."""
        best = 2 if self.n_group > 1 else 1
        return replace(super().experts, latent_size=self.moe_latent_size, best_of_group=best)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from decoder.outside(c, embedding="backbone.embeddings", final="backbone.norm_f")
    for i, kind in enumerate(c.layer_types):
        p, b = f"{LAYERS}.{i}", f"blk.{i}"
        yield norm(f"{p}.norm", f"{b}.attn_norm")
        if kind == MAMBA:
            yield from mamba2.scan(c, f"{p}.mixer", b)
            yield bias(f"{p}.mixer.conv1d", f"{b}.ssm_conv1d", optional=not c.use_conv_bias)
            yield weight(f"{p}.mixer.out_proj", f"{b}.ssm_out")
        elif kind == FULL_ATTENTION:
            # In pairs as llama.cpp has them: without positions any order within heads is right.
            yield from decoder.matrices(i, ATTENTION, decoder.pairs(c), layers=LAYERS)
        elif isinstance(c, MixedConfig):
            yield from mixed(c, i)
        else:
            yield from decoder.matrices(i, PARTS, layers=LAYERS)


def mixed(c: MixedConfig, i: int) -> Iterator[Tensor]:
    """Yield the experts of a layer and what is beside them."""
    p, b = f"{LAYERS}.{i}.mixer", f"blk.{i}"
    yield from mixture.router(i, "mixer.gate", layers=LAYERS)
    yield vector(f"{p}.gate.e_score_correction_bias", f"{b}.exp_probs_b.bias")
    parts = {"up_proj": "ffn_up", "down_proj": "ffn_down"}
    yield from mixture.each_expert(c, i, "mixer.experts", parts, layers=LAYERS)
    yield from decoder.matrices(i, SHARED, layers=LAYERS)
    if c.moe_latent_size:
        yield from decoder.matrices(i, LATENT, layers=LAYERS)


def spelled(parameter: str) -> str:
    """Return NVIDIA's name, where others begin with ``model.`` or with nothing."""
    own = parameter.removeprefix("backbone.").removeprefix("model.")
    return own if own.startswith("lm_head.") else f"backbone.{own}"


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i."""
    x, kind = apply_norm(g, c, w, h, f"blk.{i}.attn_norm"), c.layer_types[i]
    if kind == MAMBA:
        return mamba2_scan(g, c, w, i, x, add=h)
    if kind == FEED_FORWARD and c.experts is not None:
        return add_experts(g, c, c.experts, w, i, x, h)
    if kind == FEED_FORWARD:
        return blocks.plain_mlp(g, c, w, x, i, g.relu2, add=h)
    q, k, v = blocks.query_key_value(g, c, w, x, i)
    a = blocks.attention(g, c, q, k, v, c.cached_layer(i))
    return blocks.attention_output(g, c, w, a, i, add=h)


def add_experts(
    g: Builder, c: Config, e: ExpertsConfig, w: Weights, i: int, x: Value, h: Value
) -> Value:
    """Return h and experts between two matrices that all share, if there are, and one beside them."""
    hidden, b = c.hidden_size, f"blk.{i}.ffn"
    bias_of_choice = experts.selection_bias(c, w, i)
    routing = experts.route(g, c, w, x, i, selection_bias=bias_of_choice)
    inner = x
    if e.latent_size:
        (inner,) = g.linear(x, w.matrix(f"{b}_latent_down", e.latent_size, hidden))
    found = experts.plain_experts(g, c, w, inner, i, routing, g.relu2)
    (up,) = g.linear(x, w.matrix(f"{b}_up_shexp", e.shared_intermediate_size, hidden))
    down = w.matrix(f"{b}_down_shexp", hidden, e.shared_intermediate_size)
    (h,) = g.linear(g.relu2(up), down, add=h)
    if e.latent_size:
        (h,) = g.linear(found, w.matrix(f"{b}_latent_up", hidden, e.latent_size), add=h)
        return h
    return g.add(h, found)


MIXED = Family(
    "nemotron_h_moe", ("nemotron_h",), "NemotronH", "Nemotron-H", MixedConfig, tensors, layer,
    spelled=spelled, owns_config_json=lambda config: MOE in listed_kinds(config),
)  # fmt: skip
DENSE = Family(
    "nemotron_h", ("nemotron_h",), "NemotronH", "Nemotron-H", Config, tensors, layer,
    spelled=spelled,
)  # fmt: skip
