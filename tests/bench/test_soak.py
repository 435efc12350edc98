"""bench/soak.py: equal answers are counted, others and failures are told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import served
import soak
import tiny_model


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[served.Served]:
    model = tmp_path_factory.mktemp("soak") / "tiny.gguf"
    tiny_model.write(model)
    port = served.free_port()
    command = served.oxibonsai_command(model, port, streams=2, ctx_size=128, threads=1)
    with served.serving("oxibonsai", command, port, {}) as running:
        yield running


def test_streams_that_read_as_alone_are_counted(server: served.Served) -> None:
    alone = [soak.answer(server, soak.request(i, 8)) for i in range(4)]
    assert len({text for text, _ in alone}) > 1
    found = soak.soak(server, alone, streams=6, seconds=2.5, tokens=8)
    assert found.good
    assert found.answers >= 6
    assert found.memory


def test_a_stream_that_reads_otherwise_is_named(server: served.Served) -> None:
    alone = [soak.answer(server, soak.request(i, 8)) for i in range(2)]
    found = soak.soak(server, [alone[0], ("something else", 1)], 2, seconds=0.2, tokens=8)
    assert set(found.differing) == {1}
    assert not found.good


def test_a_server_that_refuses_is_an_error(server: served.Served) -> None:
    gone = served.Served("gone", f"http://127.0.0.1:{served.free_port()}/v1", server.pid, 0.0)
    found = soak.soak(gone, [("", 0)], 1, seconds=0.05, tokens=8)
    assert found.errors
    assert not found.good


def test_growth_of_memory_is_that_of_the_second_half() -> None:
    times = [float(t) for t in range(120)]
    grown = soak.Found(memory=[(t, 100.0 + (t / 60 if t >= 60 else 5 * t)) for t in times])
    assert grown.slope == pytest.approx(1.0)


def test_requests_are_the_same_each_time_and_differ_from_each_other() -> None:
    bodies = [str(soak.request(i, 32)) for i in range(20)]
    assert len(set(bodies)) == 20
    assert bodies == [str(soak.request(i, 32)) for i in range(20)]
