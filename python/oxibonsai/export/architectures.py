"""Fields of architectures' configurations beside those that all of them have.

An architecture is here, in :mod:`oxibonsai.export.mixtures` or in :mod:`oxibonsai.export.states` if
:mod:`oxibonsai.export.inverse` can undo its conversion from the recipe. Whether a configuration is the
model's is checked there too, so that nothing here needs to think of what else a file may say.
"""

from __future__ import annotations

import numpy as np

from oxibonsai.architectures import FAMILIES
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.export.encoders import ENCODERS, encoder_as
from oxibonsai.export.gemmas import GEMMAS
from oxibonsai.export.mixtures import MIXTURES, granite_factors, with_experts
from oxibonsai.export.rope import original_context, yarn_rope
from oxibonsai.export.safetensors_writer import Floats
from oxibonsai.export.saved import (
    ATTENTION,
    MLP,
    Fields,
    Saved,
    biased,
    layer_types,
    mosaic_sizes,
    saved_family,
    windows,
)
from oxibonsai.export.states import STATES
from oxibonsai.models.config import ModelConfig


def _llama(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {"hidden_act": "silu", **_biases(checkpoint, c)}


def _biases(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        "attention_bias": biased(checkpoint, *ATTENTION),
        "mlp_bias": biased(checkpoint, *MLP),
    }


def _gemma2(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": round(c.attention_scale**-2),
        "sliding_window": c.sliding_window or c.max_position_embeddings,
        "layer_types": layer_types(c),
        "attn_logit_softcapping": c.attn_logit_softcapping or None,
        "final_logit_softcapping": c.final_logit_softcapping or None,
    }


def _gemma3(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        **_gemma2(checkpoint, c),
        "sliding_window_pattern": c.sliding_window_pattern,
        "rope_local_base_freq": (c.rope_local or c.rope).theta,
    }


def _granite(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {**_llama(checkpoint, c), **granite_factors(c)}


def _command_r(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    normed = checkpoint.has("blk.0.attn_q_norm.weight")
    own = {"hidden_act": "silu", "attention_bias": False, "logit_scale": c.logit_scale}
    return {**own, "use_qk_norm": normed}


def _cohere2(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    own = {"hidden_act": "silu", "attention_bias": False, "logit_scale": c.logit_scale}
    return {**own, **windows(c), "rotary_pct": 1.0}


def _mistral3(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    found = {"hidden_act": "silu", "sliding_window": None, **yarn_rope(checkpoint, c, 1.0)}
    found["rope_parameters"]["mscale"] = 1.0
    return found


def _mpt(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        **mosaic_sizes(c),
        "expansion_ratio": c.intermediate_size // c.hidden_size,
        "no_bias": True,
        "attn_config": {
            "alibi": True,
            "alibi_bias_max": round(c.alibi_max_bias),
            "clip_qkv": c.clamp_kqv or None,
        },
    }


def _bloom(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    sizes = {"n_layer": c.num_hidden_layers, "n_head": c.num_attention_heads}
    own = {"seq_length": c.max_position_embeddings}
    return {**sizes, **own, "apply_residual_connection_post_layernorm": False}


def _phi3(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    original = original_context(checkpoint) or c.max_position_embeddings
    own = {"hidden_act": "silu", "sliding_window": c.sliding_window or None}
    return {**own, "original_max_position_embeddings": original}


def _xielu(checkpoint: Checkpoint) -> dict[str, Floats]:
    """Return the constants of each layer's activation."""
    found = {}
    for part, shape in XIELU.items():
        numbers = np.asarray(checkpoint.file.get(f"xielu.{part}"), np.float32)
        layers = checkpoint.file.get("apertus.block_count")
        for i, number in enumerate(np.broadcast_to(numbers, (layers,))):
            found[f"model.layers.{i}.mlp.act_fn.{part}"] = number.reshape(shape)
    return found


# Weights of a layer's activation; transformers has two of them as vectors of one number.
XIELU: dict[str, tuple[int, ...]] = {"alpha_n": (1,), "alpha_p": (1,), "beta": (), "eps": ()}
_UNBIASED = {"hidden_act": "silu", "attention_bias": False}
# By GGUF's name of the architecture, or of the one with the same layers.
SAVED: dict[str, Saved] = {
    **{family.name: saved_family(family) for family in FAMILIES if family.kind},
    **MIXTURES,
    **STATES,
    **GEMMAS,
    **ENCODERS,
    "gemma3": Saved("gemma3_text", "Gemma3", _gemma3),
    "apertus": Saved(
        "apertus", "Apertus", lambda m, c: {**_UNBIASED, "hidden_act": "xielu"}, numbers=_xielu
    ),
    "bitnet": Saved("bitnet", "BitNet", lambda m, c: {**_UNBIASED, "hidden_act": c.hidden_act}),
    "cohere2": Saved("cohere2", "Cohere2", _cohere2, "layer_norm_eps"),
    "command-r": Saved("cohere", "Cohere", _command_r, "layer_norm_eps"),
    "exaone4": Saved("exaone4", "Exaone4", lambda m, c: {"hidden_act": "silu", **windows(c)}),
    "granite": Saved("granite", "Granite", _granite),
    "hunyuan-dense": Saved("hunyuan_v1_dense", "HunYuanDenseV1", lambda m, c: _UNBIASED),
    "bloom": Saved("bloom", "Bloom", _bloom, "layer_norm_epsilon", head_dim=False, rope="none"),
    "mistral3": Saved("ministral3", "Ministral3", _mistral3, rope="none"),
    "mpt": Saved("mpt", "Mpt", _mpt, "layer_norm_epsilon", head_dim=False, rope="none"),
    "olmo2": Saved("olmo2", "Olmo2", lambda m, c: _UNBIASED),
    "olmo3": Saved(
        "olmo3", "Olmo3", lambda m, c: {**_UNBIASED, **windows(c)}, rope="by kind"
    ),
    "phi3": Saved("phi3", "Phi3", _phi3),
}  # fmt: skip
# Architectures whose layers are those of another, which transformers knows without code from elsewhere.
_SAME_LAYERS = {
    "internlm2": "llama", "xverse": "llama", "baichuan": "llama", "minicpm": "granite",
}  # fmt: skip


def saved_as(checkpoint: Checkpoint, c: ModelConfig) -> str | None:
    """Return the architecture under whose names a model is saved: its own, or one with the same layers."""
    if c.architecture in ENCODERS:
        return encoder_as(checkpoint, c)
    if not c.generates:
        return None
    name = _SAME_LAYERS.get(c.architecture, c.architecture)
    if name == "olmo2" and c.sliding_window:
        name = "olmo3"
    if name == "mamba" and c.inner_norm_eps:
        name = "falcon_mamba"
    if c.experts is not None:
        name = with_experts(name, c.experts)
    return name if name in SAVED else None
