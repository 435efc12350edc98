"""DeepSeek V2 and V3, Kimi K2, Mistral 4: latent attention, then experts in groups.

Files of V2 and V3 have one architecture: how experts are scored tells them apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from oxibonsai.architectures import decoder, mixture
from oxibonsai.architectures.drafting import drafting_layers, layers_of_pass
from oxibonsai.architectures.latent import (
    ROPE,
    CachedDim,
    CachedHeads,
    HeadScale,
    LatentSizes,
    PlainDim,
    ValueDim,
    latent_tensors,
    query_rank,
    rotated_dim,
    value_rank,
)
from oxibonsai.architectures.layers.blocks import norm
from oxibonsai.architectures.layers.experts import ExpertsConfig
from oxibonsai.architectures.layers.latent import latent_attention, yarn_factor
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.mixture import Mixture, Scoring, SharedExperts, group_problem
from oxibonsai.architectures.rotary import ORIGINAL, PARTIAL, YARN_NUMBERS, YarnNumbers, read_rope
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    POSITIVE,
    Checked,
    Fixed,
    GgufKeys,
    Known,
    Stated,
    constant,
    count,
    count_or_zero,
    field,
    fixed,
    flag,
    real,
)
from oxibonsai.architectures.schema.operations import (
    Expect,
    OnPart,
    Split,
    SplitAxis,
    Transpose,
)
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, vector, weight
from oxibonsai.graph import Builder, RopeConfig, Value

SIGMOID = 2  # the value of expert_gating_func that V3 has
GREEDY, IN_GROUPS = "greedy", "group_limited_greedy"
METHODS = ("noaux_tc", GREEDY, IN_GROUPS)
SCORES, GROWTH = "mscale_all_dim", "llama_4_scaling_beta"
MULTIPLIER = "rope.scaling.yarn_log_multiplier"
# What a rotary embedding's object says beside the kind's numbers; other fields read it.
ALSO = ("mscale", SCORES, "beta_fast", "beta_slow", GROWTH, "max_position_embeddings", PARTIAL)
# Of a layer that predicts a further token, beside the parts of any layer; the table and the head may be
# the model's.
MTP_MATRICES = {"eh_proj": True, "embed_tokens": False, "shared_head.head": False}
MTP_NORMS = {"enorm": True, "hnorm": True, "shared_head.norm": False}


def _object(config: ConfigJson) -> dict[str, Any]:
    rope = config.fields.get("rope_parameters") or config.fields.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise config.fail(f"the rotary embedding is {rope!r}, no object")
    return rope


@dataclass(frozen=True)
class LogMultiplier:
    """How many logarithms of YaRN's factor scores grow by; 0: cos and sin grow instead."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that ``config.json`` says, ten times as large."""
        rope = _object(config)
        kind, _ = read_rope(config, ("default", "yarn"), also=ALSO)
        scores = rope.get(SCORES)
        if kind != "yarn" or scores is None:
            return 0.0
        number = isinstance(scores, int | float) and not isinstance(scores, bool)
        if rope.get("mscale", scores) != scores or not number or not 0 < scores < 100:
            raise config.unsupported(
                f"mscale {rope.get('mscale')!r} and mscale_all_dim {scores!r} differ, which convert lacks"
            )
        return float(0.1 * scores)

    def write_config_json(self, value: float, c: Any) -> dict[str, Any]:
        """Return the numbers in the rotary embedding's object."""
        scores = float(f"{10.0 * value:.6g}")
        return {"rope_parameters": {"mscale": scores, SCORES: scores}} if value else {}

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        return keys.positive(MULTIPLIER) if keys.has(MULTIPLIER) else 0.0

    def write_gguf(self, value: float, c: Any) -> GgufKeys:
        """Return the key, if there is a value."""
        return {MULTIPLIER: (value, "f32")} if value else {}


@dataclass(frozen=True)
class LatentRope:
    """The rotary embedding of a part of each head.

    Attributes:
        share: Whether ``config.json`` says how large that part is.
    """

    share: bool = False

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        kind, numbers = read_rope(config, ("default", "yarn"), also=ALSO)
        dims = config.count(config.get(ROPE), ROPE)
        rope = RopeConfig(dims, numbers["rope_theta"], interleaved=True)
        if kind != "yarn":
            return rope
        told = dict(YarnNumbers().read_config_json(config, known))
        rope = replace(
            rope, scaling="yarn", factor=numbers["factor"], original_context=int(numbers[ORIGINAL]),
            beta_fast=told.get(YARN_NUMBERS["beta_fast"], rope.beta_fast),
            beta_slow=told.get(YARN_NUMBERS["beta_slow"], rope.beta_slow),
        )  # fmt: skip
        return _of_scores(rope, LogMultiplier().read_config_json(config, known))

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json`` that describe the embedding."""
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": value.theta}
        if value.scaling == "yarn":
            rope |= {
                "rope_type": "yarn",
                "factor": value.factor,
                ORIGINAL: value.original_context,
                "beta_fast": value.beta_fast,
                "beta_slow": value.beta_slow,
            }
        if self.share:
            rope[PARTIAL] = c.qk_rope_head_dim / (c.qk_nope_head_dim + c.qk_rope_head_dim)
        return {"rope_theta": value.theta, "rope_parameters": rope}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file's keys describe."""
        rope = keys.rope(keys.integer("rope.dimension_count"), interleaved=True)
        multiplier = LogMultiplier().read_gguf(keys, known)
        for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"):
            if multiplier and keys.real(key, 1.0) != 1.0:
                raise keys.unsupported(f"{key} beside yarn_log_multiplier is not supported")
        return _of_scores(rope, multiplier)

    def write_gguf(self, value: RopeConfig, c: Any) -> GgufKeys:
        """Return the keys that describe the embedding."""
        found: GgufKeys = {"rope.freq_base": (value.theta, "f32")}
        if value.scaling == "yarn":
            found["rope.scaling.type"] = ("yarn", "str")
            found["rope.scaling.factor"] = (value.factor, "f32")
            found["rope.scaling.original_context_length"] = (value.original_context, "u32")
        return found


def _of_scores(rope: RopeConfig, multiplier: float) -> RopeConfig:
    """Return an embedding whose growth of cos and sin is a factor of the scores, if one is stated."""
    return replace(rope, yarn_multiplier=0.0, attention_factor=1.0) if multiplier else rope


@dataclass(frozen=True)
class YarnScale(HeadScale):
    """The factor of the scores, of which YaRN's growth may be a part."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float:
        """Return the value that ``config.json`` implies."""
        rope = LatentRope().read_config_json(config, known)
        multiplier = LogMultiplier().read_config_json(config, known)
        return super().read_config_json(config, known) * _growth(rope, multiplier)

    def read_gguf(self, keys: Keys, known: Known) -> float:
        """Return the value that a file says."""
        multiplier = LogMultiplier().read_gguf(keys, known)
        rope = LatentRope().read_gguf(keys, known)
        return super().read_gguf(keys, known) * _growth(rope, multiplier)


def _growth(rope: RopeConfig, multiplier: float) -> float:
    return yarn_factor(rope, multiplier) ** 2 if multiplier else 1.0


@dataclass(frozen=True)
class Shared(SharedExperts):
    """The width of all experts together that every token goes through."""

    def write_config_json(self, value: int, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``, null where there are none."""
        return {self.name: value // getattr(c, self.width) or None}


@dataclass(frozen=True)
class Groups(Stated):
    """A number of groups of experts, which mean nothing where all are ranked together."""

    def read_config_json(self, config: ConfigJson, known: Known) -> int:
        """Return the value that ``config.json`` says."""
        if config.get("topk_method") == GREEDY or config.get("n_group") is None:
            return 1
        return int(super().read_config_json(config, known))


def group_count(**more: Any) -> Any:
    """Return the field of the groups that experts form."""
    return field(Groups(COUNT, ("n_group",), "expert_group_count", key_default=1, **more))


def kept_groups(**more: Any) -> Any:
    """Return the field of the groups that experts are chosen from."""
    stated = Groups(
        COUNT, ("topk_group",), "expert_group_used_count",
        key_default=lambda known: known["n_group"], **more,
    )  # fmt: skip
    return field(Checked(stated, group_problem))


@dataclass(frozen=True)
class Method:
    """How groups are ranked, which a file shows by their number."""

    def read_config_json(self, config: ConfigJson, known: Known) -> str:
        """Return the method; UnsupportedError where ``config.json`` says one that is not known."""
        Fixed(None, METHODS, name="topk_method").read_config_json(config, known)
        return self._of(known)

    def _of(self, known: Known) -> str:
        return GREEDY if known["n_group"] == 1 else IN_GROUPS

    def write_config_json(self, value: str, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {"topk_method": value}

    def read_gguf(self, keys: Keys, known: Known) -> str:
        """Return the method that the number of groups implies."""
        return self._of(known)

    def write_gguf(self, value: str, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Config(LatentSizes, Mixture):
    """The fields of V2."""

    num_hidden_layers: int = layers_of_pass()
    num_key_value_heads: int = field(CachedHeads(apart=True))
    head_dim: int = field(CachedDim(apart=True))
    attention_scale: float = field(YarnScale())
    num_experts: int = count("n_routed_experts", "expert_count")
    shared_intermediate_size: int = field(Shared("n_shared_experts", told=False))
    first_dense_layers: int = count_or_zero(
        "first_k_dense_replace", "leading_dense_block_count", default=0
    )
    scoring: str = field(Scoring("softmax", "scoring_func"))
    norm_topk_prob: bool = flag(
        "norm_topk_prob", "expert_weights_norm", default=False, key_default=False, unsaid=True
    )
    routed_scaling_factor: float = real(
        "routed_scaling_factor", "expert_weights_scale", POSITIVE, default=1.0, key_default=1.0
    )
    n_group: int = group_count(unsaid=True)
    topk_group: int = kept_groups(unsaid=True)
    qk_nope_head_dim: int = field(PlainDim(apart=True))
    v_head_dim: int = field(ValueDim(apart=True))
    kv_lora_rank: int = value_rank()
    qk_rope_head_dim: int = rotated_dim()
    q_lora_rank: int = query_rank()
    num_nextn_predict_layers: int = drafting_layers()
    rope: RopeConfig = field(LatentRope())
    # What a file says of them is in ``rope``; here is which of them it says.
    yarn_numbers: tuple[tuple[str, float], ...] = dataclasses.field(
        compare=False, metadata={"field": YarnNumbers()}
    )
    yarn_log_multiplier: float = field(LogMultiplier())
    attention_bias: bool = fixed(False, name="attention_bias")
    mlp_bias: bool = fixed(False, name="mlp_bias")
    rope_interleave: bool = fixed(True, name="rope_interleave", written=False)
    moe_layer_freq: int = fixed(1, name="moe_layer_freq", written=False)
    topk_method: str | None = field(Method())


@dataclass(frozen=True, kw_only=True)
class ConfigV3(Config):
    """The fields of V3, which ranks a group by its two best experts."""

    scoring: str = field(Scoring("sigmoid", "scoring_func"))
    best_of_group: int = constant(2)
    n_group: int = group_count()
    topk_group: int = kept_groups()
    mlp_bias: bool = constant(False)
    rope_interleave: bool = fixed(True, name="rope_interleave")
    topk_method: str | None = fixed(None, *METHODS, name="topk_method", written=False)


@dataclass(frozen=True)
class Growth:
    """How queries grow with their position; None: nothing says."""

    def read_config_json(self, config: ConfigJson, known: Known) -> float | None:
        """Return the value that ``config.json`` says."""
        growth = _object(config).get(GROWTH)
        number = isinstance(growth, int | float) and not isinstance(growth, bool)
        if growth is not None and (not number or not 0 <= growth < 100):
            raise config.fail(f"{GROWTH} is {growth!r}, no growth")
        return None if growth is None else float(growth)

    def write_config_json(self, value: float | None, c: Any) -> dict[str, Any]:
        """Return the number in the rotary embedding's object."""
        return {} if value is None else {"rope_parameters": {GROWTH: value}}

    def read_gguf(self, keys: Keys, known: Known) -> float | None:
        """Return the value that a file says."""
        key = "attention.temperature_scale"
        return keys.real(key) if keys.has(key) else None

    def write_gguf(self, value: float | None, c: Any) -> GgufKeys:
        """Return the key, if there is a value."""
        return {} if value is None else {"attention.temperature_scale": (value, "f32")}


@dataclass(frozen=True)
class GrowingQueries:
    """The rotary embedding of queries that grow with their position, each original context one step."""

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig | None:
        """Return the embedding that ``config.json`` describes."""
        rope = LatentRope().read_config_json(config, known)
        growth = Growth().read_config_json(config, known)
        step = rope.original_context or known["max_position_embeddings"]
        return replace(rope, temperature=growth, temperature_step=step) if growth else None

    def write_config_json(self, value: RopeConfig | None, c: Any) -> dict[str, Any]:
        """Return no field: that of the growth says it."""
        return {}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig | None:
        """Return the embedding that a file's keys describe."""
        growth = Growth().read_gguf(keys, known)
        if not growth:
            return None
        step = keys.integer("rope.scaling.original_context_length")
        step = keys.integer("attention.temperature_length", step)
        rope = LatentRope().read_gguf(keys, known)
        return replace(rope, temperature=growth, temperature_step=step)

    def write_gguf(self, value: RopeConfig | None, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True, kw_only=True)
class ConfigMistral4(Config):
    """The fields of Mistral 4, whose queries grow with the context."""

    n_group: int = group_count()
    topk_group: int = kept_groups()
    rope: RopeConfig = field(LatentRope(share=True))
    rope_query: RopeConfig | None = field(GrowingQueries())
    rope_interleave: bool = fixed(True, name="rope_interleave")
    temperature_scale: float | None = field(Growth())

    @property
    def experts(self) -> ExpertsConfig:
        """Return the sizes and the routing of the experts, whose groups rank by their two best."""
        best = min(2, self.num_experts // self.n_group)
        return replace(super().experts, best_of_group=best)


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model."""
    yield from _tensors(c, fused=False)


def tensors_mistral4(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model whose experts are stacked, gate above up."""
    yield from _tensors(c, fused=True)


def _tensors(c: Config, *, fused: bool) -> Iterator[Entry]:
    yield from decoder.outside(c)
    for i in range(c.num_hidden_layers + c.num_nextn_predict_layers):
        yield from decoder.norms(i, decoder.NORMS)
        yield from latent_tensors(c, i)
        yield from _keys_and_values(c, i)
        if i < c.first_dense_layers:
            yield from decoder.matrices(i, decoder.MLP)
            continue
        yield from mixture.router(i, "mlp.gate")
        yield from mixture.selection_bias(i, "mlp.gate.e_score_correction_bias")
        yield from _stacked(c, i) if fused else mixture.each_expert(c, i)
        if c.shared_intermediate_size:
            yield from decoder.matrices(i, mixture.shared_names("mlp.shared_experts"))
    for i in range(c.num_hidden_layers, c.num_hidden_layers + c.num_nextn_predict_layers):
        yield from _drafting(i)


def _keys_and_values(c: Config, i: int) -> Iterator[Tensor]:
    """Yield a matrix for each head: that of keys, transposed, for queries meet it, and that of values."""
    b, parts = f"blk.{i}.attn", (c.qk_nope_head_dim, c.v_head_dim)
    yield Tensor(
        (f"model.layers.{i}.self_attn.kv_b_proj.weight",), (f"{b}_k_b.weight", f"{b}_v_b.weight"),
        (SplitAxis(c.num_attention_heads), Split(parts, axis=1), OnPart(0, Transpose())),
    )  # fmt: skip


def _stacked(c: Config, i: int) -> Iterator[Tensor]:
    total, ff, hidden = c.num_experts, c.moe_intermediate_size, c.hidden_size
    shapes = {"gate_up": (total, 2 * ff, hidden), "down": (total, hidden, ff)}
    for part, shape in shapes.items():
        parameter = f"model.layers.{i}.mlp.experts.{part}_proj"
        yield Tensor((parameter,), (f"blk.{i}.ffn_{part}_exps.weight",), (Expect(shape),))


def _drafting(i: int) -> Iterator[Tensor]:
    p, b = f"model.layers.{i}", f"blk.{i}.nextn"
    for part, needed in MTP_MATRICES.items():
        yield weight(f"{p}.{part}", f"{b}.{part.replace('.', '_')}", optional=not needed)
    for part, needed in MTP_NORMS.items():
        name = part.replace(".", "_")
        yield vector(f"{p}.{part}.weight", f"{b}.{name}.weight", optional=not needed)


def layer(g: Builder, c: Config, w: Weights, i: int, h: Value) -> Value:
    """Return the hidden states after layer i; one that predicts further tokens is as any other."""
    h = latent_attention(g, c, w, i, norm(g, c, w, h, f"blk.{i}.attn_norm"), add=h)
    return mixture.feed_forward_pass(g, c, w, norm(g, c, w, h, f"blk.{i}.ffn_norm"), i, add=h)


V3 = Family(
    "deepseek2", ("deepseek_v3",), "DeepseekV3", "DeepSeek", ConfigV3, tensors, layer,
    drafting_layer=layer, owns_gguf=lambda keys: keys.integer("expert_gating_func", 1) == SIGMOID,
)  # fmt: skip
V2 = Family(
    "deepseek2", ("deepseek_v2",), "DeepseekV2", "DeepSeek", Config, tensors, layer,
    drafting_layer=layer,
)  # fmt: skip
MISTRAL4 = Family(
    "mistral4", ("mistral4",), "Mistral4", "Mistral 4", ConfigMistral4, tensors_mistral4, layer,
    drafting_layer=layer,
)  # fmt: skip
