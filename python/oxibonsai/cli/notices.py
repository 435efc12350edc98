"""Notices of commands to the user, on stderr beside the results."""

from __future__ import annotations

from collections.abc import Sequence

import rich_click as click


def warn(warnings: Sequence[str]) -> None:
    """One line each; a sentence in capitals is set in red."""
    for text in warnings:
        loud = any(word.isupper() and len(word) > 7 for word in text.split())
        click.secho(f"warning: {text}", err=True, fg="red" if loud else "yellow", bold=loud)
