"""Bonsai 2 of the published sizes, with all layers and the whole vocabulary, beside transformers."""

from __future__ import annotations

import shutil
from pathlib import Path

import bonsai2_models as b2
import numpy as np
import pytest

import make_random_bonsai as maker
import oxibonsai
from oxibonsai.convert.language_model import convert
from oxibonsai.files.machine import physical_memory

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")

pytestmark = [pytest.mark.hf, pytest.mark.release]

SPARE_GB = 3  # beside the weights in float32: what both programs need to compute


@pytest.mark.long("runs whole models in torch")
@pytest.mark.parametrize(("size", "parameters"), [("2B", 1.9e9), ("4B", 4.3e9)])
def test_logits_of_the_whole_model_are_those_of_transformers(
    size: str, parameters: float, tmp_path: Path
) -> None:
    memory, disk = 4 * parameters + SPARE_GB * 1e9, 9 * parameters
    if physical_memory() < memory or shutil.disk_usage(tmp_path).free < disk:
        pytest.skip(f"needs {memory / 1e9:.0f} GB of memory and {disk / 1e9:.0f} GB of disk")
    model = b2.make(tmp_path, size, layers=maker.BONSAI2[size].layers)
    truth = b2.reference_logits(model)
    folder = b2.write_folded(model, tmp_path / "folded")
    convert(folder, tmp_path / "floats.gguf", dtype="f32")
    shutil.rmtree(folder)
    engine = oxibonsai.load(tmp_path / "floats.gguf", kv_type="f32", parity="off", ctx_size=64)
    found = engine.logits(b2.IDS)
    assert np.linalg.norm(found - truth) / np.linalg.norm(truth) <= 2e-3
