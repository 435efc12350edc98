"""Fields of the configurations of Gemma 3n and Gemma 4, whose layers differ in kind."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import UnsupportedError
from oxibonsai.export.numbers import rounded, short
from oxibonsai.export.saved import Fields, Saved, layer_types
from oxibonsai.models.config import ModelConfig


def _shared(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "sliding_window": c.sliding_window,
        "layer_types": layer_types(c),
        "num_kv_shared_layers": c.num_kv_shared_layers,
        "hidden_size_per_layer_input": c.hidden_size_per_layer_input,
        "vocab_size_per_layer_input": c.vocab_size,
        "head_dim": c.local_head_dim,
    }


def _widths(c: ModelConfig) -> list[int]:
    """Return each layer's MLP width."""
    return [c.of_layer(i).intermediate_size for i in range(c.num_hidden_layers)]


def _thetas(c: ModelConfig) -> tuple[Fields, Fields]:
    """Return the rotary embeddings of layers that see all, and of those with a window."""
    assert c.rope_local is not None  # of every file of these architectures
    full = {"rope_type": "default", "rope_theta": short(c.rope.theta)}
    return full, {**full, "rope_theta": short(c.rope_local.theta)}


def _share(deviations: float) -> float:
    """Return the share of a normal distribution below so many deviations, in as few digits as say it."""
    if deviations == -math.inf:
        return 0.0
    share = NormalDist().cdf(deviations)
    found = (rounded(share, digits) for digits in range(1, 17))
    same = (f for f in found if f < 1 and np.float32(NormalDist().inv_cdf(f)) == deviations)
    return next(same, share)


def _gemma3n(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    assert c.streams is not None  # of every file of the architecture
    full, local = _thetas(c)
    return {
        **_shared(checkpoint, c),
        "intermediate_size": _widths(c),
        "altup_num_inputs": c.streams.count,
        "altup_active_idx": c.streams.active,
        "altup_correct_scale": True,
        "activation_sparsity_pattern": [_share(s) for s in c.streams.sparsity],
        "laurel_rank": checkpoint.shape("blk.0.laurel_l.weight")[0],
        "final_logit_softcapping": c.final_logit_softcapping or None,
        "rope_parameters": {"full_attention": full, "sliding_attention": local},
    }


def _kv_heads(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    """Return the key-value heads of layers with and without a window; some use their keys as values.

    Raises:
        UnsupportedError: Heads differ and values are apart, which transformers does not have.
    """
    layers = range(c.num_hidden_layers)
    local = {c.of_layer(i).num_key_value_heads for i in layers if c.is_local(i)}
    full = {c.of_layer(i).num_key_value_heads for i in layers if not c.is_local(i)}
    heads = (local or full).pop()
    own = [i for i in layers[: len(layers) - c.num_kv_shared_layers] if not c.is_local(i)]
    one = bool(own) and not any(checkpoint.has(f"blk.{i}.attn_v.weight") for i in own)
    found: Fields = {"num_key_value_heads": heads, "attention_k_eq_v": one}
    if full and full != {heads}:
        if not one:
            raise UnsupportedError(
                f"{checkpoint.path}: key-value heads differ between kinds of layers, for which "
                "transformers has no place; save it as gguf"
            )
        found["num_global_key_value_heads"] = full.pop()
    return found


def _gemma4(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    full, local = _thetas(c)
    full["rope_type"] = "proportional"
    if checkpoint.has("rope_freqs.weight"):
        turning = int((checkpoint.vector("rope_freqs.weight") == 1.0).sum())
        full["partial_rotary_factor"] = 2 * turning / c.head_dim
    widths = _widths(c)
    found = {
        **_shared(checkpoint, c),
        **_kv_heads(checkpoint, c),
        "intermediate_size": widths[0],
        "use_double_wide_mlp": len(set(widths)) > 1,
        "global_head_dim": c.head_dim,
        "use_bidirectional_attention": None,
        "final_logit_softcapping": c.final_logit_softcapping or None,
        "rope_parameters": {"full_attention": full, "sliding_attention": local},
        "enable_moe_block": c.experts is not None,
    }
    if c.experts is not None:
        found |= {
            "num_experts": c.experts.num_experts,
            "top_k_experts": c.experts.num_experts_per_tok,
            "moe_intermediate_size": c.experts.intermediate_size,
        }
    return found


GEMMAS: dict[str, Saved] = {
    "gemma3n": Saved(
        "gemma3n_text", "Gemma3n", _gemma3n, head_dim=False, rope="none",
        joined={
            f"model.{stack}.{{expert}}.weight": None
            for stack in ("altup_projections", "altup_unembed_projections")
        },
    ),
    "gemma4": Saved(
        "gemma4_text", "Gemma4", _gemma4, head_dim=False, rope="none",
        joined={
            f"model.layers.{{layer}}.experts.{part}": None
            for part in ("gate_up_proj", "down_proj")
        },
    ),
}  # fmt: skip
