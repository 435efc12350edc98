"""Random folders of models that transformers does not have: their names and configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dense_models import FF, HEADS, HIDDEN, KV_HEADS, LAYERS, POSITIONS, VOCABULARY, random_values

_SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": FF,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": POSITIONS, "rope_theta": 5000.0, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}  # fmt: skip
_KV = HIDDEN // HEADS * KV_HEADS
_TABLE = (VOCABULARY, HIDDEN)
_NORM = ("weight", "bias")


@dataclass(frozen=True)
class RemoteFolder:
    """One structure.

    Attributes:
        kind, name: Transformers' architecture and model type.
        config: ``config.json``, beside the common sizes.
        outside, layer: Shapes of the parameters outside of the layers, and of each layer.
        layers: What the names of all layers begin with.
        differences: Keys in which llama.cpp's converter differs.
        own: Shapes of each layer's own parameters, beside those that all have.
        converted_by_llama_cpp: Whether its converter can: that of Baichuan calls itself without end,
            and that of PLaMo knows one size.
    """

    kind: str
    name: str
    config: Mapping[str, Any]
    outside: Mapping[str, tuple[int, ...]]
    layers: str
    layer: Mapping[str, tuple[int, ...]]
    differences: tuple[str, ...] = ()
    own: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    converted_by_llama_cpp: bool = True


def save(folder: RemoteFolder, path: Path) -> None:
    """Writes ``config.json`` and the weights in float32."""
    from safetensors.numpy import save_file

    path.mkdir()
    stated = {**_SIZES, "model_type": folder.name, "architectures": [folder.kind], **folder.config}
    config = {key: value for key, value in stated.items() if value is not None}
    (path / "config.json").write_text(json.dumps(config))
    shapes = dict(folder.outside)
    for i in range(LAYERS):
        layer = {**folder.layer, **(folder.own[i] if folder.own else {})}
        shapes |= {f"{folder.layers}.{i}.{part}": shape for part, shape in layer.items()}
    tensors = {name: random_values(name, shape) for name, shape in shapes.items()}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


_LLAMA = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
    "self_attn.k_proj.weight": (_KV, HIDDEN),
    "self_attn.v_proj.weight": (_KV, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
    "post_attention_layernorm.weight": (HIDDEN,),
    "mlp.gate_proj.weight": (FF, HIDDEN),
    "mlp.up_proj.weight": (FF, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, FF),
}
_LLAMA_OUTSIDE = {
    "model.embed_tokens.weight": _TABLE,
    "model.norm.weight": (HIDDEN,),
    "lm_head.weight": _TABLE,
}
_EXAONE = dict(
    zip(
        (
            "ln_1.weight",
            "attn.attention.q_proj.weight",
            "attn.attention.k_proj.weight",
            "attn.attention.v_proj.weight",
            "attn.attention.out_proj.weight",
            "ln_2.weight",
            "mlp.c_fc_0.weight",
            "mlp.c_fc_1.weight",
            "mlp.c_proj.weight",
        ),
        _LLAMA.values(),
        strict=True,
    )
)
_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip

_GROK_ATTENTION = {
    f"multi_head_attention.{name}.weight": _LLAMA[f"self_attn.{part}_proj.weight"]
    for name, part in {"query": "q", "key": "k", "value": "v", "linear": "o"}.items()
}
_GROK_EXPERTS = {
    f"moe.{i}.{name}.weight": (HIDDEN, FF) if name == "linear_1" else (FF, HIDDEN)
    for i in range(4)
    for name in ("linear", "linear_v", "linear_1")
}

_QKV_PARTS = ("self_attn.q", "self_attn.k", "self_attn.v")
_GPT_OUTSIDE = {
    "transformer.wte.weight": _TABLE,
    "transformer.ln_f.weight": (HIDDEN,),
    "lm_head.weight": _TABLE,
}
_SIZES_TAKEN = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_theta",
)  # fmt: skip
_GPT_SIZES = {
    **dict.fromkeys(_SIZES_TAKEN),
    "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_positions": POSITIONS,
}  # fmt: skip


def _elm(heads: int, kv_heads: int, width: int) -> dict[str, tuple[int, ...]]:
    return {
        "attn.qkv_proj.weight": (16 * (heads + 2 * kv_heads), HIDDEN),
        "attn.out_proj.weight": (HIDDEN, 16 * heads),
        "ffn.proj_1.weight": (2 * width, HIDDEN),
        "ffn.proj_2.weight": (HIDDEN, width),
    }


_RWKV_RANKS = {"w": 32, "a": 24, "g": 40}
_RWKV_FF = 160
_RWKV = {
    **{f"{part}_norm.{kind}": (HIDDEN,) for part in ("attn", "ffn", "attn.g") for kind in _NORM},
    **{f"attn.x_{name}": (1, 1, HIDDEN) for name in "rwkvag"},
    **{f"attn.k_{name}": (HIDDEN,) for name in "ka"},
    "attn.r_k": (1, HIDDEN),
    **{f"attn.{name}_proj.weight": (HIDDEN, HIDDEN) for name in "rkvo"},
    **{f"attn.{n}_lora.lora.0.weight": (rank, HIDDEN) for n, rank in _RWKV_RANKS.items()},
    **{f"attn.{n}_lora.lora.2.weight": (HIDDEN, rank) for n, rank in _RWKV_RANKS.items()},
    **{f"attn.{n}_lora.lora.2.bias": (HIDDEN,) for n in "wa"},
    "ffn.x_k": (HIDDEN,),
    "ffn.key.weight": (_RWKV_FF, HIDDEN),
    "ffn.value.weight": (HIDDEN, _RWKV_FF),
}
_RWKV_VALUES = {
    "attn.v_lora.lora.0.weight": (16, HIDDEN),
    "attn.v_lora.lora.2.weight": (HIDDEN, 16),
    "attn.v_lora.lora.2.bias": (HIDDEN,),
}
_LING = {
    "input_layernorm.weight": (HIDDEN,),
    "post_attention_layernorm.weight": (HIDDEN,),
    "attention.query_key_value.weight": (HIDDEN + 2 * _KV, HIDDEN),
    "attention.query_layernorm.weight": (HIDDEN // HEADS,),
    "attention.key_layernorm.weight": (HIDDEN // HEADS,),
    "attention.dense.weight": (HIDDEN, HIDDEN),
}


def _gated(module: str, width: int) -> dict[str, tuple[int, ...]]:
    parts = {"gate_proj": (width, HIDDEN), "up_proj": (width, HIDDEN), "down_proj": (HIDDEN, width)}
    return {f"{module}.{part}.weight": shape for part, shape in parts.items()}


_LING_EXPERTS = {
    "mlp.gate.weight": (8, HIDDEN),
    "mlp.gate.expert_bias": (8,),
    **_gated("mlp.shared_experts", 48),
    **{name: shape for i in range(8) for name, shape in _gated(f"mlp.experts.{i}", 32).items()},
}
_PLAMO2 = {
    **{
        f"{when}_{what}_norm.weight": (HIDDEN,)
        for when in ("pre", "post")
        for what in ("mixer", "mlp")
    },
    "mlp.gate_up_proj.weight": (2 * FF, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, FF),
}
_PLAMO2_SCAN = {
    "mixer.in_proj.weight": (2 * HIDDEN, HIDDEN),
    "mixer.conv1d.weight": (HIDDEN, 1, 4),
    "mixer.bcdt_proj.weight": (64 + 2 * 16, HIDDEN),
    "mixer.dt_proj.weight": (4, 64),
    **{f"mixer.{name}": (4,) for name in ("dt_bias", "A_log", "D")},
    "mixer.dt_norm_weight": (64,),
    **{f"mixer.{name}_norm_weight": (16,) for name in "BC"},
    "mixer.out_proj.weight": (HIDDEN, HIDDEN),
}
_PLAMO2_ATTENTION = {
    "mixer.qkv_proj.weight": (HIDDEN + 2 * _KV, HIDDEN),
    "mixer.o_proj.weight": (HIDDEN, HIDDEN),
    "mixer.q_weight": (HEADS, HIDDEN // HEADS),
    "mixer.k_weight": (KV_HEADS, HIDDEN // HEADS),
}

FOLDERS = [
    RemoteFolder(
        "ExaoneForCausalLM", "exaone",
        {"activation_function": "silu", "num_layers": LAYERS, "layer_norm_epsilon": 1e-5,
         "rope_scaling": _LLAMA3, "rms_norm_eps": None},
        {"transformer.wte.weight": _TABLE, "transformer.ln_f.weight": (HIDDEN,),
         "lm_head.weight": _TABLE},
        "transformer.h", _EXAONE,
        ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"),
    ),
    RemoteFolder(
        "MiniCPMForCausalLM", "minicpm",
        {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 32, "hidden_act": "silu"},
        _LLAMA_OUTSIDE, "model.layers", _LLAMA,
    ),
    RemoteFolder(
        "OrionForCausalLM", "orion", {"hidden_act": "silu"},
        {**_LLAMA_OUTSIDE, "model.norm.bias": (HIDDEN,)}, "model.layers",
        {**_LLAMA, "input_layernorm.bias": (HIDDEN,), "post_attention_layernorm.bias": (HIDDEN,)},
    ),
    RemoteFolder(
        "InternLM2ForCausalLM", "internlm2",
        {"hidden_act": "silu", "bias": False, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"model.tok_embeddings.weight": _TABLE, "model.norm.weight": (HIDDEN,),
         "output.weight": _TABLE},
        "model.layers",
        {"attention.wqkv.weight": (HIDDEN + 2 * _KV, HIDDEN), "attention.wo.weight": (HIDDEN, HIDDEN),
         "attention_norm.weight": (HIDDEN,), "ffn_norm.weight": (HIDDEN,),
         "feed_forward.w1.weight": (FF, HIDDEN), "feed_forward.w3.weight": (FF, HIDDEN),
         "feed_forward.w2.weight": (HIDDEN, FF)},
        differences=("rope.scaling.dynamic_factor",),  # llama.cpp has no key for it
    ),
    RemoteFolder(
        "InternLM3ForCausalLM", "internlm3",
        {"hidden_act": "silu", "bias": False, "qkv_bias": True,
         "rope_scaling": {"rope_type": "dynamic", "factor": 6.0}},
        _LLAMA_OUTSIDE, "model.layers",
        {**_LLAMA, **{f"{part}_proj.bias": _LLAMA[f"{part}_proj.weight"][:1] for part in _QKV_PARTS}},
        converted_by_llama_cpp=False,  # transformers' Llama is the truth
    ),
    RemoteFolder(
        "BaichuanForCausalLM", "baichuan",
        {"hidden_act": "silu", "num_key_value_heads": None, "rope_theta": None},
        _LLAMA_OUTSIDE, "model.layers",
        {**{k: v for k, v in _LLAMA.items() if k[:11] not in _QKV_PARTS},
         "self_attn.W_pack.weight": (3 * HIDDEN, HIDDEN)},
        converted_by_llama_cpp=False,
    ),
    RemoteFolder(
        "XverseForCausalLM", "xverse", {"hidden_act": "silu", "num_key_value_heads": None},
        _LLAMA_OUTSIDE, "model.layers",
        {k: (HIDDEN, HIDDEN) if k[:11] in _QKV_PARTS else v for k, v in _LLAMA.items()},
    ),
    RemoteFolder(
        "QWenLMHeadModel", "qwen",
        {"no_bias": True, "rotary_emb_base": 5000, "rope_theta": None, "rms_norm_eps": None,
         "layer_norm_epsilon": 1e-6, "num_key_value_heads": None, "seq_length": POSITIONS},
        _GPT_OUTSIDE, "transformer.h",
        {"ln_1.weight": (HIDDEN,), "attn.c_attn.weight": (3 * HIDDEN, HIDDEN),
         "attn.c_attn.bias": (3 * HIDDEN,), "attn.c_proj.weight": (HIDDEN, HIDDEN),
         "ln_2.weight": (HIDDEN,), "mlp.w1.weight": (FF // 2, HIDDEN),
         "mlp.w2.weight": (FF // 2, HIDDEN), "mlp.c_proj.weight": (HIDDEN, FF // 2)},
        # theirs lacks the epsilon that its own loader asks for
        ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"),
    ),
    RemoteFolder(
        "GPTRefactForCausalLM", "gpt_refact",
        {**_GPT_SIZES, "layer_norm_epsilon": 1e-5},
        _GPT_OUTSIDE, "transformer.h",
        {"ln_1.weight": (HIDDEN,), "attn.q.weight": (HIDDEN, HIDDEN),
         "attn.kv.weight": (2 * HIDDEN // HEADS, HIDDEN), "attn.c_proj.weight": (HIDDEN, HIDDEN),
         "ln_2.weight": (HIDDEN,), "mlp.gate_up_proj.weight": (512, HIDDEN),
         "mlp.c_proj.weight": (HIDDEN, 256)},
    ),
    RemoteFolder(
        "JAISLMHeadModel", "jais",
        {**_GPT_SIZES, "n_inner": FF, "activation_function": "swiglu", "layer_norm_epsilon": 1e-5,
         "position_embedding_type": "alibi", "embeddings_scale": 14.6, "width_scale": 0.22},
        {**_GPT_OUTSIDE, "transformer.ln_f.bias": (HIDDEN,)}, "transformer.h",
        {"ln_1.weight": (HIDDEN,), "ln_1.bias": (HIDDEN,), "ln_2.weight": (HIDDEN,),
         "ln_2.bias": (HIDDEN,), "attn.c_attn.weight": (HIDDEN, 3 * HIDDEN),
         "attn.c_attn.bias": (3 * HIDDEN,), "attn.c_proj.weight": (HIDDEN, HIDDEN),
         "attn.c_proj.bias": (HIDDEN,), "mlp.c_fc.weight": (HIDDEN, FF), "mlp.c_fc.bias": (FF,),
         "mlp.c_fc2.weight": (HIDDEN, FF), "mlp.c_fc2.bias": (FF,),
         "mlp.c_proj.weight": (FF, HIDDEN), "mlp.c_proj.bias": (HIDDEN,)},
    ),
    RemoteFolder(
        "DeciLMForCausalLM", "deci",
        {"hidden_act": "silu", "num_key_value_heads_per_layer": [2, 2]},
        _LLAMA_OUTSIDE, "model.layers", _LLAMA,
    ),
    RemoteFolder(
        "DeciLMForCausalLM", "nemotron-nas",
        {"hidden_act": "silu", "rope_scaling": _LLAMA3, "num_key_value_heads": None,
         "intermediate_size": None,
         "block_configs": [
             {"attention": {"n_heads_in_group": 2, "replace_with_linear": False},
              "ffn": {"ffn_mult": 2.25}},
             {"attention": {"n_heads_in_group": 2, "replace_with_linear": False},
              "ffn": {"ffn_mult": 6.1}},
         ]},
        _LLAMA_OUTSIDE, "model.layers",
        {k: v for k, v in _LLAMA.items() if not k.startswith("mlp.")},
        own=({"mlp.gate_proj.weight": (256, HIDDEN), "mlp.up_proj.weight": (256, HIDDEN),
              "mlp.down_proj.weight": (HIDDEN, 256)},
             {"mlp.gate_proj.weight": (512, HIDDEN), "mlp.up_proj.weight": (512, HIDDEN),
              "mlp.down_proj.weight": (HIDDEN, 512)}),
    ),
    RemoteFolder(
        "OpenELMForCausalLM", "openelm",
        {"model_dim": HIDDEN, "num_transformer_layers": LAYERS, "max_context_length": POSITIONS,
         "head_dim": 16, "num_query_heads": [4, 6], "num_kv_heads": [2, 3],
         "ffn_multipliers": [1.4, 2.0], "ffn_dim_divisor": 32, "rope_freq_constant": 5000,
         "activation_fn_name": "swish", "normalization_layer_name": "rms_norm",
         "normalize_qk_projections": True, "ffn_with_glu": True,
         "share_input_output_layers": True, **dict.fromkeys(_SIZES_TAKEN)},
        {"transformer.token_embeddings.weight": _TABLE, "transformer.norm.weight": (HIDDEN,)},
        "transformer.layers",
        {"attn_norm.weight": (HIDDEN,), "ffn_norm.weight": (HIDDEN,), "attn.q_norm.weight": (16,),
         "attn.k_norm.weight": (16,)},
        own=(_elm(4, 2, 96), _elm(6, 3, 128)),
    ),
    RemoteFolder(
        "CodeShellForCausalLM", "codeshell",
        {**_GPT_SIZES, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_pytorch_tanh",
         "group_query_attention": True, "num_query_groups": KV_HEADS,
         "position_embedding_type": "rope"},
        {**_GPT_OUTSIDE, "transformer.ln_f.bias": (HIDDEN,)}, "transformer.h",
        {"ln_1.weight": (HIDDEN,), "ln_1.bias": (HIDDEN,), "ln_2.weight": (HIDDEN,),
         "ln_2.bias": (HIDDEN,), "attn.c_attn.weight": (HIDDEN + 2 * _KV, HIDDEN),
         "attn.c_attn.bias": (HIDDEN + 2 * _KV,), "attn.c_proj.weight": (HIDDEN, HIDDEN),
         "attn.c_proj.bias": (HIDDEN,), "mlp.c_fc.weight": (4 * HIDDEN, HIDDEN),
         "mlp.c_fc.bias": (4 * HIDDEN,), "mlp.c_proj.weight": (HIDDEN, 4 * HIDDEN),
         "mlp.c_proj.bias": (HIDDEN,)},
        ("rope.scaling.factor", "rope.scaling.type"),  # a factor of 1
    ),
    RemoteFolder(
        "Grok1ForCausalLM", "grok-1",
        {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "rope_theta": 10000.0,
         "embedding_multiplier_scale": 3.0, "output_multiplier_scale": 0.7,
         "attn_output_multiplier": 0.2},
        {"transformer.in_out_embed.weight": _TABLE, "transformer.rms_norm.weight": (HIDDEN,),
         "lm_head.weight": _TABLE},
        "transformer.decoder_layer",
        {**_GROK_ATTENTION, **_GROK_EXPERTS, "router.weight": (4, HIDDEN),
         **{f"rms_norm{i}.weight": (HIDDEN,) for i in ("", "_1", "_2", "_3")}},
    ),
    RemoteFolder(
        "PlamoForCausalLM", "plamo", {"n_shared_head": 2},
        _LLAMA_OUTSIDE, "model.layers.layers",
        {("norm.weight" if k.startswith("input") else k): v
         for k, v in _LLAMA.items() if not k.startswith("post")},
        converted_by_llama_cpp=False,
    ),
    RemoteFolder(
        "RWKV7ForCausalLM", "rwkv7",
        {"head_dim": HIDDEN, "hidden_act": "sqrelu", "intermediate_size": _RWKV_FF, "norm_eps": 1e-5,
         "norm_first": True, "norm_bias": True, "decay_low_rank_dim": 32, "a_low_rank_dim": 24,
         "v_low_rank_dim": 16, "gate_low_rank_dim": 40,
         **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "rope_theta", "rms_norm_eps"))},
        {"model.embeddings.weight": _TABLE, "lm_head.weight": _TABLE,
         **{f"{name}.{kind}": (HIDDEN,) for name in ("model.layers.0.pre_norm", "model.norm")
            for kind in _NORM}},
        "model.layers", _RWKV, own=({}, _RWKV_VALUES),
    ),
    RemoteFolder(
        "BailingMoeV2ForCausalLM", "bailing_moe_v2",
        {"hidden_act": "silu", "use_bias": False, "use_qkv_bias": False, "use_qk_norm": True,
         "partial_rotary_factor": 0.5, "first_k_dense_replace": 1, "num_experts": 8,
         "num_experts_per_tok": 3, "moe_intermediate_size": 32, "num_shared_experts": 1,
         "moe_shared_expert_intermediate_size": 48, "n_group": 4, "topk_group": 2,
         "norm_topk_prob": True, "routed_scaling_factor": 2.5, "score_function": "sigmoid",
         "num_nextn_predict_layers": 0},
        {"model.word_embeddings.weight": _TABLE, "model.norm.weight": (HIDDEN,),
         "lm_head.weight": _TABLE},
        "model.layers", _LING, own=(_gated("mlp", FF), _LING_EXPERTS),
        converted_by_llama_cpp=False,
    ),
    RemoteFolder(
        "Plamo2ForCausalLM", "plamo2",
        {"tie_word_embeddings": True, "hidden_size_per_head": 16, "mamba_num_heads": 4,
         "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_step": 2, "mamba_enabled": True,
         "attention_window_size": 24, "full_attention_idx": [], "rms_norm_eps": 1e-6},
        {"model.embed_tokens.weight": _TABLE, "model.norm.weight": (HIDDEN,)},
        "model.layers.layers", _PLAMO2,
        # its files say nothing of windows
        ("attention.sliding_window", "attention.sliding_window_pattern"),
        own=(_PLAMO2_SCAN, _PLAMO2_ATTENTION),
    ),
]  # fmt: skip
