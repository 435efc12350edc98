"""The options of sampling: one a field, llama.cpp's names, presets."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from oxibonsai import RequestError, SamplingParams
from oxibonsai.cli.sampling_options import sampling_options, split_sampling
from oxibonsai.known_models import Recommendation
from oxibonsai.sampling import PRESETS


def parsed(*arguments: str) -> SamplingParams:
    result: list[SamplingParams] = []

    @click.command()
    @sampling_options
    def command(**options: Any) -> None:
        result.append(split_sampling(options).params(Recommendation(), None))
        assert not options

    done = CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return result[0]


def test_without_options_the_defaults_hold() -> None:
    assert parsed() == SamplingParams(max_tokens=512)


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ("--temp 0 -n 7", {"temperature": 0.0, "max_tokens": 7}),
        ("--temperature 0.3 --top-k 0 --top-p 1 --min-p 0", {
            "temperature": 0.3, "top_k": 0, "top_p": 1.0, "min_p": 0.0}),
        ("--repeat-penalty 1.1 --repeat-last-n -1", {
            "repetition_penalty": 1.1, "repetition_window": -1}),
        ("--repetition-penalty 1.2 --repetition-window 8", {
            "repetition_penalty": 1.2, "repetition_window": 8}),
        ("--presence-penalty 0.5 --frequency-penalty -0.5", {
            "presence_penalty": 0.5, "frequency_penalty": -0.5}),
        ("--dry-multiplier 0.8 --dry-base 2 --dry-allowed-length 3 --dry-penalty-last-n 64", {
            "dry_multiplier": 0.8, "dry_base": 2.0, "dry_allowed_length": 3,
            "dry_penalty_last_n": 64}),
        ("--dry-sequence-breaker a --dry-sequence-breaker b", {"dry_sequence_breakers": ("a", "b")}),
        ("--dry-sequence-breaker none", {"dry_sequence_breakers": ()}),
        ("--xtc-probability 0.5 --xtc-threshold 0.2", {
            "xtc_probability": 0.5, "xtc_threshold": 0.2}),
        ("--typical 0.9 --top-a 0.1", {"typical_p": 0.9, "top_a": 0.1}),
        ("--typical-p 0.8 --eta-cutoff 0.01 --epsilon-cutoff 0.02", {
            "typical_p": 0.8, "eta_cutoff": 0.01, "epsilon_cutoff": 0.02}),
        ("--dynatemp-range 0.5 --dynatemp-exp 2", {
            "dynatemp_range": 0.5, "dynatemp_exponent": 2.0}),
        ("--mirostat 2 --mirostat-ent 4 --mirostat-lr 0.2", {
            "mirostat": 2, "mirostat_tau": 4.0, "mirostat_eta": 0.2}),
        ("--seed 5 --ignore-eos --min-tokens 3", {"seed": 5, "ignore_eos": True, "min_tokens": 3}),
        ("-s -1", {}),
        ("--stop x -r y --stop-token-id 4 --ban-token 9", {
            "stop": ("x", "y"), "stop_token_ids": (4,), "banned_tokens": (9,)}),
        ("--allow-token 4 --allow-token 7 --bad-word x --bad-word y", {
            "allowed_tokens": (4, 7), "bad_words": ("x", "y")}),
        ("--logprobs --top-logprobs 3", {"logprobs": True, "top_logprobs": 3}),
        ("-l 15043+1 --logit-bias 7-2.5", {"logit_bias": {15043: 1.0, 7: -2.5}}),
        ("--samplers top_k;temperature", {"samplers": ("top_k", "temperature")}),
    ],
)  # fmt: skip
def test_options_set_their_fields(arguments: str, fields: dict[str, Any]) -> None:
    assert parsed(*arguments.split()) == SamplingParams(**{"max_tokens": 512, **fields})


def test_a_preset_is_changed_by_other_options() -> None:
    code = PRESETS["code"]
    params = parsed("--preset", "code", "--top-k", "5")
    assert (params.temperature, params.top_k, params.top_p) == (code.temperature, 5, code.top_p)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("--top-p 2", RequestError, "top_p is 2.0"),
        ("--temp nan", RequestError, "temperature is nan"),
        ("--samplers top_q", RequestError, "samplers names 'top_q'"),
        ("--logit-bias 5", click.BadParameter, "'5' is not a token id and a bias"),
    ],
)
def test_bad_values_are_named(arguments: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parsed(*arguments.split())
