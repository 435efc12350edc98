"""Random models whose weights are folded here, in float64, and their plain twins.

A matrix W that takes x becomes W S H, which takes H S x; a table's row e becomes H S e, of which
S H gives e back. H is built as the direct matrix, not by butterflies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from random_blocks import FORMATS, random_rows

import tiny_model

Floats = npt.NDArray[np.float64]
Tensor = tuple[tuple[int, ...], int, bytes]
PREFIX = "prism.hadamard."
VOCABULARY = tiny_model.VOCABULARY


@dataclass(frozen=True)
class Shape:
    """Of a random model; the attention is as wide as four heads of ``head_dim``."""

    architecture: str
    block: int
    hidden: int
    ff: int
    head_dim: int = 64
    layers: int = 2
    tied: bool = False
    explicit: bool = True  # signs

    @property
    def name(self) -> str:
        signs = "signs" if self.explicit else "identity"
        return f"{self.architecture}-{self.block}-{'tied' if self.tied else 'untied'}-{signs}"


@dataclass
class Twins:
    """The same model, plain and folded.

    Attributes:
        changes: Metadata of the plain one, as ``tiny_model.write`` takes it.
        contract: What the folded one says besides.
    """

    shape: Shape
    changes: dict[str, Any]
    plain: dict[str, npt.NDArray[Any]]
    rotated: dict[str, npt.NDArray[Any]]
    contract: dict[str, Any] = field(default_factory=dict)

    def write_plain(self, path: Path) -> None:
        """In F32."""
        _write(path, self.changes, {n: _f32(v) for n, v in self.plain.items()})

    def write_folded(
        self, path: Path, contract: dict[str, Any] | None = None, seed: int | None = None
    ) -> None:
        """In F32, with entries of the contract replaced or (None) left out."""
        keys = {**self.changes, **self.contract, **(contract or {})}
        _write(path, keys, {n: _f32(v) for n, v in self.rotated.items()})


def sylvester(block: int) -> Floats:
    """H / sqrt(block), by its definition: the sign of entry (i, j) is the parity of i & j."""
    i = np.arange(block)
    ones = np.vectorize(lambda v: bin(v).count("1"))(i[:, None] & i[None, :])
    return np.where(ones % 2 == 0, 1.0, -1.0) / np.sqrt(block)


def transform(rows: npt.NDArray[Any], block: int) -> Floats:
    """Every row times the block-diagonal H."""
    parts = rows.astype(np.float64).reshape(len(rows), -1, block)
    return np.asarray(parts @ sylvester(block)).reshape(rows.shape)


def rotation(matrix: npt.NDArray[Any], signs: npt.NDArray[Any], block: int) -> Floats:
    """W S H; of a table's rows, H S e."""
    return transform(matrix * signs, block)


def unfold(matrix: npt.NDArray[Any], signs: npt.NDArray[Any], block: int) -> Floats:
    """W from W S H."""
    return transform(matrix, block) * signs


def twins(shape: Shape, seed: int = 0) -> Twins:
    """Random weights, folded in float64 and rounded once."""
    random = np.random.default_rng(seed)
    shapes = _shapes(shape)
    plain: dict[str, npt.NDArray[Any]] = {}
    for name, dims in shapes.items():
        centre, size = (1.0, 0.2) if len(dims) == 1 else (0.0, 1.6 / np.sqrt(dims[-1]))
        plain[name] = random.normal(centre, size, dims).astype(np.float32)
    signs = _signs(shape, random)
    rotated = dict(plain)
    for name, values in plain.items():
        if values.ndim == 2:
            rotated[name] = rotation(values, signs[values.shape[1]], shape.block).astype(np.float32)
    return Twins(shape, _changes(shape), plain, rotated, _contract(shape, shapes, signs))


def quantized(shape: Shape, quant_type: str, folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """A folded model of random blocks, and its plain twin in F32, unfolded here."""
    random = np.random.default_rng(seed)
    base = twins(shape, seed)
    signs = _signs(shape, np.random.default_rng(seed + 1))
    stored: dict[str, Tensor] = {}
    plain: dict[str, npt.NDArray[Any]] = {}
    for name, values in base.plain.items():
        if values.ndim == 1:
            stored[name], plain[name] = _f32(values), values
            continue
        raw, decoded = random_rows(random, quant_type, *values.shape, 1.6 / values.shape[1] ** 0.5)
        stored[name] = (values.shape, FORMATS[quant_type].gguf_id, raw.tobytes())
        plain[name] = unfold(decoded, signs[values.shape[1]], shape.block)
    keys = base.changes | _contract(shape, _shapes(shape), signs)
    paths = folder / f"{quant_type}.gguf", folder / f"{quant_type}-plain.gguf"
    _write(paths[0], keys, stored)
    _write(paths[1], base.changes, {n: _f32(v) for n, v in plain.items()})
    return paths


def _f32(values: npt.NDArray[Any]) -> Tensor:
    return values.shape, 0, values.astype(np.float32).tobytes()


def _signs(shape: Shape, random: np.random.Generator) -> dict[int, npt.NDArray[np.int64]]:
    widths = sorted({shape.hidden, 4 * shape.head_dim, shape.ff})
    if not shape.explicit:
        return {w: np.ones(w, np.int64) for w in widths}
    return {w: random.choice(np.array([-1, 1]), w) for w in widths}


def _contract(
    shape: Shape, shapes: dict[str, tuple[int, ...]], signs: dict[int, npt.NDArray[np.int64]]
) -> dict[str, Any]:
    matrices = [n for n, dims in shapes.items() if len(dims) == 2 and n != "token_embd.weight"]
    keys: dict[str, Any] = {
        "version": (2 if shape.tied else 1, "u32"),
        "block_size": (shape.block, "u32"),
        "transform": ("normalized-sylvester-walsh-hadamard", "str"),
        "axis": ("input-last-dimension", "str"),
        "sign_mode": ("explicit" if shape.explicit else "identity", "str"),
        "weight_names": (matrices, "arr[str]"),
        "inverse_weight_names": (["token_embd.weight"], "arr[str]"),
        "gdn_v_grouped": (False, "bool"),
    }
    if shape.tied:
        keys["tied_output"] = (True, "bool")
    if shape.explicit:
        keys["sign_widths"] = (list(signs), "arr[i32]")
        keys["sign_values"] = ([int(v) for s in signs.values() for v in s], "arr[i32]")
    return {PREFIX + key: value for key, value in keys.items()}


def _changes(shape: Shape) -> dict[str, Any]:
    own = shape.architecture
    keys: dict[str, Any] = {
        key.replace("qwen3.", f"{own}."): value
        for key, value in tiny_model.KEYS.items()
        if key.startswith("qwen3.")
    }
    keys |= {
        "general.architecture": (own, "str"),
        f"{own}.embedding_length": (shape.hidden, "u32"),
        f"{own}.block_count": (shape.layers, "u32"),
        f"{own}.feed_forward_length": (shape.ff, "u32"),
        f"{own}.attention.key_length": (shape.head_dim, "u32"),
        f"{own}.attention.value_length": (shape.head_dim, "u32"),
    }
    if own != "qwen3":
        keys |= {key: None for key in tiny_model.KEYS if key.startswith("qwen3.")}
    return keys


def _shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    hidden, ff, q, kv = shape.hidden, shape.ff, 4 * shape.head_dim, 2 * shape.head_dim
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, hidden)}
    for i in range(shape.layers):
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm": (hidden,),
            "attn_q": (q, hidden),
            "attn_k": (kv, hidden),
            "attn_v": (kv, hidden),
            "attn_output": (hidden, q),
            "ffn_norm": (hidden,),
            "ffn_gate": (ff, hidden),
            "ffn_up": (ff, hidden),
            "ffn_down": (hidden, ff),
        }
        if shape.architecture == "qwen3":
            layer |= {"attn_q_norm": (shape.head_dim,), "attn_k_norm": (shape.head_dim,)}
        shapes |= {f"blk.{i}.{name}.weight": dims for name, dims in layer.items()}
    shapes["output_norm.weight"] = (hidden,)
    if not shape.tied:
        shapes["output.weight"] = (VOCABULARY, hidden)
    return shapes


def _write(path: Path, changes: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    own: dict[str, Tensor | None] = dict.fromkeys(tiny_model.tensor_names())
    tiny_model.write(path, changes=changes, tensors=own | tensors)
