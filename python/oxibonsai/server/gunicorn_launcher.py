"""The server on gunicorn: its arbiter with one worker that loads the model.

A worker that dies is replaced, and so is one that can't load a model which an earlier one has loaded.
"""

from __future__ import annotations

from oxibonsai.files.platform import HAS_FORK

assert HAS_FORK

import logging
import os
from typing import Any

from gunicorn.app.base import BaseApplication

from oxibonsai.errors import CapacityError
from oxibonsai.server.http.addresses import bracketed
from oxibonsai.server.http.arbiter import GunicornLogger, OneWorkerArbiter, check_gunicorn
from oxibonsai.server.http.handover import Handover
from oxibonsai.server.http.outcome import Outcome
from oxibonsai.server.server import Server
from oxibonsai.server.serving_process import ServingProcess
from oxibonsai.server.state_lock import locked_state

_log = logging.getLogger("oxibonsai.server")

# The arbiter kills a worker that exceeds its drain timeout by more than this.
_ARBITER_PATIENCE_SECONDS = 5


def serve_with_gunicorn(process: ServingProcess) -> int:
    """Serve until a signal ends it; return the exit code.

    Raises:
        OxiBonsaiError: The installed version of gunicorn is not supported.
    """
    check_gunicorn()
    application = ServerApplication(process)
    arbiter = OneWorkerArbiter(application)
    try:
        # Taken before the fork: every worker inherits the locks.
        with locked_state(process.settings):
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
    return process.outcome.exit_code if code == Outcome.FAILED else code


class ServerApplication(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The server as a gunicorn application; ``self.app`` in :class:`DeadlineWorker`."""

    def __init__(self, process: ServingProcess) -> None:
        process.is_worker = True
        self.process = process
        self.settings = process.settings
        self.lifecycle = process.lifecycle
        self.handover = Handover()
        super().__init__()

    def load_config(self) -> None:
        """Return gunicorn's settings; nothing is read from its environment variable or files."""
        s = self.settings
        values: dict[str, Any] = {
            "bind": [h if h.startswith("unix:") else f"{bracketed(h)}:{s.port}" for h in s.host],
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
        """Make the application, in the worker's process."""
        return self.process.load()

    def _pre_fork(self, arbiter: OneWorkerArbiter, worker: Any) -> None:
        self.process.outcome.is_ready = False
        self.process.addresses = [str(listener) for listener in arbiter.LISTENERS]

    def _child_exit(self, arbiter: OneWorkerArbiter, worker: Any) -> None:
        outcome = self.process.outcome
        if not arbiter.ending:
            self.lifecycle.circuits.worker_died()
        if not (outcome.is_ready or outcome.was_ready or arbiter.ending):
            arbiter.give_up("The worker died while loading the model.")

    def _worker_exit(self, arbiter: OneWorkerArbiter, worker: Any) -> None:
        if worker.pid == os.getpid():
            self.process.end(0)
