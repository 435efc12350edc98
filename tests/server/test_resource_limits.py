"""A server with little memory, few descriptors, one core: it runs, or says why it does not."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_backend import free_port
from real_server import real_server
from running_server import PATIENCE, RunningServer

from oxibonsai import _core

pytestmark = pytest.mark.slow

BODY = json.dumps({"prompt": "ab", "max_tokens": 6, "temperature": 0}).encode()
MB = 2**20


def limited(kind: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (value, value))


def on_one_core() -> None:
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


def outcome(
    model: Path,
    folder: Path,
    *flags: str,
    limit: Callable[[], None] | None = None,
    **environment: str,
) -> str:
    """The text that it answers with, or its log where it has refused to run."""
    port, log = free_port(), folder / "log"
    line = [sys.executable, "-m", "oxibonsai.serve", "-m", str(model), "--port", str(port)]
    line += ["--state-dir", str(folder / "state"), "--parity", "off", "--ctx-size", "256", *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(
            line, stdout=output, stderr=output, preexec_fn=limit, env={**os.environ, **environment}
        )
    server = RunningServer(process, port, log)
    try:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if server.ask("/readyz")[0] == 200:
                    break
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            # Not by a signal, and with a word.
            assert process.returncode > 0, log.read_text()
            return f"refused: {log.read_text()}"
        kind = {"Content-Type": "application/json"}
        status, _, answer = server.ask("/v1/completions", "POST", BODY, **kind)
        if status != 200:
            assert answer["error"]["message"]
            return f"refused: {answer['error']['message']}"
        return str(answer["choices"][0]["text"])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


@pytest.fixture(scope="module")
def usual(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The answer of a server without limits."""
    text = outcome(tiny_path, tmp_path_factory.mktemp("usual"))
    assert not text.startswith("refused")
    return text


@pytest.mark.parametrize("size", [150, pytest.param(300, marks=pytest.mark.release), 600])
def test_with_little_memory_it_runs_or_says_why_not(
    tiny_path: Path, tmp_path: Path, usual: str, size: int
) -> None:
    limit = limited(resource.RLIMIT_AS, size * MB)
    text = outcome(tiny_path, tmp_path, "--http-threads", "4", "--threads", "1", limit=limit)
    assert text == usual or text.startswith("refused: ")


@pytest.mark.parametrize("count", [16, pytest.param(24, marks=pytest.mark.release), 40, 64])
def test_with_few_descriptors_it_runs_or_says_why_not(
    tiny_path: Path, tmp_path: Path, usual: str, count: int
) -> None:
    limit = limited(resource.RLIMIT_NOFILE, count)
    text = outcome(tiny_path, tmp_path, limit=limit)
    assert text == usual or (text.startswith("refused: ") and count < 64)


@pytest.mark.parametrize("flags", [("--threads", "1"), ("--http-threads", "2")])
def test_with_few_threads_it_gives_the_same_answer(
    tiny_path: Path, tmp_path: Path, usual: str, flags: tuple[str, str]
) -> None:
    assert outcome(tiny_path, tmp_path, *flags) == usual


def test_on_one_core_it_gives_the_same_answer(tiny_path: Path, tmp_path: Path, usual: str) -> None:
    assert outcome(tiny_path, tmp_path, limit=on_one_core) == usual


@pytest.fixture
def cpu_group() -> Iterator[Path]:
    """A cgroup of its own in the hierarchy of version 1 or 2 that limits processor time."""
    roots = [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")]
    root = next((r for r in roots if (r / "cgroup.procs").exists()), roots[1])
    group = root / f"oxibonsai-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as e:
        pytest.skip(f"no cgroup can be made: {e}")
    try:
        if not any((group / name).exists() for name in ("cpu.max", "cpu.cfs_quota_us")):
            pytest.skip("this cgroup hierarchy does not limit processor time")
        yield group
    finally:
        group.rmdir()


@pytest.mark.parametrize("percent", [pytest.param(30, marks=pytest.mark.release), 100])
def test_under_a_cpu_quota_it_gives_the_same_answer_with_the_threads_that_it_allows(
    tiny_path: Path, tmp_path: Path, usual: str, cpu_group: Path, percent: int
) -> None:
    if (cpu_group / "cpu.max").exists():
        (cpu_group / "cpu.max").write_text(f"{percent * 1000} 100000")
    else:
        (cpu_group / "cpu.cfs_quota_us").write_text(f"{percent * 1000}")

    def join() -> None:
        (cpu_group / "cgroup.procs").write_text(str(os.getpid()))

    assert outcome(tiny_path, tmp_path, limit=join) == usual
    code = "from oxibonsai.devices import default_threads; print(default_threads())"
    done = subprocess.run(
        [sys.executable, "-c", code], preexec_fn=join, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"


@pytest.mark.parametrize("tier", _core.cpu.tiers())
def test_on_every_tier_it_gives_the_same_answer(
    tiny_path: Path, tmp_path: Path, usual: str, tier: str
) -> None:
    assert outcome(tiny_path, tmp_path, OXIBONSAI_ISA=tier) == usual


HUGE = [
    ("/v1/completions", {"prompt": "The quick brown fox. " * 200_000}),
    ("/v1/completions", {"prompt": "The slow brown fox. " * 200_000}),
    ("/tokenize", {"content": "a " * 2_000_000}),
    ("/v1/completions", {"prompt": [5] * 1_000_000}),
    ("/v1/responses", {"input": [{"role": "user", "content": "a"}] * 100_000}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a " * 4_000_000}]}),
]


def test_health_answers_beside_huge_bodies(tiny_path: Path, tmp_path: Path) -> None:
    kind = {"Content-Type": "application/json"}
    statuses: list[int] = []
    with real_server(tiny_path, tmp_path, "--parity", "off", "--ctx-size", "256") as server:

        def send(path: str, data: bytes) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
            connection.request("POST", path, data, kind)
            statuses.append(connection.getresponse().status)
            connection.close()

        clients = [
            threading.Thread(target=send, args=(path, json.dumps(body).encode()))
            for path, body in HUGE
        ]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            server.check_health()
            time.sleep(0.05)
    assert sorted(statuses) == [200, 400, 400, 400, 400, 400]


def test_an_unknown_tier_is_refused_by_name(tiny_path: Path, tmp_path: Path) -> None:
    text = outcome(tiny_path, tmp_path, OXIBONSAI_ISA="sse9")
    assert text.startswith("refused: ")
    assert "sse9" in text
