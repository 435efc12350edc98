"""Heads whose windows have gaps or strides are shared: each process sees the keys of its own heads."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_tensor_parallel import load, run, run_shared

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import pattern_models

from oxibonsai.models import Model

pytestmark = pytest.mark.hf


@pytest.fixture(scope="module", params=pattern_models.NAMES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path: Path = tmp_path_factory.mktemp("patterns") / "model.gguf"
    pattern_models.write(request.param, path)
    return load(path)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_rank_has_the_logits_of_one_process(model: Model, ranks: int) -> None:
    whole = [x.tobytes() for x in run(model.graph)]
    shared, _ = run_shared(model.graph, ranks)
    for of_rank in shared:
        assert [x.tobytes() for x in of_rank] == whole
