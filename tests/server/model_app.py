"""The application on the tiny model, without a server around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oxibonsai.server.app import create_app
from oxibonsai.server.engine_backend import EngineBackend
from oxibonsai.server.lifecycle import Phase
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings


def make_model_app(model: Path, folder: Path, **values: Any) -> Server:
    """A ready application; the caller closes its backend and store."""
    given = {"model": str(model), "alias": "tiny", "threads": 1, "parity": "off", "seed": 7}
    settings = load_settings({"state_dir": folder, **given, **values})
    backend = EngineBackend(settings)
    backend.load()
    app = create_app(settings, backend)
    app.lifecycle.advance(Phase.READY)
    return app


def close_model_app(app: Server) -> None:
    app.backend.close()
    app.store.close()
