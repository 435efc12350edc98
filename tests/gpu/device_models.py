"""Small models of many structures on a device, beside the CPU.

``test_fake_card_models.py`` runs them over the emulated card, ``test_opencl.py`` over a driver of OpenCL.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bonsai2_models
import dense_models
import expert_models
import pytest
import random_models
import recurrent_models
import remote_models
from test_towers import SIDES, Case, conversation, open_tower, picture, rows_of

import oxibonsai
from oxibonsai.convert.language_model import convert
from oxibonsai.devices import open_device

DENSE = ("apertus", "bloom", "gemma2", "stablelm", "starcoder2")
EXPERTS = (
    *("deepseek2-groups", "gemma4-experts", "gemma4-shared", "gpt-oss", "glm4moe", "llama4"),
    *("phimoe", "qwen3moe"),
)
REMOTE = ("plamo2", "rwkv7")
RECURRENT = ("jamba", "mamba2", "nemotron_h", "qwen35", "qwen3next")

# More than one of attention's kernels for tokens takes, and no whole number of chunks.
IDS: list[int] = dense_models.IDS[:21]


def write(name: str, folder: Path, dtype: str = "q8_0") -> Path:
    """Write a model in GGUF.

    Args:
        name: Of a case of ``dense_models``, ``expert_models``, ``recurrent_models`` or
            ``remote_models``, of a structure of ``random_models``, or ``bonsai2``.
        folder: Takes it.
        dtype: Of the matrices; some models have their own.
    """
    path = folder / "model.gguf"
    if name == "bonsai2":
        with pytest.MonkeyPatch.context() as patch:
            return bonsai2_models.make_small(folder, patch).path
    for remote in remote_models.CASES:
        if remote.name == name:
            remote_models.write(remote, path)
            return path
    for structure in random_models.STRUCTURES:
        if structure.name == name:
            random_models.build(structure, path, dtype.upper())
            return path
    _save(name, folder / "model")
    convert(folder / "model", path, dtype=dtype)
    return path


def _save(name: str, folder: Path) -> None:
    """Write a model as transformers does."""
    for recurrent in recurrent_models.CASES:
        if recurrent.name == name:
            recurrent.save(folder)
            return
    (case,) = (c for c in (*dense_models.CASES, *expert_models.CASES) if c.name == name)
    dense_models.save(case, folder)


def logits(
    path: Path, device: str, chunk: int, *, ids: Sequence[int] = IDS, **options: Any
) -> bytes:
    """Return the logits of all positions.

    Args:
        path: Of the model.
        device: ``cpu``, ``cuda`` ...
        chunk: Tokens of a step.
        ids: The tokens.
        options: Of ``oxibonsai.load``.
    """
    engine = oxibonsai.load(
        path, device=device, threads=2, ctx_size=64, parallel=1, parity="off", **options
    )
    return engine.logits(list(ids), chunk).tobytes()


def seen(eyed: Any, family: str, device: str) -> tuple[bytes, bytes]:
    """Return the rows of a picture, and the logits of a conversation with two of them.

    Args:
        eyed: The model, of ``random_vision``.
        family: Its name there.
        device: Runs tower and language model.
    """
    engine = oxibonsai.load(
        eyed.text, device=device, kv_type="f16", threads=2, ctx_size=448, parity="off"
    )
    tower = open_tower(eyed, open_device("cpu" if device == "cpu" else f"{device}:0", 2))
    rows = rows_of(tower.encode(picture(*SIDES[family][-1]))).tobytes()
    prompt = conversation(Case(family, eyed, engine, tower))
    images = tuple(i for i in prompt.images if i.end <= 120)
    return rows, engine.logits(prompt.ids[:120], images=images).tobytes()
