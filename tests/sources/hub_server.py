"""A loopback server that speaks the two endpoints of the hub that are needed, and can misbehave."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class Hub:
    """Repositories by name, files by name; what has been asked for."""

    def __init__(self) -> None:
        # Of a file without bytes, the hub lists the name, but does not have it.
        self.repositories: dict[str, dict[str, bytes | None]] = {}
        self.commit = "0123456789abcdef0123456789abcdef01234567"
        self.sizes: dict[str, int] = {}  # by file, where the hub is to tell another size
        self.refuse: dict[str, tuple[int, str]] = {}  # repository: status, x-error-code
        self.cut_next_download = 0  # bytes after which the connection is dropped, once
        self.hold_next_download = 0  # bytes after which nothing more comes, once
        self.held = threading.Event()
        self.corrupt = False  # whether another file's bytes come under the right name and hash
        self.requests: list[str] = []
        self.ranges: list[str] = []
        self.url = ""


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        path, _, query = self.path.partition("?")
        parts = path.strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if api else parts[:2])
        status, code = self.hub.refuse.get(repo, (0, ""))
        if repo not in self.hub.repositories and not status:
            status, code = 404, "RepoNotFound"
        if status:
            self._send(status, b"<html>" if body else b"", {"X-Error-Code": code})
        elif api:
            files = [
                {"rfilename": f, **self._size(f, data, query)}
                for f, data in self.hub.repositories[repo].items()
            ]
            answer = {"id": repo, "sha": self.hub.commit, "siblings": files}
            self._send(200, json.dumps(answer).encode() if body else b"", {})
        else:
            self._file(repo, "/".join(parts[4:]), body=body)

    def _size(self, name: str, data: bytes | None, query: str) -> dict[str, int]:
        """What the hub tells of a file where it is asked for more than names."""
        told = "blobs" in query and data is not None
        return {"size": self.hub.sizes.get(name, len(data or b""))} if told else {}

    def _file(self, repo: str, name: str, *, body: bool) -> None:
        data = self.hub.repositories[repo].get(name)
        if data is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        headers = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Repo-Commit": self.hub.commit,
        }
        first = 0
        if asked := self.headers.get("Range"):
            self.hub.ranges.append(asked)
            first = int(asked.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        if self.hub.corrupt:
            data = bytes(len(data))
        self._send(206 if first else 200, data[first:], headers, body=body)

    def _send(
        self, status: int, data: bytes, headers: dict[str, str], *, body: bool = True
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json")
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if not body:
            return
        cut = self.hub.cut_next_download
        if cut and len(data) > cut:
            self.hub.cut_next_download = 0
            self.wfile.write(data[:cut])
            self.close_connection = True
            return
        hold = self.hub.hold_next_download
        if hold and len(data) > hold:
            self.hub.hold_next_download = 0
            self.wfile.write(data[:hold])
            self.wfile.flush()
            self.hub.held.set()
            self.connection.recv(1)  # returns when the client is gone
            self.close_connection = True
            return
        self.wfile.write(data)


@contextmanager
def running() -> Iterator[Hub]:
    """A hub on a free loopback port."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
