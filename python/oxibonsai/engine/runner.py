"""Steps an engine in a thread of its own, so that many threads can wait for their texts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from oxibonsai.engine.engine import Engine

_log = logging.getLogger(__name__)


class EngineRunner:
    """Steps an engine while it has work, and sleeps otherwise.

    Args:
        engine: Nobody else needs to call its ``step`` from now on.
        on_failure: Called in the thread when a step has failed, before every sequence is ended.

    Attributes:
        after_step: Called in the thread after each step; it may not wait for anything.
        failure: What ended the thread; None while all is well.
    """

    def __init__(self, engine: Engine, on_failure: Callable[[], None] | None = None) -> None:
        self._engine = engine
        self._on_failure = on_failure
        self._work = threading.Event()
        self._closing = False
        self.after_step: Callable[[], None] = lambda: None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="oxibonsai-engine", daemon=True)
        engine.attach(self)
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread that runs: there may be something to do."""
        self._work.set()

    def close(self) -> None:
        """Cancel what runs and end the thread."""
        self._closing = True
        self.wake()
        self._thread.join()

    def _run(self) -> None:
        engine = self._engine
        try:
            while not self._closing:
                if not engine.has_work:
                    self._work.wait()
                    self._work.clear()
                    continue
                engine.step()
                self.after_step()
        except Exception as e:
            # The step would fail again, so nothing may go on waiting for it.
            _log.exception("a step of the engine has failed")
            self.failure = e
            if self._on_failure is not None:
                self._on_failure()
        finally:
            engine.attach(None)
            engine.cancel_all()
