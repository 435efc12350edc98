"""Small random GGUF files of architectures that transformers does not have: truth is llama.cpp's run.

Weights are functions of their tensors' names, so that the file need not be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from dense_models import FF, HEADS, HIDDEN, KV_HEADS, POSITIONS, VOCABULARY, random_values

KV = HIDDEN // HEADS * KV_HEADS
_QKV = {"attn_q": (HIDDEN, HIDDEN), "attn_k": (KV, HIDDEN), "attn_v": (KV, HIDDEN)}
_FULL_QKV = dict.fromkeys(_QKV, (HIDDEN, HIDDEN))
_OUT = {"attn_output": (HIDDEN, HIDDEN)}
_NORMS = {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,)}
_GATED = {"ffn_gate": (FF, HIDDEN), "ffn_up": (FF, HIDDEN), "ffn_down": (HIDDEN, FF)}
_LLAMA = {**_NORMS, **_QKV, **_OUT, **_GATED}


@dataclass(frozen=True)
class RemoteCase:
    """One structure.

    Attributes:
        architecture: GGUF's name.
        layer: Shapes of a layer's weights.
        biased: Those with a bias.
        keys: Of the architecture, beside the common ones.
        layers: Their number, which some architectures tell their models by.
        layer_norm: Norms are LayerNorms with a bias, instead of RMSNorms.
        tied: There is no output matrix.
        variant: Tells two structures of one architecture apart.
        own_layers: Of each layer in place of ``layer``, where they differ.
        own_vectors: Shapes of tensors of each layer whose names end in no ``weight``.
        hidden: Columns of the hidden states.
        outside: Shapes of further tensors outside of the layers.
        factors: Of the weights of some parts of a layer, which else are of usual size.
        distance: Largest one of a logit, relative to the largest logit.
    """

    architecture: str
    layer: Mapping[str, tuple[int, ...]]
    keys: Mapping[str, Any]
    biased: tuple[str, ...] = ()
    layers: int = 2
    layer_norm: bool = False
    tied: bool = False
    variant: str = ""
    own_layers: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    own_vectors: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    hidden: int = HIDDEN
    outside: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    distance: float = 1e-4

    @property
    def name(self) -> str:
        """Of the test."""
        return f"{self.architecture}{self.variant}"


def write(case: RemoteCase, path: Path) -> None:
    """The file in float32, without a vocabulary."""
    writer = gguf.GGUFWriter(str(path), case.architecture)
    writer.add_tokenizer_model("no_vocab")
    epsilon = "layer_norm_epsilon" if case.layer_norm else "layer_norm_rms_epsilon"
    counts = {
        "vocab_size": VOCABULARY, "context_length": POSITIONS, "embedding_length": case.hidden,
        "block_count": case.layers, "feed_forward_length": FF, "attention.head_count": HEADS,
    }  # fmt: skip
    for key, value in {**counts, f"attention.{epsilon}": 1e-5, **case.keys}.items():
        add = writer.add_uint32 if isinstance(value, int) else writer.add_float32
        add = writer.add_array if isinstance(value, list) else add
        add = writer.add_bool if isinstance(value, bool) else add
        add(f"{case.architecture}.{key}", value)
    for name, shape in _tensors(case).items():
        values = random_values(f"{case.name}.{name}", shape)
        part = name.removesuffix(".weight").rpartition(".")[2]
        values = values * np.float32(case.factors.get(part, 1.0))
        writer.add_tensor(name, -np.exp(values) if name.endswith("ssm_a") else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(case: RemoteCase) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, case.hidden)}
    if not case.tied:
        found["output.weight"] = (VOCABULARY, case.hidden)
    found["output_norm.weight"] = (case.hidden,)
    if case.layer_norm:
        found["output_norm.bias"] = (case.hidden,)
    found |= case.outside
    for i in range(case.layers):
        for part, shape in (case.own_layers[i] if case.own_layers else case.layer).items():
            found[f"blk.{i}.{part}.weight"] = shape
            if part in case.biased or (case.layer_norm and part in _NORMS):
                found[f"blk.{i}.{part}.bias"] = shape[:1]
        vectors = case.own_vectors[i] if case.own_vectors else {}
        found |= {f"blk.{i}.{name}": shape for name, shape in vectors.items()}
    return found


_ROPE = {"rope.dimension_count": HIDDEN // HEADS, "rope.freq_base": 5e3}
_GROUPED = {"attention.head_count_kv": KV_HEADS, **_ROPE}
_STABLE_NORMS = {
    "attn_q_norm": (HEADS, HIDDEN // HEADS),
    "attn_k_norm": (KV_HEADS, HIDDEN // HEADS),
}
_FUSED = {"attn_qkv": (3 * HIDDEN, HIDDEN)}
_SCALES = {"embedding_scale": 3.0, "residual_scale": 0.7, "logit_scale": 2.5}


def _sized(heads: int, kv_heads: int, width: int) -> dict[str, tuple[int, ...]]:
    """A layer of Llama's with heads of 16 dims, or without some of its parts."""
    parts: dict[str, tuple[int, ...]] = {}
    if heads > 0:
        parts |= {"attn_norm": (HIDDEN,), "attn_output": (HIDDEN, 16 * heads)}
    if kv_heads > 0:
        parts |= {"attn_q": (16 * heads, HIDDEN)}
        parts |= dict.fromkeys(("attn_k", "attn_v"), (16 * kv_heads, HIDDEN))
    if width > 0:
        parts |= {"ffn_norm": (HIDDEN,), "ffn_down": (HIDDEN, width)}
        parts |= dict.fromkeys(("ffn_gate", "ffn_up"), (width, HIDDEN))
    return parts


def _sizes(*layers: tuple[int, int, int]) -> dict[str, Any]:
    names = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    lists = {name: [layer[i] for layer in layers] for i, name in enumerate(names)}
    return {**lists, **_ROPE, "attention.key_length": 16, "attention.value_length": 16}


def _elm(heads: int, kv_heads: int, width: int) -> dict[str, tuple[int, ...]]:
    parts = _sized(heads, kv_heads, width)
    for name in ("attn_q", "attn_k", "attn_v"):
        del parts[name]
    fused = {"attn_qkv": (16 * (heads + 2 * kv_heads), HIDDEN)}
    return {**parts, **fused, "attn_q_norm": (16,), "attn_k_norm": (16,)}


_DECI = ((4, 2, 96), (4, 0, 64), (0, 0, 160), (2, 1, 32))
_ELM = ((4, 2, 96), (6, 3, 128))

_EXPERTS = {
    "ffn_gate_inp": (8, HIDDEN), "ffn_gate_exps": (8, 32, HIDDEN), "ffn_up_exps": (8, 32, HIDDEN),
    "ffn_down_exps": (8, HIDDEN, 32),
}  # fmt: skip
_EXPERT_KEYS = {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32}
_LING = {**_NORMS, "attn_qkv": (HIDDEN + 2 * KV, HIDDEN), **_OUT, "attn_q_norm": (16,),
         "attn_k_norm": (16,)}  # fmt: skip
_SHARED = {
    "ffn_gate_shexp": (48, HIDDEN), "ffn_up_shexp": (48, HIDDEN), "ffn_down_shexp": (HIDDEN, 48)
}  # fmt: skip
_GROK = {**_NORMS, **_QKV, **_OUT, "attn_output_norm": (HIDDEN,), **_EXPERTS}
_GROK_KEYS = {**_GROUPED, **_EXPERT_KEYS, "attention.output_scale": 0.2, "embedding_scale": 3.0,
              "logit_scale": 0.7, "attn_logit_softcapping": 5.0}  # fmt: skip
_PLAMO2 = {**_NORMS, "ffn_up": (2 * FF, HIDDEN), "ffn_down": (HIDDEN, FF)}
_PLAMO2_SCAN = {
    **_PLAMO2, "ssm_in": (2 * HIDDEN, HIDDEN), "ssm_conv1d": (HIDDEN, 4), "ssm_x": (64 + 32, HIDDEN),
    "ssm_dt": (4, 64), "ssm_out": (HIDDEN, HIDDEN),
}  # fmt: skip
_PLAMO2_ATTENTION = {
    **_PLAMO2, "attn_qkv": (HIDDEN + 2 * KV, HIDDEN), **_OUT, "attn_q_norm": (HEADS, 16),
    "attn_k_norm": (KV_HEADS, 16),
}  # fmt: skip
_PLAMO2_NORMS = {"post_attention_norm": (HIDDEN,), "post_ffw_norm": (HIDDEN,)}
_PLAMO2_VECTORS = {
    **_PLAMO2_NORMS, "ssm_dt.bias": (4,), "ssm_a": (4,), "ssm_d": (4,), "ssm_dt_norm": (64,),
    "ssm_b_norm": (16,), "ssm_c_norm": (16,),
}  # fmt: skip
_PLAMO2_KEYS = {
    "attention.head_count": [HEADS, 0, 0], "attention.head_count_kv": [KV_HEADS, 0, 0],
    "attention.key_length": 16, "attention.value_length": 16, "rope.freq_base": 5e3,
    "ssm.state_size": 16, "ssm.conv_kernel": 4, "ssm.time_step_rank": 4, "ssm.inner_size": HIDDEN,
    "ssm.group_count": 0,
}  # fmt: skip

# llama.cpp has a kernel for heads of 64 dims alone.
_RWKV_HIDDEN, _RWKV_FF = 128, 160
_RWKV_RANKS = {"w": 32, "a": 24, "v": 16, "g": 40}
_RWKV_SQUARE = (_RWKV_HIDDEN, _RWKV_HIDDEN)
_RWKV = {
    **dict.fromkeys(("attn_norm", "attn_norm_2"), (_RWKV_HIDDEN,)),
    **{f"time_mix_{n}0": (_RWKV_HIDDEN,) for n in "wav"},
    **{f"time_mix_{n}1": (rank, _RWKV_HIDDEN) for n, rank in _RWKV_RANKS.items()},
    **{f"time_mix_{n}2": (_RWKV_HIDDEN, rank) for n, rank in _RWKV_RANKS.items()},
    **{f"time_mix_{n}": (_RWKV_HIDDEN,) for n in ("k_k", "k_a", "r_k", "ln")},
    **{f"time_mix_{n}": _RWKV_SQUARE for n in ("key", "value", "receptance", "output")},
    "time_mix_lerp_fused": (6, 1, 1, _RWKV_HIDDEN), "channel_mix_lerp_k": (_RWKV_HIDDEN,),
    "channel_mix_key": (_RWKV_FF, _RWKV_HIDDEN), "channel_mix_value": (_RWKV_HIDDEN, _RWKV_FF),
}  # fmt: skip
# llama.cpp wants matrices that nobody reads in the first layer, as wide as those of the rates.
_RWKV_FIRST = {**_RWKV, "time_mix_v1": _RWKV["time_mix_a1"], "time_mix_v2": _RWKV["time_mix_a2"]}
_RWKV_KEYS = {
    "attention.head_count": 0, "feed_forward_length": _RWKV_FF, "wkv.head_size": 64,
    "attention.decay_lora_rank": 32, "attention.iclr_lora_rank": 24,
    "attention.value_residual_mix_lora_rank": 16, "attention.gate_lora_rank": 40,
}  # fmt: skip
# llama.cpp's GELU is a table of binary16.
_GELU = 1e-3

CASES = [
    RemoteCase("internlm2", _LLAMA, _GROUPED),
    RemoteCase("exaone", _LLAMA, _GROUPED, tied=True),
    RemoteCase("xverse", {**_LLAMA, **_FULL_QKV}, _ROPE),
    RemoteCase("minicpm", _LLAMA, {**_GROUPED, **_SCALES}, tied=True),
    RemoteCase("orion", _LLAMA, _GROUPED, layer_norm=True),
    RemoteCase("baichuan", {**_LLAMA, **_FULL_QKV}, _ROPE, layers=32, variant="-7b"),
    RemoteCase("baichuan", {**_LLAMA, **_FULL_QKV}, _ROPE, layers=40, variant="-13b"),
    RemoteCase("refact", _LLAMA, {"attention.head_count_kv": KV_HEADS}),
    RemoteCase(
        "qwen",
        {**_NORMS, **_FUSED, **_OUT, **{k: (FF // 2, HIDDEN) for k in ("ffn_gate", "ffn_up")},
         "ffn_down": (HIDDEN, FF // 2)},
        _ROPE, biased=("attn_qkv",),
    ),
    RemoteCase(
        "jais", {**_NORMS, **_FUSED, **_OUT, **_GATED}, {"attention.max_alibi_bias": 8.0},
        biased=("attn_qkv", "attn_output", *_GATED), layer_norm=True,
    ),
    RemoteCase("plamo", {k: v for k, v in _LLAMA.items() if k != "ffn_norm"}, _GROUPED),
    RemoteCase(
        "chatglm",
        {**_NORMS, "attn_qkv": (HIDDEN + 2 * KV, HIDDEN), **_OUT, "ffn_up": (2 * FF, HIDDEN),
         "ffn_down": (HIDDEN, FF)},
        {**_GROUPED, "rope.dimension_count": 8}, biased=("attn_qkv",), variant="-fused",
    ),
    RemoteCase(
        "deci", {}, _sizes(*_DECI), layers=len(_DECI), own_layers=tuple(_sized(*s) for s in _DECI)
    ),
    RemoteCase(
        "openelm", {}, _sizes(*_ELM), layers=len(_ELM), tied=True,
        own_layers=tuple(_elm(*s) for s in _ELM),
    ),
    RemoteCase(
        "stablelm", {**{k: v for k, v in _LLAMA.items() if k != "ffn_norm"}, **_STABLE_NORMS},
        {**_GROUPED, "rope.dimension_count": 4}, layer_norm=True, variant="-12b",
    ),
    RemoteCase(
        "bailingmoe2", {},
        {**_GROUPED, **_EXPERT_KEYS, "rope.dimension_count": 8, "leading_dense_block_count": 1,
         "expert_shared_feed_forward_length": 48, "expert_shared_count": 1,
         "expert_weights_scale": 2.5, "expert_weights_norm": True, "expert_gating_func": 2,
         "expert_group_count": 4, "expert_group_used_count": 2},
        layers=3, own_layers=({**_LING, **_GATED}, *2 * ({**_LING, **_EXPERTS, **_SHARED},)),
        own_vectors=({}, {"exp_probs_b.bias": (8,)}, {"exp_probs_b.bias": (8,)}),
    ),
    RemoteCase("grok", {**_GROK, "layer_output_norm": (HIDDEN,)}, _GROK_KEYS, distance=_GELU),
    RemoteCase(
        "grok", {**_GROK, **_GATED, "post_ffw_norm": (HIDDEN,)},
        {**_GROK_KEYS, "final_logit_softcapping": 4.0}, variant="-2", distance=_GELU,
    ),
    RemoteCase(
        "codeshell",
        {**_NORMS, "attn_qkv": (HIDDEN + 2 * KV, HIDDEN), **_OUT, "ffn_up": (FF, HIDDEN),
         "ffn_down": (HIDDEN, FF)},
        _GROUPED, biased=("attn_qkv", "attn_output", "ffn_up", "ffn_down"), layer_norm=True,
        distance=_GELU,
    ),
    RemoteCase(
        "plamo2", {}, _PLAMO2_KEYS, layers=3,
        own_layers=(_PLAMO2_ATTENTION, _PLAMO2_SCAN, _PLAMO2_SCAN),
        own_vectors=(_PLAMO2_NORMS, _PLAMO2_VECTORS, _PLAMO2_VECTORS),
    ),
    RemoteCase(
        "rwkv7", {}, _RWKV_KEYS, layers=3, layer_norm=True, hidden=_RWKV_HIDDEN,
        own_layers=(_RWKV_FIRST, _RWKV, _RWKV), biased=("attn_norm_2", "time_mix_ln"),
        outside={"token_embd_norm.weight": (_RWKV_HIDDEN,), "token_embd_norm.bias": (_RWKV_HIDDEN,)},
        # So that variances within a head are near the epsilon of its norm, which no file has.
        factors={"time_mix_value": 0.003},
    ),
]  # fmt: skip
