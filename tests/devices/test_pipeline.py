"""Layers shared out over devices: the bytes of one device, and state that moves between both forms.

Two devices of the processor stand for any others here; tests/gpu has cards.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oxibonsai
import recurrent_model
from oxibonsai import RequestError, SamplingParams, UnsupportedError, _core
from oxibonsai.architectures.families import BY_NAME
from oxibonsai.devices import LayerSplit, Pipeline, chosen_device, one_device, open_device
from oxibonsai.devices.pipeline import layer_of
from oxibonsai.engine import Engine, Sequence, restore, save
from oxibonsai.engine.memory import make_cache, plan_slots
from oxibonsai.loading import open_model
from oxibonsai.models import Model, check_parity, load_model

IDS = [int(i) for i in np.random.default_rng(3).integers(0, 200, 75)]
GREEDY = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


def split_model(path: Path, gpu_layers: int | None, cards: int = 1) -> Model:
    split = LayerSplit(
        open_device("cpu", 2), [open_device("cpu", 1) for _ in range(cards)], gpu_layers
    )
    return load_model(open_model(path), split)


def engine_of(model: Model, positions: int = 512) -> Engine:
    plan = plan_slots(model.graph.slot_entries, ctx_size=128, parallel=4, ram_bytes=0)
    cache = make_cache(model, ("f16",), positions, keep=True, plan=plan)
    return Engine(model, None, cache, ctx_size=128)


@pytest.fixture(params=["attention", "recurrent"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "attention":
        return Path(request.getfixturevalue("tiny_path"))
    for name, family in recurrent_model.FAMILIES.items():
        monkeypatch.setitem(BY_NAME, name, [family])
    return recurrent_model.write(tmp_path / "model.gguf", "toyhybrid")


def finish(engine: Engine, sequences: list[Sequence]) -> None:
    while not all(s.finished for s in sequences):
        engine.step()


def whole(path: Path) -> Engine:
    return oxibonsai.load(path, threads=2, ctx_size=128, kv_type="f16", parity="off")


def layers_of(path: Path) -> int:
    return whole(path).model.config.num_hidden_layers


def test_logits_have_the_bytes_of_one_device_wherever_the_border_is(path: Path) -> None:
    wanted = whole(path).logits(IDS).tobytes()
    layers = layers_of(path)
    for gpu_layers in range(layers + 3):
        model = split_model(path, gpu_layers)
        assert isinstance(model.device, Pipeline) == (0 < gpu_layers <= layers)
        assert engine_of(model).logits(IDS, 32).tobytes() == wanted, gpu_layers


def test_each_device_has_the_layers_that_were_asked_for(path: Path) -> None:
    layers = layers_of(path)
    for gpu_layers in range(1, layers + 1):
        (_, host), (_, card) = split_model(path, gpu_layers).stages
        first = layers + 1 - gpu_layers
        on_host = {layer_of(names) for names in host.op_matrices} - {None}
        on_card = {layer_of(names) for names in card.op_matrices} - {None}
        assert on_host == set(range(first))
        assert on_card == set(range(first, layers))
        assert len(host.outputs) == 1, "only the hidden states cross"


def test_several_cards_share_all_layers(path: Path) -> None:
    layers = layers_of(path)
    model = split_model(path, None, cards=2)
    assert len(model.stages) == 2
    held = [{layer_of(n) for n in g.op_matrices} - {None} for _, g in model.stages]
    assert held[0] | held[1] == set(range(layers))
    assert all(g.matrices for _, g in model.stages)
    assert engine_of(model).logits(IDS).tobytes() == whole(path).logits(IDS).tobytes()
    # More cards than layers: those without a share are left out.
    many = split_model(path, None, cards=layers + 4)
    assert len(many.stages) <= layers + 1
    assert engine_of(many).logits(IDS).tobytes() == whole(path).logits(IDS).tobytes()


def test_each_device_packs_what_it_runs(path: Path) -> None:
    model = split_model(path, 2)
    for device, graph in model.stages:
        assert device.packed_size(graph.matrices) == 0, "nothing is left to pack"
    assert sum(g.matrices != [] for _, g in model.stages) == 2
    assert model.bytes_per_token == whole(path).model.bytes_per_token


def test_texts_batches_and_the_prefix_cache(path: Path) -> None:
    one, split = whole(path), engine_of(split_model(path, 2))
    prompts = [IDS[:70], IDS[:66], IDS[10:30]]
    for _ in range(2):  # the second time from the prefix cache
        results = []
        for engine in (one, split):
            sequences = [engine.submit(p, GREEDY) for p in prompts]
            finish(engine, sequences)
            results.append([s.generated for s in sequences])
        assert results[0] == results[1]


def test_snapshots_move_between_one_device_and_several(path: Path, tmp_path: Path) -> None:
    one, split = whole(path), engine_of(split_model(path, 1))
    for source, target in ((one, split), (split, one)):
        sequence = source.submit(IDS, GREEDY)
        for _ in range(3):
            source.step()
        file = tmp_path / "snapshot"
        save(source, sequence, file)
        moved = restore(target, file).sequence
        finish(source, [sequence])
        finish(target, [moved])
        assert moved.generated == sequence.generated


def test_parity_is_checked_stage_by_stage(path: Path) -> None:
    model = split_model(path, 2)
    check_parity(model, "full", "f16")


def test_state_of_another_device_is_refused(path: Path) -> None:
    model, other = split_model(path, 2), whole(path).model
    batch = _core.Batch()
    batch.add(IDS[:3], pages=[0], outputs=1)
    pools = [other.new_pages("f16", 1)] if other.graph.paged_layers else []
    slots = other.new_slots(1) if other.graph.slot_entries else None
    with pytest.raises(RequestError, match="the state was made by another device"):
        model.run(batch, pools, slots)
    own = [model.new_pages("f16", 1)] if pools else []
    for state in (*own, *([model.new_slots(1)] if slots else [])):
        with pytest.raises(RequestError, match=r"has \d+ bytes, not 3"):
            state.write(0, b"abc")


def test_a_graph_is_cut_only_where_floats_cross(path: Path) -> None:
    graph = whole(path).model.graph
    widths = [graph.crossing_columns(i) for i in range(len(graph.ops) + 1)]
    assert widths[0] == widths[-1] == 0
    assert any(w is not None and w > 0 for w in widths)
    for points in ([2, 1], [len(widths)]):
        with pytest.raises(RequestError, match="cut before its ops, in ascending order"):
            graph.cut(points)


def test_state_is_never_shared_by_two_devices(path: Path) -> None:
    graph = whole(path).model.graph
    before = graph.ops.index("attend")
    assert graph.ops.index("store_kv") < before
    with pytest.raises(UnsupportedError, match="share layer of the cache 0"):
        graph.cut([before])


def test_names_of_several_cards() -> None:
    assert chosen_device("cuda,cuda:1") == "cuda:0,cuda:1"
    with pytest.raises(RequestError, match="names a card twice"):
        chosen_device("cuda:1,cuda:1")
    for name in ("cpu,cuda", "cuda:0,", "metal,cuda"):
        with pytest.raises(RequestError, match="it is one of auto"):
            chosen_device(name)
    with pytest.raises(RequestError, match="only whole models run on several cards"):
        one_device("cuda:0,cuda:1")


def test_layers_for_a_gpu_need_one(tiny_path: Path) -> None:
    with pytest.raises(RequestError, match="gpu_layers is 9, but the model runs on the CPU"):
        oxibonsai.load(tiny_path, gpu_layers=9)
    with pytest.raises(RequestError, match="gpu_layers is -1; it must be 0 or more"):
        oxibonsai.load(tiny_path, gpu_layers=-1)
    assert oxibonsai.load(tiny_path, gpu_layers=0).model.device.name == "cpu"
    with pytest.warns(UserWarning, match="runs on the CPU"):
        assert oxibonsai.load(tiny_path, device="auto", gpu_layers=3)
