"""bench/rounds.py: who is measured when, and which turns count."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rounds import in_turn


def stolen_by_turn(*seconds: float) -> Callable[[], float]:
    """A clock of stolen time: what is stolen in each turn; it is read at both ends of one."""

    def readings() -> Iterator[float]:
        total = 0.0
        for stolen in seconds:
            yield total
            total += stolen
            yield total

    return readings().__next__


def counter() -> Callable[[], float]:
    numbers = iter(range(100))
    return lambda: float(next(numbers))


def test_measures_take_turns_after_one_round_of_warming_up() -> None:
    calls: list[str] = []

    def call(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    clock = stolen_by_turn(0, 0, 0, 0)
    rounds = in_turn({"a": lambda: call("a"), "b": lambda: call("b")}, 2, clock)
    assert calls == ["a", "b"] * 3
    assert rounds.of("a") == [3.0, 5.0]
    assert rounds.of("b") == [4.0, 6.0]
    assert rounds.repeated == 0
    assert rounds.most_stolen == 0


def test_a_turn_from_which_the_host_stole_is_taken_again() -> None:
    rounds = in_turn({"a": counter()}, 2, stolen_by_turn(0, 60, 0))
    assert rounds.of("a") == [1.0, 3.0]
    assert rounds.repeated == 1
    assert rounds.most_stolen == 0


def test_where_the_host_never_stops_the_least_disturbed_turn_counts_and_says_so() -> None:
    rounds = in_turn({"a": counter()}, 1, stolen_by_turn(9e9, 9e9, 60, 9e9))
    assert rounds.of("a") == [3.0]
    assert rounds.repeated == 3
    assert rounds.most_stolen > 1


def test_the_system_has_such_a_clock() -> None:
    assert in_turn({"a": counter()}, 1).most_stolen >= 0
