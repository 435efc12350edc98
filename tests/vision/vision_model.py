"""A tiny Qwen3-VL that chats, with its tower beside it: random weights, a byte-level tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from toy_tower import TEMPLATE, special_tokens

import tiny_model
from oxibonsai import _core

WIDTH, FF, LAYERS, HEADS, PATCH, MERGE, SIDE = 32, 40, 3, 2, 4, 2, 5
DEEP = [True, False, True]
TOKEN_PIXELS = (PATCH * MERGE) ** 2
TOWER_KEYS: dict[str, tuple[Any, str]] = {
    "general.architecture": ("clip", "str"),
    "clip.has_vision_encoder": (True, "bool"),
    "clip.projector_type": ("qwen3vl_merger", "str"),
    "clip.use_gelu": (True, "bool"),
    "clip.vision.embedding_length": (WIDTH, "u32"),
    "clip.vision.feed_forward_length": (FF, "u32"),
    "clip.vision.block_count": (LAYERS, "u32"),
    "clip.vision.attention.head_count": (HEADS, "u32"),
    "clip.vision.attention.layer_norm_epsilon": (1e-6, "f32"),
    "clip.vision.patch_size": (PATCH, "u32"),
    "clip.vision.projection_dim": (tiny_model.HIDDEN, "u32"),
    "clip.vision.image_mean": ([0.48, 0.46, 0.41], "arr[f32]"),
    "clip.vision.image_std": ([0.27, 0.26, 0.28], "arr[f32]"),
    "clip.vision.image_size": (SIDE * PATCH, "u32"),
    "clip.vision.image_min_pixels": (TOKEN_PIXELS, "u32"),
    "clip.vision.image_max_pixels": (40 * TOKEN_PIXELS, "u32"),
    "clip.vision.spatial_merge_size": (MERGE, "u32"),
    "clip.vision.is_deepstack_layers": (DEEP, "arr[bool]"),
}


def write_vision_model(folder: Path, name: str = "eyes") -> Path:
    """Writes the model and its tower into a folder; returns the model's file."""
    path = folder / f"{name}-Q1_0.gguf"
    own: dict[str, tuple[Any, str] | None] = {
        **special_tokens(),
        "general.architecture": ("qwen3vl", "str"),
        "qwen3vl.n_deepstack_layers": (2, "u32"),
        "qwen3vl.rope.dimension_sections": ([12, 10, 10, 0], "arr[i32]"),
        "tokenizer.chat_template": (TEMPLATE, "str"),
    }
    renamed = {
        k.replace("qwen3.", "qwen3vl."): v for k, v in tiny_model.KEYS.items() if "qwen3." in k
    }
    dropped = dict.fromkeys(k for k in tiny_model.KEYS if k.startswith("qwen3."))
    tiny_model.write(path, changes={**dropped, **renamed, **own})
    write_tower(folder / f"mmproj-{name}-F32.gguf")
    return path


def write_tower(
    path: Path,
    changes: dict[str, tuple[Any, str] | None] | None = None,
    *,
    deep: list[bool] | None = None,
    seed: int = 5,
) -> None:
    """Writes the tower, with keys replaced, added or (None) left out, and other deep layers."""
    writer = _core.GgufWriter(path.open("wb"))
    for key, entry in {**TOWER_KEYS, **(changes or {})}.items():
        if entry is not None:
            writer.add_metadata(key, *entry)
    random = np.random.default_rng(seed)
    arrays = {name: _values(random, shape) for name, shape in _shapes(deep or DEEP).items()}
    for name, values in arrays.items():
        writer.add_tensor(name, values.shape, 0, values.nbytes)
    writer.write_header()
    for values in arrays.values():
        writer.write_tensor(values.reshape(-1).view(np.uint8))
    writer.close()


def _values(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Norms and biases away from their defaults, matrices that keep the size of what they read."""
    if len(shape) == 1:
        return random.normal(0.7, 0.2, shape).astype(np.float32)
    return (random.normal(0, 1.3, shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def _shapes(deep: list[bool]) -> dict[str, tuple[int, ...]]:
    wide, out = WIDTH * MERGE**2, tiny_model.HIDDEN
    shapes: dict[str, tuple[int, ...]] = {
        "v.patch_embd.weight": (WIDTH, 3, PATCH, PATCH),
        "v.patch_embd.weight.1": (WIDTH, 3, PATCH, PATCH),
        "v.patch_embd.bias": (WIDTH,),
        "v.position_embd.weight": (SIDE**2, WIDTH),
        **_norm("v.post_ln", WIDTH),
        **_linear("mm.0", wide, wide),
        **_linear("mm.2", out, wide),
    }
    for i in range(LAYERS):
        b = f"v.blk.{i}"
        shapes |= {
            **_norm(f"{b}.ln1", WIDTH),
            **_norm(f"{b}.ln2", WIDTH),
            **_linear(f"{b}.attn_qkv", 3 * WIDTH, WIDTH),
            **_linear(f"{b}.attn_out", WIDTH, WIDTH),
            **_linear(f"{b}.ffn_up", FF, WIDTH),
            **_linear(f"{b}.ffn_down", WIDTH, FF),
        }
        if deep[i]:
            d = f"v.deepstack.{i}"
            shapes |= {
                **_norm(f"{d}.norm", wide),
                **_linear(f"{d}.fc1", wide, wide),
                **_linear(f"{d}.fc2", out, wide),
            }
    return shapes


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _linear(name: str, rows: int, cols: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, cols), f"{name}.bias": (rows,)}
