"""Low-rank adapters for the tiny model, with random matrices, as llama.cpp's GGUF files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tiny_model
from oxibonsai import _core

Floats = npt.NDArray[np.float32]
Pairs = dict[str, tuple[Floats, Floats]]  # A [rank, cols] and B [rows, rank] by the model's tensor

ALPHA = 6.0
KEYS: dict[str, tuple[Any, str]] = {
    "general.architecture": ("qwen3", "str"),
    "general.type": ("adapter", "str"),
    "adapter.type": ("lora", "str"),
    "adapter.lora.alpha": (ALPHA, "f32"),
}
_IDS = {t["name"]: t["gguf_id"] for t in _core.quant_types()}


def linear_layers() -> list[str]:
    """Of the tiny model, by tensor."""
    return [n for n, s in tiny_model.shapes().items() if len(s) == 2 and n.startswith("blk.")]


def random_pairs(targets: Iterable[str] | None = None, *, rank: int = 3, seed: int = 7) -> Pairs:
    """Of layers of the tiny model; None: of all."""
    shapes = tiny_model.shapes() | {"output.weight": tiny_model.shapes()["token_embd.weight"]}
    names = linear_layers() if targets is None else targets
    return pairs_of_shapes({n: shapes[n] for n in names}, rank=rank, seed=seed)


def pairs_of_shapes(
    shapes: Mapping[str, tuple[int, ...]], *, rank: int = 3, seed: int = 7
) -> Pairs:
    """Matrices whose product is about as large as the weights of the tiny model."""
    random = np.random.default_rng(seed)
    pairs = {}
    for name, (rows, cols) in shapes.items():
        a, b = random.normal(0, 0.3, (rank, cols)), random.normal(0, 0.2, (rows, rank))
        pairs[name] = (a.astype(np.float32), b.astype(np.float32))
    return pairs


def tensors_of(pairs: Pairs) -> dict[str, Floats]:
    """By their names in the file."""
    parts = {}
    for name, (a, b) in pairs.items():
        parts |= {f"{name}.lora_a": a, f"{name}.lora_b": b}
    return parts


def write(
    path: Path,
    tensors: dict[str, Floats],
    *,
    changes: dict[str, tuple[Any, str] | None] | None = None,
    quant_type: str = "F32",
) -> None:
    """Writes the file, with keys replaced, added or (None) left out."""
    writer = _core.GgufWriter(path.open("wb"))
    for key, entry in {**KEYS, **(changes or {})}.items():
        if entry is not None:
            writer.add_metadata(key, *entry)
    blocks = {
        name: values.view(np.uint8).reshape(-1)
        if quant_type == "F32"
        else _core.encode(values, quant_type).reshape(-1)
        for name, values in tensors.items()
    }
    for name, values in tensors.items():
        writer.add_tensor(name, values.shape, _IDS[quant_type], blocks[name].nbytes)
    writer.write_header()
    for data in blocks.values():
        writer.write_tensor(data)
    writer.close()


def write_peft(folder: Path, layers: int = tiny_model.LAYERS) -> None:
    """A folder as PEFT saves it, for the keys of so many layers."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "r": 3, "lora_alpha": ALPHA, "target_modules": ["k_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    tensors = {}
    for i in range(layers):
        (pair,) = random_pairs([f"blk.{i}.attn_k.weight"], seed=i).values()
        for letter, values in zip("AB", pair, strict=True):
            module = f"base_model.model.model.layers.{i}.self_attn.k_proj"
            tensors[f"{module}.lora_{letter}.weight"] = values
    save_file(tensors, folder / "adapter_model.safetensors")
