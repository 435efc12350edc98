"""Settings that make no run are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from oxibonsai.errors import RequestError
from oxibonsai.train import NetworkShape, TrainSettings
from oxibonsai.train.optimization import height


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("weight_format", "q4_0", "weight_format is 'q4_0'; it is one of float, q1_0"),
        ("optimizer", "sgd", "optimizer is 'sgd'"),
        ("steps", 0, "steps is 0; it has to be at least 1"),
        ("learning_rate", 0.0, "learning_rate is 0.0; it has to be above 0"),
        ("learning_rate", float("nan"), "learning_rate is nan"),
        ("distill", 1.5, "distill is 1.5; it has to be from 0 to 1"),
        ("warmup", 1000, r"warmup is 1000; it has to be less than steps \(1000\)"),
        ("accumulate", 3, "accumulate is 3; it has to be a divisor of batch"),
        ("context", 4, "context is 4"),
        ("seed", -1, "seed is -1"),
    ],
)
def test_a_setting_out_of_range_is_named(field: str, value: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        TrainSettings(**{field: value})


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"layers": 0}, "layers is 0; it is at least 1"),
        ({"heads": 3}, r"heads is 3, which kv_heads \(2\) does not divide"),
        ({"head_dim": 63}, "head_dim is 63; rotary positions need an even one"),
        ({"ffn_size": 320}, "ffn_size is 320; q1_0 needs a multiple of its group of 128"),
    ],
)
def test_a_shape_that_makes_no_network_is_named(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        NetworkShape(**sizes).check("q1_0")


def test_cosine_rises_to_the_full_rate_and_falls_to_a_tenth() -> None:
    settings = TrainSettings(schedule="cosine", warmup=9, steps=109)
    heights = [height(step, settings) for step in range(110)]
    assert heights[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert max(heights) == heights[9] == 1.0
    assert heights[59] == pytest.approx(0.55)
    assert heights[109] == pytest.approx(0.1)


def test_wsd_stays_at_the_full_rate_and_falls_in_a_line() -> None:
    settings = TrainSettings(schedule="wsd", warmup=10, steps=100, decay=0.2)
    heights = [height(step, settings) for step in range(100)]
    assert heights[10:80] == [1.0] * 70
    assert heights[80:] == pytest.approx([n / 20 for n in range(20, 0, -1)])
