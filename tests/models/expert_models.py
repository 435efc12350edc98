"""Small random models with experts or latent attention, as transformers saves them.

Five experts of which two are chosen leave panels of every size; every factor is away from its default.
"""

from __future__ import annotations

from typing import Any

from dense_models import (
    FF,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    LLAMA3,
    POSITIONS,
    VOCABULARY,
    Case,
)

_FIVE = {"num_local_experts": 5, "num_experts_per_tok": 2}
_QWEN = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_EIGHT = {
    "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
    "first_k_dense_replace": 1, "num_hidden_layers": 3,
}  # fmt: skip
_GRANITE = {
    "attention_multiplier": 0.3, "embedding_multiplier": 3.0, "residual_multiplier": 0.4,
    "logits_scaling": 2.5,
}  # fmt: skip
_LATENT = {
    "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "num_key_value_heads": HEADS,
}  # fmt: skip
_YARN: dict[str, Any] = {
    "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 32, "rope_theta": 1e4,
    "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip
_GPT_OSS = {
    **_FIVE, "head_dim": 32, "sliding_window": 24, "num_hidden_layers": 3,
    "rope_parameters": {**_YARN, "rope_theta": 150000.0, "factor": 32.0, "truncate": False},
}  # fmt: skip


def _yarn(scores: float) -> dict[str, Any]:
    return {"rope_parameters": {**_YARN, "mscale": scores, "mscale_all_dim": scores}}


_PAIRS = HIDDEN // HEADS // 2
_LLAMA4 = {
    "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size_mlp": 128, "head_dim": 16,
    "num_hidden_layers": 4, "attention_chunk_size": 24, "floor_scale": 16, "attn_scale": 0.3,
}  # fmt: skip

_GEMMA4: dict[str, Any] = {
    "num_hidden_layers": 4, "sliding_window": 24, "head_dim": 8, "global_head_dim": 16,
    "layer_types": ["sliding_attention", "full_attention"] * 2, "final_logit_softcapping": 3.0,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                           "rope_theta": 1e6},
    },
}  # fmt: skip

CASES: list[Case] = [
    Case("qwen3moe", "Qwen3Moe", {**_QWEN, "head_dim": 32, "norm_topk_prob": True}),
    Case("qwen2moe", "Qwen2Moe", {**_QWEN, "shared_expert_intermediate_size": 64}),
    Case("llama", "Mixtral", _FIVE),
    Case("gpt-oss", "GptOss", _GPT_OSS),
    Case("olmoe", "Olmoe", {"num_experts": 5, "num_experts_per_tok": 2}),
    Case("granitemoe", "GraniteMoe", {**_FIVE, **_GRANITE, "tie_word_embeddings": True}),
    Case(
        "granitemoe-shared", "GraniteMoeShared",
        {**_FIVE, **_GRANITE, "shared_intermediate_size": 64},
    ),
    Case(
        "glm4moe", "Glm4Moe",
        {**_EIGHT, "n_shared_experts": 1, "use_qk_norm": True, "attention_bias": True,
         "head_dim": 32, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.7},
        differences=("block_count", "nextn_predict_layers"),
    ),
    Case(
        "glm4moe-plain", "Glm4Moe",
        {**_EIGHT, "n_shared_experts": 2, "use_qk_norm": False, "norm_topk_prob": False,
         "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0, "num_hidden_layers": 2},
        differences=("block_count", "nextn_predict_layers"),
    ),
    Case(
        "dots1", "Dots1",
        {**_EIGHT, "n_shared_experts": 2, "n_group": 2, "topk_group": 1, "norm_topk_prob": True,
         "routed_scaling_factor": 2.5},
        {"scoring_func": "sigmoid"},
    ),
    Case(
        "dots1-plain", "Dots1",
        {**_EIGHT, "n_shared_experts": 1, "head_dim": 32, "first_k_dense_replace": 0,
         "num_hidden_layers": 2, "norm_topk_prob": False},
        {"scoring_func": "sigmoid"},
    ),
    Case(
        "afmoe", "Afmoe",
        {**_QWEN, "num_shared_experts": 2, "num_dense_layers": 1, "num_hidden_layers": 5,
         "sliding_window": 24, "route_scale": 2.8, "mup_enabled": True, "head_dim": 32},
        {"route_norm": True, "score_func": "sigmoid", "n_group": 1, "topk_group": 1},
    ),
    Case(
        "exaone-moe", "ExaoneMoe",
        {**_QWEN, "num_experts": 6, "num_shared_experts": 2, "head_dim": 32,
         "num_hidden_layers": 5, "first_k_dense_replace": 1, "sliding_window": 24, "n_group": 2,
         "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.7,
         "rope_parameters": LLAMA3},
        {"scoring_func": "sigmoid"},
        differences=("nextn_predict_layers", "rope.scaling.type"),
    ),
    Case(
        "ernie4_5-moe", "Ernie4_5_Moe",
        {"moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": 32, "num_hidden_layers": 3,
         "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_interval": 1},
        differences=("expert_shared_feed_forward_length",),
    ),
    Case(
        "hunyuan-moe", "HunYuanMoEV1",
        {"num_experts": 5, "moe_topk": 2, "num_shared_expert": 1, "head_dim": 32,
         "moe_intermediate_size": 96},
        {"moe_topk": [2, 2], "moe_intermediate_size": [96, 96], "num_shared_expert": [1, 1]},
    ),
    Case(
        "hunyuan-moe-width", "HunYuanMoEV1",
        {"num_experts": 5, "moe_topk": 2, "num_shared_expert": 1, "head_dim": 32,
         "moe_intermediate_size": 64},
        {"moe_topk": [2, 2], "moe_intermediate_size": [64, 64], "num_shared_expert": [1, 1]},
    ),
    Case(
        "dbrx", "Dbrx",
        {"d_model": HIDDEN, "n_heads": HEADS, "n_layers": LAYERS, "max_seq_len": POSITIONS,
         "attn_config": {"kv_n_heads": KV_HEADS, "clip_qkv": 1.0, "rope_theta": 1e4},
         "ffn_config": {"ffn_hidden_size": FF, "moe_num_experts": 5, "moe_top_k": 2,
                        "moe_jitter_eps": 0.0, "hidden_size": HIDDEN},
         **dict.fromkeys(
             ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
              "num_key_value_heads", "max_position_embeddings"), ...,
         )},
    ),
    Case(
        "minimax-m2", "MiniMaxM2", {**_FIVE, "head_dim": 32, "rotary_dim": 16},
        differences=("expert_gating_func",),
    ),
    Case(
        "deepseek2-lite", "DeepseekV2",
        {**_EIGHT, **_LATENT, "n_shared_experts": 2, "q_lora_rank": None,
         "routed_scaling_factor": 1.0},
        differences=("expert_gating_func",),
    ),
    Case(
        "deepseek2-groups", "DeepseekV2",
        {**_EIGHT, **_LATENT, **_yarn(0.707), "n_shared_experts": 2, "q_lora_rank": 32,
         "n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy",
         "routed_scaling_factor": 1.6},
        differences=("expert_gating_func",),
    ),
    Case(
        "deepseek2-v3", "DeepseekV3",
        {**_EIGHT, **_LATENT, **_yarn(1.0), "n_shared_experts": 1, "q_lora_rank": 32,
         "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5},
        {"scoring_func": "sigmoid"},
    ),
    Case(
        "gemma4-experts", "Gemma4Text",
        {**_GEMMA4, "enable_moe_block": True, "num_experts": 5, "top_k_experts": 2,
         "moe_intermediate_size": 32, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
         "hidden_size_per_layer_input": 0},
        {"num_global_key_value_heads": 1, "global_head_dim": 16},
    ),
    Case(
        "gemma4-shared", "Gemma4Text",
        {**_GEMMA4, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
         "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY},
        {"global_head_dim": 16},
    ),
    Case(
        "phimoe", "Phimoe", {**_FIVE, "attention_bias": True, "lm_head_bias": True},
        {"original_max_position_embeddings": POSITIONS,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1e6,
                             "original_max_position_embeddings": POSITIONS},
         "architectures": ["PhiMoEForCausalLM"]},
    ),
    Case(
        "phimoe-long", "Phimoe",
        {**_FIVE, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 48,
            "short_mscale": 1.3, "long_mscale": 1.3,
            "long_factor": [1.0 + 0.5 * i for i in range(_PAIRS)],
            "short_factor": [1.0 + 0.5 * i for i in range(_PAIRS)],
        }},
        {"architectures": ["PhiMoEForCausalLM"]},
        differences=("rope.scaling.attn_factor",),
    ),
    Case(
        "llama4", "Llama4Text", {**_LLAMA4, "interleave_moe_layer_step": 1},
        differences=("attention.sliding_window", "attention.temperature_length",
                     "attention.temperature_scale"),
    ),
    Case(
        "llama4-dense-between", "Llama4Text", {**_LLAMA4, "interleave_moe_layer_step": 2},
        differences=("attention.sliding_window", "attention.temperature_length",
                     "attention.temperature_scale"),
    ),
    Case(
        "mistral4", "Mistral4",
        {**_EIGHT, **_LATENT, "n_shared_experts": 1, "q_lora_rank": 32, "n_group": 4,
         "topk_group": 2, "routed_scaling_factor": 1.6,
         "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0,
                             "llama_4_scaling_beta": 0.3}},
        {"architectures": ["Ministral3ForCausalLM"]},
        differences=("attention.temperature_scale", "expert_gating_func"),
    ),
]  # fmt: skip
