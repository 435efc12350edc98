"""How tokens are chosen: one validated record of a request's sampling fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.sampling.chain import STEP_NAMES

# Below it every difference of two logits decides, as at 0.
_SMALLEST_TEMPERATURE = 1e-20


@dataclass(frozen=True)
class SamplingParams:
    """Choice of tokens for one sequence. Neutral values do nothing; formulas: docs/sampling.md.

    Attributes:
        max_tokens: New tokens at most, 1 or more; None: until the context is full.
        min_tokens: The text doesn't end before so many tokens.
        stop: The text ends before the first of these strings.
        stop_token_ids: Tokens that end the text besides the model's own.
        ignore_eos: Go on past the end of the text.
        seed: Of the draws, 0 <= seed < 2**64; None: a new one for each request.
        samplers: Which steps run, in which order; names of ``chain.CHAIN``. A step left out doesn't
            run. A temperature of 0 takes the most likely token in any order.
        logit_bias: Added to the logits of these ids, -100 to 100.
        banned_tokens: Ids that are never chosen.
        allowed_tokens: Ids of which all tokens are, the end of the text among them only if it is
            listed; empty: all.
        bad_words: Strings that are never generated, with a space before them or without, as the
            tokens that they are in a text of their own; or the ids of such tokens.
        repetition_penalty: Divides positive logits of tokens seen before and multiplies negative
            ones; 1: none (Keskar et al. 2019).
        repetition_window: How many last tokens count as seen; -1: all.
        presence_penalty: Taken off the logit of each generated token, -2 to 2; 0: none.
        frequency_penalty: Taken off once for each time it was generated, -2 to 2; 0: none.
        dry_multiplier: Strength of the penalty on repeated passages; 0: none.
        dry_base: By which it grows with each token of the passage, at least 1.
        dry_allowed_length: Passages of fewer tokens are free, at least 1.
        dry_penalty_last_n: How many last tokens are searched; -1: all, 0: none.
        dry_sequence_breakers: Strings whose tokens end a passage.
        xtc_probability: Chance that the top choices are dropped, 0 to 1; 0: never.
        xtc_threshold: Probability from which a token is a top choice, 0 to 1.
        typical_p: Mass of the most typical tokens kept; 1: all (Meister et al. 2022).
        top_a: Keep tokens with at least this share of the squared top probability; 0: all.
        eta_cutoff: Drop less likely tokens, the entropy considered; 0: none (Hewitt et al. 2022).
        epsilon_cutoff: Drop less likely tokens; 0: none.
        temperature: Logits are divided by it; 0: the most likely token, always.
        dynatemp_range: The temperature moves so far to both sides, with the entropy; 0: fixed.
        dynatemp_exponent: Above 1: closer to the low end.
        top_k: Keep the k most likely tokens; 0: all.
        min_p: Keep tokens with at least this share of the top probability; 0: all.
        top_p: Keep the smallest set of most likely tokens whose probabilities sum to at least this; 1: all.
        mirostat: 1 or 2: control the surprisal in place of top_k, min_p and top_p; 0: off (Basu et al.
            2021).
        mirostat_tau: The target surprisal, in bits.
        mirostat_eta: How fast it is corrected, 0 to 1.
        logprobs: Report the log-probability of each token under the model's own distribution.
        top_logprobs: And those of so many most likely ones, 0 to 20.
        drawn_logprobs: Report both of the distribution that the token was drawn from instead, after
            all other parameters; tokens that could not come are left out.

    Raises:
        RequestError: A value of the wrong type or out of range; the message names the field.
    """

    max_tokens: int | None = None
    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_window: int = 64
    seed: int | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    samplers: tuple[str, ...] = STEP_NAMES
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    banned_tokens: tuple[int, ...] = ()
    allowed_tokens: tuple[int, ...] = ()
    bad_words: tuple[str | tuple[int, ...], ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    typical_p: float = 1.0
    top_a: float = 0.0
    eta_cutoff: float = 0.0
    epsilon_cutoff: float = 0.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logprobs: bool = False
    top_logprobs: int = 0
    drawn_logprobs: bool = False

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            # Frozen: the checked value, in its plain type, takes the place of the given one.
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise _refusal("min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < _SMALLEST_TEMPERATURE


Check = Callable[[str, Any], Any]


def _refusal(name: str, value: object, wanted: str) -> RequestError:
    return RequestError(f"{name} is {value!r}; it must be {wanted}")


@dataclass(frozen=True)
class Bounds:
    """The range of a numeric parameter.

    Attributes:
        low: The smallest value, or what every value is above.
        high: The largest value; None: there is none.
        above: ``low`` itself is outside.
        integer: Only integers.
    """

    low: float
    high: float | None = None
    above: bool = False
    integer: bool = False

    def __str__(self) -> str:
        kind = "an integer," if self.integer else "a number"
        start = f"above {self.low:g}" if self.above else f"{self.low:g} or more"
        # An integer is written out: %g rounds 2**64 - 1.
        high = "" if self.high is None else f"{self.high}" if self.integer else f"{self.high:g}"
        return f"{kind} {start}" + (f" and at most {high}" if high else "")

    def __call__(self, name: str, value: Any) -> Any:
        """Return the value as a plain number; RequestError where it is outside.

        A number that is no integer must be a finite float32, as a logit is one.
        """
        if isinstance(value, bool) or not isinstance(value, Integral if self.integer else Real):
            raise _refusal(name, value, str(self))
        plain: Callable[[Any], float] = int if self.integer else float
        number = plain(value)
        inside = number > self.low if self.above else number >= self.low
        if not inside or (self.high is not None and number > self.high):
            raise _refusal(name, value, str(self))
        if not self.integer and number > 3e38:
            raise _refusal(name, value, str(self))
        return number


def _number(low: float, high: float | None = None, *, above: bool = False) -> Bounds:
    return Bounds(low, high, above)


def _integer(low: int, high: int | None = None) -> Bounds:
    return Bounds(low, high, integer=True)


def _or_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refusal(name, value, "True or False")
    return value


def _each(check: Check, wanted: str) -> Check:
    """Return a tuple of checked items out of any collection of them that is no string."""

    def check_all(name: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            raise _refusal(name, value, wanted)
        return tuple(check(name, item) for item in value)

    return check_all


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _refusal(name, value, "made of strings that are not empty")
    return value


def _step_name(name: str, value: Any) -> str:
    if value not in STEP_NAMES:
        raise RequestError(f"{name} names {value!r}; the steps are {', '.join(STEP_NAMES)}")
    return str(value)


def _bias(name: str, value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise _refusal(name, value, "a mapping of token ids to numbers from -100 to 100")
    number = _number(-100.0, 100.0)
    return {_token_id(name, key): number(name, bias) for key, bias in value.items()}


def _word(name: str, value: Any) -> str | tuple[int, ...]:
    if isinstance(value, str) or not value:
        return _text(name, value)
    ids: tuple[int, ...] = _token_ids(name, value)
    return ids


_MOST = 2**31 - 1  # the core uses 32-bit counts
_token_id = _integer(0, _MOST)
_token_ids = _each(_token_id, "a list of token ids")
_strings = _each(_text, "a list of strings")
_share = _number(0.0, 1.0)
_positive_share = _number(0.0, 1.0, above=True)
_last = _integer(-1, _MOST)

_CHECKS: dict[str, Check] = {
    "max_tokens": _or_none(_integer(1)),
    "min_tokens": _integer(0),
    "stop": _strings,
    "stop_token_ids": _token_ids,
    "ignore_eos": _flag,
    "seed": _or_none(_integer(0, 2**64 - 1)),
    "samplers": _each(_step_name, "a list of names of steps"),
    "logit_bias": _bias,
    "banned_tokens": _token_ids,
    "allowed_tokens": _token_ids,
    "bad_words": _each(_word, "a list of strings"),
    "repetition_penalty": _number(0.0, above=True),
    "repetition_window": _last,
    "presence_penalty": _number(-2.0, 2.0),
    "frequency_penalty": _number(-2.0, 2.0),
    "dry_multiplier": _number(0.0),
    "dry_base": _number(1.0),
    "dry_allowed_length": _integer(1, _MOST),
    "dry_penalty_last_n": _last,
    "dry_sequence_breakers": _strings,
    "xtc_probability": _share,
    "xtc_threshold": _share,
    "typical_p": _positive_share,
    "top_a": _share,
    "eta_cutoff": _share,
    "epsilon_cutoff": _share,
    "temperature": _number(0.0),
    "dynatemp_range": _number(0.0),
    "dynatemp_exponent": _number(0.0, above=True),
    "top_k": _integer(0, _MOST),
    "min_p": _share,
    "top_p": _positive_share,
    "mirostat": _integer(0, 2),
    "mirostat_tau": _number(0.0),
    "mirostat_eta": _share,
    "logprobs": _flag,
    "top_logprobs": _integer(0, 20),
    "drawn_logprobs": _flag,
}


def bounds(name: str) -> Bounds:
    """Return the range of a parameter that is a number."""
    found = _CHECKS[name]
    assert isinstance(found, Bounds), f"{name} is no plain number"
    return found


GREEDY = SamplingParams(temperature=0.0)
