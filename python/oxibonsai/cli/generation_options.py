"""Options of run and chat beyond sampling: speculation, endless texts, short memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rich_click as click

from oxibonsai.cli.options import Command, apply
from oxibonsai.engine import ContextShift, Engine
from oxibonsai.engine.sequence import Speculate
from oxibonsai.engine.speculation.methods import (
    AUTO,
    KINDS,
    NONE,
    choose_speculation,
    speculation_kinds,
)


def speculation_options(command: Command) -> Command:
    """Add the options that choose what proposes tokens."""
    return apply(
        [
            click.option(
                "--speculate",
                "--spec-type",
                metavar="KIND",
                default=AUTO,
                show_default=True,
                help=f"Draft tokens, which the model then checks, so that the text is the same. {AUTO}: "
                f"with the drafter of --draft-model, or else of the model's own file; {NONE}; or, "
                f"separated by commas: {', '.join(KINDS)}.",
            ),
            click.option(
                "--draft-model",
                "-md",
                "--model-draft",
                "--spec-draft-model",
                metavar="MODEL",
                help="A smaller model with the same vocabulary that drafts tokens, or a drafter made for "
                "the model (MTP, DFlash, DSpark, EAGLE-3).",
            ),
            click.option(
                "--draft-length",
                "--spec-draft-n-max",
                "--draft-max",
                type=click.IntRange(1, 64),
                help="Tokens in a draft. Default: as many as make the text fastest.",
            ),
            click.option(
                "--draft-min",
                "--spec-draft-n-min",
                type=click.IntRange(0, 64),
                default=0,
                show_default=True,
                help="Shorter drafts are dropped.",
            ),
            click.option(
                "--draft-threshold",
                "--spec-draft-p-min",
                "--draft-p-min",
                type=click.FloatRange(0.0, 1.0),
                default=0.5,
                show_default=True,
                help="A draft ends at the first token with a lower probability than this.",
            ),
        ],
        command,
    )


def take_speculation(options: dict[str, Any]) -> Callable[[Engine], Speculate | None]:
    """Take the options above out of a command's; what makes speculators for an engine."""
    kinds: str = options.pop("speculate")
    draft: str | None = options.pop("draft_model")
    length: int | None = options.pop("draft_length")
    least: int = options.pop("draft_min")
    threshold: float = options.pop("draft_threshold")
    speculation_kinds(kinds, draft)  # refuses a bad name before the model is loaded

    def make(engine: Engine) -> Speculate | None:
        chosen = choose_speculation(
            engine, kinds, draft, length=length, least=least, threshold=threshold
        )
        return chosen.make

    return make


def context_shift_options(command: Command) -> Command:
    """Add the options for a full context."""
    return apply(
        [
            click.option(
                "--context-shift/--no-context-shift",
                default=False,
                help="When the context is full, leave out its middle and go on (said on stderr).",
            ),
            click.option(
                "--keep",
                type=click.IntRange(0),
                default=ContextShift().sinks,
                show_default=True,
                help="First tokens that stay in a context shift.",
            ),
        ],
        command,
    )


def take_context_shift(options: dict[str, Any]) -> ContextShift | None:
    """Take the options above out of a command's."""
    shifts: bool = options.pop("context_shift")
    sinks: int = options.pop("keep")
    return ContextShift(sinks) if shifts else None
