"""The server with nothing but the package: a trained low-bit model answers over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

from real_server import real_server

from oxibonsai.sources.local import PACKAGED


def test_each_model_answers_over_http_as_often_as_asked(tmp_path: Path) -> None:
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": "Once upon a time"}],
            "seed": 1,
            "max_tokens": 40,
        }
    ).encode()
    texts = []
    for name in PACKAGED:
        folder = tmp_path / name
        folder.mkdir()
        with real_server(Path(name), folder) as server:
            answers = [
                server.ask(
                    "/v1/chat/completions", "POST", body, **{"Content-Type": "application/json"}
                )
                for _ in range(2)
            ]
            assert [status for status, _, _ in answers] == [200, 200]
            first, second = (a["choices"][0]["message"]["content"] for _, _, a in answers)
            assert first == second
            assert len(first.split()) >= 10
            texts.append(first)
            models = server.ask("/v1/models")[2]["data"]
            assert [m["id"] for m in models] == [name]
    assert texts[0] != texts[1]
