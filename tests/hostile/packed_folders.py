"""A tiny Llama folder with packed weights of each kind, and every lie that one value can tell."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mutations import JUNK

Tensors = dict[str, npt.NDArray[Any]]
HIDDEN, FF, HEADS, VOCABULARY = 64, 384, 2, 16
GROUP = 32
KINDS = ("mlx", "awq", "gptq", "compressed-tensors")
MODULE = "model.layers.0.mlp.down_proj"  # the one that is lied about
_CONFIG = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": FF,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "max_position_embeddings": 64,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


@dataclass
class Folder:
    """What a folder holds, before it is written."""

    config: dict[str, Any]
    tensors: Tensors

    def write(self, path: Path) -> Path:
        """Replaces what the folder held."""
        from safetensors.numpy import save_file

        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.config))
        save_file(self.tensors, path / "model.safetensors")
        return path


def good(kind: str) -> Folder:
    """A folder that converts."""
    random = np.random.default_rng(4)
    tensors: Tensors = {
        "model.embed_tokens.weight": random.normal(size=(VOCABULARY, HIDDEN)).astype(np.float32),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": random.normal(size=(VOCABULARY, HIDDEN)).astype(np.float16),
        "model.layers.0.input_layernorm.weight": np.ones(HIDDEN, np.float32),
        "model.layers.0.post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
    }
    shapes = {f"self_attn.{p}_proj": (HIDDEN, HIDDEN) for p in "qkvo"}
    shapes |= {"mlp.gate_proj": (FF, HIDDEN), "mlp.up_proj": (FF, HIDDEN)}
    for module, shape in {**shapes, "mlp.down_proj": (HIDDEN, FF)}.items():
        for part, values in _packed(kind, random, *shape).items():
            tensors[f"model.layers.0.{module}.{part}"] = values
    return Folder({**_CONFIG, **_settings(kind)}, tensors)


def _settings(kind: str) -> dict[str, Any]:
    if kind == "mlx":
        return {"quantization": {"bits": 4, "group_size": GROUP}}
    if kind == "compressed-tensors":
        weights = {
            "num_bits": 4, "type": "int", "symmetric": False, "strategy": "group",
            "group_size": GROUP, "block_structure": None, "dynamic": False, "actorder": None,
        }  # fmt: skip
        group = {"targets": ["Linear"], "weights": weights, "format": "pack-quantized"}
        held: dict[str, Any] = {"quant_method": kind, "format": "pack-quantized"}
        held["ignore"] = ["lm_head"]
        held |= {"config_groups": {"group_0": group}, "sparsity_config": {}, "transform_config": {}}
        return {"quantization_config": held}
    packed = {"quant_method": kind, "bits": 4, "group_size": GROUP}
    return {"quantization_config": packed | ({"version": "gemm"} if kind == "awq" else {})}


def _packed(kind: str, random: np.random.Generator, rows: int, cols: int) -> Tensors:
    def words(*shape: int) -> npt.NDArray[np.uint32]:
        return random.integers(0, 2**32, shape, dtype=np.uint32)

    groups = cols // GROUP
    if kind == "mlx":
        scales = random.uniform(0.01, 0.05, (rows, groups)).astype(np.float16)
        biases = (scales * np.float16(-8.0)).astype(np.float16)
        return {"weight": words(rows, cols // 8), "scales": scales, "biases": biases}
    if kind == "compressed-tensors":
        return {
            "weight_packed": words(rows, cols // 8).view(np.int32),
            "weight_scale": random.uniform(0.01, 0.05, (rows, groups)).astype(np.float16),
            "weight_zero_point": words(rows // 8, groups).view(np.int32),
            "weight_shape": np.array([rows, cols]),
        }
    parts: Tensors = {
        "qzeros": words(groups, rows // 8).view(np.int32),
        "scales": random.uniform(0.01, 0.05, (groups, rows)).astype(np.float16),
    }
    if kind == "awq":
        return parts | {"qweight": words(cols, rows // 8).view(np.int32)}
    order = (np.arange(cols) // GROUP).astype(np.int32)
    return parts | {"qweight": words(cols // 8, rows).view(np.int32), "g_idx": order}


def lies(kind: str) -> Iterator[tuple[str, Folder]]:
    """Folders that differ from the good one in one thing, with the name of that thing."""
    yield from _config_lies(kind)
    yield from _tensor_lies(kind)


def _config_lies(kind: str) -> Iterator[tuple[str, Folder]]:
    base = good(kind)
    section = next(iter(_settings(kind)))
    for value in JUNK:
        yield f"{section} of {str(value)[:24]!r}", _changed(base, {section: value})
    for key in base.config[section]:
        for value in JUNK:
            changed = {**base.config[section], key: value}
            yield f"{section}.{key} of {str(value)[:24]!r}", _changed(base, {section: changed})
    if kind == "compressed-tensors":
        yield from _scheme_lies(base)
        return
    for bits in (2, 3, 5, 6, 16, 32, 33):
        changed = {**base.config[section], "bits": bits}
        yield f"{bits} bits", _changed(base, {section: changed})


def _scheme_lies(base: Folder) -> Iterator[tuple[str, Folder]]:
    """Lies in the config group of compressed-tensors."""
    for inner in ("group", "weights"):
        held = base.config["quantization_config"]["config_groups"]["group_0"]
        for key in held if inner == "group" else held["weights"]:
            own = (2, 3, 5, 8, 9, 16, 64, 384) if key in ("num_bits", "group_size") else ()
            for value in (*JUNK[::2], *own):
                config = copy.deepcopy(base.config)
                group = config["quantization_config"]["config_groups"]["group_0"]
                (group if inner == "group" else group["weights"])[key] = value
                yield f"{inner} {key} of {str(value)[:24]!r}", Folder(config, base.tensors)


def _changed(base: Folder, config: dict[str, Any]) -> Folder:
    return Folder({**base.config, **config}, base.tensors)


def _tensor_lies(kind: str) -> Iterator[tuple[str, Folder]]:
    base = good(kind)
    for name, values in base.tensors.items():
        if not name.startswith(MODULE):
            continue
        part = name.removeprefix(f"{MODULE}.")
        for what, changed in _variants(values):
            folder = Folder(copy.copy(base.config), dict(base.tensors))
            if changed is None:
                del folder.tensors[name]
            else:
                folder.tensors[name] = np.ascontiguousarray(changed)
            yield f"{part}: {what}", folder


def _variants(values: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[Any] | None]]:
    yield "missing", None
    for dtype in ("f4", "f2", "i4", "u4", "u1", "i1", "f8", "i8", "u8", "u2"):
        if np.dtype(dtype) != values.dtype:
            with np.errstate(all="ignore"):
                yield f"as {dtype}", values.astype(dtype)
    yield "a row less", values[:-1]
    yield "a row more", np.concatenate([values, values[:1]])
    yield "no rows", values[:0]
    if values.ndim > 1:
        yield "flat", values.reshape(-1)
    yield "a dimension more", values[None]
    yield "a scalar", values.reshape(-1)[0]
    if values.ndim == 2:
        yield "a column less", values[:, :-1]
        yield "a column more", np.concatenate([values, values[:, :1]], axis=1)
        yield "no columns", values[:, :0]
        yield "transposed", values.T
        yield "twice as wide", np.concatenate([values, values], axis=1)
        yield "half as wide", values[:, : values.shape[1] // 2]
    for fill in (np.nan, np.inf, -np.inf, 65504.0, 1e-8, -1.0) if values.dtype.kind == "f" else ():
        yield f"all {fill}", np.full_like(values, fill)
    if values.dtype.kind in "iu":
        for fill in sorted({0, np.iinfo(values.dtype).max, np.iinfo(values.dtype).min}):
            yield f"all {fill}", np.full_like(values, fill)
