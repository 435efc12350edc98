"""A lost process ends what is running with an error, and the other processes; none waits for ever."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (extra: hf)")
import processes

import tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.hf]

GROUP_TIMEOUT = 30
TIMEOUT = 120
# More tokens than are generated before the test has done its harm.
LONG = {"model": "tiny", "prompt": "ab", "max_tokens": 15_000, "ignore_eos": True}


class Served:
    """A group that serves a model."""

    def __init__(self, tensor: int, pipeline: int, folder: Path, replicas: int = 1) -> None:
        model = folder / "tiny.gguf"
        tiny_model.write(model, changes={"qwen3.context_length": (16_384, "u32")})
        self.port = processes.free_port()
        arguments = [
            "-m", "oxibonsai.distributed", "serve", "--model", model, "--port", str(self.port),
            "--tensor-parallel", str(tensor), "--pipeline-parallel", str(pipeline),
            "--interface", "lo", "--group-timeout", str(GROUP_TIMEOUT), "--start-timeout", "240",
            "--parity", "off", "--state-dir", folder, "--replicas", str(replicas),
        ]  # fmt: skip
        self.ranks = processes.start(arguments, tensor * pipeline)

    @contextmanager
    def request(
        self, method: str, path: str, body: dict[str, object] | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer, whose body is not read yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        data = None if body is None else json.dumps(body)
        with closing(connection):
            connection.request(method, path, data, {"Content-Type": "application/json"})
            with connection.getresponse() as response:
                yield response

    def stream(self) -> AbstractContextManager[http.client.HTTPResponse]:
        """The answer to a request that is still running when the test has done its harm."""
        return self.request("POST", "/v1/completions", {**LONG, "stream": True})

    def status(self) -> int:
        """Of the answer to such a request that waits for the whole text."""
        with self.request("POST", "/v1/completions", LONG) as response:
            response.read()
            return response.status

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            assert all(p.poll() is None for p in self.ranks), "a rank has ended"
            with suppress(OSError), self.request("GET", "/health") as response:
                if response.status == 200:
                    return
            time.sleep(0.2)
        raise TimeoutError("the server did not come up")

    def wait_until_running(self, count: int) -> None:
        """Waits until so many requests are being answered: a later one may find no server."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            with self.request("GET", "/slots") as response:
                if sum(slot["is_processing"] for slot in json.load(response)) == count:
                    return
            time.sleep(0.05)
        raise TimeoutError(f"there are no {count} running requests")

    def worker(self) -> int:
        """The process of rank 0 that has its part of the model."""
        pid = self.ranks[0].pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(child)


@dataclass
class Loss:
    """Which rank of which group is lost, how, the exit codes of all ranks after that, and engines."""

    tensor: int
    pipeline: int
    rank: int
    signal: signal.Signals
    codes: list[int]
    replicas: int = 1

    def __str__(self) -> str:
        return f"{self.tensor}x{self.pipeline}-{self.signal.name}-{self.rank}-{self.replicas}"


KILL, STOP = signal.SIGKILL, signal.SIGSTOP
LOSSES = [
    Loss(2, 1, 1, KILL, [1, -KILL]),
    Loss(1, 2, 1, KILL, [1, -KILL]),
    pytest.param(Loss(2, 2, 1, KILL, [1, -KILL, 1, 1]), marks=pytest.mark.release),
    Loss(2, 2, 2, KILL, [1, 1, -KILL, 1]),
    pytest.param(Loss(2, 2, 3, KILL, [1, 1, 1, -KILL]), marks=pytest.mark.release),
    # Two engines, with a step each on its way.
    Loss(1, 2, 1, KILL, [1, -KILL], replicas=2),
    # One that stands still is lost after the timeout, and ends by itself when it goes on.
    Loss(1, 2, 1, STOP, [1, 1]),
]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_requests_end_with_503_and_every_rank_with_code_1(loss: Loss, tmp_path: Path) -> None:
    served = Served(loss.tensor, loss.pipeline, tmp_path, loss.replicas)
    try:
        served.wait_until_ready()
        with ThreadPoolExecutor(1) as threads, served.stream() as stream:
            assert stream.readline().startswith(b"data: ")
            status = threads.submit(served.status)
            served.wait_until_running(2)
            os.kill(served.ranks[loss.rank].pid, loss.signal)
            rest = stream.read().decode()
            assert '"error"' in rest.strip().splitlines()[-1]
            assert status.result() == 503
        assert served.ranks[0].wait(TIMEOUT) == 1
        os.kill(served.ranks[loss.rank].pid, signal.SIGCONT)
        assert [p.wait(TIMEOUT) for p in served.ranks] == loss.codes
    finally:
        processes.end(served.ranks)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("tensor", "pipeline"), [(2, 1), pytest.param(2, 2, marks=pytest.mark.release)]
)
def test_the_others_end_when_the_worker_of_rank_0_is_killed(
    tensor: int, pipeline: int, tmp_path: Path
) -> None:
    served = Served(tensor, pipeline, tmp_path)
    try:
        served.wait_until_ready()
        with served.stream() as stream:
            assert stream.readline().startswith(b"data: ")
            os.kill(served.worker(), signal.SIGKILL)
            assert [p.wait(TIMEOUT) for p in served.ranks] == [1] * len(served.ranks)
    finally:
        processes.end(served.ranks)


def test_the_others_end_when_the_arbiter_of_rank_0_is_killed(tmp_path: Path) -> None:
    served = Served(2, 1, tmp_path)
    try:
        served.wait_until_ready()
        os.kill(served.ranks[0].pid, signal.SIGKILL)
        # Its worker answers what it has, and sends the others away.
        assert [p.wait(TIMEOUT) for p in served.ranks] == [-signal.SIGKILL, 0]
    finally:
        processes.end(served.ranks)


LEAVE = """
from pathlib import Path
from oxibonsai.distributed import Link, join

def threads():
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}

before = threads()
group = join(1, 1, Link("lo", 60.0, 60.0))
group.meet()
group.all_gather_bytes(b"bytes")
assert any("gloo" in name for name in threads() - before)
group.leave()
assert not any("gloo" in name for name in threads()), threads()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_leaving_a_group_ends_gloo_s_threads() -> None:
    environment = processes.environment(0, 1, processes.free_port())
    done = subprocess.run(
        [sys.executable, "-c", LEAVE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
