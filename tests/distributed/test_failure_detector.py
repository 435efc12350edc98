"""What the processes of a group learn of each other's failures, here three threads with one store."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="needs torch (extra: hf)")
import torch.distributed as dist

from oxibonsai.distributed.failure_detector import FailureDetector

PATIENCE = 60
BROKEN = "Connection closed by peer"


class Ranks:
    """Detectors, and what each has told its process."""

    def __init__(self, store: object, ranks: range, world: int) -> None:
        self.told: dict[int, queue.Queue[str]] = {r: queue.Queue() for r in ranks}
        self.detectors = {
            r: FailureDetector(store, r, world, told.put) for r, told in self.told.items()
        }

    def reason(self, rank: int) -> str:
        return self.told[rank].get(timeout=PATIENCE)

    def stop(self) -> None:
        for detector in self.detectors.values():
            detector.stop()


@pytest.fixture
def three() -> Iterator[Ranks]:
    ranks = Ranks(dist.HashStore(), range(3), 3)
    yield ranks
    ranks.stop()


def test_the_others_learn_the_reason_that_one_tells(three: Ranks) -> None:
    three.detectors[1].tell("rank 1 ran out of luck")
    assert three.reason(0) == three.reason(2) == "rank 1 ran out of luck"
    assert three.told[1].empty()  # it knows


def test_the_first_reason_is_that_of_all(three: Ranks) -> None:
    three.detectors[2].tell("first")
    three.detectors[0].tell("second")
    assert three.reason(1) == "first"
    assert three.detectors[0].explain(BROKEN) == "first"


def test_a_process_that_confirms_nothing_is_named() -> None:
    ranks = Ranks(dist.HashStore(), range(2), 3)  # the third one is gone
    reason = ranks.detectors[0].explain(BROKEN)
    assert reason == "rank 2 of 3 ended or hung without giving a reason: see its log"
    assert ranks.reason(1) == reason
    ranks.stop()


def test_where_all_live_the_error_itself_is_the_reason(three: Ranks) -> None:
    assert three.detectors[0].explain(BROKEN) == BROKEN
    assert three.reason(1) == three.reason(2) == BROKEN


class LostStore:
    """The store of a machine that is gone."""

    def check(self, keys: list[str]) -> bool:
        raise RuntimeError("Connection reset by peer")


def test_without_a_store_its_process_has_ended() -> None:
    ranks = Ranks(LostStore(), range(1, 2), 2)
    assert ranks.reason(1) == "rank 0, or torchrun, has ended: see its log"
    ranks.stop()


def test_after_stop_nobody_tells_of_the_end_of_others(three: Ranks) -> None:
    three.detectors[0].stop()
    three.detectors[1].tell("late")
    assert three.reason(2) == "late"
    assert three.told[0].empty()
