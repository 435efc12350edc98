"""Fields of the configurations of models with experts, and parameters that are no tensor alone."""

from __future__ import annotations

import math

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.export.joined import JoinedShapes
from oxibonsai.export.numbers import rounded, short
from oxibonsai.export.rope import original_context, rope_scaling, yarn_rope
from oxibonsai.export.saved import (
    ATTENTION,
    QKV,
    Fields,
    Saved,
    biased,
    layer_types,
    mosaic_sizes,
)
from oxibonsai.models.config import ExpertsConfig, ModelConfig
from oxibonsai.models.experts import experts_of

_PROJECTIONS, _NUMBERED = ("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")


def each_expert(module: str, projections: tuple[str, ...] = _PROJECTIONS) -> JoinedShapes:
    """Return the matrices of each expert, by the module of a layer that has them."""
    return {
        f"model.layers.{{layer}}.{module}.{{expert}}.{part}.weight": None for part in projections
    }


def _all_experts(folder: ModelFolder, rows: int, columns: int) -> tuple[int, ...]:
    return folder.count("num_local_experts"), rows, columns


def _chosen(c: ModelConfig, count: str = "num_experts") -> Fields:
    e = experts_of(c)
    return {
        "hidden_act": "silu",
        count: e.num_experts,
        "num_experts_per_tok": e.num_experts_per_tok,
    }


def _mixtral(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    own = {"sliding_window": None, "router_jitter_noise": 0.0}
    return {**_chosen(c, "num_local_experts"), **own}


def qwen_experts(c: ModelConfig) -> Fields:
    """Return the fields of Qwen's models whose every layer has experts."""
    own: Fields = {"decoder_sparse_step": 1, "mlp_only_layers": [], "use_sliding_window": False}
    return {**_chosen(c), **own, "moe_intermediate_size": experts_of(c).intermediate_size}


def _qwen2moe(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    shared = experts_of(c).shared_intermediate_size
    own = {"norm_topk_prob": False, "shared_expert_intermediate_size": shared}
    return {**qwen_experts(c), **own, "qkv_bias": biased(checkpoint, *QKV)}


def _qwen3moe(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {**qwen_experts(c), "norm_topk_prob": True, "attention_bias": False}


def _olmoe(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {**_chosen(c), "norm_topk_prob": False, "attention_bias": False, "clip_qkv": None}


def _phimoe(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    own: Fields = {}
    if (magnitude := checkpoint.file.get("phimoe.rope.scaling.attn_factor")) is not None:
        scaling = rope_scaling(checkpoint, c.rope) or {}
        both = {"short_mscale": short(magnitude), "long_mscale": short(magnitude)}
        own["rope_scaling"] = {**scaling, **both}
    return {
        **own,
        **_chosen(c, "num_local_experts"),
        "router_jitter_noise": 0.01,
        "input_jitter_noise": 0.0,
        "attention_bias": biased(checkpoint, *ATTENTION),
        "lm_head_bias": checkpoint.has("output.bias"),
        "sliding_window": c.sliding_window or None,
        "original_max_position_embeddings": original_context(checkpoint)
        or c.max_position_embeddings,
    }


def granite_factors(c: ModelConfig) -> Fields:
    """Return the factors of embeddings, scores, residuals and logits."""
    return {
        "attention_multiplier": c.attention_scale,
        "embedding_multiplier": c.embedding_scale,
        "residual_multiplier": c.residual_scale,
        "logits_scaling": 1.0 / c.logit_scale,
    }


def _granitemoe(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    found = {**_chosen(c, "num_local_experts"), **granite_factors(c), "attention_bias": False}
    if shared := experts_of(c).shared_intermediate_size:
        found["shared_intermediate_size"] = shared
    return found


def _granite_input(folder: ModelFolder) -> tuple[int, ...]:
    return _all_experts(folder, 2 * folder.count("intermediate_size"), folder.count("hidden_size"))


def granite_shared_input(folder: ModelFolder) -> tuple[int, ...]:
    """Return the shape of the shared part's gate rows above the other half's."""
    return 2 * folder.count("shared_intermediate_size"), folder.count("hidden_size")


GRANITE_EXPERTS: JoinedShapes = {
    "model.layers.{layer}.block_sparse_moe.input_linear.weight": _granite_input,
    "model.layers.{layer}.block_sparse_moe.output_linear.weight": None,
}
GRANITE_SHARED: JoinedShapes = {
    "model.layers.{layer}.shared_mlp.input_linear.weight": granite_shared_input,
    "model.layers.{layer}.shared_mlp.output_linear.weight": None,
}


def _gpt_oss(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        **_chosen(c, "num_local_experts"),
        "attention_bias": True,
        "sliding_window": c.sliding_window,
        "layer_types": layer_types(c),
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    }


def _gate_up(folder: ModelFolder) -> tuple[int, ...]:
    return _all_experts(folder, folder.count("hidden_size"), 2 * folder.count("intermediate_size"))


def _gate_up_bias(folder: ModelFolder) -> tuple[int, ...]:
    return folder.count("num_local_experts"), 2 * folder.count("intermediate_size")


def _down(folder: ModelFolder) -> tuple[int, ...]:
    return _all_experts(folder, folder.count("intermediate_size"), folder.count("hidden_size"))


def _shared_count(e: ExpertsConfig) -> int:
    """Return the number of shared experts; one too few if their width is no multiple of another's."""
    return e.shared_intermediate_size // e.intermediate_size


def _routed(c: ModelConfig) -> Fields:
    """DeepSeek's names, which GLM has too."""
    e = experts_of(c)
    return {
        **_chosen(c, "n_routed_experts"),
        "moe_intermediate_size": e.intermediate_size,
        "n_shared_experts": _shared_count(e) or None,
        "first_k_dense_replace": e.first_dense_layers,
        "norm_topk_prob": e.normalize,
        "routed_scaling_factor": e.scale,
        "n_group": e.groups,
        "topk_group": e.kept_groups,
        "num_nextn_predict_layers": 0,
        "attention_bias": False,
    }


def _glm4moe(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        **_routed(c),
        "n_shared_experts": _shared_count(experts_of(c)),
        "use_qk_norm": checkpoint.has("blk.0.attn_q_norm.weight"),
        "attention_bias": biased(checkpoint, *QKV),
        "partial_rotary_factor": c.rope.rotary_dim / c.head_dim,
    }


def _ernie(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    e = experts_of(c)
    return {
        "hidden_act": "silu",
        "use_bias": False,
        "moe_num_experts": e.num_experts,
        "moe_k": e.num_experts_per_tok,
        "moe_intermediate_size": e.intermediate_size,
        "moe_num_shared_experts": _shared_count(e),
        "moe_layer_start_index": e.first_dense_layers,
        "moe_layer_end_index": c.num_hidden_layers - 1,
        "moe_layer_interval": 1,
    }


def _hunyuan(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    e = experts_of(c)
    return {
        "hidden_act": "silu",
        "attention_bias": False,
        "num_experts": e.num_experts,
        "moe_topk": e.num_experts_per_tok,
        "num_shared_expert": e.shared_intermediate_size // c.intermediate_size,
        # Transformers has one width for all, and reads this nowhere.
        "moe_intermediate_size": checkpoint.file.get(
            "hunyuan-moe.expert_feed_forward_length", c.intermediate_size
        ),
    }


def _minimax(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    share = c.rope.rotary_dim / c.head_dim
    own = {"rotary_dim": c.rope.rotary_dim, "partial_rotary_factor": share}
    return {**_chosen(c, "num_local_experts"), **own}


def _deepseek(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    latent, e = c.latent, experts_of(c)
    assert latent is not None  # of every file of the architecture
    groups = "greedy" if e.groups == 1 else "group_limited_greedy"
    third = e.scoring == "sigmoid"
    return {
        **_routed(c),
        **yarn_rope(checkpoint, c, 10.0),  # which is ten times smaller in files
        "num_key_value_heads": c.num_attention_heads,
        "kv_lora_rank": latent.kv_lora_rank,
        "q_lora_rank": latent.q_lora_rank or None,
        "qk_nope_head_dim": latent.qk_nope_head_dim,
        "qk_rope_head_dim": latent.qk_rope_head_dim,
        "v_head_dim": latent.v_head_dim,
        **({"rope_interleave": True} if third else {"topk_method": groups, "mlp_bias": False}),
    }


def _mistral4(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    found, latent = {**_deepseek(checkpoint, c), "rope_interleave": True}, c.latent
    assert latent is not None  # as above
    share = latent.qk_rope_head_dim / (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
    found["rope_parameters"]["partial_rotary_factor"] = share
    return found


def _llama4(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    e, growth = experts_of(c), c.rope_query or c.rope
    return {
        **_chosen(c, "num_local_experts"),
        "attention_bias": False,
        "attn_temperature_tuning": True,
        "attention_chunk_size": c.attention_chunk_size or None,
        "floor_scale": growth.temperature_step,
        "attn_scale": growth.temperature,
        "intermediate_size": e.intermediate_size,
        "intermediate_size_mlp": c.intermediate_size,
        "interleave_moe_layer_step": e.layer_step,
        "no_rope_layers": [int(local) for local in c.local_layers],
        "use_qk_norm": c.use_qk_norm,
    }


def _minicpm3(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    latent = c.latent
    assert latent is not None  # as above
    return {
        "hidden_act": "silu",
        "attention_bias": False,
        "num_key_value_heads": c.num_attention_heads,
        "kv_lora_rank": latent.kv_lora_rank,
        "q_lora_rank": latent.q_lora_rank,
        "qk_nope_head_dim": latent.qk_nope_head_dim,
        "qk_rope_head_dim": latent.qk_rope_head_dim,
        "v_head_dim": latent.v_head_dim,
        "scale_emb": c.embedding_scale,
        "scale_depth": rounded(c.residual_scale * math.sqrt(c.num_hidden_layers)),
        "dim_model_base": round(c.hidden_size * c.logit_scale),
        "rope_theta": c.rope.theta,
        "rope_scaling": rope_scaling(checkpoint, c.rope),
    }


def _kv_b(folder: ModelFolder) -> tuple[int, ...]:
    width = folder.count("qk_nope_head_dim") + folder.count("v_head_dim")
    return folder.count("num_attention_heads") * width, folder.count("kv_lora_rank")


def _dbrx(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    e = experts_of(c)
    return {
        **mosaic_sizes(c),
        "attn_config": {
            "kv_n_heads": c.num_key_value_heads,
            "clip_qkv": c.clamp_kqv or None,
            "rope_theta": c.rope.theta,
        },
        "ffn_config": {
            "hidden_size": c.hidden_size,
            "ffn_hidden_size": e.intermediate_size,
            "moe_num_experts": e.num_experts,
            "moe_top_k": e.num_experts_per_tok,
            "moe_normalize_expert_weights": 1.0,
        },
    }


def _dbrx_experts(folder: ModelFolder) -> tuple[int, ...]:
    rows = folder.count("num_experts") * folder.count("intermediate_size")
    return rows, folder.count("hidden_size")


_LATENT = {**each_expert("mlp.experts"), "model.layers.{layer}.self_attn.kv_b_proj.weight": _kv_b}
MIXTURES: dict[str, Saved] = {
    "mixtral": Saved(
        "mixtral", "Mixtral", _mixtral, joined=each_expert("block_sparse_moe.experts", _NUMBERED)
    ),
    "qwen2moe": Saved("qwen2_moe", "Qwen2Moe", _qwen2moe, joined=each_expert("mlp.experts")),
    "qwen3moe": Saved("qwen3_moe", "Qwen3Moe", _qwen3moe, joined=each_expert("mlp.experts")),
    "olmoe": Saved("olmoe", "Olmoe", _olmoe, head_dim=False, joined=each_expert("mlp.experts")),
    "phimoe": Saved(
        "phimoe", "Phimoe", _phimoe, head_dim=False,
        joined=each_expert("block_sparse_moe.experts", _NUMBERED),
    ),
    "granitemoe": Saved(
        "granitemoe", "GraniteMoe", _granitemoe, head_dim=False, joined=GRANITE_EXPERTS
    ),
    "granitemoeshared": Saved(
        "granitemoeshared", "GraniteMoeShared", _granitemoe, head_dim=False,
        joined={**GRANITE_EXPERTS, **GRANITE_SHARED},
    ),
    "gpt-oss": Saved(
        "gpt_oss",
        "GptOss",
        _gpt_oss,
        joined={
            "model.layers.{layer}.mlp.experts.gate_up_proj": _gate_up,
            "model.layers.{layer}.mlp.experts.gate_up_proj_bias": _gate_up_bias,
            "model.layers.{layer}.mlp.experts.down_proj": _down,
            "model.layers.{layer}.mlp.experts.down_proj_bias": None,
        },
    ),
    "glm4moe": Saved("glm4_moe", "Glm4Moe", _glm4moe, joined=each_expert("mlp.experts")),
    "ernie4_5-moe": Saved(
        "ernie4_5_moe", "Ernie4_5_Moe", _ernie, joined=each_expert("mlp.experts")
    ),
    "hunyuan-moe": Saved(
        "hunyuan_v1_moe", "HunYuanMoEV1", _hunyuan, joined=each_expert("mlp.experts")
    ),
    "minimax-m2": Saved(
        "minimax_m2", "MiniMaxM2", _minimax,
        joined=each_expert("block_sparse_moe.experts", _NUMBERED),
    ),
    "deepseek_v2": Saved(
        "deepseek_v2", "DeepseekV2", _deepseek, head_dim=False, rope="none", joined=_LATENT
    ),
    "deepseek_v3": Saved(
        "deepseek_v3", "DeepseekV3", _deepseek, head_dim=False, rope="none", joined=_LATENT
    ),
    "mistral4": Saved(
        "mistral4", "Mistral4", _mistral4, head_dim=False, rope="none",
        joined={
            "model.layers.{layer}.mlp.experts.gate_up_proj": None,
            "model.layers.{layer}.mlp.experts.down_proj": None,
            "model.layers.{layer}.self_attn.kv_b_proj.weight": _kv_b,
        },
    ),
    "minicpm3": Saved("minicpm3", "MiniCPM3", _minicpm3, head_dim=False, rope="none"),
    "llama4": Saved(
        "llama4_text", "Llama4", _llama4,
        joined={
            "model.layers.{layer}.feed_forward.experts.gate_up_proj": _gate_up,
            "model.layers.{layer}.feed_forward.experts.down_proj": _down,
        },
    ),
    "dbrx": Saved(
        "dbrx", "Dbrx", _dbrx, "", head_dim=False, rope="none",
        joined={
            f"transformer.blocks.{{layer}}.ffn.experts.mlp.{part}": _dbrx_experts
            for part in ("w1", "v1", "w2")
        },
    ),
}  # fmt: skip


def with_experts(architecture: str, e: ExpertsConfig) -> str:
    """Return the name in ``SAVED`` of an architecture that transformers has as another one than GGUF."""
    if architecture == "llama":
        return "mixtral"
    if architecture == "granitemoe" and e.shared_intermediate_size:
        return "granitemoeshared"
    if architecture == "deepseek2":
        return "deepseek_v3" if e.scoring == "sigmoid" else "deepseek_v2"
    return architecture
