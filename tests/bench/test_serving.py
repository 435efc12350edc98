"""bench/serving.py: what is compared, in which turns, and what counts as a failed measurement."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

import served
import serving
import serving_scenarios
from loadtest.fake_server import FakeServer, running


def options(**values: object) -> argparse.Namespace:
    given = {"streams": [2], "rounds": 3, "requests": 2, "prompt_tokens": 8, "tokens": 5}
    return argparse.Namespace(**{**given, **values})


def test_more_tokens_and_less_time_are_better() -> None:
    ours = [{"tok/s": v, "TTFT p50 ms": 10.0, "ITL p99 ms": 4.0} for v in (100.0, 300.0, 900.0)]
    theirs = [{"tok/s": 150.0, "TTFT p50 ms": 40.0, "ITL p99 ms": 2.0}] * 3
    found = serving.ratios(ours, theirs)
    assert found["tok/s"] == {"oxibonsai": 300.0, "peer": 150.0, "times_better": 2.0}
    assert found["TTFT p50 ms"]["times_better"] == 4.0
    assert found["ITL p99 ms"]["times_better"] == 0.5


def test_both_servers_get_the_same_prompts_in_turn() -> None:
    with running(FakeServer()) as one, running(FakeServer()) as two:
        servers = [
            served.Served("oxibonsai", one.url, 0, 0.0, {"ignore_eos": True}),
            served.Served("peer", two.url, 0, 0.0),
        ]
        found = serving.compare(servers, options())
    assert set(found) == {"2 streams"}
    assert {name: len(r) for name, r in found["2 streams"]["rounds"].items()} == {
        "oxibonsai": 3,
        "peer": 3,
    }
    # A warm-up, then two requests of each of two streams; three rounds.
    assert len(one.requests) == len(two.requests) == 3 * 5
    prompts = [sorted(str(r["messages"]) for r in s.requests) for s in (one, two)]
    assert prompts[0] == prompts[1]
    assert len(set(prompts[0])) == 15
    assert all(r["ignore_eos"] for r in one.requests)
    assert not any("ignore_eos" in r for r in two.requests)


def test_a_failed_request_fails_the_measurement() -> None:
    with running(FakeServer(status=503)) as fake:
        server = served.Served("oxibonsai", fake.url, 0, 0.0)
        figures = serving.measure(server, 1, options(), 0)
    with pytest.raises(RuntimeError, match="503"):
        serving.figures_of(figures)


def test_answers_of_one_chunk_have_no_gaps_to_compare() -> None:
    with running(FakeServer(tokens=1)) as fake:
        server = served.Served("oxibonsai", fake.url, 0, 0.0)
        with pytest.raises(RuntimeError, match="too short"):
            serving.figures_of(serving.measure(server, 1, options(), 0))


def test_gaps_beside_a_long_prompt_are_compared_with_gaps_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(FakeServer(gap=0.01, tokens=150, ttft=0.05)) as fake:
        found = serving_scenarios.long_prompt(served.Served("oxibonsai", fake.url, 0, 0.0), 50)
    assert found["itl_alone_ms"]["p50"] >= 10
    assert found["itl_beside_ms"]["p50"] >= 10
    assert found["ttft_s"] >= 0.05
    assert len(fake.requests) == 10
    assert fake.most_under_way == 5


def test_the_second_question_has_the_same_system_prompt() -> None:
    with running(FakeServer()) as fake:
        server = served.Served("oxibonsai", fake.url, 0, 0.0)
        found = serving_scenarios.system_prompt(server, 50, rounds=2)
    systems = [r["messages"][0]["content"] for r in fake.requests]
    assert systems[0::2] == systems[1::2]
    assert len(set(systems)) == 3
    questions = [r["messages"][1]["content"] for r in fake.requests]
    assert questions == ["Who?", "What?"] * 3
    assert found["cached_tokens"] == 10
    assert found["times"] > 0


def test_the_peer_may_not_end_its_answers_early(tiny_path: Path) -> None:
    assert serving.end_token_bias(tiny_path) == {"257": -100}


def test_a_server_that_ends_at_once_is_told_with_its_words() -> None:
    command = [sys.executable, "-c", "print('no such model')"]
    with (
        pytest.raises(RuntimeError, match="no such model"),
        served.serving("peer", command, served.free_port(), {}),
    ):
        pass


def test_figures_are_those_of_the_load_tool() -> None:
    with running(FakeServer(gap=0.002)) as fake:
        server = served.Served("oxibonsai", fake.url, 0, 0.0)
        figures = serving.measure(server, 2, options(), 0)
    assert figures.counted_by_server
    found = serving.figures_of(figures)
    assert found["tok/s"] == figures.output_tokens_per_s
    assert found["ITL p99 ms"] >= 2
