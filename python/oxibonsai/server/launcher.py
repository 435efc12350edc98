"""Start and stop the server, on gunicorn where the system has fork, else on waitress."""

from __future__ import annotations

from oxibonsai.errors import UnsupportedError
from oxibonsai.files.platform import HAS_FORK
from oxibonsai.server.serving_process import MakeApp, MakeBackend, ServingProcess
from oxibonsai.server.settings import Settings


def serve(settings: Settings, make_backend: MakeBackend, make_app: MakeApp | None = None) -> int:
    """Serve until a signal ends it.

    Args:
        settings: All settings.
        make_backend: Makes the models, or a single one, in the process that serves; its ``load`` runs
            in a thread.
        make_app: Makes the WSGI application; None: :func:`~oxibonsai.server.app.create_app`.

    Returns:
        The exit code.

    Raises:
        OxiBonsaiError: The HTTP server is not installed, or its version is not supported.
    """
    process = ServingProcess(settings, make_backend, make_app)
    if settings.http_server == "waitress":
        from oxibonsai.server.waitress_launcher import serve_with_waitress

        return serve_with_waitress(process)
    if HAS_FORK:
        from oxibonsai.server.gunicorn_launcher import serve_with_gunicorn

        return serve_with_gunicorn(process)
    raise UnsupportedError("gunicorn needs fork, which this operating system lacks")
