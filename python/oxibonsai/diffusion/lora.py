"""Adapters of FLUX.2's transformer: safetensors of diffusers, PEFT, ai-toolkit or kohya.

A module is named as by diffusers or by Black Forest Labs, whose fused projections are taken apart.
Packed matrices stay as they are: what an adapter adds is computed beside them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint.float_types import PLAIN
from oxibonsai.checkpoint.parameters import FloatParameter
from oxibonsai.checkpoint.safetensors_file import StoredTensor, read_header
from oxibonsai.diffusion.original_names import modules_of
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.lora.adapter import Adapter, LowRank

Array = npt.NDArray[np.float32]

_PREFIXES = ("base_model.model.", "diffusion_model.", "transformer.")
_PART = re.compile(r"(.+?)\.(?:(lora_[AB])(?:\.default)?\.weight|(lora_(?:down|up))\.weight|alpha)")
_LETTERS = {"lora_A": "a", "lora_down": "a", "lora_B": "b", "lora_up": "b", None: "alpha"}
_METADATA = "lora_adapter_metadata"


class _Module(NamedTuple):
    """The tensors of a file for one module."""

    a: Array  # [rank, columns]
    b: Array  # [rows, rank]
    scale: float


def read_lora(path: Path, name: str, scale: float) -> Adapter:
    """Open a file of safetensors.

    Args:
        path: The file.
        name: What errors call it.
        scale: How much of it is added.

    Raises:
        FormatError: The file is damaged, or its parts do not fit together.
        UnsupportedError: It changes more than linear layers of the transformer.
    """
    digest = hashlib.blake2b(digest_size=16)
    pairs: dict[str, LowRank] = {}
    for module, found in sorted(_modules(path, name).items()):
        digest.update(f"{module} {found.a.shape} {found.b.shape} {found.scale};".encode())
        digest.update(found.a.tobytes())
        digest.update(found.b.tobytes())
        targets = list(modules_of(module))
        if found.b.shape[0] % len(targets):
            raise FormatError(f"{name}: {module} has {found.b.shape[0]} rows for q, k and v")
        for target, b in zip(targets, np.split(found.b, len(targets)), strict=True):
            tensor = f"{target}.weight"
            if tensor in pairs:
                raise FormatError(f"{name} changes {tensor} twice")
            pairs[tensor] = LowRank(
                _weight(f"{tensor}.lora_a", found.a), _weight(f"{tensor}.lora_b", b), found.scale
            )
    if not pairs:
        raise FormatError(f"{name} changes nothing")
    return Adapter(name, scale, pairs, digest.hexdigest())


def _modules(path: Path, name: str) -> dict[str, _Module]:
    parts: dict[str, dict[str, StoredTensor]] = {}
    for stored in read_header(path).values():
        match = _PART.fullmatch(stored.name)
        if match is None:
            raise UnsupportedError(
                f"{name}: tensor {stored.name} is no part of a LoRA of linear layers, NAME.lora_A.weight, "
                "NAME.lora_B.weight or NAME.alpha"
            )
        own = parts.setdefault(_without_prefix(match[1]), {})
        letter = _LETTERS[match[2] or match[3]]
        if letter in own:
            raise FormatError(
                f"{name} has two tensors of one meaning: {own[letter].name}, {stored.name}"
            )
        own[letter] = stored
    default = _default_scale(path, name)
    return {module: _module(name, module, own, default) for module, own in parts.items()}


def _module(
    name: str, module: str, own: Mapping[str, StoredTensor], default: float | None
) -> _Module:
    for letter, called in (("a", "lora_A or lora_down"), ("b", "lora_B or lora_up")):
        if letter not in own:
            raise FormatError(f"{name} has no {called} of {module}")
    a, b = _values(name, own["a"]), _values(name, own["b"])
    if a.ndim != 2 or b.ndim != 2 or 0 in a.shape + b.shape or a.shape[0] != b.shape[1]:
        raise FormatError(f"{name}: {module} has the shapes {a.shape} and {b.shape}: no pair")
    scale = 1.0 if default is None else default
    if "alpha" in own:
        alpha = _values(name, own["alpha"])
        if alpha.size != 1:
            raise FormatError(f"{name}: the alpha of {module} is no number")
        scale = float(alpha.reshape(-1)[0]) / a.shape[0]
    return _Module(a, b, scale)


def _default_scale(path: Path, name: str) -> float | None:
    """Return the metadata's scale of all modules; None where they name none."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        text = (file.metadata() or {}).get(_METADATA)
    if text is None:
        return None
    try:
        stated = {k.removeprefix("transformer."): v for k, v in json.loads(text).items()}
        rank, alpha = int(stated["r"]), float(stated["lora_alpha"])
        if rank < 1 or not math.isfinite(alpha):
            raise ValueError(f"rank {rank}, alpha {alpha}")
    except (ValueError, KeyError, AttributeError, TypeError, ArithmeticError, RecursionError) as e:
        raise FormatError(f"{name}: its {_METADATA} make no sense: {e!r}") from e
    for key in ("rank_pattern", "alpha_pattern", "use_dora", "use_rslora"):
        if stated.get(key):
            raise UnsupportedError(f"{name}: {key} of its {_METADATA} is not supported")
    return alpha / rank


def _without_prefix(module: str) -> str:
    for prefix in _PREFIXES:
        module = module.removeprefix(prefix)
    return module


def _values(name: str, stored: StoredTensor) -> Array:
    if stored.dtype not in PLAIN:
        raise UnsupportedError(
            f"{name}: tensor {stored.name} is of type {stored.dtype}; known are {', '.join(PLAIN)}"
        )
    values = np.array(FloatParameter(stored).values(), np.float32, order="C")
    stored.check_unchanged()
    if not np.isfinite(values).all():
        raise FormatError(f"{name}: tensor {stored.name} holds values that are not finite")
    return values


def _weight(name: str, values: Array) -> _core.Weight:
    rows = np.ascontiguousarray(values)
    return _core.Weight.from_blocks(name, "F32", rows.view(np.uint8), rows.shape[1])
