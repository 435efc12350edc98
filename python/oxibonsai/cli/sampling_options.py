"""One option for each field of SamplingParams; llama.cpp's names are accepted beside ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import rich_click as click

from oxibonsai.cli.prompt import unescaped
from oxibonsai.errors import RequestError
from oxibonsai.known_models import Recommendation
from oxibonsai.sampling import PARAMETERS, PRESETS, Parameter, SamplingParams, preset
from oxibonsai.sampling.checks import STEP_NAMES, TOKEN_IDS, Each, flag

Command = Callable[..., Any]
SAMPLING_FIELDS = tuple(PARAMETERS)
# Parameters whose options are spelled out below.
_OWN = ("max_tokens", "logit_bias", "samplers")

# Texts in which llama.cpp reads escapes.
_WITH_ESCAPES = ("stop", "dry_sequence_breakers")
# llama.cpp's letters for steps, of those that there are here.
_LETTERS = {
    "d": "dry", "k": "top_k", "y": "typ_p", "p": "top_p", "m": "min_p", "t": "temperature", "x": "xtc",
    "e": "penalties",
}  # fmt: skip
_DEFAULT_TOKENS = 512


def _limit(_: click.Context, __: click.Parameter, value: int) -> int | None:
    """Return the limit; None for llama.cpp's -1 and -2, which mean the context's."""
    if value == 0:
        raise click.BadParameter("0 tokens are no text; -1 sets no limit")
    return value if value > 0 else None


def _bias(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[int, float]:
    biases = {}
    for text in values:
        parts = re.fullmatch(r"(\d+)([+-]\d*\.?\d+)", text)
        if parts is None:
            raise click.BadParameter(f"{text!r} is not a token id and a bias, as in 15043-2.5")
        biases[int(parts[1])] = float(parts[2])
    return biases


def _names(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return tuple(name.strip() for name in re.split("[;,]", value) if name.strip())


def _letters(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    unknown = sorted(set(value) - set(_LETTERS))
    if unknown:
        known = ", ".join(f"{letter} {name}" for letter, name in _LETTERS.items())
        raise click.BadParameter(f"{unknown[0]!r} is no step: {known}")
    return tuple(_LETTERS[letter] for letter in value)


def _option(p: Parameter) -> Command:
    if p.check is flag:
        return click.option(*p.options, p.name, is_flag=True, help=p.text)
    if isinstance(p.check, Each):
        kind = int if p.check is TOKEN_IDS else str
        text = f"{p.text} Can be given more than once."
        callback = unescaped if p.name in _WITH_ESCAPES else None
        return click.option(
            *p.options, p.name, type=kind, multiple=True, callback=callback, help=text
        )
    default = f"Default: {p.default}."
    if p.server is not None:
        default = f"Default: what is recommended for the model, else {p.default}."
    text = p.text if p.default is None else f"{p.text} {default}"
    return click.option(*p.options, p.name, type=int if p.bounds.integer else float, help=text)


def sampling_options(command: Command) -> Command:
    """Add the options that say how tokens are chosen."""
    options = [
        click.option(
            *PARAMETERS["max_tokens"].options, "max_tokens", type=click.IntRange(-2),
            default=_DEFAULT_TOKENS, show_default=True,
            callback=_limit, help="New tokens at most; -1: until the text ends or the context is full.",
        ),
        click.option(
            "--preset", type=click.Choice(list(PRESETS)),
            help="Settings to start from; other options change single ones.",
        ),
    ]  # fmt: skip
    options += [_option(p) for p in PARAMETERS.values() if p.name not in _OWN]
    options += [
        click.option(
            "--logit-bias", "-l", "logit_bias", metavar="ID+BIAS", multiple=True, callback=_bias,
            help="Make a token more or less likely, as in 15043+1 or 15043-2.5.",
        ),
        click.option(
            "--samplers", metavar="A;B;C", callback=_names,
            help=f"Which steps run, in which order. Default: {';'.join(STEP_NAMES)}",
        ),
        click.option(
            "--sampler-seq", "--sampling-seq", "sampler_letters", metavar="LETTERS", callback=_letters,
            hidden=True, help="The same by llama.cpp's letters.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@dataclass(frozen=True)
class GivenSampling:
    """Sampling as the command line has it.

    Attributes:
        given: By fields of :class:`SamplingParams`; a preset's are all of them.
    """

    given: Mapping[str, Any]

    def params(self, recommended: Recommendation, thinks: bool | None) -> SamplingParams:
        """Return complete parameters; what is not given is as recommended for the model.

        Args:
            recommended: For the model.
            thinks: Whether the model reasons before it answers; None: its own default.
        """
        return recommended.params(thinks, self.given)

    @property
    def only_length(self) -> bool:
        """Whether nothing is given but the most tokens."""
        return self.given.keys() <= {"max_tokens"}


def split_sampling(options: dict[str, Any]) -> GivenSampling:
    """Take the sampling options out of a command's options.

    Raises:
        RequestError: A value out of range; the message names the field.
    """
    name, letters = options.pop("preset"), options.pop("sampler_letters")
    if letters is not None:
        if options["samplers"] is not None:
            raise RequestError("--samplers and --sampler-seq exclude each other")
        options["samplers"] = letters
    fields = {field: options.pop(field) for field in SAMPLING_FIELDS}
    # Options that weren't given leave the preset as it is.
    given = {k: v for k, v in fields.items() if not (v is None or v is False or v in ((), {}))}
    if given.get("seed") == -1:  # llama.cpp's way to ask for a random one
        del given["seed"]
    if given.get("dry_sequence_breakers") == ("none",):
        given["dry_sequence_breakers"] = ()
    for field in ("top_logprobs", "drawn_logprobs"):
        if field in given and "logprobs" not in given:
            raise RequestError(f"--{field.replace('_', '-')} needs --logprobs")
    params = replace(SamplingParams() if name is None else preset(name), **given)  # checks them
    return GivenSampling(given if name is None else vars(params))
