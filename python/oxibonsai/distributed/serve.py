"""Rank 0 serves HTTP; the others run their parts of the model."""

from __future__ import annotations

import mmap
import os
import signal
import sys

from oxibonsai.distributed.commands import Leader
from oxibonsai.distributed.group import Group
from oxibonsai.distributed.session import Choice, serve_rank, start
from oxibonsai.errors import UnsupportedError
from oxibonsai.server.engine_backend import EngineBackend
from oxibonsai.server.http.outcome import Outcome
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.settings import Settings


def serve(choice: Choice, settings: Settings) -> int:
    """Serve until a signal ends it, or a process of the group is lost.

    Args:
        choice: What this process is started for.
        settings: Of the server.

    Returns:
        The exit code: 1 where a process was lost, so that torchrun starts the group again.
    """
    if os.environ.get("RANK") != "0":
        group, plan = start(choice)
        # The end comes from rank 0, once it has answered its requests.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        serve_rank(choice, group, plan)
        group.leave()
        return 0
    from oxibonsai.server.launcher import serve as run_server

    if settings.http_server != "gunicorn":
        raise UnsupportedError("a model over several processes is served by --http-server gunicorn")
    had_worker = mmap.mmap(-1, 1)  # shared with the worker's process, which has the engine

    def make_backend(settings: Settings, lifecycle: Lifecycle) -> _Backend:
        if had_worker[0]:
            # The first worker has drained, or was killed: a second one cannot join the old group.
            print(
                "oxibonsai (rank 0): a process of the group was lost", file=sys.stderr, flush=True
            )
            os._exit(Outcome.FAILED)
        had_worker[0] = 1
        return _Backend(choice, settings, lifecycle)

    # No process has a whole model to read images with.
    return run_server(settings.model_copy(update={"mmproj_auto": False}), make_backend)


class _Backend(EngineBackend):
    """The engine whose model all processes run; the worker makes it, as it has the group's sockets."""

    def __init__(self, choice: Choice, settings: Settings, lifecycle: Lifecycle) -> None:
        # Before the application is made: two threads that import one package can deadlock.
        import oxibonsai.engine  # noqa: F401

        super().__init__(settings, lifecycle)
        self._choice = choice
        self._server = lifecycle
        lifecycle.has_successor = False  # the group's other ranks end, too
        self._joined: tuple[Group, Leader] | None = None

    def load(self) -> None:
        """Implement :meth:`~oxibonsai.server.backend.Backend.load`."""
        group, plan = start(self._choice)
        self._device = plan
        # As after a failed step: the server drains, and its process ends with code 1.
        plan.leader.on_failure = self._server.fail
        with group.shared_work():
            super().load()
        self._joined = group, plan.leader

    def close(self) -> None:
        """Implement :meth:`~oxibonsai.server.backend.Backend.close`."""
        super().close()
        if self._joined is None:
            return  # while it loads; the others notice that this process is gone
        group, leader = self._joined
        leader.stop()
        group.leave()
