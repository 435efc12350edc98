"""Shares of a limit: of the same moment, and none that can't be."""

from __future__ import annotations

from itertools import cycle

import pytest

from oxibonsai.cli.bench import Share, _add_share, _table, run_rounds


class Machine:
    """One whose speed changes with every measurement."""

    def __init__(self, *speeds: float) -> None:
        self._speeds = cycle(speeds)
        self.seen: list[str] = []

    def measure(self, name: str, amount: float) -> float:
        self.seen.append(name)
        return amount * next(self._speeds)


def test_limits_and_work_are_measured_in_turn() -> None:
    machine = Machine(1.0)
    names = ("read", "peak", "pp", "tg")
    read, peak, pp, tg = ((lambda n=name: machine.measure(n, 1.0)) for name in names)
    run_rounds({"read": read, "peak": peak}, {"pp": pp, "tg": tg}, 2)
    warm_up, limits = ["pp", "tg"], ["read", "peak"]
    assert machine.seen == [*warm_up, *limits, *warm_up, *limits, *warm_up, *limits]


def test_a_machine_that_slows_down_gives_the_share_that_it_had() -> None:
    speeds = [1.0] * 5 + [0.5] * 9  # the limit alone, measured at first, would be twice too high
    machine = Machine(*speeds)
    limits, work = run_rounds(
        {"read": lambda: machine.measure("read", 100.0)},
        {"tg": lambda: machine.measure("tg", 80.0)},
        6,
    )
    assert work["tg"] == [80.0, 80.0, 40.0, 40.0, 40.0, 40.0]
    assert limits["read"] == [100.0, 100.0, 50.0, 50.0, 50.0, 50.0]
    share = Share.of(work["tg"], limits["read"])
    assert (share.value, share.spread, share.doubt) == (0.8, 0.0, "")


def test_a_noisy_machine_gives_no_share() -> None:
    share = Share.of([80.0, 90.0, 50.0], [100.0, 100.0, 100.0])
    assert share.value is None
    assert share.doubt == ("the machine was too noisy for a share: the rounds differ by 50%")


@pytest.mark.parametrize("work", [[135.0, 135.0, 134.0], [99.0, 98.0, 101.0]])
def test_more_than_the_limit_is_no_share(work: list[float]) -> None:
    share = Share.of(work, [100.0] * 3)
    assert share.value is None
    assert "the weights stay in a cache, or others used the machine" in share.doubt


def test_one_round_is_enough_for_a_share() -> None:
    assert Share.of([50.0], [100.0]).value == 0.5


@pytest.mark.parametrize(
    ("rates", "share", "words"),
    [([5.0, 5.0], 0.5, "50.0% of bandwidth"), ([13.5, 13.5], None, "(no share: 135% of")],
)
def test_the_table_has_the_share_or_why_there_is_none(
    rates: list[float], share: float | None, words: str
) -> None:
    row = {"test": "tg8", "tok_s": rates[0], "stdev": 0.0}
    _add_share(row, "bandwidth", rates, 10.0, {"bandwidth": [100.0, 100.0]})
    assert row["share_of_bandwidth"] == share
    machine = {"cpu": "x", "threads": 1, "tier": "avx2"}
    report = {
        "machine": machine,
        "device": "cpu",
        "read_gb_s": 1.0,
        "int8_gmac_s": None,
        "rows": [row],
    }
    assert words in _table(report)
