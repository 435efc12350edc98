"""Arrays that numpy and torch take over without a copy."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_folder
from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.engine.embedding import Embedder
from oxibonsai.engine.logits import DLPackArray
from oxibonsai.models import load_model


def rows() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(12, dtype=np.float32).reshape(3, 4)


def test_numpy_shares_the_memory() -> None:
    values = rows()
    taken = np.from_dlpack(DLPackArray(values))
    assert taken.__array_interface__["data"][0] == values.__array_interface__["data"][0]
    assert np.array_equal(taken, values)
    assert DLPackArray(values).shape == (3, 4)
    assert DLPackArray(values).__dlpack_device__() == (1, 0)


@pytest.mark.hf
def test_torch_shares_the_memory_which_outlives_its_maker() -> None:
    torch = pytest.importorskip("torch")
    values = rows()
    taken = torch.from_dlpack(DLPackArray(values))
    assert taken.data_ptr() == values.__array_interface__["data"][0]
    values[1, 2] = 99.0
    assert taken[1, 2] == 99.0
    gone = weakref.ref(values)
    del values
    gc.collect()
    assert gone() is not None
    assert taken[1, 2] == 99.0
    del taken
    gc.collect()
    assert gone() is None


@pytest.mark.hf
def test_embeddings_go_to_torch_as_they_are(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    convert(bert_folder.write(tmp_path / "model"), tmp_path / "m.gguf")
    model = load_model(Checkpoint(tmp_path / "m.gguf"), _core.CpuDevice(1))
    vectors = Embedder(model, None).embed([[5, 6], [7]])
    for source in (vectors, DLPackArray(vectors)):
        assert torch.from_dlpack(source).data_ptr() == vectors.__array_interface__["data"][0]


def test_torch_is_not_imported(tmp_path: Path) -> None:
    convert(bert_folder.write(tmp_path / "model"), tmp_path / "m.gguf")
    code = (
        "import sys, numpy, oxibonsai\n"
        "from oxibonsai.engine.logits import DLPackArray\n"
        "from oxibonsai.engine.embedding import Embedder\n"
        f"e = oxibonsai.load({str(tmp_path / 'm.gguf')!r})\n"
        "v = Embedder(e.model, e.tokenizer).embed(['hello world'])\n"
        "print(numpy.from_dlpack(DLPackArray(v)).shape, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(1, 128) False\n"
