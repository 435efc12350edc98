"""Several processes give the bytes of one; strangers are refused, and a lost process is noticed."""

from __future__ import annotations

import http.client
import json
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (extra: hf)")
pytest.importorskip("transformers", reason="needs transformers (extra: hf)")
import dense_models as dm
import expert_models as em
import processes
import random_models as rm
import recurrent_models as rc
from answers import answers

from oxibonsai.convert.language_model import convert

pytestmark = [pytest.mark.slow, pytest.mark.hf]

ANSWERS = Path(__file__).parent / "answers.py"
PROGRAM = ("-m", "oxibonsai.distributed")
QUICK = ("--interface", "lo", "--group-timeout", "20", "--start-timeout", "60")
TIMEOUT = 240


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Dense ones of one and two bits, one with experts, two with recurrent state."""
    folder = tmp_path_factory.mktemp("models")
    for name, quant_type in (("q1", "Q1_0"), ("pq2", "Q2_0_g128")):
        rm.build(rm.QWEN3, folder / f"{name}.gguf", quant_type)
    dm.save(em.CASES[0], folder / "experts")
    for case in rc.CASES:
        if case.name in ("qwen35", "mamba2"):
            case.save(folder / case.name)
    for source in [p for p in folder.iterdir() if p.is_dir()]:
        convert(source, folder / f"{source.name}.gguf", dtype="q8_0")
    return sorted(folder.glob("*.gguf"))


@pytest.fixture(scope="module")
def expected(models: list[Path]) -> dict[str, dict[str, object]]:
    found = {str(m): answers(m) for m in models}
    for of_model in found.values():
        assert of_model["texts"] == of_model["cached"]
        assert of_model["plain"] == of_model["drafted"]
    return found


@pytest.mark.parametrize(("tensor", "pipeline"), [(3, 1), (1, 2), (2, 2)])
def test_answers_are_those_of_one_process(
    tensor: int,
    pipeline: int,
    models: list[Path],
    expected: dict[str, dict[str, object]],
) -> None:
    ranks = processes.start([ANSWERS, str(tensor), str(pipeline), *models], tensor * pipeline)
    results = processes.finish(ranks, TIMEOUT)
    assert [code for code, _, _ in results] == [0] * len(ranks), [r[2] for r in results]
    lines = [json.loads(line) for line in results[0][1].splitlines()]
    assert {line.pop("model"): line for line in lines} == expected


def test_another_file_or_secret_is_refused_by_every_rank(models: list[Path]) -> None:
    def command(model: Path) -> list[str | Path]:
        return [*PROGRAM, "run", "--tensor-parallel", "3", *QUICK, "-m", model, "-p", "a"]

    ranks = processes.start(
        command(models[0]),
        3,
        more={2: {processes.SECRET: "another"}},
        others={1: command(models[1])},
    )
    for rank, (code, out, err) in enumerate(processes.finish(ranks, TIMEOUT)):
        assert (code, out) == (2, "")
        (line,) = [x for x in err.splitlines() if x.startswith("oxibonsai")]
        if rank == 0:
            assert "rank 1 has another model file" in line
            assert "rank 2 has another secret" in line
        if rank == 1:
            assert "rank 0 has another model file" in line


class Served:
    """A group that serves a model."""

    def __init__(self, world: int, model: Path, folder: Path) -> None:
        self.port = processes.free_port()
        arguments = [
            *PROGRAM, "serve", "--tensor-parallel", str(world), *QUICK, "--model", model,
            "--port", str(self.port), "--parity", "off", "--state-dir", folder,
        ]  # fmt: skip
        self.ranks = processes.start(arguments, world)

    def request(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """The status and the whole body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            assert all(p.poll() is None for p in self.ranks), "a rank has ended"
            try:
                if self.request("GET", "/health")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise TimeoutError("the server did not come up")


def test_a_lost_process_ends_requests_with_503(tiny_path: Path, tmp_path: Path) -> None:
    served = Served(2, tiny_path, tmp_path)
    try:
        served.wait_until_ready()
        body = {"model": "tiny", "prompt": "ab", "max_tokens": 4, "ignore_eos": True}
        status, text = served.request("POST", "/v1/completions", body)
        assert status == 200, text
        # One that stands still is noticed like one that is gone, after the group's timeout.
        served.ranks[1].send_signal(signal.SIGKILL)
        try:
            status, text = served.request("POST", "/v1/completions", {**body, "max_tokens": 400})
            assert status == 503, text
        except OSError:
            pytest.fail("the server was gone before it answered")
        assert served.ranks[0].wait(60) == 1
    finally:
        processes.end(served.ranks)


def test_a_world_of_another_size_is_refused(tiny_path: Path) -> None:
    arguments = [*PROGRAM, "run", "--pipeline-parallel", "3", "-m", tiny_path, "-p", "a"]
    ((code, _, err),) = processes.finish(processes.start(arguments, 1), TIMEOUT)
    assert code == 2
    assert "torchrun has started 1 processes" in err
