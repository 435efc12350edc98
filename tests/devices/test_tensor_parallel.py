"""A graph shared by the rows of its matrices: threads stand for processes, the bytes are those of one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import recurrent_model
from oxibonsai import RequestError, _core
from oxibonsai.architectures.families import BY_NAME
from oxibonsai.devices import open_device
from oxibonsai.graph import Builder
from oxibonsai.loading import open_model
from oxibonsai.models import Model, load_model
from oxibonsai.models.parity_suite import _suite

Floats = npt.NDArray[np.float32]
IDS = [int(i) for i in np.random.default_rng(3).integers(0, 200, 75)]
PAGES = 2


class Meeting:
    """Where the threads of a group put their rows together."""

    def __init__(self, ranks: int) -> None:
        self._parts: list[Floats] = [np.empty(0, np.float32)] * ranks
        self._barrier = threading.Barrier(ranks, timeout=20)
        self.count = 0

    def exchange(self, rank: int) -> _core.Exchange:
        def all_gather(own: Floats, everything: Floats) -> None:
            self._parts[rank] = own
            self._barrier.wait()
            everything[:] = np.concatenate(self._parts)
            self.count += rank == 0
            self._barrier.wait()

        return _core.Exchange(len(self._parts), rank, all_gather)


def run(graph: _core.Graph, kv_type: str = "f16") -> list[Floats]:
    """Logits of a prompt, and of two tokens behind it."""
    device = open_device("cpu", 1)
    executable = device.compile(graph)
    layers, entries = graph.paged_layers, graph.slot_entries
    pools = [device.make_pages(layers, kv_type, PAGES)] if layers else []
    slots = device.make_slots(entries, 1) if entries else None
    results = []
    for first, ids in ((0, IDS[:-2]), (len(IDS) - 2, IDS[-2:])):
        batch = _core.Batch()
        batch.add(ids, first=first, pages=list(range(PAGES)), outputs=len(ids))
        results.append(executable.run(batch, pools, slots)["logits"])
    return results


def run_shared(
    graph: _core.Graph, ranks: int, kv_type: str = "f16"
) -> tuple[list[list[Floats]], int]:
    """What each rank gets, and how many messages that took."""
    meeting = Meeting(ranks)

    def work(rank: int) -> list[Floats]:
        return run(_core.Sharding(meeting.exchange(rank)).share(graph), kv_type)

    with ThreadPoolExecutor(ranks) as threads:
        return list(threads.map(work, range(ranks))), meeting.count


def load(path: Path) -> Model:
    return load_model(open_model(path), open_device("cpu", 1))


@pytest.fixture(params=["attention", *recurrent_model.FAMILIES])
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    if request.param == "attention":
        return load(request.getfixturevalue("tiny_path"))
    for name, family in recurrent_model.FAMILIES.items():
        monkeypatch.setitem(BY_NAME, name, [family])
    return load(recurrent_model.write(tmp_path / "model.gguf", request.param))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_rank_has_the_logits_of_one_process(model: Model, ranks: int) -> None:
    whole = [x.tobytes() for x in run(model.graph)]
    shared, _ = run_shared(model.graph, ranks)
    for of_rank in shared:
        assert [x.tobytes() for x in of_rank] == whole


def run_inputs(graph: _core.Graph, rows: int = 37) -> dict[str, bytes]:
    """All results of one step of random inputs."""
    device, random = open_device("cpu", 1), np.random.default_rng(5)
    batch = _core.Batch()
    batch.add_span(rows, pages=[0], outputs=rows)
    if graph.position_axes:
        batch.set_positions(random.integers(0, 99, (rows, graph.position_axes)).astype(np.int32))
    for name, _, cols in graph.inputs:
        batch.set_input(name, random.standard_normal((rows, cols), dtype=np.float32))
    layers, entries = graph.paged_layers, graph.slot_entries
    pools = [device.make_pages(layers, "f16", 1)] if layers else []
    slots = device.make_slots(entries, 1) if entries else None
    results = device.compile(graph).run(batch, pools, slots)
    return {name: values.tobytes() for name, values in results.items()}


GRAPHS = {name: describe for name, describe in _suite() if not name.startswith("linear ")}


def described(name: str) -> _core.Graph:
    builder = Builder()
    GRAPHS[name](builder)
    return builder.graph


@pytest.mark.parametrize("name", GRAPHS)
def test_every_op_of_a_share_has_the_bytes_of_one_process(name: str) -> None:
    graph = described(name)
    whole = run_inputs(graph)
    for ranks in (2, 3):
        meeting = Meeting(ranks)
        shares = [_core.Sharding(meeting.exchange(rank)).share(graph) for rank in range(ranks)]
        with ThreadPoolExecutor(ranks) as threads:
            for of_rank in threads.map(run_inputs, shares):
                assert of_rank == whole, ranks


def share_of(graph: _core.Graph, ranks: int, rank: int) -> _core.Graph:
    return _core.Sharding(Meeting(ranks).exchange(rank)).share(graph)


def test_each_rank_has_its_rows_and_heads_alone(tiny_path: Path) -> None:
    graph = load(tiny_path).graph
    shares = [share_of(graph, 2, rank) for rank in range(2)]
    total = sum(w.nbytes for w in graph.matrices)
    for share in shares:
        assert sum(w.nbytes for w in share.matrices) == pytest.approx(total / 2, rel=0.01)
        assert [p.kv_heads for p in share.paged_layers] == [1, 1]


def test_a_layer_with_too_few_heads_keeps_them_all(tiny_path: Path) -> None:
    share = share_of(load(tiny_path).graph, 3, 1)
    assert [p.kv_heads for p in share.paged_layers] == [2, 2]


def test_messages_are_as_many_as_predicted(tiny_path: Path) -> None:
    model = load(tiny_path)
    _, sent = run_shared(model.graph, 2)
    messages = _core.Sharding.messages(share_of(model.graph, 2, 0))
    # Of each layer: attention, its output, the gated units, their output; and the logits.
    assert len(messages) == 4 * model.config.num_hidden_layers + 1
    assert sent == 2 * len(messages)
    assert messages[0] == ("tokens", 2 * 64)
    assert messages[-1] == ("outputs", 38 * 4)


def test_a_failed_exchange_fails_the_step(tiny_path: Path) -> None:
    def lost(own: Floats, everything: Floats) -> None:
        raise ConnectionError("rank 1 is gone")

    graph = _core.Sharding(_core.Exchange(2, 0, lost)).share(load(tiny_path).graph)
    with pytest.raises(ConnectionError, match="rank 1 is gone"):
        run(graph)


def words_of(change: Callable[[npt.NDArray[np.int32]], npt.NDArray[np.int32]]) -> None:
    batch = _core.Batch()
    batch.add([1, 2, 3], pages=[4], outputs=1)
    _core.Batch.from_words(change(batch.to_words()))


def test_a_batch_survives_its_words() -> None:
    batch = _core.Batch()
    batch.add([1, 2, 3], first=64, pages=[4, 9], slot=2, outputs=[0, 2])
    batch.add([7], pages=[1], outputs=1)
    words = batch.to_words()
    again = _core.Batch.from_words(words)
    assert again.to_words().tolist() == words.tolist()
    assert (len(again), again.num_outputs) == (4, 3)


@pytest.mark.parametrize(
    "difference",
    [
        {"first": 64},
        {"pool": 1},
        {"slot": 1},
        {"visible": 2},
        {"encoded": 64},
        {"blocks": [(0, 2)]},
    ],
    ids=lambda difference: next(iter(difference)),
)
def test_words_say_all_of_a_span(difference: dict[str, Any]) -> None:
    plain, other = _core.Batch(), _core.Batch()
    plain.add([1, 2, 3], pages=[4], outputs=1)
    other.add([1, 2, 3], pages=[4], outputs=1, **difference)
    assert other.to_words().tolist() != plain.to_words().tolist()


@pytest.mark.parametrize("size", [0, 1, 5, 11])
def test_words_that_end_early_are_refused(size: int) -> None:
    with pytest.raises(RequestError, match=r"end too early|longer than they are"):
        words_of(lambda words: words[:size])


def test_words_behind_the_end_are_refused() -> None:
    with pytest.raises(RequestError, match="behind its end"):
        words_of(lambda words: np.append(words, np.int32(1)))


def test_pieces_have_the_rows_of_the_whole(tiny_path: Path) -> None:
    batch = _core.Batch()
    batch.add([1, 2, 3], pages=[0], outputs=[0, 2])
    batch.add([4, 5, 6, 7], first=10, pages=[1], outputs=1)
    pieces = batch.pieces(2)
    assert [len(p) for p in pieces] == [2, 2, 2, 1]
    assert [p.num_outputs for p in pieces] == [1, 1, 0, 1]
    assert len(batch.pieces(7)) == 1
