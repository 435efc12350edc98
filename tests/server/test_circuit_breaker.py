"""Circuits of models that keep failing, and memory that is short: 503 and when to come again."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import free_port
from flask.testing import FlaskClient
from running_server import PATIENCE, RunningServer, wait_until

from oxibonsai.files.machine import available_memory, physical_memory
from oxibonsai.server.app import create_app
from oxibonsai.server.circuit_breaker import Circuits, State
from oxibonsai.server.engine_backend import EngineBackend
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings

BODY = {"prompt": "ab", "max_tokens": 4, "seed": 1}
TEXT = "/v1/completions"


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def circuits(clock: Clock) -> Circuits:
    return Circuits(clock)


def opened(circuits: Circuits, model: str = "m") -> None:
    for _ in range(5):
        circuits.fail(model)


def test_the_fifth_failure_in_a_row_opens(circuits: Circuits) -> None:
    for _ in range(4):
        circuits.fail("m")
    assert circuits.state("m") is State.CLOSED
    assert circuits.enter("m") is None
    circuits.leave("m", succeeded=True)  # four failures are forgotten
    for _ in range(4):
        circuits.fail("m")
        assert circuits.state("m") is State.CLOSED
    circuits.fail("m")
    assert circuits.state("m") is State.OPEN
    assert circuits.state("another") is State.CLOSED
    assert circuits.enter("another") is None


def test_an_open_one_lets_nothing_run_for_30_seconds(circuits: Circuits, clock: Clock) -> None:
    opened(circuits)
    assert circuits.enter("m") == 30.0
    clock.now += 29.5
    assert circuits.enter("m") == 0.5
    clock.now += 0.5
    assert circuits.state("m") is State.HALF_OPEN
    assert circuits.enter("m") is None


def test_three_probes_at_most_run_at_once_and_two_successes_close(
    circuits: Circuits, clock: Clock
) -> None:
    opened(circuits)
    clock.now += 30
    assert [circuits.enter("m") for _ in range(5)] == [None, None, None, 1.0, 1.0]
    circuits.leave("m", succeeded=False)  # cancelled: neither
    assert circuits.enter("m") is None
    circuits.leave("m", succeeded=True)
    assert circuits.state("m") is State.HALF_OPEN
    circuits.leave("m", succeeded=True)
    assert circuits.state("m") is State.CLOSED
    assert [circuits.enter("m") for _ in range(9)] == [None] * 9


def test_a_probe_that_fails_opens_again(circuits: Circuits, clock: Clock) -> None:
    opened(circuits)
    clock.now += 30
    assert circuits.enter("m") is None
    circuits.leave("m", succeeded=True)
    circuits.fail("m")
    assert circuits.state("m") is State.OPEN
    clock.now += 30
    assert circuits.enter("m") is None
    circuits.leave("m", succeeded=True)  # the success of before does not count
    assert circuits.state("m") is State.HALF_OPEN


def test_a_success_of_before_closes_no_open_circuit(circuits: Circuits, clock: Clock) -> None:
    assert [circuits.enter("m") for _ in range(2)] == [None, None]
    opened(circuits)
    for _ in range(2):
        circuits.leave("m", succeeded=True)
    assert circuits.state("m") is State.OPEN


def test_a_worker_that_dies_is_a_failure_of_what_it_answered(circuits: Circuits) -> None:
    """The state is the parent's, too."""
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            circuits.enter("busy")
            circuits.enter("done")
            circuits.leave("done", succeeded=True)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        circuits.worker_died()
    assert circuits.state("busy") is State.OPEN
    assert circuits.state("done") is State.CLOSED


def test_more_models_than_there_are_circuits_for_still_run(circuits: Circuits) -> None:
    for i in range(300):
        assert circuits.enter(f"m{i}") is None
    opened(circuits, "m299")
    assert circuits.enter("m299") is None
    opened(circuits, "m255")
    assert circuits.enter("m255") == 30.0


@pytest.fixture(scope="module")
def fragile(
    tiny_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Clock]]:
    """The application on the tiny model, with a clock for its circuits."""
    clock = Clock()
    given = {"model": str(tiny_path), "alias": "tiny", "threads": 1, "parity": "off"}
    folder = tmp_path_factory.mktemp("state")
    settings = load_settings({"state_dir": folder, "metrics": True, **given})
    lifecycle = Lifecycle(Circuits(clock))
    backend = EngineBackend(settings, lifecycle)
    backend.load()
    app = create_app(settings, backend, lifecycle)
    app.lifecycle.advance(Phase.READY)
    yield app, clock
    app.backend.close()
    app.store.close()


def gauge(client: FlaskClient) -> float:
    lines = client.get("/metrics").text.splitlines()
    (line,) = (row for row in lines if row.startswith("oxibonsai_circuit_state{"))
    return float(line.split()[1])


CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


def test_an_open_circuit_refuses_says_so_and_closes_by_itself(
    fragile: tuple[Server, Clock],
) -> None:
    app, clock = fragile
    client = app.test_client()
    for _ in range(10):  # never a failure of the machine
        assert client.post(TEXT, json={**BODY, "top_p": 7}).status_code == 400
        assert client.post(TEXT, json={**BODY, "prompt": [10**6]}).status_code == 400
    assert client.get("/health").get_json() == {"status": "ok"}
    assert gauge(client) == 0
    opened(app.lifecycle.circuits, str(app.settings.model))
    clock.now += 10
    bodies: list[tuple[str, dict[str, Any]]] = [
        (TEXT, BODY),
        (TEXT, {**BODY, "stream": True}),
        (TEXT, {"prompt": "ab", "max_tokens": 4, "use_beam_search": True, "n": 2}),
        ("/v1/chat/completions", CHAT),
        ("/completion", {"prompt": "ab", "n_predict": 4}),
    ]
    for path, body in bodies:
        answer = client.post(path, json=body)
        assert answer.status_code == 503, path
        assert answer.get_json()["error"]["code"] == "circuit_open"
        assert answer.headers["Retry-After"] == "20"
    (state,) = client.get("/health").get_json()["circuits"].values()
    assert (state, gauge(client)) == ("open", 2)
    clock.now += 20
    (state,) = client.get("/health").get_json()["circuits"].values()
    assert (state, gauge(client)) == ("half_open", 1)
    assert client.post(TEXT, json=BODY).status_code == 200
    assert client.post(TEXT, json={**BODY, "prompt": [10**6]}).status_code == 400
    assert gauge(client) == 1
    assert client.post(*bodies[2][:1], json=bodies[2][1]).status_code == 200
    assert client.get("/health").get_json() == {"status": "ok"}
    assert gauge(client) == 0


@pytest.mark.slow
def test_a_model_whose_worker_dies_five_times(tiny_path: Path, tmp_path: Path) -> None:
    order, time, log, port = tmp_path / "break", tmp_path / "clock", tmp_path / "log", free_port()
    time.write_text("1000")
    main = str(Path(__file__).with_name("breaking_server.py"))
    flags = ["-m", str(tiny_path), "--port", str(port), "--threads", "1", "--parity", "off"]
    environment = {
        **os.environ,
        **{"BREAK": str(order), "CLOCK": str(time), "OXIBONSAI_STATE_DIR": str(tmp_path / "s")},
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, main, *flags], stdout=output, stderr=output, env=environment
        )
    server = RunningServer(process, port, log)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    body = json.dumps(BODY).encode()

    def ask() -> tuple[int, dict[str, str], Any]:
        return server.ask(TEXT, "POST", body, **{"Content-Type": "application/json"})

    try:
        # What raises loses the request once, and does so again in the next worker, which has got it.
        for how in ("kill", "twice", "kill", "kill"):
            server.wait_for("/readyz", 200)
            assert "circuits" not in server.ask("/health")[2]
            worker = children.read_text()
            order.write_text(how)
            with contextlib.suppress(OSError, http.client.HTTPException):
                assert ask()[0] in (500, 503)
            wait_until(lambda seen=worker: children.read_text() != seen, log.read_text)  # type: ignore[misc]
        server.wait_for("/readyz", 200)
        (state,) = server.ask("/health")[2]["circuits"].values()
        assert state == "open"
        status, headers, refused = ask()
        assert (status, headers["retry-after"]) == (503, "30")
        assert refused["error"]["code"] == "circuit_open"
        time.write_text("1030")
        assert [ask()[0] for _ in range(2)] == [200, 200]
        assert server.ask("/health")[2] == {"status": "ok"}
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_no_text_is_begun_where_memory_is_short(
    fragile: tuple[Server, Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = fragile
    client = app.test_client()
    monkeypatch.setattr("oxibonsai.server.submitter.available_memory", lambda: 127 << 20)
    answer = client.post(TEXT, json=BODY)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    error = answer.get_json()["error"]
    assert error["code"] == "low_memory"
    assert "127 MiB" in error["message"]
    assert client.get("/health").get_json() == {"status": "ok"}  # no failure
    for room in (128 << 20, None):
        monkeypatch.setattr("oxibonsai.server.submitter.available_memory", lambda room=room: room)
        assert client.post(TEXT, json=BODY).status_code == 200


MEMINFO = "MemTotal:       8000000 kB\nMemFree:  1000 kB\nMemAvailable:   {} kB\n"


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/meminfo": MEMINFO.format(5000)}, 5000 << 10),
        (
            {
                "proc/meminfo": MEMINFO.format(5000),
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.current": "5\n",
                "sys/fs/cgroup/a/memory.max": "3000000\n",
                "sys/fs/cgroup/a/memory.current": "2900000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 7\ninactive_file 40000\n",
            },
            140_000,
        ),
        (
            {
                "proc/meminfo": MEMINFO.format(5000),
                "proc/self/cgroup": "5:cpu:/x\n4:memory,hugetlb:/docker/abc\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000001\n",
            },
            0,
        ),
        ({}, None),
    ],
    ids=["machine", "second version, a group above", "first version, a container's root", "no Linux"],
)  # fmt: skip
def test_available_memory_is_what_machine_and_groups_leave(
    files: dict[str, str], expected: int | None, tmp_path: Path
) -> None:
    assert available_memory(tree(tmp_path, files)) == expected


def test_available_memory_of_this_machine() -> None:
    room = available_memory()
    assert room is not None
    assert 0 < room <= physical_memory()
