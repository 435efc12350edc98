"""``oxibonsai serve``: a model behind HTTP."""

from __future__ import annotations

import sys
from typing import Any

import rich_click as click

from oxibonsai.server.setting_options import given, setting_options
from oxibonsai.server.setting_sources import load_settings


@click.command()
@setting_options
@click.option("--config", metavar="PATH", help="A TOML file with any of these settings.")
def serve(config: str | None, **options: Any) -> None:
    """Serve a model over HTTP until SIGTERM or Ctrl-C.

    Every option is also an environment variable (OXIBONSAI_ and its name) and a key of the TOML
    file; an option wins over the variable, the variable over the file.
    """
    settings = load_settings(given(options), config=config)
    from oxibonsai.server.engine_backend import EngineBackend
    from oxibonsai.server.launcher import serve as run_server

    sys.exit(run_server(settings, EngineBackend))
