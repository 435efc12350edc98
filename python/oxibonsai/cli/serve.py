"""``oxibonsai serve``: a model behind HTTP."""

from __future__ import annotations

import os
import sys
from typing import Any

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.kv_type_options import check_value_type, value_type_option
from oxibonsai.cli.model_choice import complete_model, hub_options, named_model
from oxibonsai.cli.ollama_variables import ollama_settings
from oxibonsai.errors import RequestError
from oxibonsai.server.setting_options import given, setting_options
from oxibonsai.server.setting_sources import load_settings


@click.command(cls=Command)
@click.argument("named", metavar="[MODEL]", required=False, shell_complete=complete_model)
@setting_options
@hub_options
@click.option(
    "--config",
    metavar="PATH",
    type=click.Path(dir_okay=False),
    help="A TOML file with any of these settings.",
)
@value_type_option
@click.pass_context
def serve(ctx: click.RichContext, /, named: str | None, config: str | None, **options: Any) -> None:
    """Serve a model over HTTP until SIGTERM or Ctrl-C.

    Every option can also be set by an environment variable (OXIBONSAI_ and its name) or a key of
    the TOML file. An option takes precedence over its variable, the variable over the file, and
    all of them over the variables of Ollama (OLLAMA_HOST and others).
    """
    model = options["model"] or named_model(ctx)
    if named is not None and model not in (None, named):
        raise RequestError(f"two models are named: {named} and {model}")
    options["model"] = named or model
    check_value_type(ctx, options["kv_type"])
    fallbacks, origins, notices = ollama_settings(os.environ)
    settings = load_settings(given(options), config, fallbacks, origins)
    if origins:
        names = ", ".join(dict.fromkeys(origins.values()))
        click.echo(f"oxibonsai: read {names}; options and OXIBONSAI_ variables go before", err=True)
    for notice in notices:
        click.echo(f"oxibonsai: {notice}", err=True)
    from oxibonsai.server.engine_backend import served_models
    from oxibonsai.server.launcher import serve as run_server

    sys.exit(run_server(settings, served_models))
