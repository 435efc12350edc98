"""The server on waitress, for systems without fork; how it ends is tested in test_signals.py."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_backend import free_port
from running_server import RunningServer, read_all, running_server, status_of, wait_until
from test_raw_http import EXACT, GET, POST, REFUSED, chunked, refusal
from waitress.adjustments import Adjustments
from werkzeug.exceptions import Unauthorized

from oxibonsai.errors import RequestError
from oxibonsai.server import setting_sources
from oxibonsai.server.http.waitress_channel import StrictParser
from oxibonsai.server.setting_sources import load_settings

# What waitress takes: older lines, long and many headers, an expectation that it does not know.
TAKEN = {"folded header", "no version", "version 3.0", "200 headers", "long header", "expectation"}
# Refused by the application, as an unknown route.
UNKNOWN = {"long url"}
# Refused here, and by gunicorn where it has the same words.
MORE = {
    "chunked in HTTP/1.0": b"POST /tokenize HTTP/1.0\r\nConnection: keep-alive\r\n"
    b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n1e\r\n",
    "length of 5000 digits": POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "address without its end": b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
}
CASES = MORE | {name: sent for name, sent in REFUSED.items() if name not in TAKEN | UNKNOWN}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    flags = ["--http-server=waitress", "--http-threads=4", "--max-file-mb=20", "--read-timeout=1"]
    with running_server(tmp_path_factory.mktemp("waitress"), *flags) as running:
        yield running
        assert "Traceback" not in running.log.read_text()


@pytest.mark.parametrize("case", CASES)
def test_a_malformed_request_is_refused_with_an_error_object(
    server: RunningServer, case: str
) -> None:
    answer = refusal(server, CASES[case])
    assert status_of(answer) == EXACT.get(case, status_of(answer))
    assert answer.count(b"HTTP/1.") == 1
    assert b'"error"' in answer
    assert b"application/json" in answer


@pytest.mark.parametrize("size", [0, 300_000, 2_000_000])
def test_bodies_arrive_whole(server: RunningServer, size: int) -> None:
    body = b"x" * size
    pieces = [body[i : i + 50_000] for i in range(0, size, 50_000)]
    for request in (
        POST + b"Content-Length: %d\r\n\r\n" % size + body,
        POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*pieces),
    ):
        with server.connect(request) as sock:
            assert read_all(sock).endswith(b'{"size":%d}\n' % size)


def test_a_body_is_asked_for_where_the_client_waits(server: RunningServer) -> None:
    with server.connect(POST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n") as sock:
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"abc")
        assert read_all(sock).endswith(b'{"size":3}\n')


def test_too_large_a_body_is_refused_unread(server: RunningServer) -> None:
    with server.connect(POST + b"Content-Length: 99999999\r\n\r\n") as sock:
        assert status_of(read_all(sock)) == 413


def test_a_stream_comes_as_it_is_made(server: RunningServer, tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"
    path = f"/stream?count=1&gap=0&until={go_on}"
    with server.connect(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    ) as sock:
        begun = b""
        while b'{"i":0}' not in begun:
            begun += sock.recv(65536)
        assert b"the end" not in begun
        go_on.touch()
        assert b"the end" in read_all(sock)


@pytest.mark.parametrize("path", ["/slow?seconds=100000", "/stream?count=9&gap=100000"])
def test_a_client_that_leaves_ends_its_request(server: RunningServer, path: str) -> None:
    with server.connect(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()):
        wait_until(lambda: path in server.ask("/calls")[2]["begun"])
    wait_until(lambda: path in server.ask("/calls")[2]["cancelled"])


def test_a_client_that_sends_nothing_more_is_cut_off(server: RunningServer) -> None:
    with server.connect(GET[:20]) as sock:
        assert read_all(sock) == b""


def test_an_answer_that_asks_to_close_is_sent(server: RunningServer) -> None:
    """The application refuses a large body with a header that waitress forbids it to set."""
    size = 16_777_217 + 1024
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size
    with server.connect(head + b" " * size) as sock:
        assert status_of(read_all(sock)) == 413


def test_bodies_of_strangers_are_read_and_not_kept(tmp_path: Path) -> None:
    size = 5_000_000
    bodies = (
        b"Content-Length: %d\r\n\r\n" % size + b"x" * size,
        b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*[b"x" * 50_000] * 100),
    )
    with running_server(tmp_path, "--http-server=waitress", "--api-key=right") as server:

        def written(key: bytes, status: int) -> int:
            """The bytes that the server wrote for two requests, into files and to the client."""
            before = server.written_bytes()
            head = POST.replace(b"Connection: close\r\n", key)
            for body in bodies:
                with server.connect(head + body + GET + b"\r\n") as sock:
                    answers = read_all(sock)
                assert status_of(answers) == status
                assert answers.count(b"HTTP/1.1 200") == 1 + (status == 200)  # of GET, too
            return server.written_bytes() - before

        assert written(b"Authorization: Bearer right\r\n", 200) > 2 * size
        assert written(b"", 401) < size
        assert written(b"X-Api-Key: wrong\r\n", 401) < size


def test_a_body_that_was_not_kept_is_not_read_as_an_empty_one() -> None:
    parser = StrictParser(Adjustments(), lambda _: False)
    parser.received(POST + b"Content-Length: 3\r\n\r\n")
    parser.received(b"abc")
    assert parser.completed
    with pytest.raises(Unauthorized, match="not valid when the request began"):
        parser.get_body_stream().read()


@pytest.mark.slow
def test_sighup_reads_the_keys_again(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\n")
    flags = ["--http-server=waitress", f"--api-key-file={keys}"]
    with running_server(tmp_path, *flags) as server:
        assert server.ask("/v1/models", Authorization="Bearer first")[0] == 200
        keys.write_text("second\n")
        server.signal(signal.SIGHUP)
        wait_until(lambda: server.ask("/v1/models", Authorization="Bearer second")[0] == 200)


@pytest.mark.slow
def test_a_taken_port_ends_the_server(tmp_path: Path, server: RunningServer) -> None:
    flags = ["--http-server=waitress", f"--port={server.port}"]
    with running_server(tmp_path, *flags, wait=False) as second:
        assert second.wait() == 1
        assert "cannot listen on 127.0.0.1" in second.log.read_text()


def test_the_server_needs_nothing_of_gunicorn(tmp_path: Path) -> None:
    main = Path(__file__).with_name("fake_server.py")
    # A model that can't be used ends a server that has come so far.
    program = (
        "import os, runpy, sys\n"
        "sys.modules['gunicorn'] = None\n"
        "os.environ |= {'FAKE_LOAD_UNTIL': '', 'FAKE_FAILURE': 'SourceError'}\n"
        f"sys.path.insert(0, {str(main.parent)!r})\n"
        f"sys.argv = ['serve', '--port={free_port()}', '--http-server=waitress']\n"
        f"sys.argv.append('--state-dir={tmp_path}')\n"
        f"runpy.run_path({str(main)!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "the model can't be used" in done.stderr


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"keep_alive": 9}, "--keep-alive needs --http-server gunicorn"),
        ({"write_timeout": 9}, "--write-timeout needs --http-server gunicorn"),
        ({"host": ("unix:socket",)}, "--host unix:socket needs --http-server gunicorn"),
    ],
)
def test_a_setting_that_needs_gunicorn_is_refused_by_name(
    setting: dict[str, object], named: str
) -> None:
    with pytest.raises(RequestError, match=named):
        load_settings({"http_server": "waitress", **setting})
    load_settings({"http_server": "gunicorn", **setting})


def test_where_there_is_no_fork_gunicorn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting_sources, "HAS_FORK", False)
    with pytest.raises(RequestError, match="--http-server gunicorn needs fork"):
        load_settings({"http_server": "gunicorn"})
    monkeypatch.setattr(setting_sources, "MOST_SELECTED", 512)
    with pytest.raises(RequestError, match="--max-connections must be at most 256"):
        load_settings({"http_server": "waitress", "max_connections": 1000})
    load_settings({"http_server": "waitress"})
