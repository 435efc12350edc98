"""An observed pass computes what a plain one does, and sums what its weights take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import rotated_models as fm

import oxibonsai
from oxibonsai import RequestError, _core
from oxibonsai.models import ImatrixCollection

IDS: list[int] = np.random.default_rng(4).integers(0, 256, 70).tolist()


def run(engine: oxibonsai.Engine, collection: ImatrixCollection) -> npt.NDArray[np.float32]:
    pages = engine.model.new_pages(engine.kv_type, 2)
    batch = _core.Batch()
    batch.add(IDS, pages=[0, 1], outputs=len(IDS))
    return collection.run(batch, [pages])


def test_observing_changes_no_result(tiny_path: Path) -> None:
    engine = oxibonsai.load(tiny_path)
    before = engine.logits(IDS).tobytes()
    collection = engine.model.observed(head=True)
    for runs in (1, 2):
        assert run(engine, collection).tobytes() == before
        assert all(s.rows == runs * len(IDS) for s in collection.sums.values())
    assert engine.logits(IDS).tobytes() == before


def test_inputs_of_folded_weights_count_as_they_are_transformed(tmp_path: Path) -> None:
    """A Hadamard transform keeps the sum of squares of each block, and no column's."""
    shape = fm.Shape("qwen3", block=64, hidden=128, ff=256)
    twins = fm.twins(shape)
    twins.write_plain(tmp_path / "plain.gguf")
    twins.write_folded(tmp_path / "folded.gguf")
    sums = []
    for name in ("plain", "folded"):
        engine = oxibonsai.load(tmp_path / f"{name}.gguf", kv_type="f32")
        collection = engine.model.observed(head=True)
        assert run(engine, collection).tobytes() == engine.logits(IDS).tobytes()
        sums.append({n: s.squares for n, s in collection.sums.items()})
    assert sums[0].keys() == sums[1].keys()
    for name, plain in sums[0].items():
        blocks = [s.reshape(-1, shape.block).sum(axis=1) for s in (plain, sums[1][name])]
        assert np.allclose(*blocks, rtol=1e-4), name
        assert not np.allclose(plain, sums[1][name], rtol=0.1), name


def test_sums_must_fit_what_they_observe(tiny_path: Path) -> None:
    table = oxibonsai.load(tiny_path).model.weights.matrices[0]
    graph = _core.Graph()
    h = graph.embed(table)
    with pytest.raises(RequestError, match="sums of another width"):
        graph.observe(h, _core.InputSums(table.cols + 1))
    with pytest.raises(TypeError, match="takes no None as sums"):
        graph.observe(h, None)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="at least one column"):
        _core.InputSums(0)
