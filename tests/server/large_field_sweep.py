"""Large bodies of one key at a real server, while another key asks for one token at a time."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_backend import FakeBackend
from large_fields import LargeField
from real_server import real_server
from running_server import PATIENCE, RunningServer
from valid_bodies import make_objects
from werkzeug.test import EnvironBuilder

from oxibonsai.server.app import create_app
from oxibonsai.server.setting_sources import load_settings

KEYS = ("large", "small")
ENCODINGS = ("identity", "gzip", "deflate")
_PACK = {
    "identity": lambda data: data,
    "gzip": lambda data: gzip.compress(data, 1),
    "deflate": lambda data: zlib.compress(data, 1),
}
_ONE_TOKEN = json.dumps({"prompt": "a", "max_tokens": 1}).encode()


@dataclass
class Outcome:
    """What one field did.

    Attributes:
        statuses: Of the answers to the large bodies; 0: closed without an answer.
        seconds: Until the last of them.
        waited: Seconds of each of the other key's requests for one token.
        refused: Those of them that were not answered with a token, in words.
        blocked: A large body had no answer yet when the first of them began, and all had theirs when
            it ended.
        peak_mb: The most memory that the server's worker had, in MiB.
    """

    statuses: list[int] = field(default_factory=list)
    seconds: float = 0.0
    waited: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    blocked: bool = False
    peak_mb: int = 0


class Sweep:
    """A server, and the paths of its routes.

    Args:
        server: It runs with ``KEYS``.
        rules: Path of each endpoint, with arguments in angle brackets.
    """

    def __init__(self, server: RunningServer, rules: Mapping[str, str]) -> None:
        self._server = server
        self._ids = make_objects(_Client(server), {"X-Api-Key": KEYS[0]})  # type: ignore[arg-type]
        self._rules = rules
        self._pid = server.worker_pid()

    def run(self, large: LargeField, size: int, encodings: Sequence[str]) -> Outcome:
        """Sends a body in each of the encodings at once; then asks for single tokens until all of them
        are answered, at least once.
        """
        outcome = Outcome()
        data = large.body(size)
        for name, value in (("ASSISTANT", "assistant_id"), ("FILE", "batch_file")):
            data = data.replace(f'"{name}"'.encode(), f'"{self._ids[value]}"'.encode())
        packed = [(name, _PACK[name](data)) for name in encodings]
        path = self.path(large.endpoint)
        sent = threading.Semaphore(0)

        def send(encoding: str, body: bytes) -> None:
            headers = {"Content-Type": large.content_type}
            if encoding != "identity":
                headers["Content-Encoding"] = encoding
            status = 0
            with contextlib.suppress(OSError, http.client.HTTPException):
                status = self._post(path, body, KEYS[0], headers, sent)[0]
            outcome.statuses.append(status)

        self._forget_peak()
        threads = [threading.Thread(target=send, args=pair) for pair in packed]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for _ in threads:
            sent.acquire()
        pending = any(thread.is_alive() for thread in threads)
        while not outcome.waited or any(thread.is_alive() for thread in threads):
            asked = time.monotonic()
            status, answer = self._post("/v1/completions", _ONE_TOKEN, KEYS[1], {})
            outcome.waited.append(time.monotonic() - asked)
            if status != 200:
                outcome.refused.append(f"{status}: {answer[:300]!r}")
        outcome.blocked = pending and len(outcome.waited) == 1
        outcome.seconds = time.monotonic() - began
        outcome.peak_mb = self._peak()
        return outcome

    def path(self, endpoint: str) -> str:
        """The path of an endpoint, with the ids of objects that are there."""
        path = self._rules[endpoint]
        for name, value in self._ids.items():
            path = path.replace(f"<{name}>", value)
        return path + ("?action=save" if path.startswith("/slots/") else "")

    def _post(
        self,
        path: str,
        body: bytes,
        key: str,
        headers: Mapping[str, str],
        sent: threading.Semaphore | None = None,
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=PATIENCE)
        try:
            kind = {"Content-Type": "application/json", "X-Api-Key": key, **headers}
            try:
                connection.request("POST", path, body, kind)
            finally:
                if sent is not None:
                    sent.release()
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _forget_peak(self) -> None:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    def _peak(self) -> int:
        status = Path(f"/proc/{self._pid}/status").read_text()
        (line,) = (row for row in status.splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) // 1024


@contextlib.contextmanager
def sweep_server(model: Path, folder: Path, *flags: str) -> Iterator[Sweep]:
    """A server with two keys on a model."""
    keys = folder / "keys"
    keys.write_text("\n".join(KEYS))
    (folder / "slots").mkdir()
    line = ["--api-key-file", str(keys), "--alias", "tiny", "--parity", "off", "--n-predict", "2"]
    line += ["--slot-save-path", str(folder / "slots")]
    with real_server(model, folder, *line, *flags) as server:
        yield Sweep(server, _rules(model, folder))


def _rules(model: Path, folder: Path) -> dict[str, str]:
    """The longest path of every endpoint: /v1/... rather than a bare alias."""
    settings = load_settings({"state_dir": folder / "rules", "model": str(model)})
    app = create_app(settings, FakeBackend())
    app.store.close()
    rules: dict[str, str] = {}
    for rule in app.url_map.iter_rules():
        rules[rule.endpoint] = max(rules.get(rule.endpoint, ""), rule.rule)
    return rules


class _Client:
    """What ``make_objects`` needs of a client, over HTTP."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server

    def get(self, path: str, headers: Mapping[str, str]) -> _Answer:
        return _Answer(*self._server.ask(path, **headers)[::2])

    def post(self, path: str, headers: Mapping[str, str], **request: Any) -> _Answer:
        builder = EnvironBuilder(path, method="POST", **request)
        environ = builder.get_environ()
        body = environ["wsgi.input"].read()
        kind = {"Content-Type": environ["CONTENT_TYPE"]} if body else {}
        return _Answer(*self._server.ask(path, "POST", body, **headers, **kind)[::2])


@dataclass
class _Answer:
    status_code: int
    body: Any

    @property
    def text(self) -> str:
        return str(self.body)

    def get_json(self) -> Any:
        return self.body

    def get_data(self) -> None:
        """Nothing: it has been read."""
