"""Every field refuses what is out of its range or of another type, and names itself."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import make_parameter_table
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oxibonsai
from oxibonsai import RequestError, SamplingParams
from oxibonsai.sampling import PARAMETERS

SHARES = ("min_p", "top_a", "xtc_probability", "xtc_threshold", "eta_cutoff", "epsilon_cutoff",
          "mirostat_eta")  # fmt: skip
MASSES = ("top_p", "typical_p")
POSITIVE = ("repetition_penalty", "dynatemp_exponent")
FLOATS = (*SHARES, *MASSES, *POSITIVE, "temperature", "dynatemp_range", "presence_penalty",
          "frequency_penalty", "dry_multiplier", "dry_base", "mirostat_tau")  # fmt: skip
INTEGERS = ("max_tokens", "min_tokens", "top_k", "seed", "repetition_window", "dry_allowed_length",
            "dry_penalty_last_n", "mirostat", "top_logprobs")  # fmt: skip
FLAGS = ("ignore_eos", "logprobs", "drawn_logprobs")
LISTS = ("stop", "stop_token_ids", "samplers", "banned_tokens", "allowed_tokens", "bad_words",
         "dry_sequence_breakers")  # fmt: skip

WRONG = [
    *((name, value) for name in FLOATS for value in (math.nan, math.inf, -math.inf, True, "1",
      None, [1.0], 1e300)),
    *((name, value) for name in SHARES for value in (-0.1, 1.1)),
    *((name, value) for name in MASSES for value in (0.0, -0.5, 1.5)),
    *((name, value) for name in POSITIVE for value in (0.0, -1.0)),
    *((name, value) for name in INTEGERS for value in (True, 1.5, "1", [1], math.nan)),
    *((name, value) for name in FLAGS for value in (0, 1, "yes", None)),
    *((name, value) for name in LISTS for value in ("text", 5, None, {"a": 1}, [1.5], [True])),
    ("temperature", -1.0), ("dynatemp_range", -0.1), ("dry_multiplier", -1.0), ("dry_base", 0.9),
    ("mirostat_tau", -1.0), ("presence_penalty", 2.1), ("frequency_penalty", -2.1),
    ("max_tokens", 0), ("min_tokens", -1), ("top_k", -1), ("top_k", None), ("seed", -1),
    ("seed", 2**64), ("repetition_window", -2), ("dry_allowed_length", 0),
    ("dry_penalty_last_n", -2), ("mirostat", 3), ("mirostat", -1), ("top_logprobs", 21),
    ("stop", [""]), ("stop", [b"x"]), ("stop_token_ids", [-1]), ("banned_tokens", [2**31]),
    ("allowed_tokens", [-1]), ("bad_words", [""]),
    ("logit_bias", [(1, 2.0)]), ("logit_bias", {1: 101.0}), ("logit_bias", {1: math.nan}),
    ("logit_bias", {-1: 1.0}), ("logit_bias", {"1": 1.0}), ("logit_bias", {1: True}),
    ("logit_bias", {1.5: 1.0}), ("logit_bias", None),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG, ids=lambda v: repr(v)[:30])
def test_wrong_values_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"^{field} (is|names) "):
        SamplingParams(**{field: value})


def test_every_field_is_among_the_refused() -> None:
    assert {field for field, _ in WRONG} == set(SamplingParams.__dataclass_fields__)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0, "top_p": 1, "min_p": 1}, {"seed": 2**64 - 1}, {"max_tokens": None},
        {"logit_bias": {0: -100, 5: 100.0}}, {"stop": ["a", "b"]}, {"samplers": []},
        {"repetition_window": -1, "dry_penalty_last_n": 0}, {"xtc_threshold": 0.0},
        {"mirostat": 2, "mirostat_eta": 0.0}, {"presence_penalty": -2.0},
    ],
)  # fmt: skip
def test_the_ends_of_the_ranges_are_allowed(fields: dict[str, Any]) -> None:
    SamplingParams(**fields)


def test_values_are_kept_in_their_plain_types() -> None:
    params = SamplingParams(temperature=np.float32(0.5), top_k=np.int64(3), stop=["x"], min_p=0)
    assert type(params.temperature) is float
    assert type(params.top_k) is int
    assert params.stop == ("x",)
    assert type(params.min_p) is float
    assert hash(params) == hash(SamplingParams(temperature=0.5, top_k=3, stop=("x",)))


def test_a_bias_is_a_copy() -> None:
    bias = {1: 2.0}
    params = SamplingParams(logit_bias=bias)
    bias[1] = 5.0
    assert params.logit_bias == {1: 2.0}


def test_min_tokens_is_no_more_than_max_tokens() -> None:
    SamplingParams(max_tokens=3, min_tokens=3)
    with pytest.raises(
        RequestError, match=r"^min_tokens is 4; it must be at most max_tokens \(3\)"
    ):
        SamplingParams(max_tokens=3, min_tokens=4)


@given(st.sampled_from(sorted(SamplingParams.__dataclass_fields__)), st.data())
def test_any_value_is_taken_or_refused_by_name(field: str, data: st.DataObject) -> None:
    value = data.draw(
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
            st.lists(st.one_of(st.integers(), st.text(), st.floats())),
            st.dictionaries(st.integers(), st.floats()),
        )
    )  # fmt: skip
    try:
        SamplingParams(**{field: value})
    except RequestError as error:
        assert str(error).startswith(field)  # noqa: PT017


def test_the_page_has_the_table_of_parameters() -> None:
    assert make_parameter_table.page() == make_parameter_table.PAGE.read_text(encoding="utf-8")


def test_the_chat_page_has_fields_of_requests_within_their_ranges() -> None:
    page = Path(oxibonsai.__file__).parent / "server" / "static" / "sampling_fields.js"
    numbers = {p.request[0]: p for p in PARAMETERS.values() if p.number and p.request}
    fields = re.findall(
        r'(real|whole)\("(\w+)", "[^"]*"(?:, ([\d.-]+))?(?:, ([\d.-]+))?\)',
        page.read_text(encoding="utf-8"),
    )
    shown = [field for field in fields if field[1] in numbers]
    assert {f[1] for f in fields} - {f[1] for f in shown} == {
        "max_tokens", "seed", "thinking_budget_tokens",
    }  # fmt: skip
    assert len(shown) > 20
    for kind, name, low, high in shown:
        limits = numbers[name].asked or numbers[name].bounds
        assert limits.integer == (kind == "whole"), name
        assert not low or float(low) >= limits.low, name
        assert not high or limits.high is None or float(high) <= limits.high, name
