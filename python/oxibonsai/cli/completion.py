"""``oxibonsai completion``: what lets a shell complete commands, options and files."""

from __future__ import annotations

import rich_click as click
from click.shell_completion import get_completion_class

from oxibonsai.cli.foreign_options import Command
from oxibonsai.errors import UnsupportedError

_SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.RichContext, /, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: eval "$(oxibonsai completion bash)", in ~/.bashrc say.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UnsupportedError(f"there is no completion for {shell}")
    click.echo(kind(ctx.find_root().command, {}, "oxibonsai", "_OXIBONSAI_COMPLETE").source())
