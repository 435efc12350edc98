"""gunicorn's arbiter with a single worker, and gunicorn's log."""

from __future__ import annotations

from oxibonsai.files.platform import HAS_FORK

assert HAS_FORK

import logging
import signal
from typing import Any, NoReturn

import gunicorn
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from oxibonsai.errors import OxiBonsaiError
from oxibonsai.server.http.outcome import Outcome

# The first version with the overridden methods, and the last one that the tests have passed with. The
# requirement in pyproject.toml matches: at least the first, below the next major version.
FIRST = (27, 0, 1)
LAST_TESTED = (27, 0, 1)


def check_gunicorn(installed: tuple[int, ...] = gunicorn.version_info) -> None:
    """Reject an unsupported gunicorn.

    Later releases of the same major version are accepted, since they carry security fixes; a test of
    the package fails on them until they have been reviewed.

    Raises:
        OxiBonsaiError: It is too old, or has a later major version.
    """
    if installed >= FIRST and installed[0] == LAST_TESTED[0]:
        return
    found = ".".join(str(part) for part in installed)
    least = ".".join(str(part) for part in FIRST)
    raise OxiBonsaiError(
        f"gunicorn {found} is installed, and the server's worker is built on the inner parts of "
        f"gunicorn {LAST_TESTED[0]}: run pip install 'gunicorn>={least},<{LAST_TESTED[0] + 1}'"
    )


class OneWorkerArbiter(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """Runs exactly one worker; after SIGTERM or SIGINT, a second one stops it at once."""

    def __init__(self, app: BaseApplication) -> None:
        self.ending = self.forced = self.interrupted = False
        super().__init__(app)

    def signal(self, sig: int, frame: Any) -> None:
        """Record how the shutdown was requested."""
        if sig in (signal.SIGINT, signal.SIGQUIT):
            self.interrupted = self.interrupted or not self.ending
            self.forced = self.forced or self.ending
        elif sig == signal.SIGTERM and self.ending:
            self.forced = True
            sig = signal.SIGQUIT
        self.ending = self.ending or sig in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
        super().signal(sig, frame)

    def handle_int(self) -> None:
        """Have the worker stop as it does at a terminal's Ctrl-C, which it gets, too."""
        self.kill_workers(signal.SIGINT)
        raise StopIteration

    def handle_hup(self) -> None:
        """Let the worker read its API keys again; nothing restarts."""
        self.kill_workers(signal.SIGHUP)

    def handle_ttin(self) -> None:
        """Ignore SIGTTIN: there is exactly one worker, in which slots, cache and metrics live."""
        self.log.warning("The number of workers is fixed.")

    def handle_ttou(self) -> None:
        """Ignore SIGTTOU, as SIGTTIN."""
        self.log.warning("The number of workers is fixed.")

    def handle_usr2(self) -> None:
        """Ignore the signal: a second arbiter would load the model twice."""
        self.log.warning("SIGUSR2 is not supported: start the new server on another port.")

    def halt(self, reason: str | None = None, exit_status: int = 0) -> NoReturn:
        """Stop; where the worker could not load the model, it has said why itself."""
        if exit_status == Outcome.FAILED:
            logging.getLogger("gunicorn").setLevel(logging.CRITICAL)
        super().halt(reason, exit_status)
        raise SystemExit(exit_status)

    def give_up(self, reason: str) -> NoReturn:
        """Stop the server instead of restarting the worker; called in a gunicorn hook."""
        raise HaltServer(reason, 1)


class GunicornLogger:
    """gunicorn's logger on our handlers; requests are logged by the application."""

    def __init__(self, cfg: Any) -> None:
        self.cfg = cfg
        self._log = logging.getLogger("gunicorn")

    def __getattr__(self, name: str) -> Any:
        # debug, info, warning, error, exception, critical, log
        return getattr(self._log, name)

    def error(self, message: str, *args: Any, **options: Any) -> None:
        """Log an error, but not that a worker ended which has said itself that it can't load."""
        if Outcome.FAILED not in args:
            self._log.error(message, *args, **options)

    def setup(self, cfg: Any) -> None:
        """Set nothing up: see :func:`configure_logs`."""

    def access(self, *_: Any) -> None:
        """Log nothing: the application writes a line for each request."""

    def reopen_files(self) -> None:
        """Do nothing: the file rotates by itself."""

    def close_on_exec(self) -> None:
        """Do nothing: Python opens files so."""
