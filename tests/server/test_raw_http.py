"""Clients that stall, dribble, smuggle, leave early or come in crowds: health goes on answering."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from running_server import (
    PATIENCE,
    RunningServer,
    read_all,
    running_server,
    status_of,
    wait_until,
)

# A request must be whole within so many seconds.
READ_TIMEOUT = 2.0

POST = b"POST /size HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


def unforeseen(server: RunningServer) -> list[str]:
    return [line for line in server.log.read_text().splitlines() if "Traceback" in line]


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that cuts no slow client off: for what does not depend on time."""
    flags = ["--http-threads=4", "--read-timeout=3000", "--write-timeout=3000"]
    folder = tmp_path_factory.mktemp("patient")
    with running_server(folder, *flags, "--max-file-mb=2") as running:
        yield running
        assert unforeseen(running) == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    flags = ["--http-threads=4", f"--read-timeout={READ_TIMEOUT}", "--write-timeout=2"]
    with running_server(tmp_path_factory.mktemp("server"), *flags, "--keep-alive=2") as running:
        yield running
        assert unforeseen(running) == []


REFUSED = {
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two equal lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "length and chunked": POST
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    "chunked not last": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "negative length": POST + b"Content-Length: -1\r\n\r\n",
    "length with sign": POST + b"Content-Length: +3\r\n\r\nabc",
    "length in hex": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "length list": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "length with space": POST + b"Content-Length : 3\r\n\r\nabc",
    "length in other digits": POST + b"Content-Length: \xef\xbc\x93\r\n\r\nabc",
    "folded header": POST + b"X-A: 1\r\n Content-Length: 3\r\n\r\nabc",
    "NUL in a value": GET + b"X-A: a\0b\r\n\r\n",
    "bare CR in a value": GET + b"X-A: a\rb\r\n\r\n",
    "space in a name": GET + b"X A: 1\r\n\r\n",
    "empty name": GET + b": 1\r\n\r\n",
    "no version": b"GET /health\r\nHost: localhost\r\n\r\n",
    "version 3.0": b"GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n",
    "space in the target": b"GET /hea lth HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n",
    "two hosts": b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
    "empty host": b"GET /v1/models HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n",
    "bad chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    "chunk without its end": POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n",
    "200 headers": GET + b"".join(b"X-%d: 1\r\n" % i for i in range(200)) + b"\r\n",
    "long url": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "long header": GET + b"X-A: " + b"a" * 9000 + b"\r\n\r\n",
    "endless header": GET + b"X-A: " + b"a" * 100_000,
    "expectation": POST + b"Expect: more\r\nContent-Length: 3\r\n\r\nabc",
}


def refusal(server: RunningServer, sent: bytes) -> bytes:
    """The answer to a malformed request, and not to another that is hidden behind it."""
    hidden = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect(sent + hidden) as sock:
        answer = read_all(sock)
    assert 400 <= status_of(answer) < 502, answer
    assert b'"object"' not in answer
    return answer


@pytest.mark.parametrize("case", REFUSED)
def test_a_malformed_request_is_refused_with_an_error_object(
    patient: RunningServer, case: str
) -> None:
    answer = refusal(patient, REFUSED[case])
    head, _, body = answer.partition(b"\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    error = json.loads(body)["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert b"application/json" in head


EXACT = {
    "unknown coding": 501,
    "long url": 414,
    "200 headers": 431,
    "endless header": 431,
    "expectation": 417,
    "length and chunked": 400,
    "no host": 400,
}


@pytest.mark.parametrize("case", EXACT)
def test_the_status_says_what_was_wrong(patient: RunningServer, case: str) -> None:
    with patient.connect(REFUSED[case]) as sock:
        assert status_of(read_all(sock)) == EXACT[case]


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (*pieces, b""))


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000, 2_000_000])
def test_bodies_of_all_sizes_arrive_whole(patient: RunningServer, size: int) -> None:
    body = b"x" * size
    plain = POST + b"Content-Length: %d\r\n\r\n" % size + body
    pieces = [body[i : i + 50_000] for i in range(0, size, 50_000)]
    split = POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(*pieces)
    for request in (plain, split):
        with patient.connect(request) as sock:
            answer = read_all(sock)
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"size": size}, answer[:300]


def test_a_body_is_asked_for_where_the_client_waits(patient: RunningServer) -> None:
    with patient.connect(POST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n") as sock:
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"abc")
        assert read_all(sock).endswith(b'{"size":3}\n')


@pytest.mark.parametrize("encoding", ["length", "chunked"])
def test_too_large_a_body_is_refused(patient: RunningServer, encoding: str) -> None:
    # Beyond the 16 MiB of any body.
    size = 20 * 2**20
    head = POST + b"Content-Length: %d\r\n\r\n" % size
    if encoding == "chunked":
        head = POST + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size
    with patient.connect(head) as sock:
        sender = threading.Thread(target=send_until_closed, args=(sock, size), daemon=True)
        sender.start()
        answer = read_all(sock)
        sender.join()
    assert status_of(answer) in (413, 0)
    if encoding == "length":
        assert status_of(answer) == 413
    patient.check_health()


def send_until_closed(sock: socket.socket, size: int) -> None:
    with contextlib.suppress(OSError):
        for _ in range(size // 65536):
            sock.sendall(b"x" * 65536)


def test_pipelined_requests_are_answered_in_order(patient: RunningServer) -> None:
    request = b"POST /size HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
    sizes = [3, 0, 70_000, 1]
    data = b"".join(request % (n, b"x" * n) for n in sizes)
    with patient.connect(data + GET + b"\r\n") as sock:
        answer = read_all(sock)
    found = [json.loads(part.split(b"\n", 1)[0]) for part in answer.split(b"\r\n\r\n")[1:]]
    assert found == [*({"size": n} for n in sizes), {"status": "ok"}]


def test_a_connection_serves_many_requests(patient: RunningServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", patient.port, timeout=PATIENCE)
    connection.connect()
    sock = connection.sock
    for _ in range(20):
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status":"ok"}\n'
        assert connection.sock is sock
    connection.close()


WHOLE = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 13"
WHOLE += b'\r\n\r\n{"text": "a"}'


@pytest.fixture
def with_keys(tmp_path: Path) -> Iterator[RunningServer]:
    flags = ["--http-threads=8", "--read-timeout=3000", "--api-key=a", "--api-key=b", "--api-key=c"]
    with running_server(tmp_path, *flags) as running:
        yield running
        assert unforeseen(running) == []


def by(key: str, request: bytes) -> bytes:
    """A request with a key in one of the two fields that may have it."""
    field = {"a": b"Authorization: bearer a", "b": b"x-api-key:b"}[key]
    return request.replace(b"\r\n", b"\r\n" + field + b"\r\n", 1)


def test_a_key_leaves_threads_for_others(with_keys: RunningServer) -> None:
    slow = b"GET /slow?seconds=3000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    busy = [with_keys.connect(by("a", slow)) for _ in range(12)]

    def begun() -> int:
        return len(with_keys.ask("/calls", **{"X-Api-Key": "c"})[2]["begun"])

    wait_until(lambda: begun() == 4)
    of_b = [with_keys.connect(by("b", slow)) for _ in range(2)]
    wait_until(lambda: begun() == 6)
    for sock in busy[:4]:
        sock.close()  # the next ones of this key get their threads
    wait_until(lambda: begun() == 9)
    for sock in [*busy[4:], *of_b]:
        sock.close()


def test_slow_uploads_of_one_key_keep_no_other_out(with_keys: RunningServer) -> None:
    size = 2**20
    head = POST + b"Content-Length: %d\r\n\r\n" % size
    stuck = [with_keys.connect(by("a", head) + b"x" * (size // 2)) for _ in range(8)]
    for _ in range(4):
        with with_keys.connect(by("b", head) + b"x" * size) as sock:
            assert status_of(read_all(sock)) == 200
    for sock in stuck:
        sock.close()


def test_a_client_may_leave_at_any_byte(patient: RunningServer) -> None:
    ends = range(0, len(WHOLE), 3)
    assert len(ends) >= 30
    for end in ends:
        patient.connect(WHOLE[:end]).close()
    with patient.connect(WHOLE) as sock:
        assert status_of(sock.recv(65536)) == 200
    patient.check_health()


def test_a_request_may_come_byte_by_byte(patient: RunningServer) -> None:
    with patient.connect() as sock:
        for i in range(len(WHOLE)):
            sock.sendall(WHOLE[i : i + 1])
        assert status_of(sock.recv(65536)) == 200


SLOW = {
    "silent": b"",
    "half a header": b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
    "half a body": POST + b"Content-Length: 1000\r\n\r\nabc",
    "half a large body": POST + b"Content-Length: 1000000\r\n\r\n" + b"x" * 300_000,
    "half a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n100\r\nabc",
    "chunk of 10^48 bytes": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\nabc",
    "no body": POST + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    "no end of lines": b"GET /health HTTP/1.1\nHost: localhost\n\n",
}


def hold(server: RunningServer, cases: Sequence[str], count: int, dribble: bool) -> None:
    """Lets many clients stall in each way, and asks for health meanwhile."""
    socks = [server.connect(SLOW[case]) for _ in range(count) for case in cases]
    for _ in range(10):
        if dribble:
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.send(b"a")
        server.check_health()
        time.sleep(0.2)
    for sock in socks:
        sock.close()


@pytest.mark.parametrize("dribble", [False, True], ids=["stalled", "dribbling"])
def test_health_answers_beside_slow_clients(patient: RunningServer, dribble: bool) -> None:
    hold(patient, list(SLOW), 2, dribble)


@pytest.mark.slow
@pytest.mark.parametrize("dribble", [False, True], ids=["stalled", "dribbling"])
def test_health_answers_beside_a_crowd_of_slow_clients(
    patient: RunningServer, dribble: bool
) -> None:
    hold(patient, list(SLOW), 50, dribble)


@pytest.mark.slow
@pytest.mark.parametrize("dribble", [False, True], ids=["stalled", "dribbling"])
@pytest.mark.parametrize("case", ["half a header", "half a large body", "half a chunk"])
def test_health_answers_beside_a_crowd_that_is_slow_in_one_way(
    patient: RunningServer, case: str, dribble: bool
) -> None:
    hold(patient, [case], 200, dribble)


def test_probes_are_answered_while_every_thread_is_at_work(server: RunningServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            request = b"GET /stream?count=1&gap=3000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            stack.enter_context(server.connect(request))
        # Bodies that never come don't keep the threads of probes.
        for _ in range(4):
            request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n"
            stack.enter_context(server.connect(request))
        for path in ("/health", "/v1/health", "/livez", "/readyz?a=b"):
            answer = stack.enter_context(
                server.connect(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            )
            assert answer.recv(12) == b"HTTP/1.1 200"


def test_a_slow_request_ends_with_a_word(server: RunningServer) -> None:
    cases = ["half a header", "half a body", "half a chunk", "chunk of 10^48 bytes"]
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(server.connect(SLOW[case])) for case in cases]
        assert [status_of(read_all(sock)) for sock in socks] == [408] * len(cases)


def test_a_stream_lives_on_beyond_the_deadlines(server: RunningServer) -> None:
    with server.connect(b"GET /stream?count=5&gap=1.2 HTTP/1.1\r\nHost: localhost\r\n\r\n") as sock:
        data = b""
        while b'"i":4' not in data:
            data += sock.recv(65536)
    assert b": ping\n\n" in data
    assert [f'"i":{i}'.encode() in data for i in range(5)] == [True] * 5


def test_a_client_that_does_not_read_loses_its_connection(server: RunningServer) -> None:
    socks = [server.connect(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(3)]
    server.check_health()
    time.sleep(3)
    # All threads are free again, though nobody has read or closed.
    more = [server.connect(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(3)]
    server.check_health()
    for sock in (*socks, *more):
        sock.close()


@pytest.mark.parametrize(
    "path", ["/stream?count=100000&gap=0.1", "/stream?count=1&gap=3000", "/slow?seconds=3000"]
)
def test_a_client_that_leaves_cancels_its_work(server: RunningServer, path: str) -> None:
    path += "&who=leaver"
    with server.connect(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()):
        wait_until(lambda: path in server.ask("/calls")[2]["begun"])
    wait_until(lambda: path in server.ask("/calls")[2]["cancelled"])


def crowd(folder: Path, count: int) -> None:
    """Idle connections beyond what the server keeps; the last comers are still served."""
    with running_server(folder, "--read-timeout=60", "--max-connections=100") as server:
        socks: list[socket.socket] = []
        try:
            for i in range(count):
                socks.append(server.connect())
                if i % (count // 10) == 0:
                    server.check_health()
            server.check_health()
            worker = Path(f"/proc/{server.worker_pid()}/fd")
            assert len(list(worker.iterdir())) < 200
        finally:
            for sock in socks:
                sock.close()
        server.check_health()


def test_idle_connections_do_not_shut_others_out(tmp_path: Path) -> None:
    crowd(tmp_path, 400)


@pytest.mark.slow
def test_ten_thousand_idle_connections_do_not_shut_others_out(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 11_000:
        pytest.skip(f"this process may open {hard} files, and 11,000 are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 11_000), hard))
    try:
        crowd(tmp_path, 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
