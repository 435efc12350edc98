"""The table of sampling parameters: a record with one field for each.

A field says its type, default and range, what it does, and its names in other programs. The fields
of requests, the command line's options, the server's settings, Ollama's options and the table in
docs/sampling.md are made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from oxibonsai.errors import RequestError
from oxibonsai.sampling.checks import (
    LAST_TOKENS,
    MOST,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
    STEP_NAMES,
    STEPS,
    STRINGS,
    TOKEN_IDS,
    WORDS,
    Bounds,
    Check,
    OrNone,
    biases,
    flag,
    integer,
    number,
    refusal,
)

# Below it every difference of two logits decides, as at 0.
_SMALLEST_TEMPERATURE = 1e-20


@dataclass(frozen=True)
class Parameter:
    """A row of the table.

    Attributes:
        name: Of the field of :class:`SamplingParams`.
        default: Its default.
        check: What it may be.
        text: What it does.
        options: The command line's options.
        panel: Of the command line's help.
        request: Names in requests, llama-server's first; none: requests have no such field.
        asked: The range in requests, where it is wider than ``check``.
        server: The server's default, which is llama-server's, where ``--NAME`` sets another one.
        server_range: The range of that setting, where it is narrower.
        ollama: Whether Ollama's options have it, under the first of ``request``.
    """

    name: str
    default: Any
    check: Check
    text: str
    options: tuple[str, ...]
    panel: str
    request: tuple[str, ...]
    asked: Bounds | None
    server: float | None
    server_range: Bounds | None
    ollama: bool

    @property
    def bounds(self) -> Bounds:
        """The range of a parameter that is a number."""
        found = self.check.bounds if isinstance(self.check, OrNone) else self.check
        assert isinstance(found, Bounds), f"{self.name} is no number"
        return found

    @property
    def number(self) -> type[float] | type[int] | None:
        """``float`` or ``int`` of a parameter that is always a number; None of the others."""
        if not isinstance(self.check, Bounds):
            return None
        return int if self.check.integer else float

    def limits(self, allowed: Bounds | None = None) -> dict[str, float | None]:
        """Return a range, its own if none is given, as pydantic's ``Field`` takes it."""
        b = allowed or self.bounds
        return {"gt" if b.above else "ge": b.low, "le": b.high}


def _parameter(
    default: Any,
    check: Check,
    text: str,
    *,
    options: tuple[str, ...] = (),
    panel: str = "Further sampling",
    request: tuple[str, ...] | None = None,
    asked: Bounds | None = None,
    server: float | None = None,
    server_range: Bounds | None = None,
    ollama: bool = False,
) -> Any:
    """Return a field; names that are not given are the field's own."""
    row = (check, text, options, panel, request, asked, server, server_range, ollama)
    if isinstance(default, dict):  # no hash
        return field(default_factory=lambda: default, hash=False, metadata={"row": row})
    return field(default=default, metadata={"row": row})


@dataclass(frozen=True)
class SamplingParams:
    """Choice of tokens for one sequence. Neutral values do nothing; formulas: docs/sampling.md.

    Raises:
        RequestError: A value of the wrong type or out of range; the message names the field.
    """

    # fmt: off
    max_tokens: int | None = _parameter(
        None, OrNone(integer(1)), "New tokens at most; None: until the context is full.",
        options=("--max-tokens", "-n", "--n-predict", "--predict"), panel="Length", request=(),
    )
    temperature: float = _parameter(
        0.7, number(0.0), "0 always takes the most likely token.",
        options=("--temperature", "--temp"), panel="Sampling", ollama=True,
        server=0.8, server_range=number(0.0, 100.0),
    )
    top_k: int = _parameter(
        40, integer(0, MOST), "Keep the k most likely tokens; 0: all.",
        panel="Sampling", asked=integer(-1), server=40, ollama=True,
    )
    top_p: float = _parameter(
        0.95, POSITIVE_SHARE, "Keep the most likely tokens up to this total probability; 1: all.",
        panel="Sampling", asked=SHARE, server=0.95, ollama=True,
    )
    min_p: float = _parameter(
        0.0, SHARE, "Keep tokens with this share of the top probability; 0: all.",
        panel="Sampling", server=0.05, ollama=True,
    )
    repetition_penalty: float = _parameter(
        1.0, POSITIVE, "Against tokens seen before; 1: none.",
        options=("--repetition-penalty", "--repeat-penalty"), panel="Sampling",
        request=("repeat_penalty", "repetition_penalty"), server=1.0, ollama=True,
    )
    repetition_window: int = _parameter(
        64, LAST_TOKENS, "Last tokens it looks at; -1: all.",
        options=("--repetition-window", "--repeat-last-n"), panel="Sampling",
        request=("repeat_last_n",), server=64, ollama=True,
    )
    seed: int | None = _parameter(
        None, OrNone(integer(0, 2**64 - 1)), "The same seed gives the same text. Default: random.",
        options=("--seed", "-s"), panel="Sampling",
    )
    ignore_eos: bool = _parameter(False, flag, "Go on past the end of the text.", panel="Length")
    min_tokens: int = _parameter(
        0, integer(0), "No end of the text before so many tokens.", panel="Length"
    )
    stop: tuple[str, ...] = _parameter(
        (), STRINGS, "End before this text.",
        options=("--stop", "--reverse-prompt", "-r"), panel="Length",
    )
    stop_token_ids: tuple[int, ...] = _parameter(
        (), TOKEN_IDS, "End at this token.", options=("--stop-token-id",), panel="Length"
    )
    samplers: tuple[str, ...] = _parameter(
        STEP_NAMES, STEPS, "Which steps run, in which order."
    )
    logit_bias: Mapping[int, float] = _parameter(
        {}, biases, "Make a token more or less likely.",
        options=("--logit-bias", "-l"), panel="Sampling",
    )
    banned_tokens: tuple[int, ...] = _parameter(
        (), TOKEN_IDS, "Never choose this token.", options=("--ban-token",), request=()
    )
    allowed_tokens: tuple[int, ...] = _parameter(
        (), TOKEN_IDS, "Choose none but these; the end of the text is one.",
        options=("--allow-token",), request=("allowed_token_ids",),
    )
    bad_words: tuple[str | tuple[int, ...], ...] = _parameter(
        (), WORDS, "Never write this, with a space before it or without.", options=("--bad-word",)
    )
    presence_penalty: float = _parameter(
        0.0, number(-2.0, 2.0), "Against generated tokens, once each; 0: none.",
        panel="Sampling", server=0.0, ollama=True,
    )
    frequency_penalty: float = _parameter(
        0.0, number(-2.0, 2.0), "Against generated tokens, each time; 0: none.",
        panel="Sampling", server=0.0, ollama=True,
    )
    dry_multiplier: float = _parameter(
        0.0, number(0.0), "Against repeated passages (DRY); 0: none."
    )
    dry_base: float = _parameter(
        1.75, number(1.0), "Growth of DRY with the length of the passage.", asked=number(0.0)
    )
    dry_allowed_length: int = _parameter(
        2, integer(1, MOST), "Passages shorter than this are free."
    )
    dry_penalty_last_n: int = _parameter(
        -1, LAST_TOKENS, "Last tokens that DRY searches; -1: all, 0: none."
    )
    dry_sequence_breakers: tuple[str, ...] = _parameter(
        ("\n", ":", '"', "*"), STRINGS,
        "A text that ends a passage for DRY, in place of the default ones; none: no such text.",
        options=("--dry-sequence-breaker",),
    )
    xtc_probability: float = _parameter(
        0.0, SHARE, "Chance to drop the top choices (XTC); 0: never."
    )
    xtc_threshold: float = _parameter(0.1, SHARE, "Probability of a top choice.")
    typical_p: float = _parameter(
        1.0, POSITIVE_SHARE, "Keep the most typical tokens up to this total probability; 1: all.",
        options=("--typical-p", "--typical"), request=("typical_p", "typ_p"), ollama=True,
    )
    top_a: float = _parameter(
        0.0, SHARE, "Keep tokens with this share of the squared top probability; 0: all."
    )
    eta_cutoff: float = _parameter(
        0.0, SHARE, "Drop tokens below a cutoff that follows the entropy; 0: none."
    )
    epsilon_cutoff: float = _parameter(0.0, SHARE, "Drop tokens below this probability; 0: none.")
    dynatemp_range: float = _parameter(
        0.0, number(0.0), "The temperature follows the entropy this far; 0: fixed."
    )
    dynatemp_exponent: float = _parameter(
        1.0, POSITIVE, "Shape of the dynamic temperature.",
        options=("--dynatemp-exponent", "--dynatemp-exp"),
    )
    mirostat: int = _parameter(
        0, integer(0, 2),
        "1 or 2: control the surprisal; top-k, min-p and top-p are not used. 0: off.", ollama=True,
    )
    mirostat_tau: float = _parameter(
        5.0, number(0.0), "Target surprisal of mirostat, in bits.",
        options=("--mirostat-tau", "--mirostat-ent"), ollama=True,
    )
    mirostat_eta: float = _parameter(
        0.1, SHARE, "How fast mirostat corrects.",
        options=("--mirostat-eta", "--mirostat-lr"), ollama=True,
    )
    logprobs: bool = _parameter(False, flag, "Report the probability of each token.", request=())
    top_logprobs: int = _parameter(
        0, integer(0, 20), "With --logprobs: so many of the most likely tokens too.", request=()
    )
    drawn_logprobs: bool = _parameter(
        False, flag, "With --logprobs: of the distribution that tokens are drawn from.", request=()
    )
    # fmt: on

    def __post_init__(self) -> None:
        for name, row in PARAMETERS.items():
            # Frozen: the checked value, in its plain type, takes the place of the given one.
            object.__setattr__(self, name, row.check(name, getattr(self, name)))
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise refusal("min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < _SMALLEST_TEMPERATURE


def _table() -> dict[str, Parameter]:
    table = {}
    for f in fields(SamplingParams):
        check, text, options, panel, request, asked, server, server_range, ollama = f.metadata[
            "row"
        ]
        default = f.default_factory() if callable(f.default_factory) else f.default
        table[f.name] = Parameter(
            f.name, default, check, text, options or (f"--{f.name.replace('_', '-')}",), panel,
            (f.name,) if request is None else request, asked, server, server_range, ollama,
        )  # fmt: skip
    return table


PARAMETERS = _table()
_ATTRIBUTES = "".join(f"        {p.name}: {p.text}\n" for p in PARAMETERS.values())
# For help(); a reader of this file has the rows themselves.
SamplingParams.__doc__ = (SamplingParams.__doc__ or "").replace(
    "    Raises:", f"    Attributes:\n{_ATTRIBUTES}\n    Raises:"
)
GREEDY = SamplingParams(temperature=0.0)


PRESETS = MappingProxyType(
    {
        "greedy": GREEDY,
        "balanced": SamplingParams(temperature=0.7, top_k=40, top_p=0.9),
        "creative": SamplingParams(temperature=1.0, top_k=100, top_p=0.95),
        "code": SamplingParams(temperature=0.2, top_k=10, top_p=0.8),
        "precise": SamplingParams(temperature=0.3, top_k=20, top_p=0.85),
        "conversational": SamplingParams(
            temperature=0.8, top_k=50, top_p=0.95, repetition_penalty=1.1
        ),
    }
)


def preset(name: str) -> SamplingParams:
    """Return the settings of a name.

    Raises:
        RequestError: No such preset.
    """
    if name not in PRESETS:
        raise RequestError(f"preset is {name!r}; it must be one of {', '.join(PRESETS)}")
    return PRESETS[name]
