"""The server on waitress: one process, for systems without fork.

A process whose engine fails ends with code 1, and nothing but a service manager starts another one.
"""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from typing import Any

from oxibonsai.errors import CapacityError, UnsupportedError
from oxibonsai.files import platform
from oxibonsai.server.http.addresses import bracketed
from oxibonsai.server.http.client import CLIENT_IS_GONE, MAX_HEADER_BYTES
from oxibonsai.server.lifecycle import STREAM_END_SECONDS, Phase
from oxibonsai.server.server import Server
from oxibonsai.server.serving_process import ServingProcess
from oxibonsai.server.settings import Settings
from oxibonsai.server.state_lock import locked_state

try:
    from waitress.server import BaseWSGIServer, create_server

    from oxibonsai.server.http.waitress_channel import JsonChannel
except ModuleNotFoundError as e:
    raise UnsupportedError(
        "the server waitress is not installed: pip install 'oxibonsai[waitress]'"
    ) from e

_log = logging.getLogger("oxibonsai.server")

# Requests that wait for a thread are told of by the metrics.
logging.getLogger("waitress.queue").setLevel(logging.ERROR)

_LOOK_SECONDS = 0.1
# Grace period for connections that are accepted when the listeners close.
_CLOSE_SECONDS = 0.2


def serve_with_waitress(process: ServingProcess) -> int:
    """Serve until a signal ends the process; return only where it can't begin, with the exit code."""
    try:
        with locked_state(process.settings):
            return _WaitressServer(process).run()
    except CapacityError as e:
        _log.error("%s", e)
        return 1


class _WaitressServer:
    def __init__(self, process: ServingProcess) -> None:
        self._process = process
        self._lifecycle = process.lifecycle
        self._lifecycle.has_successor = False
        self._app: Server
        self._sockets: dict[int, Any] = {}  # waitress's: listeners, connections
        self._ending = self._interrupted = self._reload = False

    def run(self) -> int:
        """Serve; return only if an address can't be listened on."""
        settings = self._process.settings
        try:
            server = create_server(self._answer, self._sockets, **_adjustments(settings))
        except (OSError, ValueError) as e:
            _log.error("cannot listen on %s: %s", ", ".join(settings.host), e)
            return 1
        for listener in self._listeners():
            listener.channel_class = JsonChannel
            listener.admits = lambda headers: self._app.callers.admits(headers)
        self._process.addresses = [
            f"http://{bracketed(one.effective_host)}:{one.effective_port}"
            for one in self._listeners()
        ]
        self._handle_signals()
        self._app = self._process.load()
        threading.Thread(target=server.run, name="http", daemon=True).start()
        while not (self._ending or self._lifecycle.failed):
            self._wait(_LOOK_SECONDS)
        self._drain()
        self._process.end(1 if self._lifecycle.failed else 130 if self._interrupted else 0)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        environ[CLIENT_IS_GONE] = environ["waitress.client_disconnected"]

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            # waitress has read the whole request, and decides itself what becomes of its connection.
            kept = [(name, value) for name, value in headers if name.lower() != "connection"]
            return start_response(status, kept, *error)

        return self._app.wsgi_app(environ, start)

    def _listeners(self) -> list[Any]:
        return [one for one in self._sockets.values() if isinstance(one, BaseWSGIServer)]

    # Signals; their handlers run in the main thread, which waits

    def _handle_signals(self) -> None:
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(platform.QUIT_SIGNAL, lambda *_: self._process.stop(130))
        if platform.RELOAD_SIGNAL is not None:
            signal.signal(platform.RELOAD_SIGNAL, self._ask_reload)

    def _terminate(self, *_: Any) -> None:
        if self._ending:
            self._process.stop(143)
        self._ending = True

    def _interrupt(self, *_: Any) -> None:
        """Stop at once, or as soon as state is kept; nothing waits for requests."""
        if self._interrupted or not self._process.keeps_state:
            self._process.stop(130)
        self._ending = self._interrupted = True

    def _ask_reload(self, *_: Any) -> None:
        self._reload = True

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)  # handlers only set flags: the lock of an event could be held here
        if self._reload:
            self._reload = False
            self._app.keys.refresh(force=True)

    # The end

    def _drain(self) -> None:
        """Wait until nothing runs, or the drain timeout expires; probes are still answered."""
        self._lifecycle.advance(Phase.DRAINING)
        limit = time.monotonic() + self._process.settings.drain_timeout
        while (running := self._running()) or self._lifecycle.background:
            left = limit - time.monotonic()
            if left < STREAM_END_SECONDS:
                self._lifecycle.advance(Phase.STOPPED)
            if self._interrupted:
                break
            if left <= 0:
                _log.warning("Drain timeout: %d requests are aborted", running)
                break
            self._wait(min(_LOOK_SECONDS, left))
        self._lifecycle.advance(Phase.STOPPED)
        for listener in self._listeners():
            listener.accepting = False
        self._wait(_CLOSE_SECONDS)

    def _running(self) -> int:
        return sum(
            isinstance(one, JsonChannel) and one.is_busy for one in list(self._sockets.values())
        )


def _adjustments(settings: Settings) -> dict[str, Any]:
    """Return waitress's settings."""
    addresses = [f"{bracketed(host)}:{settings.port}" for host in settings.host]
    # waitress counts a listener and what wakes its loop as connections.
    own = 2 * len(addresses)
    most = settings.max_connections + own
    if platform.MOST_SELECTED is not None:
        most = min(most, platform.MOST_SELECTED)
    return {
        "listen": " ".join(addresses),
        "threads": settings.threads_for_http,
        "connection_limit": most,
        "channel_timeout": math.ceil(settings.read_timeout),
        "cleanup_interval": 1,
        "max_request_header_size": MAX_HEADER_BYTES,
        "max_request_body_size": settings.max_upload_bytes + 1,
        # Without it, nobody would notice that a client has left.
        "channel_request_lookahead": 1,
        "asyncore_use_poll": platform.MOST_SELECTED is None,
        "clear_untrusted_proxy_headers": False,
        "log_socket_errors": False,
        "ident": None,
    }
