"""The process that serves: makes the application, and loads its models while it answers already.

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
from typing import TYPE_CHECKING, NoReturn, TypeAlias

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
from oxibonsai.server.http.outcome import Outcome
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.registry.registry import ModelRegistry
from oxibonsai.server.settings import Settings

if TYPE_CHECKING:
    from oxibonsai.server.server import Server


_log = logging.getLogger("oxibonsai.server")

MakeBackend: TypeAlias = Callable[[Settings, Lifecycle], Backend | ModelRegistry]
MakeApp: TypeAlias = "Callable[[Settings, Backend | ModelRegistry, Lifecycle], Server]"

# A connection, and the files of the store that its request opens.
_LEAST_DESCRIPTORS = 8


class ServingProcess:
    """The application and what it is made of.

    Args:
        settings: All settings.
        make_backend: Makes the models, or a single one, in this process; its ``load`` runs in a thread.
        make_app: Makes the WSGI application; None: :func:`~oxibonsai.server.app.create_app`.

    Attributes:
        settings: As given.
        lifecycle: The phase between start and end.
        outcome: Shared with other processes, if there are any.
        addresses: Where the server listens.
        is_worker: Whether another process waits for this one, and starts the next.
    """

    def __init__(
        self, settings: Settings, make_backend: MakeBackend, make_app: MakeApp | None = None
    ) -> None:
        self.settings = settings
        self.lifecycle = Lifecycle()
        self.outcome = Outcome()
        self.addresses: list[str] = []
        self.is_worker = False
        self._server: Server | None = None
        self._make_backend = make_backend
        self._make_app = make_app
        configure_logs(settings.model_copy(update={"log_file": None}))

    def load(self) -> Server:
        """Make the application; the model loads in the background."""
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
            print(greeting(self.settings, self._backend, self.addresses), file=sys.stderr)
            return
        names = [m.id for m in self._backend.models()]
        _log.info("ready", extra={"models": names, "addresses": self.addresses})

    def _give_up(self, error: BaseException) -> NoReturn:
        """End the process; if a model has been served before, another worker tries again after a while.

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
        os._exit(Outcome.FAILED if self.is_worker else code)

    @property
    def keeps_state(self) -> bool:
        """Whether :meth:`end` writes to disk what later prompts go on from."""
        if self.lifecycle.phase == Phase.LOADING:
            return False
        settings = [self.settings]
        if isinstance(self._backend, ModelRegistry):
            settings = [entry.spec.settings for entry in self._backend.entries()]
        return any(s.slot_save_path is not None for s in settings)

    def end_tools(self) -> None:
        """End the programs that serve tools."""
        if self._server is not None and self._server.mcp is not None:
            self._server.mcp.close()

    def stop(self, code: int) -> NoReturn:
        """End the process at once; stores are safe at any point."""
        self.end_tools()
        os._exit(code)

    def end(self, code: int) -> NoReturn:
        """End the process after what runs has been answered or aborted; state of prompts is kept."""
        try:
            self.end_tools()
            self._backend.close()
        finally:
            logging.shutdown()
            # Threads that wait for a disconnected client would keep the interpreter from exiting.
            os._exit(code)


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
