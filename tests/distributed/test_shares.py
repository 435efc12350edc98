"""What each process of a group has and sends, of a real model of nine heads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oxibonsai.devices import open_device
from oxibonsai.distributed.layout import Layout
from oxibonsai.distributed.traffic import predict
from oxibonsai.loading import open_model
from oxibonsai.models import Model, load_model

TOKENS = 4


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Model:
    return load_model(open_model(smollm2_path), open_device("cpu", 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tensor", "pipeline"), [(2, 1), (3, 1), (4, 1), (1, 2), (1, 3), (2, 2)], ids=str
)
def test_a_process_has_its_share_of_the_weights(tensor: int, pipeline: int, model: Model) -> None:
    layers, world = model.config.num_hidden_layers, tensor * pipeline
    share = sum(w.nbytes for w in model.graph.matrices) / world
    for rank in range(world):
        own = predict(model.graph, layers, Layout(tensor, pipeline, rank)).weight_bytes
        assert own == pytest.approx(share, rel=0.15)


@pytest.mark.slow
def test_the_output_matrix_bounds_the_largest_share_of_four_stages(model: Model) -> None:
    layers = model.config.num_hidden_layers
    own = [predict(model.graph, layers, Layout(1, 4, rank)).weight_bytes for rank in range(4)]
    head = next(w.nbytes for w in model.graph.matrices if not w.name.startswith("blk."))
    assert max(own) == own[3] == head
    assert own[:3] == [(sum(own) - head) // 3] * 3


@pytest.mark.slow
@pytest.mark.hf
@pytest.mark.parametrize(("tensor", "pipeline"), [(3, 1), (1, 2)])
def test_messages_are_those_that_the_graph_predicts(
    tensor: int, pipeline: int, model: Model, smollm2_path: Path
) -> None:
    pytest.importorskip("torch", reason="needs torch (extra: hf)")
    import processes

    arguments = [
        "-m", "oxibonsai.distributed", "bench", "--tensor-parallel", str(tensor),
        "--pipeline-parallel", str(pipeline), "--interface", "lo", "--start-timeout", "240",
        "--model", smollm2_path, "--prompt-tokens", "8", "--tokens", str(TOKENS), "--parity", "off",
    ]  # fmt: skip
    ranks = processes.finish(processes.start(arguments, tensor * pipeline), 240)
    assert [code for code, _, _ in ranks] == [0] * len(ranks), [r[2] for r in ranks]
    found = json.loads(ranks[0][1])
    wanted = predict(model.graph, model.config.num_hidden_layers, Layout(tensor, pipeline, 0))
    assert found["own_weight_bytes"] == wanted.weight_bytes
    assert found["sent_in_text"] == {
        "plans": TOKENS,
        "gathers": TOKENS * wanted.gathers,
        "gathered_bytes": TOKENS * wanted.gathered_bytes,
        "sends": TOKENS * wanted.sends,
        "sent_bytes": TOKENS * wanted.sent_bytes,
    }
