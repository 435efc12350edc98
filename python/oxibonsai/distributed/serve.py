"""Rank 0 serves HTTP; the others run their parts of the model."""

from __future__ import annotations

import mmap
import os
import signal
import sys
import threading
import time

from oxibonsai.distributed.session import Choice, serve_rank, start
from oxibonsai.server.engine_backend import EngineBackend
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.settings import Settings

# For requests that a lost process has ended to be answered before the server drains.
_ANSWER_SECONDS = 1.0


def serve(choice: Choice, settings: Settings) -> int:
    """Serves until a signal ends it, or a process of the group is lost.

    Args:
        choice: What this process is started for.
        settings: Of the server.

    Returns:
        The exit code: 1 where a process was lost, so that torchrun starts the group again.
    """
    if os.environ.get("RANK") != "0":
        group, plan = start(choice)
        serve_rank(choice, group, plan)
        group.leave()
        return 0
    from oxibonsai.server.launcher import serve as run_server

    lost = mmap.mmap(-1, 1)  # shared with the worker's process, which has the engine

    def make_backend(settings: Settings, lifecycle: Lifecycle) -> _Backend:
        return _Backend(choice, settings, lifecycle, lost)

    code = run_server(settings, make_backend)
    return code or lost[0]


class _Backend(EngineBackend):
    """The engine whose model all processes run; made in the worker's process, as it has the sockets
    of the group.
    """

    def __init__(
        self, choice: Choice, settings: Settings, lifecycle: Lifecycle, lost: mmap.mmap
    ) -> None:
        # Before the application is made: two threads that import one package can deadlock.
        import oxibonsai.engine  # noqa: F401

        super().__init__(settings, lifecycle)
        self._choice = choice
        self._failed = threading.Event()
        self._lost = lost
        self._server = lifecycle

    def load(self) -> None:
        """As of :class:`~oxibonsai.server.backend.Backend`."""
        self._group, plan = start(self._choice)
        self._device = plan
        self._leader = plan.leader
        self._leader.on_failure = self._end
        super().load()

    def close(self) -> None:
        """As of :class:`~oxibonsai.server.backend.Backend`."""
        super().close()
        self._leader.stop()

    def _on_failure(self) -> None:
        self._end()

    def _end(self) -> None:
        """A process was lost: new requests are refused, the server drains and exits with code 1."""
        if self._failed.is_set():
            return
        self._failed.set()
        self._lost[0] = 1
        self._server.fail()
        threading.Thread(target=_end_server, daemon=True).start()


def _end_server() -> None:
    time.sleep(_ANSWER_SECONDS)
    print("oxibonsai: a process of the group was lost; the server ends", file=sys.stderr)
    os.kill(os.getppid(), signal.SIGTERM)
