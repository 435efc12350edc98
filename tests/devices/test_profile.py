"""The profile of a device: which ops ran, how often, and what was multiplied; never how fast."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oxibonsai import _core
from oxibonsai.devices import profile, profile_lines
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.graph import Builder

ROWS, COLS, OUT = 37, 64, 96
X = np.random.default_rng(0).standard_normal((ROWS, COLS), dtype=np.float32)


def weight(name: str, rows: int) -> _core.Weight:
    blocks = np.random.default_rng(1).integers(0, 60, (rows, COLS // 32 * 34), dtype=np.uint8)
    return _core.Weight.from_blocks(name, "Q8_0", blocks, COLS)


def compiled(device: _core.CpuDevice) -> _core.Executable:
    """Two layers of one type that share their input, one of another input, and two additions."""
    g = Builder()
    x = g.rms_norm(g.input("x", COLS), np.ones(COLS, np.float32), 1e-6)
    a, b = g.linear(x, weight("a", OUT), weight("b", OUT))
    (c,) = g.linear(g.add(g.input("x", COLS), x), weight("c", OUT))
    g.output("out", g.add(g.add(a, b), c))
    return device.compile(g.graph)


def run(executable: _core.Executable, rows: int = ROWS) -> Any:
    batch = _core.Batch()
    batch.add_span(rows)
    batch.set_input("x", X[:rows])
    return executable.run(batch)["out"]


def by_kind(times: list[_core.OpTime]) -> dict[tuple[str, str], tuple[int, int]]:
    assert len({(t.op, t.weights) for t in times}) == len(times)
    return {(t.op, t.weights): (t.runs, t.multiply_adds) for t in times}


@pytest.mark.parametrize("threads", [1, 3])
def test_each_kind_of_op_is_named_once_with_the_sum_of_its_runs(threads: int) -> None:
    device = _core.CpuDevice(threads)
    executable = compiled(device)
    alone = run(executable)
    device.start_profile()
    results = [run(executable), run(executable), run(executable, 5)]
    times = device.end_profile()
    assert by_kind(times) == {
        ("rms_norm", ""): (3, 0),
        ("round_int8", ""): (6, 0),
        ("linear", "Q8_0"): (6, 3 * OUT * COLS * (2 * ROWS + 5)),
        ("add", ""): (9, 0),
    }
    assert all(t.seconds > 0 for t in times)
    for result in results:
        assert result.tobytes() == alone[: len(result)].tobytes()


def test_it_is_off_until_it_is_started_and_starts_anew() -> None:
    device = _core.CpuDevice(2)
    executable = compiled(device)
    run(executable)
    device.start_profile()
    assert device.end_profile() == []
    run(executable)
    device.start_profile()
    run(executable)
    device.start_profile()
    run(compiled(device))  # any executable of the device
    assert by_kind(device.end_profile())["rms_norm", ""] == (1, 0)
    with pytest.raises(RequestError, match="without start_profile"):
        device.end_profile()


def test_other_threads_over_the_same_weights_have_a_profile_of_their_own() -> None:
    device = _core.CpuDevice(2)
    other = device.with_threads(1)
    executable = compiled(other)
    device.start_profile()
    run(executable)
    assert device.end_profile() == []


def test_shares_are_of_all_ops_and_the_longest_comes_first() -> None:
    device = _core.CpuDevice(2)
    executable = compiled(device)
    shares = profile(device, lambda: run(executable))
    assert sum(s.share for s in shares) == pytest.approx(1)
    assert [s.seconds for s in shares] == sorted((s.seconds for s in shares), reverse=True)
    (linear,) = (s for s in shares if s.op == "linear")
    products = 3 * OUT * COLS * ROWS
    assert linear.multiply_adds * linear.seconds / 2 == pytest.approx(products)
    assert "gmac_s" in linear.as_json()
    assert any("of the int8 limit" in line for line in profile_lines(shares, 1e12))


def test_a_failed_run_ends_the_profile() -> None:
    device = _core.CpuDevice(2)
    executable = compiled(device)
    with pytest.raises(RequestError):
        profile(device, lambda: executable.run(_core.Batch()))
    with pytest.raises(RequestError, match="without start_profile"):
        device.end_profile()


def test_other_devices_are_refused_by_name() -> None:
    other: Any = SimpleNamespace(name="cuda:0")
    with pytest.raises(UnsupportedError, match="cuda:0"):
        profile(other, lambda: None)
