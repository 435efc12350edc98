"""The sampling fields of a request, under the names of OpenAI, llama-server and vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, AliasChoices, ConfigDict, Field, create_model, model_validator

from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.known_models import Recommendation
from oxibonsai.sampling import PARAMETERS, PRESETS, Parameter, SamplingParams, preset
from oxibonsai.sampling.checks import STEP_NAMES
from oxibonsai.sampling.sampler import word_tokens
from oxibonsai.server.inputs import read_text
from oxibonsai.server.model_settings import ModelSettings
from oxibonsai.server.schemas.fields import Checked
from oxibonsai.tokenizer import Tokenizer

if TYPE_CHECKING:
    from oxibonsai.engine.sequence import Speculate
    from oxibonsai.engine.speculation.methods import MakeSpeculator


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


# Parameters that a request gives as plain numbers.
NUMBERS = tuple(p for p in PARAMETERS.values() if p.number is not None and p.request)


def _field(p: Parameter) -> tuple[Any, Any]:
    """Return the type and the field of a parameter that is a number."""
    spellings = AliasChoices(*p.request) if len(p.request) > 1 else None
    limits: dict[str, Any] = p.limits(p.asked)
    return p.number | None, Field(  # type: ignore[operator]
        None, validation_alias=spellings, description=p.text, **limits
    )


if TYPE_CHECKING:
    _NumberFields = Checked
else:
    _NumberFields = create_model(
        "NumberFields", __base__=Checked, **{p.request[0]: _field(p) for p in NUMBERS}
    )


class SamplingFields(_NumberFields):
    """Sampling parameters. A field that is null or missing has the server's default.

    Fields with a range of their own accept more than :class:`~oxibonsai.sampling.SamplingParams`,
    as llama-server does; -1 then means no limit.
    """

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    preset: str | None = Field(
        None, description=f"{', '.join(PRESETS)}: defaults in place of the server's."
    )
    top_n_sigma: float | None = Field(None, description="Only -1 and 0, its neutral values.")
    dry_sequence_breakers: list[_Text] | None = Field(None, max_length=64)
    samplers: list[_Text] | _Text | None = Field(None, max_length=32)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64, description="-1: random.")
    stop: _Text | Stops | None = None
    stop_token_ids: list[int] | None = Field(None, max_length=_MOST_BIASES)
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
        for name, other in (p.request for p in NUMBERS if len(p.request) == 2):
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
        engine: Engine,
        *,
        max_tokens: int | None,
        thinks: bool | None = None,
        logprobs: bool = False,
        top_logprobs: int = 0,
        drawn_logprobs: bool = False,
    ) -> SamplingParams:
        """Return the parameters; a missing field has the server's setting, else what suits the model.

        Args:
            settings: The server's settings.
            engine: Its model recommends parameters; its tokenizer reads texts in ``logit_bias`` and
                ``bad_words``: here the request holds nothing that others wait for.
            max_tokens: Limit of new tokens; None or -1: the server's default.
            thinks: Whether the model reasons before it answers; None: its own default.
            logprobs: Return log-probabilities.
            top_logprobs: Number of top tokens to return log-probabilities of.
            drawn_logprobs: Return those of the distribution after all sampling steps.

        Raises:
            RequestError: A value is invalid; the message names the field.
        """
        if self.top_n_sigma is not None and self.top_n_sigma > 0:
            raise RequestError("top_n_sigma is not supported: leave it out", param="top_n_sigma")
        limit = settings.n_predict if max_tokens in (None, -1) else max_tokens
        tokenizer = engine.tokenizer
        bias, banned = _biases(self.logit_bias, tokenizer)
        encode = partial(read_text, tokenizer=tokenizer, add_special=False, parse_special=False)
        seed = settings.seed if self.seed is None else self.seed
        return SamplingParams(
            max_tokens=None if limit in (None, -1) else limit,
            seed=None if seed == -1 else seed % 2**64,  # OpenAI's are signed
            stop=tuple(s for s in _stops(self.stop) if s),
            logit_bias=bias,
            banned_tokens=banned,
            logprobs=logprobs,
            top_logprobs=top_logprobs,
            drawn_logprobs=drawn_logprobs,
            bad_words=word_tokens(self.bad_words or (), encode),
            **self._numbers(
                default_sampling(settings, engine.recommended, thinks)
                if self.preset is None
                else vars(preset(self.preset))
            ),
            **self._given(),
        )

    def _numbers(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that are numbers: the request's own, else the defaults."""
        values: dict[str, Any] = {}
        for p in NUMBERS:
            value = getattr(self, p.request[0])
            if value is None:
                value = defaults.get(p.name)
            if value is not None:
                values[p.name] = _in_range(p, value)
        return values

    def _given(self) -> dict[str, Any]:
        """Return the other fields of the request that the server's settings know nothing of."""
        given = {
            "dry_sequence_breakers": _tuple(self.dry_sequence_breakers),
            "samplers": _steps(self.samplers),
            "stop_token_ids": _tuple(self.stop_token_ids),
            "allowed_tokens": _tuple(self.allowed_token_ids),
            "ignore_eos": self.ignore_eos,
        }
        return {name: value for name, value in given.items() if value is not None}


def default_sampling(
    settings: ModelSettings, recommended: Recommendation, thinks: bool | None
) -> dict[str, Any]:
    """Return the defaults of requests: the server's settings, else the model's, else llama-server's."""
    general = {p.name: p.server for p in NUMBERS if p.server is not None}
    given = {name: getattr(settings, name) for name in general}
    return {
        **general,
        **recommended.values(thinks),
        **{name: value for name, value in given.items() if value is not None},
    }


def _in_range(p: Parameter, value: float) -> float:
    """Return what requests may say below a parameter's range as the low end of the range."""
    if p.asked is None:
        return value
    return max(value, 1e-9 if p.bounds.above else p.bounds.low)  # a share keeps one token


def _tuple(items: list[Any] | None) -> tuple[Any, ...] | None:
    return None if items is None else tuple(items)


def _stops(stop: str | list[str] | None) -> list[str]:
    if stop is None:
        return []
    return [stop] if isinstance(stop, str) else stop


def _steps(samplers: list[str] | str | None) -> tuple[str, ...] | None:
    """Return the names of steps; a string is llama-server's form with one letter for each."""
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
    """Return values to add to logits, and banned tokens (a bias of ``false``)."""
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


class SpeculationFields(Checked):
    """How a request is drafted, where the server drafts; its text does not depend on it."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    draft_length: int | None = Field(
        None,
        ge=0,
        le=64,
        alias="speculative.n_max",
        description="Tokens of a draft; 0: no drafts.",
    )
    draft_threshold: float | None = Field(
        None,
        ge=0,
        le=1,
        alias="speculative.p_min",
        description="A draft ends at the first token with a lower probability than this.",
    )

    def speculate(self, make: MakeSpeculator | None) -> Speculate | None:
        """Return the speculator of this request; None for that of all requests.

        Args:
            make: That of the server; None if it has none.

        Raises:
            RequestError: The request wants drafts, and the server makes none.
        """
        if self.draft_length == 0:
            return _nothing
        if self.draft_length is None and self.draft_threshold is None:
            return None
        if make is None:
            raise RequestError(
                "speculative.n_max and speculative.p_min need a server with --speculate or "
                "--draft-model: leave them out"
            )
        return partial(make, length=self.draft_length, threshold=self.draft_threshold)


def _nothing() -> None:
    """Propose no tokens."""
