"""What processes check of each other before anything runs; threads stand for them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from oxibonsai import RequestError, _core
from oxibonsai.devices import open_device
from oxibonsai.distributed import Group, Identity, Layout, verify
from oxibonsai.distributed.traffic import predict
from oxibonsai.graph import Builder
from oxibonsai.loading import open_model
from oxibonsai.models import load_model
from oxibonsai.models.parity_suite import _suite

IDENTITY = Identity("1.0", "a model", "3 x 1", "4096")


class Meeting:
    """Where threads put their bytes together, as a group does."""

    def __init__(self, ranks: int) -> None:
        self._sent = [b""] * ranks
        self._barrier = threading.Barrier(ranks, timeout=60)

    def group(self, rank: int) -> Group:
        class OneRank:
            def __init__(self, meeting: Meeting) -> None:
                self.rank = rank
                self._meeting = meeting

            def all_gather_bytes(self, own: bytes) -> list[bytes]:
                return self._meeting.put(rank, own)

        return cast(Group, OneRank(self))

    def put(self, rank: int, own: bytes) -> list[bytes]:
        self._sent[rank] = own
        self._barrier.wait()
        everything = list(self._sent)
        self._barrier.wait()
        return everything


def outcomes(identities: list[Identity], secrets: list[str]) -> list[str]:
    """What each rank says: nothing where it would start."""
    meeting = Meeting(len(identities))

    def check(rank: int) -> str:
        try:
            verify(meeting.group(rank), identities[rank], secrets[rank])
        except RequestError as e:
            return str(e)
        return ""

    with ThreadPoolExecutor(len(identities)) as threads:
        return list(threads.map(check, range(len(identities))))


def test_equal_processes_start() -> None:
    assert outcomes([IDENTITY] * 3, ["secret"] * 3) == ["", "", ""]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("version", "runs another version"),
        ("model", "has another model file"),
        ("layout", "was started with another --tensor-parallel"),
        ("ctx_size", "was started with another --ctx-size"),
    ],
)
def test_every_rank_names_the_one_that_differs(field: str, said: str) -> None:
    other = replace(IDENTITY, **{field: "another"})
    first, odd, last = outcomes([IDENTITY, other, IDENTITY], ["secret"] * 3)
    assert f"rank 1 {said}" in first
    assert f"rank 1 {said}" in last
    assert f"rank 0 {said}" in odd
    assert f"rank 2 {said}" in odd


def test_another_secret_is_noticed_on_both_sides() -> None:
    first, odd = outcomes([IDENTITY] * 2, ["secret", "guess"])
    assert "rank 1 has another secret" in first
    assert "rank 0 has another secret" in odd


def test_ranks_of_a_stage_are_neighbours() -> None:
    layouts = [Layout(2, 3, rank) for rank in range(6)]
    assert [x.stage for x in layouts] == [0, 0, 1, 1, 2, 2]
    assert [x.row_share for x in layouts] == [0, 1, 0, 1, 0, 1]
    assert (layouts[2].previous, layouts[2].next) == (0, 4)
    assert layouts[0].results_from == 4
    with pytest.raises(RequestError, match="rank 6 is none of 6"):
        Layout(2, 3, 6)


def test_traffic_follows_from_the_graph(tiny_path: Path) -> None:
    model = load_model(open_model(tiny_path), open_device("cpu", 1))
    layers, hidden = model.config.num_hidden_layers, model.config.hidden_size
    rows, outputs = 5, 2
    tensor = predict(model.graph, layers, Layout(2, 1, 0), rows, outputs)
    share = _core.Sharding(_core.Exchange(2, 0, lambda own, everything: None)).share(model.graph)
    columns = _core.Sharding.messages(share)
    assert tensor.gathers == len(columns) == 4 * layers + 1
    assert tensor.gathered_bytes == sum(
        4 * cols * (outputs if space == "outputs" else rows) for space, cols in columns
    )
    assert tensor.sends == 0
    stage = predict(model.graph, layers, Layout(1, 2, 0), rows, outputs)
    assert (stage.gathers, stage.sends, stage.sent_bytes) == (0, 1, 4 * rows * hidden)
    last = predict(model.graph, layers, Layout(1, 2, 1), rows, outputs)
    assert last.sent_bytes == 4 * outputs * model.config.vocab_size


def test_traffic_of_experts_counts_their_rows() -> None:
    builder = Builder()
    dict(_suite())["experts"](builder)
    share = _core.Sharding(_core.Exchange(2, 0, lambda own, everything: None)).share(builder.graph)
    assert _core.Sharding.messages(share) == [("routed(2)", 128), ("tokens", 128)]
    assert predict(builder.graph, 1, Layout(2, 1, 0), 5).gathered_bytes == 4 * 128 * (5 * 2 + 5)
