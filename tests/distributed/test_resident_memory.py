"""Each process of a group holds its share of the weights, and not the whole model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (extra: hf)")
import processes
from resident import CONTEXT

import make_random_bonsai as maker
import oxibonsai
from oxibonsai.devices import open_device
from oxibonsai.distributed.layout import Layout
from oxibonsai.distributed.traffic import predict
from oxibonsai.loading import open_model
from oxibonsai.models import load_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.hf,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc"),
]

PROGRAM = Path(__file__).parent / "resident.py"
TIMEOUT = 240


def check_shares(path: Path, tensor: int, pipeline: int) -> None:
    model = load_model(open_model(path), open_device("cpu", 1))
    layers, world = model.config.num_hidden_layers, tensor * pipeline
    whole = sum(w.nbytes for w in model.graph.matrices)
    ranks = processes.finish(
        processes.start([PROGRAM, str(tensor), str(pipeline), path], world), TIMEOUT
    )
    assert [code for code, _, _ in ranks] == [0] * world, [r[2] for r in ranks]
    estimate = oxibonsai.estimate_memory(path, ctx=CONTEXT, parallel=1)
    for rank, (_, out, _) in enumerate(ranks):
        found = json.loads(out)
        share = predict(model.graph, layers, Layout(tensor, pipeline, rank)).weight_bytes
        # What all processes have of the rest, and rank 0 alone.
        rest = estimate.cache + estimate.work + (estimate.tokenizer if rank == 0 else 0)
        assert share < found["own"] < share + rest
        assert share + rest < whole + (estimate.tokenizer if rank == 0 else 0)


@pytest.mark.parametrize(
    ("tensor", "pipeline"),
    [
        (2, 1),
        (1, 2),
        *(
            pytest.param(t, p, marks=pytest.mark.release)
            for t, p in ((4, 1), (1, 3), (1, 4), (2, 2))
        ),
    ],
)
def test_a_process_holds_its_share_of_smollm2(
    tensor: int, pipeline: int, smollm2_path: Path
) -> None:
    check_shares(smollm2_path, tensor, pipeline)


@pytest.mark.release
@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (4, 1), (1, 2), (1, 4)])
def test_a_process_holds_its_share_of_a_larger_model(
    tensor: int, pipeline: int, tmp_path: Path
) -> None:
    path = tmp_path / "random.gguf"
    maker.write(path, "4B", "PQ2_0", 8, None, 0)
    assert path.stat().st_size > 300e6
    check_shares(path, tensor, pipeline)
