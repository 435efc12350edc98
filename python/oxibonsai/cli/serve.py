"""``oxibonsai serve``: a model behind HTTP."""

from __future__ import annotations

import sys
from typing import Any

import rich_click as click

from oxibonsai.cli.llama_cpp_names import flash_attention_option
from oxibonsai.cli.model_choice import complete_model, hub_option, named_model
from oxibonsai.errors import RequestError
from oxibonsai.server.setting_options import given, setting_options
from oxibonsai.server.setting_sources import load_settings


@click.command()
@click.argument("named", metavar="[MODEL]", required=False, shell_complete=complete_model)
@setting_options
@hub_option
@flash_attention_option
@click.option(
    "--config",
    metavar="PATH",
    type=click.Path(dir_okay=False),
    help="A TOML file with any of these settings.",
)
@click.pass_context
def serve(ctx: click.RichContext, /, named: str | None, config: str | None, **options: Any) -> None:
    """Serve a model over HTTP until SIGTERM or Ctrl-C.

    Every option can also be set by an environment variable (OXIBONSAI_ and its name) or a key of
    the TOML file. An option takes precedence over its variable, the variable over the file.
    """
    model = options["model"] or named_model(ctx)
    if named is not None and model not in (None, named):
        raise RequestError(f"two models are named: {named} and {model}")
    options["model"] = named or model
    settings = load_settings(given(options), config=config)
    from oxibonsai.server.engine_backend import served_models
    from oxibonsai.server.launcher import serve as run_server

    sys.exit(run_server(settings, served_models))
