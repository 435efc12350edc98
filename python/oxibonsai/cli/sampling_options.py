"""One option for each field of SamplingParams; llama.cpp's names are accepted beside ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import rich_click as click

from oxibonsai.errors import RequestError
from oxibonsai.sampling import PRESETS, SamplingParams, preset

Command = Callable[..., Any]
SAMPLING_FIELDS = tuple(SamplingParams.__dataclass_fields__)

_DEFAULT_TOKENS = 512

# Field, further names, type of the value, what it means. Shown in this order.
_VALUES: tuple[tuple[str, tuple[str, ...], type, str], ...] = (
    ("min_tokens", (), int, "No end of the text before so many tokens."),
    ("temperature", ("--temp",), float, "0 always takes the most likely token."),
    ("top_k", (), int, "Keep the k most likely tokens; 0: all."),
    ("top_p", (), float, "Keep the most likely tokens up to this total probability; 1: all."),
    ("min_p", (), float, "Keep tokens with this share of the top probability; 0: all."),
    ("repetition_penalty", ("--repeat-penalty",), float, "Against tokens seen before; 1: none."),
    ("repetition_window", ("--repeat-last-n",), int, "Last tokens it looks at; -1: all."),
    ("presence_penalty", (), float, "Against generated tokens, once each; 0: none."),
    ("frequency_penalty", (), float, "Against generated tokens, each time; 0: none."),
    ("dry_multiplier", (), float, "Against repeated passages (DRY); 0: none."),
    ("dry_base", (), float, "Growth of DRY with the length of the passage."),
    ("dry_allowed_length", (), int, "Passages shorter than this are free."),
    ("dry_penalty_last_n", (), int, "Last tokens that DRY searches; -1: all, 0: none."),
    ("xtc_probability", (), float, "Chance to drop the top choices (XTC); 0: never."),
    ("xtc_threshold", (), float, "Probability of a top choice."),
    (
        "typical_p",
        ("--typical",),
        float,
        "Keep the most typical tokens up to this total probability; 1: all.",
    ),
    ("top_a", (), float, "Keep tokens with this share of the squared top probability; 0: all."),
    ("eta_cutoff", (), float, "Drop tokens below a cutoff that follows the entropy; 0: none."),
    ("epsilon_cutoff", (), float, "Drop tokens below this probability; 0: none."),
    ("dynatemp_range", (), float, "The temperature follows the entropy this far; 0: fixed."),
    ("dynatemp_exponent", ("--dynatemp-exp",), float, "Shape of the dynamic temperature."),
    (
        "mirostat",
        (),
        int,
        "1 or 2: control the surprisal; top-k, min-p and top-p are not used. 0: off.",
    ),
    ("mirostat_tau", ("--mirostat-ent",), float, "Target surprisal of mirostat, in bits."),
    ("mirostat_eta", ("--mirostat-lr",), float, "How fast mirostat corrects."),
    ("seed", ("-s",), int, "The same seed gives the same text. Default: random."),
    ("top_logprobs", (), int, "With --logprobs: so many of the most likely tokens too."),
)

_LISTS: tuple[tuple[str, tuple[str, ...], type, str], ...] = (
    ("stop", ("--stop", "--reverse-prompt", "-r"), str, "End before this text."),
    ("stop_token_ids", ("--stop-token-id",), int, "End at this token."),
    ("banned_tokens", ("--ban-token",), int, "Never choose this token."),
    ("allowed_tokens", ("--allow-token",), int, "Choose none but these; the end of the text is one."),
    ("bad_words", ("--bad-word",), str, "Never write this, with a space before it or without."),
    (
        "dry_sequence_breakers", ("--dry-sequence-breaker",), str,
        "A text that ends a passage for DRY, in place of the default ones; none: no such text.",
    ),
)  # fmt: skip

_FLAGS = (
    ("ignore_eos", "Go on past the end of the text."),
    ("logprobs", "Report the probability of each token."),
    ("drawn_logprobs", "With --logprobs: of the distribution that tokens are drawn from."),
)


def _option(field: str, names: tuple[str, ...], **settings: Any) -> Command:
    return click.option(f"--{field.replace('_', '-')}", *names, field, **settings)


def _limit(_: click.Context, __: click.Parameter, value: int) -> int | None:
    """llama.cpp's -1 and -2 are no limit but the context."""
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


def sampling_options(command: Command) -> Command:
    """How tokens are chosen."""
    options = [
        click.option(
            "--max-tokens", "-n", "--n-predict", "--predict", "max_tokens",
            type=click.IntRange(-2), default=_DEFAULT_TOKENS, show_default=True,
            callback=_limit, help="New tokens at most; -1: until the text ends or the context is full.",
        ),
        click.option(
            "--preset", type=click.Choice(list(PRESETS)),
            help="Settings to start from; other options change single ones.",
        ),
    ]  # fmt: skip
    defaults = SamplingParams()
    for field, names, kind, text in _VALUES:
        default = getattr(defaults, field)
        shown = text if default is None else f"{text} Default: {default}."
        options.append(_option(field, names, type=kind, help=shown))
    for field, names, kind, text in _LISTS:
        shown = f"{text} Can be given more than once."
        options.append(click.option(*names, field, type=kind, multiple=True, help=shown))
    for field, text in _FLAGS:
        options.append(_option(field, (), is_flag=True, help=text))
    options += [
        click.option(
            "--logit-bias", "-l", "logit_bias", metavar="ID+BIAS", multiple=True, callback=_bias,
            help="Make a token more or less likely, as in 15043+1 or 15043-2.5.",
        ),
        click.option(
            "--samplers", metavar="A;B;C", callback=_names,
            help=f"Which steps run, in which order. Default: {';'.join(defaults.samplers)}",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def split_sampling(options: dict[str, Any]) -> SamplingParams:
    """Take the sampling options out of a command's options.

    Raises:
        RequestError: A value out of range; the message names the field.
    """
    name = options.pop("preset")
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
    return replace(SamplingParams() if name is None else preset(name), **given)
