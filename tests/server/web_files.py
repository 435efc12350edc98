"""A web server with one file, to download it from."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oxibonsai.sources import public_hosts


def take_for_public(monkeypatch: pytest.MonkeyPatch, address: str = "127.0.0.1") -> None:
    """Makes one address of this machine stand for the public internet."""
    is_public: Callable[[str], bool] = public_hosts.is_public
    monkeypatch.setattr(public_hosts, "is_public", lambda a: a == address or is_public(a))


@contextlib.contextmanager
def web_server(content: bytes, name: str = "tiny.gguf", leads_to: str = "") -> Iterator[str]:
    """Serves one file on loopback; yields the address of its folder.

    Args:
        content: Of the file.
        name: Of the file.
        leads_to: Where ``/leads.gguf`` is redirected to.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            if self.path == "/leads.gguf":
                self.send_response(302)
                self.send_header("Location", leads_to)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            found = self.path == f"/{name}"
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(content) if found else 0))
            self.send_header("ETag", '"1"')
            self.end_headers()
            if body and found:
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
