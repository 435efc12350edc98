"""An answer is the same alone and under load, byte for byte, through the real server."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from real_server import real_server
from running_server import RunningServer


def streamed(server: RunningServer, number: int) -> tuple[str, str]:
    """Text and finish reason of one stream."""
    body = {
        "messages": [{"role": "user", "content": f"Count from {number} to {number * 7}. " * 3}],
        "max_tokens": 24 + number, "seed": number, "temperature": 1.0, "stream": True,
        "logprobs": number % 2 == 0,
    }  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    blocks = connection.getresponse().read().decode().split("\n\n")
    connection.close()
    data = [b.removeprefix("data: ") for b in blocks if b.startswith("data: ")]
    assert data[-1] == "[DONE]"
    choices = [json.loads(d)["choices"][0] for d in data[:-1]]
    text = "".join(c["delta"].get("content") or "" for c in choices)
    return text, choices[-1]["finish_reason"]


def check_same_bytes(model: Path, folder: Path) -> None:
    with real_server(model, folder, "-np", "5", "--parity", "off") as server:
        alone = [streamed(server, i) for i in range(1, 9)]
        assert len({text for text, _ in alone}) == 8
        with ThreadPoolExecutor(8) as threads:
            for _ in range(3):  # eight at once on five places
                assert list(threads.map(lambda i: streamed(server, i), range(1, 9))) == alone
        assert "error" not in server.log.read_text()


def test_eight_streams_at_once_read_as_each_alone(tiny_path: Path, tmp_path: Path) -> None:
    check_same_bytes(tiny_path, tmp_path)


@pytest.mark.slow
def test_eight_streams_of_a_trained_model_at_once(smollm2_path: Path, tmp_path: Path) -> None:
    check_same_bytes(smollm2_path, tmp_path)
