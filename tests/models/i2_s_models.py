"""BitNet b1.58 with matrices of I2_S, and transformers' model of the same weights."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from oxibonsai import _core

VOCABULARY, HIDDEN, FF, LAYERS, HEADS, KV_HEADS = 509, 512, 768, 3, 4, 2
I2_S = 36
Floats = npt.NDArray[np.float32]
_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.attn_sub_norm": "attn_sub_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
    "mlp.down_proj": "ffn_down",
}


def pack(codes: npt.NDArray[np.int8], scale: float) -> bytes:
    """A tensor of I2_S by its description.

    Weight j of 128 is in byte j % 32, its code shifted by 6 - 2 * (j // 32); then comes the scale.
    """
    weight = np.arange(codes.size)
    block, j = weight // 128, weight % 128
    packed = np.zeros(codes.size // 4, np.uint8)
    shifted = (codes.reshape(-1).astype(np.uint8) + 1) << (6 - 2 * (j // 32)).astype(np.uint8)
    np.bitwise_or.at(packed, 32 * block + j % 32, shifted)
    return packed.tobytes() + np.float32(scale).tobytes() + bytes(28)


def random_codes(random: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.int8]:
    return random.integers(-1, 2, shape).astype(np.int8)


def build(
    path: Path, *, half_scales: bool = False
) -> tuple[Any, dict[str, tuple[npt.NDArray[np.int8], float]]]:
    """Writes the file; returns transformers' model with the same weights and the codes and scales.

    Args:
        path: Where to write.
        half_scales: Whether scales are float16 numbers, which are not rounded when they are read.
    """
    import torch
    from transformers import BitNetConfig, BitNetForCausalLM

    config = BitNetConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FF, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=256,
        rope_theta=500000.0, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = BitNetForCausalLM(config).float().eval()
    random = np.random.default_rng(3)
    tensors: list[tuple[str, tuple[int, ...], int, bytes]] = []
    ternary: dict[str, tuple[npt.NDArray[np.int8], float]] = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            if name == "model.embed_tokens.weight":
                half = random.normal(0.0, 0.5, shape).astype(np.float16)
                values: Floats = half.astype(np.float32)
                tensors.append(("token_embd.weight", shape, 1, half.tobytes()))
            elif len(shape) == 1:
                values = random.normal(1.0, 0.2, shape).astype(np.float32)
                tensors.append((f"{_stored(name)}.weight", shape, 0, values.tobytes()))
            else:
                codes, scale = random_codes(random, shape), float(random.uniform(0.5, 2) / 16)
                scale = float(np.float16(scale)) if half_scales else scale
                ternary[f"{_stored(name)}.weight"] = codes, scale
                values = codes * np.float32(scale)
                tensors.append((f"{_stored(name)}.weight", shape, I2_S, pack(codes, scale)))
            parameter.copy_(torch.from_numpy(values))
    write(path, tensors)
    return model, ternary


def _stored(name: str) -> str:
    if name == "model.norm.weight":
        return "output_norm"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_NAMES[rest.removesuffix('.weight')]}"


def write(path: Path, tensors: list[tuple[str, tuple[int, ...], int, bytes]]) -> None:
    keys: dict[str, tuple[Any, str]] = {
        "context_length": (256, "u32"), "embedding_length": (HIDDEN, "u32"),
        "block_count": (LAYERS, "u32"), "feed_forward_length": (FF, "u32"),
        "rope.dimension_count": (HIDDEN // HEADS, "u32"), "attention.head_count": (HEADS, "u32"),
        "attention.head_count_kv": (KV_HEADS, "u32"), "vocab_size": (VOCABULARY, "u32"),
        "attention.layer_norm_rms_epsilon": (1e-5, "f32"), "rope.freq_base": (500000.0, "f32"),
    }  # fmt: skip
    writer = _core.GgufWriter(path.open("wb"))
    writer.add_metadata("general.architecture", "bitnet-b1.58", "str")
    writer.add_metadata("general.file_type", 40, "u32")
    writer.add_metadata("tokenizer.ggml.model", "none", "str")
    for key, (value, kind) in keys.items():
        writer.add_metadata(f"bitnet-b1.58.{key}", value, kind)
    for name, shape, gguf_id, data in tensors:
        writer.add_tensor(name, shape, gguf_id, len(data))
    writer.write_header()
    for _, _, _, data in tensors:
        writer.write_tensor(np.frombuffer(data, np.uint8))
    writer.close()


def layers_of_transformers() -> Any:
    """The module of transformers' BitNet layers, which would otherwise compile its functions."""
    with mock.patch("torch.compile", lambda function: function):
        return importlib.import_module("transformers.integrations.bitnet")


def with_rounded_activations(model: Any) -> Any:
    """Gives a model transformers' layers of BitNet, which round their inputs to int8 token by token."""
    import torch

    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            layer = layers_of_transformers().AutoBitLinear(
                module.in_features, module.out_features, bias=False
            )
            layer.weight = module.weight  # holds the scale; weight_scale stays 1
            model.set_submodule(name, layer)
    return model
