"""The application object: what the routes of all APIs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask

from oxibonsai.server.access import KeyRing
from oxibonsai.server.backend import Backend
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.settings import Settings
from oxibonsai.server.stores import Store

if TYPE_CHECKING:
    from oxibonsai.server.generations import Generations
    from oxibonsai.server.studio import Studio


class Server(Flask):
    """A Flask application with the model, the store and the settings; made by ``create_app``.

    Attributes:
        settings: All settings.
        backend: The model.
        lifecycle: The phase between start and end.
        keys: The accepted API keys; read again at SIGHUP.
        store: Files, responses, assistants, threads, messages and runs.
        generations: Submits requests to the engines.
        studio: Draws pictures.
    """

    settings: Settings
    backend: Backend
    lifecycle: Lifecycle
    keys: KeyRing
    store: Store
    generations: Generations
    studio: Studio
