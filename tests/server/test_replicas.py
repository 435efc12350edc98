"""``--replicas``: several engines in one server, over one set of weights."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from model_app import close_model_app, make_model_app
from real_server import real_server


def body(i: int) -> dict[str, object]:
    return {"prompt": f"story {i} " * (i + 1), "n_predict": 12, "temperature": 1, "seed": i}


def test_every_replica_gives_the_same_answers(tiny_path: Path, tmp_path: Path) -> None:
    texts = []
    for replicas in (1, 3):
        app = make_model_app(tiny_path, tmp_path / str(replicas), replicas=replicas, parallel=2)
        try:
            client = app.test_client()
            assert client.get("/props").get_json()["total_slots"] == 2 * replicas

            def ask(i: int, app: object = app) -> tuple[str, int]:
                answer = app.test_client().post("/completion", json=body(i)).get_json()  # type: ignore[attr-defined]
                return answer["content"], answer["id_slot"]

            with ThreadPoolExecutor(6) as threads:
                answers = list(threads.map(ask, range(24)))
            texts.append([text for text, _ in answers])
            assert {slot // 2 for _, slot in answers} == set(range(replicas))
        finally:
            close_model_app(app)
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_more_replicas_add_no_weights(smollm2_path: Path, tmp_path: Path) -> None:
    def resident(replicas: int) -> int:
        folder = tmp_path / str(replicas)
        folder.mkdir()
        flags = ["--replicas", str(replicas), "--ctx-size", "128", "--parity", "off"]
        with real_server(smollm2_path, folder, *flags) as server, ThreadPoolExecutor(8) as threads:
            sent = [json.dumps(body(i)).encode() for i in range(8)]
            kind = {"Content-Type": "application/json"}
            answers = threads.map(lambda b: server.ask("/completion", "POST", b, **kind), sent)
            assert [status for status, _, _ in answers] == [200] * 8
            statm = Path(f"/proc/{server.worker_pid()}/statm").read_text()
            return int(statm.split()[1]) * 4096

    one, four = resident(1), resident(4)
    weights = smollm2_path.stat().st_size
    assert one > weights
    assert four - one < weights // 2  # three more copies would be three times the weights
