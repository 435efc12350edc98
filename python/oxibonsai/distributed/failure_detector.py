"""Notice that a process of a group has failed, and learn why.

A broken connection says neither who failed first nor why, and a process that waits for a third one does
not see it. So the reason goes through the store that torchrun's rendezvous has made, which every process
reaches whatever it waits for.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_POLL_SECONDS = 0.1
# A process that does not confirm a failure for so long is taken to be the one that was lost.
_CONFIRM_SECONDS = 1.5
# A store whose machine hangs answers no more; then the own error has to do.
_EXPLAIN_SECONDS = 3.0
_FAILED = "oxibonsai/failed"  # the first reason
_LOST = "oxibonsai/lost"  # there is a failure: the first error that somebody met


class FailureDetector:
    """Tell the other processes that this one has failed or has lost one, and watch for what they tell.

    Args:
        store: Of torch.distributed, a connection that nothing else uses.
        rank: This process.
        world: All processes.
        on_failure: Called in a thread, with the reason why the group has ended, where this process has
            not noticed that by itself.
    """

    def __init__(
        self, store: Any, rank: int, world: int, on_failure: Callable[[str], None]
    ) -> None:
        self._store = store
        self._rank = rank
        self._world = world
        self._on_failure = on_failure
        self._own_failure: str | None = None
        self._error = "a process of the group has failed"
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._explained = threading.Event()
        self._reason = ""
        self._thread = threading.Thread(target=self._run, name="oxibonsai-failures", daemon=True)
        self._thread.start()

    def tell(self, failure: str) -> None:
        """Tell the others why this process fails, and wait until they know or must be lost, too."""
        self._own_failure = failure
        self._wake()

    def explain(self, error: str) -> str:
        """Return why the group has ended, after a message to another process has failed.

        Args:
            error: What the message failed with; the answer, where nothing better is known.
        """
        self._error = error
        self._wake()
        return self._reason or error

    def stop(self) -> None:
        """Stop watching: from now on processes may end."""
        self._stopped.set()
        self._woken.set()
        self._thread.join(_EXPLAIN_SECONDS)

    def _wake(self) -> None:
        self._woken.set()
        if not self._stopped.is_set():
            self._explained.wait(_EXPLAIN_SECONDS)

    def _run(self) -> None:
        # Only this thread uses the store, so that none waits for the store longer than it wants.
        try:
            while not (self._woken.wait(_POLL_SECONDS) or self._store.check([_LOST])):
                pass
            if self._stopped.is_set():
                return
            reason = self._settle()
        except RuntimeError:
            if self._stopped.is_set():
                return
            reason = "rank 0, or torchrun, has ended: see its log"
        self._reason = reason
        self._explained.set()
        if not self._woken.is_set():
            self._on_failure(reason)

    def _settle(self) -> str:
        """Return the reason that all processes agree on."""
        if self._own_failure is not None:
            self._store.compare_set(_FAILED, "", self._own_failure)
        first_error = self._store.compare_set(_LOST, "", self._error)
        self._store.set(_confirmation(self._rank), "1")
        missing = list(range(self._world))
        deadline = time.monotonic() + _CONFIRM_SECONDS
        while missing and time.monotonic() < deadline:
            if self._own_failure is None and self._store.check([_FAILED]):
                break
            missing = [r for r in missing if not self._store.check([_confirmation(r)])]
            time.sleep(_POLL_SECONDS / 4)
        if self._store.check([_FAILED]):
            return str(self._store.get(_FAILED).decode())
        if not missing:
            return str(first_error.decode())
        names = " and ".join(f"rank {r}" for r in missing)
        return f"{names} of {self._world} ended or hung without giving a reason: see its log"


def _confirmation(rank: int) -> str:
    return f"oxibonsai/confirmed/{rank}"


def print_failure(rank: object, message: str) -> None:
    """Print the line with which a process ends."""
    print(f"oxibonsai (rank {rank}): {' '.join(message.split())}", file=sys.stderr, flush=True)
