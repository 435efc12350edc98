"""Fields of the configurations of models with recurrent states."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.export.mixtures import (
    GRANITE_EXPERTS,
    GRANITE_SHARED,
    each_expert,
    granite_factors,
    qwen_experts,
)
from oxibonsai.export.saved import Fields, Saved
from oxibonsai.models.config import (
    FEED_FORWARD,
    FULL_ATTENTION,
    GatedDeltaConfig,
    MambaConfig,
    ModelConfig,
)
from oxibonsai.models.experts import experts_of


def _mamba_of(c: ModelConfig) -> MambaConfig:
    assert c.mamba is not None  # of every file of these architectures
    return c.mamba


def _mamba(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    m = _mamba_of(c)
    expand = m.intermediate_size // c.hidden_size
    return {
        "hidden_act": "silu",
        "use_bias": False,
        "use_conv_bias": True,
        "conv_kernel": m.conv_kernel,
        "expand": expand,
        "intermediate_size": expand * c.hidden_size,  # which transformers computes
        "state_size": m.state_size,
        "time_step_rank": m.time_step_rank,
    }


def _mamba2(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    m = _mamba_of(c)
    return {
        "hidden_act": "silu",
        "use_bias": False,
        "use_conv_bias": True,
        "conv_kernel": m.conv_kernel,
        "expand": m.intermediate_size // c.hidden_size,
        "state_size": m.state_size,
        "num_heads": m.num_heads,
        "head_dim": c.hidden_size * (m.intermediate_size // c.hidden_size) // m.num_heads,
        "n_groups": m.n_groups,
    }


def _every(layers: Sequence[int], count: int) -> tuple[int, int]:
    """Period and offset of layers that come at equal distances; of others, any."""
    if not layers:
        return count + 1, count
    period = layers[1] - layers[0] if len(layers) > 1 else count
    return max(period, layers[0] + 1), layers[0]


def _jamba(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    m, layers = _mamba_of(c), range(c.num_hidden_layers)
    attending = _every([i for i in layers if c.attends(i)], len(layers))
    mixing = [i for i in layers if checkpoint.has(f"blk.{i}.ffn_gate_inp.weight")]
    every = _every(mixing, len(layers))
    e = c.experts
    return {
        "hidden_act": "silu",
        "attn_layer_period": attending[0],
        "attn_layer_offset": attending[1],
        "expert_layer_period": every[0],
        "expert_layer_offset": every[1],
        "num_experts": 1 if e is None else e.num_experts,
        "num_experts_per_tok": 1 if e is None else e.num_experts_per_tok,
        "mamba_d_conv": m.conv_kernel,
        "mamba_d_state": m.state_size,
        "mamba_dt_rank": m.time_step_rank,
        "mamba_expand": m.intermediate_size // c.hidden_size,
        "mamba_conv_bias": True,
        "mamba_proj_bias": False,
    }


def _lfm2(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        "layer_types": [
            "full_attention" if c.attends(i) else "conv" for i in range(c.num_hidden_layers)
        ],
        "conv_L_cache": c.conv_kernel,
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
        "tie_embedding": not checkpoint.has("output.weight"),
    }


def _lfm2moe(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    e = experts_of(c)
    return {
        **_lfm2(checkpoint, c),
        "num_experts": e.num_experts,
        "num_experts_per_tok": e.num_experts_per_tok,
        "moe_intermediate_size": e.intermediate_size,
        "num_dense_layers": e.first_dense_layers,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "use_expert_bias": True,
    }


def _heads_of_states(c: ModelConfig) -> Fields:
    """Return the heads of Mamba 2 beside attention, as Granite and Falcon call them."""
    m = _mamba_of(c)
    return {
        "hidden_act": "silu",
        "attention_bias": False,
        "mamba_proj_bias": False,
        "mamba_conv_bias": True,
        "mamba_d_conv": m.conv_kernel,
        "mamba_d_state": m.state_size,
        "mamba_n_heads": m.num_heads,
        "mamba_d_head": m.intermediate_size // m.num_heads,
        "mamba_n_groups": m.n_groups,
        "mamba_expand": m.intermediate_size // c.hidden_size,
    }


def _granite(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    e = c.experts
    shared = c.intermediate_size if e is None else e.shared_intermediate_size
    return {
        **_heads_of_states(c),
        **granite_factors(c),
        "layer_types": [
            "attention" if c.attends(i) else "mamba" for i in range(c.num_hidden_layers)
        ],
        "position_embedding_type": "rope" if c.rope.rotary_dim else "nope",
        "rope_theta": c.rope.theta,
        "shared_intermediate_size": shared,
        "num_local_experts": 0 if e is None else e.num_experts,
        "num_experts_per_tok": 0 if e is None else e.num_experts_per_tok,
    }


# Files have the factors in their weights.
_ONES = ("attention_in", "attention_out", "key", "ssm_in", "ssm_out", "lm_head", "embedding")


def _falcon_h1(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    normed = checkpoint.has("blk.0.ssm_norm.weight")
    return {
        **_heads_of_states(c),
        "mamba_d_ssm": _mamba_of(c).intermediate_size,
        "mamba_rms_norm": normed,
        "mamba_norm_before_gate": False,
        "projectors_bias": False,
        "mlp_bias": False,
        **{f"{name}_multiplier": 1.0 for name in _ONES},
        "mlp_multipliers": [1.0] * 2,
        "ssm_multipliers": [1.0] * 5,
    }


def _nemotron_h(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    m, e = _mamba_of(c), c.experts
    other = "mlp" if e is None else "moe"
    kinds = {FULL_ATTENTION: "full_attention", FEED_FORWARD: other}
    found: Fields = {
        "layers_block_type": [kinds.get(kind, "linear_attention") for kind in c.layer_types],
        "mamba_hidden_act": "silu",
        "mlp_hidden_act": "relu2",
        "conv_kernel": m.conv_kernel,
        "ssm_state_size": m.state_size,
        "mamba_num_heads": m.num_heads,
        "mamba_head_dim": m.intermediate_size // m.num_heads,
        "n_groups": m.n_groups,
        # transformers raises time steps to this, which neither files nor NVIDIA's own code do.
        "time_step_min": 1e-12,
        **dict.fromkeys(("attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"), False),
    }
    if e is None:
        return found
    return {
        **found,
        "n_routed_experts": e.num_experts,
        "num_experts_per_tok": e.num_experts_per_tok,
        "n_shared_experts": 1,
        "moe_intermediate_size": e.intermediate_size,
        "moe_shared_expert_intermediate_size": e.shared_intermediate_size,
        "moe_latent_size": e.latent_size or None,
        "norm_topk_prob": e.normalize,
        "routed_scaling_factor": e.scale,
        "n_group": e.groups,
        "topk_group": e.kept_groups,
    }


def _delta(c: ModelConfig) -> GatedDeltaConfig:
    assert c.gated_delta is not None  # of every file of these architectures
    return c.gated_delta


def _qwen35(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    d = _delta(c)
    kinds = [
        "full_attention" if c.attends(i) else "linear_attention" for i in range(c.num_hidden_layers)
    ]
    return {
        "hidden_act": "silu",
        "attention_bias": False,
        "layer_types": kinds,
        "linear_conv_kernel_dim": d.conv_kernel_dim,
        "linear_key_head_dim": d.key_head_dim,
        "linear_value_head_dim": d.value_head_dim,
        "linear_num_key_heads": d.num_key_heads,
        "linear_num_value_heads": d.num_value_heads,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": c.rope.theta,
            "partial_rotary_factor": c.rope.rotary_dim / c.head_dim,
        },
    }


def _qwen35_mixed(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    own = {
        "shared_expert_intermediate_size": experts_of(c).shared_intermediate_size,
        "intermediate_size": checkpoint.file.get(f"{c.architecture}.feed_forward_length"),
    }
    return {**_qwen35(checkpoint, c), **qwen_experts(c), **own, "norm_topk_prob": True}


def _rwkv7(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    r = c.rwkv
    assert r is not None  # of every file of the architecture
    return {
        "hidden_act": "sqrelu",
        "norm_first": True,
        "norm_bias": True,
        "attn": None,
        "head_dim": r.head_size,
        "num_heads": c.hidden_size // r.head_size,
        "decay_low_rank_dim": r.decay_rank,
        "a_low_rank_dim": r.rate_rank,
        "v_low_rank_dim": r.value_rank,
        "gate_low_rank_dim": r.gate_rank,
    }


def _qkvz(folder: ModelFolder) -> tuple[int, ...]:
    keys = folder.count("linear_num_key_heads") * folder.count("linear_key_head_dim")
    values = folder.count("linear_num_value_heads") * folder.count("linear_value_head_dim")
    return 2 * keys + 2 * values, folder.count("hidden_size")


_MIXED = each_expert("mlp.experts")
STATES: dict[str, Saved] = {
    "mamba": Saved(
        "mamba", "Mamba", _mamba, "layer_norm_epsilon", head_dim=False, rope="none"
    ),
    "falcon_mamba": Saved(
        "falcon_mamba", "FalconMamba",
        lambda m, c: {**_mamba(m, c), "mixer_rms_eps": 1e-6},
        "layer_norm_epsilon", head_dim=False, rope="none",
    ),
    "mamba2": Saved("mamba2", "Mamba2", _mamba2, "layer_norm_epsilon", head_dim=False, rope="none"),
    "jamba": Saved(
        "jamba", "Jamba", _jamba, head_dim=False, rope="none",
        joined=each_expert("feed_forward.experts"),
    ),
    "lfm2": Saved("lfm2", "Lfm2", _lfm2, "norm_eps", head_dim=False),
    "lfm2moe": Saved(
        "lfm2_moe", "Lfm2Moe", _lfm2moe, "norm_eps", head_dim=False,
        joined=each_expert("feed_forward.experts", ("w1", "w3", "w2")),
    ),
    "granitehybrid": Saved(
        "granitemoehybrid", "GraniteMoeHybrid", _granite, head_dim=False,
        joined={**GRANITE_EXPERTS, **GRANITE_SHARED},
    ),
    "falcon-h1": Saved("falcon_h1", "FalconH1", _falcon_h1),
    "nemotron_h": Saved("nemotron_h", "NemotronH", _nemotron_h, "layer_norm_epsilon", rope="none"),
    "nemotron_h_moe": Saved(
        "nemotron_h", "NemotronH", _nemotron_h, "layer_norm_epsilon", rope="none",
        joined={
            f"backbone.layers.{{layer}}.mixer.experts.{{expert}}.{part}.weight": None
            for part in ("up_proj", "down_proj")
        },
    ),
    # Of flash-linear-attention, which registers it with transformers.
    "rwkv7": Saved(
        "rwkv7", "RWKV7", _rwkv7, "norm_eps", head_dim=False, rope="none",
        joined={
            **{f"model.layers.{{layer}}.attn.x_{letter}": None for letter in "rwkvag"},
            **{
                f"model.layers.0.attn.a_lora.lora.{part}": None
                for part in ("0.weight", "2.weight", "2.bias")
            },
        },
    ),
    "qwen35": Saved("qwen3_5_text", "Qwen3_5", _qwen35, rope="none"),
    "qwen35moe": Saved(
        "qwen3_5_moe_text", "Qwen3_5Moe", _qwen35_mixed, rope="none", joined=_MIXED
    ),
    "qwen3next": Saved(
        "qwen3_next", "Qwen3Next", _qwen35_mixed, rope="none",
        joined={**_MIXED, "model.layers.{layer}.linear_attn.in_proj_qkvz.weight": _qkvz},
    ),
}  # fmt: skip
