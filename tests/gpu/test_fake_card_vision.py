"""Towers and conversations with pictures over the emulated card: they have the CPU's bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import oxibonsai
from native_build import needs_compiler
from oxibonsai.devices import open_device

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
from random_vision import MODELS
from test_towers import SIDES, Case, conversation, open_tower, picture, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.hf, needs_compiler]


# For every change one tower of each kind: a plain one, and one with windows and sectioned positions.
SAMPLE = {"gemma3", "qwen2.5vl"}


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=() if name in SAMPLE else pytest.mark.release)
        for name in sorted(MODELS)
    ],
)
def test_pictures_have_the_cpus_bytes(card: Any, family: str, tmp_path: Path) -> None:
    eyed = MODELS[family](tmp_path)
    pixels = picture(*SIDES[family][-1])
    results = []
    for device in ("cpu", "cuda"):
        engine = oxibonsai.load(
            eyed.text, device=device, kv_type="f16", threads=2, ctx_size=448, parity="off"
        )
        tower = open_tower(eyed, open_device("cuda:0" if device == "cuda" else "cpu", 2))
        prompt = conversation(Case(family, eyed, engine, tower))
        rows = rows_of(tower.encode(pixels)).tobytes()
        logits = engine.logits(
            prompt.ids[:120], images=tuple(i for i in prompt.images if i.end <= 120)
        )
        results.append((rows, logits.tobytes()))
    assert results[1] == results[0]
    assert card.launches() > 0
