"""Towers and conversations with pictures over the emulated card: they have the CPU's bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from native_build import needs_compiler

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
from device_models import seen
from random_vision import MODELS

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
    assert seen(eyed, family, "cuda") == seen(eyed, family, "cpu")
    assert card.launches() > 0
