"""Writes a tiny Qwen3 with random weights: enough for everything that is not about quality."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from oxibonsai import _core
from oxibonsai.tokenizer.byte_level import BYTE_OF

HIDDEN, FF, HEADS, KV_HEADS, HEAD_DIM, LAYERS, VOCABULARY = 128, 256, 4, 2, 64, 2, 300
CONTEXT = 512
_GROUPS = {t["name"]: t for t in _core.quant_types()}

KEYS: dict[str, tuple[Any, str]] = {
    "general.architecture": ("qwen3", "str"),
    "general.name": ("tiny", "str"),
    "qwen3.context_length": (CONTEXT, "u32"),
    "qwen3.embedding_length": (HIDDEN, "u32"),
    "qwen3.block_count": (LAYERS, "u32"),
    "qwen3.feed_forward_length": (FF, "u32"),
    "qwen3.attention.head_count": (HEADS, "u32"),
    "qwen3.attention.head_count_kv": (KV_HEADS, "u32"),
    "qwen3.attention.key_length": (HEAD_DIM, "u32"),
    "qwen3.attention.value_length": (HEAD_DIM, "u32"),
    "qwen3.attention.layer_norm_rms_epsilon": (1e-6, "f32"),
    "qwen3.rope.freq_base": (1e6, "f32"),
}


def _tokens() -> tuple[list[str], list[int]]:
    tokens = [*sorted(BYTE_OF), "<|im_start|>", "<|im_end|>"]
    fillers = [f"filler{i}" for i in range(VOCABULARY - len(tokens) - 1)]
    return [*tokens, *fillers, "ab"], [1] * 256 + [3, 3] + [1] * (len(fillers) + 1)


def tokenizer_keys() -> dict[str, tuple[Any, str]]:
    """A byte-level tokenizer with ChatML tokens."""
    tokens, types = _tokens()
    return {
        "tokenizer.ggml.model": ("gpt2", "str"),
        "tokenizer.ggml.pre": ("qwen2", "str"),
        "tokenizer.ggml.tokens": (tokens, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.merges": (["a b"], "arr[str]"),
        "tokenizer.ggml.eos_token_id": (257, "u32"),
    }


def shapes() -> dict[str, tuple[int, ...]]:
    """Of all tensors, by name."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, HIDDEN)}
    for i in range(LAYERS):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (HIDDEN,),
            f"blk.{i}.attn_q.weight": (q, HIDDEN),
            f"blk.{i}.attn_k.weight": (kv, HIDDEN),
            f"blk.{i}.attn_v.weight": (kv, HIDDEN),
            f"blk.{i}.attn_q_norm.weight": (HEAD_DIM,),
            f"blk.{i}.attn_k_norm.weight": (HEAD_DIM,),
            f"blk.{i}.attn_output.weight": (HIDDEN, q),
            f"blk.{i}.ffn_norm.weight": (HIDDEN,),
            f"blk.{i}.ffn_gate.weight": (FF, HIDDEN),
            f"blk.{i}.ffn_up.weight": (FF, HIDDEN),
            f"blk.{i}.ffn_down.weight": (HIDDEN, FF),
        }
    return shapes | {"output_norm.weight": (HIDDEN,)}


def tensor_names() -> list[str]:
    """Of all tensors."""
    return list(shapes())


def _blocks(random: np.random.Generator, rows: int, cols: int) -> bytes:
    """Q1_0: a scale and 128 random signs."""
    blocks = random.integers(0, 256, (rows * cols // 128, 18), dtype=np.uint8)
    scales = random.uniform(0.05, 0.15, len(blocks)).astype(np.float16)
    blocks[:, :2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.tobytes()


def write(
    path: Path,
    *,
    changes: dict[str, tuple[Any, str] | None] | None = None,
    tensors: dict[str, tuple[tuple[int, ...], int, bytes] | None] | None = None,
    seed: int = 1,
) -> None:
    """Writes the model, with keys and tensors replaced, added or (None) left out."""
    random = np.random.default_rng(seed)
    keys = {**KEYS, **tokenizer_keys(), **(changes or {})}
    contents: dict[str, tuple[tuple[int, ...], int, bytes] | None] = {}
    for name, shape in shapes().items():
        if len(shape) == 1:
            values = random.normal(1, 0.1, shape).astype(np.float32)
            contents[name] = (shape, 0, values.tobytes())
        else:
            contents[name] = (shape, _GROUPS["Q1_0"]["gguf_id"], _blocks(random, *shape))
    contents |= tensors or {}
    writer = _core.GgufWriter(path.open("wb"))
    for key, entry in keys.items():
        if entry is not None:
            writer.add_metadata(key, *entry)
    kept = {name: t for name, t in contents.items() if t is not None}
    for name, (shape, gguf_id, data) in kept.items():
        writer.add_tensor(name, shape, gguf_id, len(data))
    writer.write_header()
    for _, _, data in kept.values():
        writer.write_tensor(np.frombuffer(data, dtype=np.uint8))
    writer.close()
