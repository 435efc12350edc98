"""Start and stop the server: gunicorn's arbiter with one worker that loads the model.

A worker that dies is replaced, and so is one that can't load a model which an earlier one has loaded.

Exit codes: 0 drained after SIGTERM; 1 failed; 2 wrong usage; 3 a model that can't be used;
130 interrupted; 143 aborted by a second SIGTERM while draining.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from gunicorn.app.base import BaseApplication

from oxibonsai.errors import (
    CapacityError,
    FormatError,
    OxiBonsaiError,
    RequestError,
    SourceError,
    UnsupportedError,
)
from oxibonsai.server.admin.logs import configure_logs, logs_to_terminal
from oxibonsai.server.allocator import return_freed_memory
from oxibonsai.server.backend import Backend
from oxibonsai.server.greeting import greeting
from oxibonsai.server.http.arbiter import (
    GunicornLogger,
    OneWorkerArbiter,
    Outcome,
    check_gunicorn,
)
from oxibonsai.server.http.handover import Handover
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.registry.registry import ModelRegistry
from oxibonsai.server.settings import Settings
from oxibonsai.server.state_lock import locked_state

if TYPE_CHECKING:
    from oxibonsai.server.server import Server


_log = logging.getLogger("oxibonsai.server")

MakeBackend: TypeAlias = Callable[[Settings, Lifecycle], Backend | ModelRegistry]
MakeApp: TypeAlias = "Callable[[Settings, Backend | ModelRegistry, Lifecycle], Server]"

# The arbiter kills a worker that exceeds its drain timeout by more than this.
_ARBITER_PATIENCE_SECONDS = 5
# A connection, and the files of the store that its request opens.
_LEAST_DESCRIPTORS = 8


def serve(settings: Settings, make_backend: MakeBackend, make_app: MakeApp | None = None) -> int:
    """Serve until a signal ends it.

    Args:
        settings: All settings.
        make_backend: Makes the models, or a single one, in the worker's process; its ``load`` runs in
            a thread.
        make_app: Makes the WSGI application; None: :func:`~oxibonsai.server.app.create_app`.

    Returns:
        The exit code.

    Raises:
        OxiBonsaiError: The installed version of gunicorn is not supported.
    """
    check_gunicorn()
    application = ServerApplication(settings, make_backend, make_app)
    arbiter = OneWorkerArbiter(application)
    try:
        # Taken before the fork: every worker inherits the locks.
        with locked_state(settings):
            arbiter.run()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except CapacityError as e:
        _log.error("%s", e)
        return 1
    else:
        code = 0
    if arbiter.interrupted:
        return 130
    if arbiter.forced:
        return 143
    return application.outcome.exit_code if code == Outcome.FAILED else code


class ServerApplication(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The server as a gunicorn application; ``self.app`` in :class:`DeadlineWorker`."""

    def __init__(
        self, settings: Settings, make_backend: MakeBackend, make_app: MakeApp | None
    ) -> None:
        self.settings = settings
        self.lifecycle = Lifecycle()
        self.outcome = Outcome()
        self.handover = Handover()
        self._addresses: list[str] = []
        self._server: Server | None = None
        self._make_backend = make_backend
        self._make_app = make_app
        configure_logs(settings.model_copy(update={"log_file": None}))
        super().__init__()

    def load_config(self) -> None:
        """Return gunicorn's settings; nothing is read from its environment variable or files."""
        s = self.settings
        values: dict[str, Any] = {
            "bind": [h if h.startswith("unix:") else f"{_bracketed(h)}:{s.port}" for h in s.host],
            "workers": 1,
            "worker_class": "oxibonsai.server.http.worker.DeadlineWorker",
            "threads": s.threads_for_http,
            "worker_connections": s.max_connections + s.threads_for_http + 1,
            "timeout": 120,
            "graceful_timeout": int(s.drain_timeout) + _ARBITER_PATIENCE_SECONDS,
            "keepalive": s.keep_alive,
            # All servers of a user would share one control socket.
            "control_socket_disable": True,
            "proc_name": "oxibonsai",
            "loglevel": "debug" if s.verbose else "info",
            "logger_class": GunicornLogger,
            "pre_fork": self._pre_fork,
            "child_exit": self._child_exit,
            "worker_exit": self._worker_exit,
        }
        for name, value in values.items():
            self.cfg.set(name, value)

    def load(self) -> Server:
        """Make the application, in the worker's process; the model loads in the background."""
        configure_logs(self.settings)
        return_freed_memory()
        # Objects created at startup live on: collecting garbage now only costs time.
        gc.disable()
        try:
            self._backend = backend = self._make_backend(self.settings, self.lifecycle)
            from oxibonsai.server.app import create_app
            from oxibonsai.server.stores.database_lock import DatabaseLock
            from oxibonsai.server.stores.store import start_housekeeping

            url = self.settings.store_url
            if url.startswith("postgresql") and not self.settings.shared_store:
                port = self.settings.port
                self._database_lock = DatabaseLock(url, port, self.lifecycle.fail)
            app = (self._make_app or create_app)(self.settings, backend, self.lifecycle)
            self._server = app
            start_housekeeping(app.store, self.settings.retention_days * 86400)
            _check_descriptors()
        except Exception as e:
            self._give_up(e)
        # Only now: where two threads import modules that need each other, one of them meets a module
        # that is not complete.
        threading.Thread(target=self._load_model, name="model-loader", daemon=True).start()
        return app

    def _load_model(self) -> None:
        try:
            self._backend.load()
        except BaseException as e:
            self._give_up(e)
        self.outcome.is_ready = True
        self.lifecycle.advance(Phase.READY)
        gc.freeze()
        gc.enable()
        if logs_to_terminal(self.settings):
            print(greeting(self.settings, self._backend, self._addresses), file=sys.stderr)
            return
        names = [m.id for m in self._backend.models()]
        _log.info("ready", extra={"models": names, "addresses": self._addresses})

    def _give_up(self, error: BaseException) -> NoReturn:
        """End the worker; if a model has been served before, another one tries again after a while.

        Its file may just be written, or its disk be away for a moment.
        """
        self.end_tools()
        known = isinstance(error, (OxiBonsaiError, OSError))
        _log.error("%s", error or type(error).__name__, exc_info=None if known else error)
        if self.outcome.was_ready:
            seconds = self.outcome.seconds_to_retry()
            _log.warning("The model was loaded before: the next try is in %d s.", seconds)
            time.sleep(seconds)
            os._exit(1)
        files = (FormatError, UnsupportedError, SourceError)
        code = 2 if isinstance(error, RequestError) else 3 if isinstance(error, files) else 1
        self.outcome.exit_code = code
        os._exit(Outcome.FAILED)

    def end_tools(self) -> None:
        """End the programs that serve tools, in the worker's process."""
        if self._server is not None and self._server.mcp is not None:
            self._server.mcp.close()

    def _pre_fork(self, arbiter: OneWorkerArbiter, worker: Any) -> None:
        self.outcome.is_ready = False
        self._addresses = [str(listener) for listener in arbiter.LISTENERS]

    def _child_exit(self, arbiter: OneWorkerArbiter, worker: Any) -> None:
        if not arbiter.ending:
            self.lifecycle.circuits.worker_died()
        if not (self.outcome.is_ready or self.outcome.was_ready or arbiter.ending):
            arbiter.give_up("The worker died while loading the model.")

    def _worker_exit(self, arbiter: OneWorkerArbiter, worker: Any) -> None:
        if worker.pid != os.getpid():
            return
        try:
            self.end_tools()
            self._backend.close()
        finally:
            logging.shutdown()
            # Threads that wait for a disconnected client would keep the interpreter from exiting.
            os._exit(0)


def _check_descriptors() -> None:
    """Raise CapacityError where too few file descriptors are left to answer anybody."""
    free: list[int] = []
    try:
        while len(free) < _LEAST_DESCRIPTORS:
            free.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as e:
        raise CapacityError(
            f"only {len(free)} file descriptors are left for connections and the store, which need "
            f"at least {_LEAST_DESCRIPTORS}: raise the limit (ulimit -n)"
        ) from e
    finally:
        for descriptor in free:
            os.close(descriptor)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
