"""Phi-3.5 with experts: Phi-3's keys, projections apart, biases, and experts."""

from __future__ import annotations

from oxibonsai.convert import decoder, experts, phi3
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import expert_pieces
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.errors import UnsupportedError

_LAYER = {**experts.LAYER, "block_sparse_moe.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp"}
_ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
_NORMS = ("attn_norm", "ffn_norm")
# Experts score within 2 % of the best, which is twice this; files have no key for it.
_JITTER = 0.01


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("router_jitter_noise", _JITTER)
    keys = phi3.metadata(folder, "phimoe") | experts.expert_keys(folder, "phimoe", ff=None)
    if keys["phimoe.expert_used_count"][0] != 2:
        raise UnsupportedError(f"{folder.path / 'config.json'}: two experts of a token are known")
    return keys


def _shapes(folder: ModelFolder) -> Shapes:
    biased = [*_NORMS, *(_ATTENTION if folder.config.get("attention_bias") is True else ())]
    found = experts.shapes(
        folder,
        set(_LAYER.values()),
        biased,
        experts=experts.count(folder),
        ff=folder.count("intermediate_size"),
    )
    found["output_norm.bias"] = (folder.count("hidden_size"),)
    if folder.config.get("lm_head_bias") is True:
        found["output.bias"] = (folder.count("vocab_size"),)
    return found


PHIMOE = Recipe(
    "phimoe",
    metadata,
    decoder.namer("Phi-3.5 MoE", _LAYER, (*_ATTENTION, *_NORMS, "output_norm", "output")),
    experts.is_matrix,
    shapes=_shapes,
    pieces=expert_pieces,
    extra=phi3.factors,
)
