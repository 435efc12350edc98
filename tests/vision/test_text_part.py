"""Folders of models that see images: their text part is what is converted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oxibonsai import _core
from oxibonsai.convert.language_model import convert

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import random_vision

pytestmark = pytest.mark.hf


def test_a_mistral_3_with_a_mistral_for_texts_becomes_a_llama(tmp_path: Path) -> None:
    eyed = random_vision.MODELS["mistral3"](tmp_path)
    eyed.truth.save_pretrained(tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="f32")
    found, wanted = _core.GgufFile(str(tmp_path / "model.gguf")), _core.GgufFile(str(eyed.text))
    assert {t.name for t in found.tensors} == {t.name for t in wanted.tensors}
    for tensor in wanted.tensors:
        ours = np.asarray(found.tensor_bytes(tensor.name))
        assert (ours == np.asarray(wanted.tensor_bytes(tensor.name))).all(), tensor.name
