"""Stop strings: a text ends at the first character that completes one, however it is cut."""

from __future__ import annotations

import pytest
from cuts import any_cuts, pieces
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai.errors import RequestError
from oxibonsai.output import StopScanner


def stopped(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The definition, on the whole text."""
    for end in range(1, len(text) + 1):
        found = [s for s in stops if text[:end].endswith(s)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def fed(scanner: StopScanner, parts: list[str]) -> str:
    return "".join([*(scanner.feed(p) for p in parts), scanner.flush()])


few_letters = st.text("ab", max_size=30)


@given(few_letters, st.lists(st.text("ab", min_size=1, max_size=6), max_size=5), any_cuts)
def test_every_cut_shows_what_the_definition_says(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    scanner = StopScanner(stops)
    assert (fed(scanner, pieces(text, cuts)), scanner.hit) == stopped(text, stops)


@given(few_letters, st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=5))
def test_no_character_of_a_stop_string_is_ever_shown(text: str, stops: list[str]) -> None:
    expected, _ = stopped(text, stops)
    scanner = StopScanner(stops)
    shown = ""
    for i, char in enumerate(text):
        shown += scanner.feed(char)
        assert expected.startswith(shown)
        if scanner.hit is None:
            assert len(shown) >= i + 1 - max(map(len, stops)), "no more than a stop is held back"


@given(few_letters, st.lists(st.text("ab", min_size=1, max_size=6), max_size=5), any_cuts)
def test_the_stop_string_can_be_part_of_the_text(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    shown, hit = stopped(text, stops)
    assert fed(StopScanner(stops, include_stop=True), pieces(text, cuts)) == shown + (hit or "")


@pytest.mark.parametrize(
    ("stops", "parts", "shown", "hit"),
    [
        (["\n\nUser:"], ["Hi.\n", "\nUs", "er: no"], "Hi.", "\n\nUser:"),
        (["\n\nUser:"], ["Hi.\n\nUse", "ful"], "Hi.\n\nUseful", None),
        (["abcd", "bc"], ["a", "b", "c", "d"], "a", "bc"),  # complete first
        (["bc", "abc"], ["xab", "c"], "x", "abc"),  # complete at once: the longest
        (["aab"], ["a", "a", "a", "b"], "a", "aab"),
        (["END"], ["the EN"], "the EN", None),
        (["🛑"], ["go", "🛑", "on"], "go", "🛑"),
        ([], ["all", " of it"], "all of it", None),
    ],
)
def test_examples(stops: list[str], parts: list[str], shown: str, hit: str | None) -> None:
    scanner = StopScanner(stops)
    assert fed(scanner, parts) == shown
    assert scanner.hit == hit


def test_nothing_comes_after_a_stop_string() -> None:
    scanner = StopScanner(["."])
    assert scanner.feed("One. Two") == "One"
    assert scanner.feed("Three") == ""
    assert scanner.flush() == ""


def test_an_empty_stop_string_is_an_error() -> None:
    with pytest.raises(RequestError, match=r"stop\[1\]"):
        StopScanner(["a", ""])


def test_hostile_stop_strings_cost_linear_time() -> None:
    # A scan that went back for each of the 200,000 characters would compare 4 * 10^9 of them.
    stop = "a" * 20_000 + "b"
    scanner = StopScanner([stop, stop[1:], stop + "c"])
    assert sum(len(scanner.feed("a")) for _ in range(200_000)) == 180_000
    assert scanner.feed("b") == ""
    assert scanner.hit == stop
