"""What rounded matrices cost a model's predictions: measured as on the file that holds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import float_model
import oxibonsai
from oxibonsai import _core
from oxibonsai.calibrate.measured_mixes import MeasuredMixes
from oxibonsai.engine import Engine
from oxibonsai.quantize import TypeRules, find_mix, make_plan, write

WINDOWS = [tuple(w) for w in np.random.default_rng(8).integers(0, 256, (2, 32)).tolist()]
TYPES = {"blk.0.ffn_up.weight": "Q2_0_g64", "blk.1.attn_v.weight": "Q4_0"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("floats") / "floats.gguf"
    float_model.write(path)
    return oxibonsai.load(path, parallel=1, ctx_size=64)


class Encoder:
    """Encodes as plain quantization does, and notes what it was asked for."""

    def __init__(self, engine: Engine) -> None:
        self.asked: list[tuple[str, str]] = []
        file = engine.model.weights.checkpoint.file
        plan = make_plan(file, TypeRules(find_mix("Q4_0")), None)
        self._matrices = {c.tensor.name: plan.matrix(c) for c in plan.choices if not c.kept}

    def __call__(self, name: str, kind: str) -> npt.NDArray[np.uint8]:
        self.asked.append((name, kind))
        matrix = self._matrices[name]
        return _core.encode(matrix.read(0, matrix.rows), kind)


def log_probs(engine: Engine) -> npt.NDArray[np.float64]:
    logits = np.concatenate([engine.logits(list(w)) for w in WINDOWS]).astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def test_the_divergence_is_that_of_the_file_with_these_types(
    engine: Engine, tmp_path: Path
) -> None:
    patterns = [(f"^{name}$", kind) for name, kind in TYPES.items()]
    rules = TypeRules(find_mix("F32"), patterns=patterns)
    write(make_plan(engine.model.weights.checkpoint.file, rules, None), tmp_path / "m.gguf")
    stored = oxibonsai.load(tmp_path / "m.gguf", parallel=1, ctx_size=64)
    p, q = log_probs(engine), log_probs(stored)
    expected = float((np.exp(p) * (p - q)).sum(axis=1).mean())
    mixes = MeasuredMixes(engine.model, engine.kv_type, WINDOWS, Encoder(engine))
    assert mixes.divergence(TYPES) == pytest.approx(expected, rel=1e-4)
    assert mixes.divergence({}) == 0.0


def test_a_matrix_is_encoded_once_in_each_type(engine: Engine) -> None:
    encoder = Encoder(engine)
    mixes = MeasuredMixes(engine.model, engine.kv_type, WINDOWS, encoder)
    name = "blk.0.ffn_up.weight"
    first = mixes.divergence(TYPES)
    mixes.divergence({name: "Q4_0"})
    assert mixes.divergence(TYPES) == first
    assert sorted(encoder.asked) == sorted([*TYPES.items(), (name, "Q4_0")])
