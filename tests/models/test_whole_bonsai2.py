"""Bonsai 2 2B and 4B with all layers and the whole vocabulary, beside transformers.

The reference decodes the rows of the file at each forward, and the engine has some layers at a time:
neither holds a whole model.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import bonsai2_models as b2
import numpy as np
import pytest

import make_random_bonsai as maker

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")

from staged_engine import logits_in_stages

pytestmark = [pytest.mark.hf, pytest.mark.release]

DISK = 6e9
LAST = slice(-4, None)  # positions whose logits are compared


@pytest.mark.long("runs whole models in torch")
@pytest.mark.parametrize("size", ["2B", "4B"])
def test_logits_of_the_whole_model_are_those_of_transformers(size: str, tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < DISK:
        pytest.skip(f"needs {DISK / 1e9:.0f} GB of disk")
    model = b2.make(tmp_path, size, layers=maker.BONSAI2[size].layers)
    truth = b2.reference_logits(model, LAST)
    found = logits_in_stages(model, tmp_path, LAST)
    assert np.linalg.norm(found - truth) / np.linalg.norm(truth) <= 2e-3
