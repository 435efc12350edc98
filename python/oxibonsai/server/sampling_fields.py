"""The sampling fields of a request, under the names of OpenAI, llama-server and vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, ConfigDict, Field, model_validator

from oxibonsai.errors import RequestError
from oxibonsai.sampling import PRESETS, SamplingParams, bounds, preset, word_tokens
from oxibonsai.sampling.chain import STEP_NAMES
from oxibonsai.server.inputs import read_text
from oxibonsai.server.model_settings import ModelSettings
from oxibonsai.server.schemas.fields import Checked
from oxibonsai.tokenizer import Tokenizer

MOST_STOPS = 16
_MOST_BIASES = 1024
MOST_TOKENS = 2**20  # of a list of ids: more than any context holds
_LONGEST_TEXT = 4096  # characters of a stop string, a bad word ...
_MOST_TEXT = 2**16  # and of all of them together

# llama-server's names of sampling steps; unsupported steps are skipped unless a field enables them.
_STEP_ALIASES = {
    "typical_p": "typ_p", "typical": "typ_p", "typ-p": "typ_p", "temp": "temperature",
    "top-k": "top_k", "top-p": "top_p", "nucleus": "top_p", "min-p": "min_p",
}  # fmt: skip
_STEP_LETTERS = {
    "d": "dry", "k": "top_k", "y": "typ_p", "p": "top_p", "m": "min_p", "t": "temperature",
    "x": "xtc", "e": "penalties", "s": "top_n_sigma", "i": "infill", "a": "adaptive_p",
}  # fmt: skip
_MISSING_STEPS = frozenset({"top_n_sigma", "infill", "adaptive_p"})

# Two names of one field.
_SPELLINGS = (("typical_p", "typ_p"), ("repeat_penalty", "repetition_penalty"))


_Text = Annotated[str, Field(max_length=_LONGEST_TEXT)]
Stops = Annotated[list[_Text], Field(max_length=MOST_STOPS)]
Bias = float | bool
BiasPair = Annotated[list[int | _Text | Bias], Field(min_length=2, max_length=2)]
_BiasPairs = Annotated[list[BiasPair], Field(max_length=_MOST_BIASES)]


def _of_little_text(items: Any) -> Any:
    """Return the items, or an object, if their texts, or its keys, are not too long together."""
    texts = (item[0] if isinstance(item, list) else item for item in items)
    total = sum(len(text) for text in texts if isinstance(text, str))
    if total > _MOST_TEXT:
        raise ValueError(f"its texts have {total} characters; at most {_MOST_TEXT} are accepted")
    return items


_LittleText = AfterValidator(_of_little_text)


def _as(name: str, spellings: AliasChoices | None = None) -> Any:
    """Return a field with the range of a parameter of :class:`~oxibonsai.sampling.SamplingParams`."""
    allowed = bounds(name)
    above, least = (allowed.low, None) if allowed.above else (None, allowed.low)
    return Field(None, gt=above, ge=least, le=allowed.high, validation_alias=spellings)


# Of the server's settings, or of the preset that a request names.
_PENALTIES = (
    "repetition_penalty",
    "repetition_window",
    "presence_penalty",
    "frequency_penalty",
)


class SamplingFields(Checked):
    """Sampling parameters. A field that is null or missing has the server's default.

    Fields with a range of their own accept more than :class:`~oxibonsai.sampling.SamplingParams`,
    as llama-server does; -1 then means no limit.
    """

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    preset: str | None = Field(
        None, description=f"{', '.join(PRESETS)}: defaults in place of the server's."
    )
    temperature: float | None = _as("temperature")
    top_k: int | None = Field(None, ge=-1, description="0 or -1: all.")
    top_p: float | None = Field(None, ge=0, le=1)
    min_p: float | None = _as("min_p")
    typical_p: float | None = _as("typical_p", AliasChoices(*_SPELLINGS[0]))
    top_a: float | None = _as("top_a")
    eta_cutoff: float | None = _as("eta_cutoff")
    epsilon_cutoff: float | None = _as("epsilon_cutoff")
    top_n_sigma: float | None = Field(None, description="Only -1 and 0, its neutral values.")
    presence_penalty: float | None = _as("presence_penalty")
    frequency_penalty: float | None = _as("frequency_penalty")
    repeat_penalty: float | None = _as("repetition_penalty", AliasChoices(*_SPELLINGS[1]))
    repeat_last_n: int | None = _as("repetition_window")
    dry_multiplier: float | None = _as("dry_multiplier")
    dry_base: float | None = Field(None, ge=0)
    dry_allowed_length: int | None = _as("dry_allowed_length")
    dry_penalty_last_n: int | None = _as("dry_penalty_last_n")
    dry_sequence_breakers: list[_Text] | None = Field(None, max_length=64)
    xtc_probability: float | None = _as("xtc_probability")
    xtc_threshold: float | None = _as("xtc_threshold")
    dynatemp_range: float | None = _as("dynatemp_range")
    dynatemp_exponent: float | None = _as("dynatemp_exponent")
    mirostat: int | None = _as("mirostat")
    mirostat_tau: float | None = _as("mirostat_tau")
    mirostat_eta: float | None = _as("mirostat_eta")
    samplers: list[_Text] | _Text | None = Field(None, max_length=32)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64, description="-1: random.")
    stop: _Text | Stops | None = None
    stop_token_ids: list[int] | None = Field(None, max_length=_MOST_BIASES)
    min_tokens: int | None = _as("min_tokens")
    ignore_eos: bool | None = None
    allowed_token_ids: list[int] | None = Field(
        None,
        min_length=1,
        max_length=MOST_TOKENS,
        description="vLLM's: only these tokens are sampled.",
    )
    bad_words: Annotated[list[_Text], _LittleText] | None = Field(
        None, max_length=_MOST_BIASES, description="vLLM's: these texts are never generated."
    )
    logit_bias: Annotated[dict[_Text, Bias] | _BiasPairs, _LittleText] | None = Field(
        None, max_length=_MOST_BIASES
    )

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, body: dict[str, Any]) -> dict[str, Any]:
        """Accept a field that is given under both of its names with the same value."""
        for name, other in _SPELLINGS:
            if name not in body or other not in body:
                continue
            values = [body[n] for n in (name, other) if body[n] is not None] or [None]
            if values[0] != values[-1]:
                raise ValueError(f"{name} and {other} mean the same: send one of them")
            body = {k: v for k, v in body.items() if k != other} | {name: values[0]}
        return body

    def sampling_params(
        self,
        settings: ModelSettings,
        tokenizer: Tokenizer,
        *,
        max_tokens: int | None,
        logprobs: bool = False,
        top_logprobs: int = 0,
        drawn_logprobs: bool = False,
    ) -> SamplingParams:
        """Return the parameters, with the server's defaults for missing fields.

        Args:
            settings: The server's settings.
            tokenizer: Tokenizes texts in ``logit_bias`` and ``bad_words``: here the request holds
                nothing that others wait for.
            max_tokens: Limit of new tokens; None or -1: the server's default.
            logprobs: Return log-probabilities.
            top_logprobs: Number of top tokens to return log-probabilities of.
            drawn_logprobs: Return those of the distribution after all sampling steps.

        Raises:
            RequestError: A value is invalid; the message names the field.
        """
        if self.top_n_sigma is not None and self.top_n_sigma > 0:
            raise RequestError("top_n_sigma is not supported: leave it out", param="top_n_sigma")
        limit = settings.n_predict if max_tokens in (None, -1) else max_tokens
        bias, banned = _biases(self.logit_bias, tokenizer)
        encode = partial(read_text, tokenizer=tokenizer, add_special=False, parse_special=False)
        seed = settings.seed if self.seed is None else self.seed
        default = settings if self.preset is None else preset(self.preset)
        top_p = default.top_p if self.top_p is None else self.top_p
        penalties = {name: getattr(default, name) for name in _PENALTIES}
        return SamplingParams(
            max_tokens=None if limit in (None, -1) else limit,
            temperature=default.temperature if self.temperature is None else self.temperature,
            top_k=max(0, default.top_k if self.top_k is None else self.top_k),
            # At least one token is always kept.
            top_p=max(top_p, 1e-9),
            min_p=default.min_p if self.min_p is None else self.min_p,
            seed=None if seed == -1 else seed % 2**64,  # OpenAI's are signed
            stop=tuple(s for s in _stops(self.stop) if s),
            logit_bias=bias,
            banned_tokens=banned,
            logprobs=logprobs,
            top_logprobs=top_logprobs,
            drawn_logprobs=drawn_logprobs,
            bad_words=word_tokens(self.bad_words or (), encode),
            **{**penalties, **self._given()},
        )

    def _given(self) -> dict[str, Any]:
        """Return the fields of the request that the server's settings know nothing of."""
        given = {
            "top_a": self.top_a,
            "typical_p": self.typical_p,
            "eta_cutoff": self.eta_cutoff,
            "epsilon_cutoff": self.epsilon_cutoff,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repeat_penalty,
            "repetition_window": self.repeat_last_n,
            "dry_multiplier": self.dry_multiplier,
            # Below 1 llama-server turns the step off.
            "dry_base": None if self.dry_base is None else max(self.dry_base, 1.0),
            "dry_allowed_length": self.dry_allowed_length,
            "dry_penalty_last_n": self.dry_penalty_last_n,
            "dry_sequence_breakers": _tuple(self.dry_sequence_breakers),
            "xtc_probability": self.xtc_probability,
            "xtc_threshold": self.xtc_threshold,
            "dynatemp_range": self.dynatemp_range,
            "dynatemp_exponent": self.dynatemp_exponent,
            "mirostat": self.mirostat,
            "mirostat_tau": self.mirostat_tau,
            "mirostat_eta": self.mirostat_eta,
            "samplers": _steps(self.samplers),
            "stop_token_ids": _tuple(self.stop_token_ids),
            "allowed_tokens": _tuple(self.allowed_token_ids),
            "min_tokens": self.min_tokens,
            "ignore_eos": self.ignore_eos,
        }
        return {name: value for name, value in given.items() if value is not None}


def _tuple(items: list[Any] | None) -> tuple[Any, ...] | None:
    return None if items is None else tuple(items)


def _stops(stop: str | list[str] | None) -> list[str]:
    if stop is None:
        return []
    return [stop] if isinstance(stop, str) else stop


def _steps(samplers: list[str] | str | None) -> tuple[str, ...] | None:
    """Names of steps; a string is llama-server's form with one letter for each."""
    if samplers is None:
        return None
    if isinstance(samplers, str):
        samplers = [_STEP_LETTERS.get(letter, letter) for letter in samplers]
    names = [_STEP_ALIASES.get(s, s) for s in samplers]
    unknown = [n for n in names if n not in STEP_NAMES and n not in _MISSING_STEPS]
    if unknown:
        steps = ", ".join(STEP_NAMES)
        raise RequestError(
            f"samplers names {unknown[0]!r}; the steps are {steps}", param="samplers"
        )
    return tuple(n for n in names if n in STEP_NAMES)


def _biases(
    biases: Mapping[str, Bias] | list[BiasPair] | None, tokenizer: Tokenizer
) -> tuple[dict[int, float], tuple[int, ...]]:
    """Values to add to logits, and banned tokens (a bias of ``false``)."""
    pairs = biases.items() if isinstance(biases, Mapping) else (biases or [])
    added: dict[int, float] = {}
    banned: list[int] = []
    for key, bias in pairs:
        for token in _tokens(key, tokenizer):
            if bias is False:
                banned.append(token)
            elif isinstance(bias, (int, float)) and bias is not True and abs(bias) <= 100:
                added[token] = max(-100.0, min(added.get(token, 0.0) + float(bias), 100.0))
            else:
                raise RequestError(
                    f"logit_bias of {key!r} is {bias!r}; it must be a number from -100 to 100, or false",
                    param="logit_bias",
                )
    return added, tuple(banned)


def _tokens(key: Any, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens of a bias: an id, or all tokens of a text."""
    if isinstance(key, int) and not isinstance(key, bool):
        return [key]
    if not isinstance(key, str):
        raise RequestError(
            f"logit_bias has the key {key!r}, which is neither a token id nor a text",
            param="logit_bias",
        )
    if key.isascii() and key.isdecimal() and len(key) < 12:
        return [int(key)]
    return read_text(key, tokenizer, add_special=False)
