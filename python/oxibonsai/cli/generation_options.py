"""Options of run and chat beyond sampling: speculation, endless texts, short memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rich_click as click

from oxibonsai.cli.options import Command, apply
from oxibonsai.engine import ContextShift, Engine
from oxibonsai.engine.sequence import Speculate
from oxibonsai.engine.speculation.choice import choose_speculation
from oxibonsai.errors import RequestError


def speculation_options(command: Command) -> Command:
    """Add the options that choose what proposes tokens."""
    return apply(
        [
            click.option(
                "--speculate",
                type=click.Choice(["off", "ngram", "mtp"]),
                default="off",
                show_default=True,
                help="Draft tokens, which the model then checks: ngram repeats what followed the last "
                "tokens earlier in the text, mtp uses the model's own layer for multi-token "
                "prediction. The text is the same.",
            ),
            click.option(
                "--draft-model",
                "-md",
                "--model-draft",
                metavar="MODEL",
                help="A smaller model with the same vocabulary that drafts tokens.",
            ),
            click.option(
                "--draft-length",
                "--draft-max",
                type=click.IntRange(1, 64),
                help="Tokens in a draft. Default: adapted to how many are accepted.",
            ),
            click.option(
                "--draft-threshold",
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
    kind: str = options.pop("speculate")
    draft: str | None = options.pop("draft_model")
    length: int | None = options.pop("draft_length")
    threshold: float = options.pop("draft_threshold")
    if kind != "off" and draft is not None:
        raise RequestError("give --speculate or --draft-model, not both")

    def make(engine: Engine) -> Speculate | None:
        return choose_speculation(engine, kind, draft, length=length, threshold=threshold)

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
