"""``oxibonsai bench speculation``: which requests it sends, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oxibonsai.errors import OxiBonsaiError, RequestError
from oxibonsai.loadtest.client import ChatClient
from oxibonsai.loadtest.speculation import PROMPTS, Cell, Drafts, grid, measure, speculation_of
from server.real_server import real_server

URL = "http://server/v1"
Respond = Callable[[httpx2.Request], httpx2.Response]


def props(kind: str) -> Respond:
    params = {"speculative.types": kind}
    return lambda _: httpx2.Response(200, json={"default_generation_settings": {"params": params}})


def kind_at(respond: Respond) -> str:
    async def go() -> str:
        async with ChatClient(URL, transport=httpx2.MockTransport(respond)) as client:
            return await speculation_of(client, "m")

    return asyncio.run(go())


def test_the_server_says_what_drafts() -> None:
    asked: list[httpx2.URL] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url)
        return props("draft-mtp")(request)

    assert kind_at(respond) == "draft-mtp"
    assert [str(url) for url in asked] == ["http://server/props?model=m"]
    with pytest.raises(RequestError, match="start it with --speculate or --draft-model"):
        kind_at(props("none"))
    with pytest.raises(OxiBonsaiError, match="does not say what drafts"):
        kind_at(lambda _: httpx2.Response(200, json={}))
    with pytest.raises(OxiBonsaiError, match=r"props.* gave no answer: HTTP 404"):
        kind_at(lambda _: httpx2.Response(404, json={}))


def test_drafts_of_n_grams_have_no_thresholds() -> None:
    assert grid("ngram-simple", [1, 2], [0.5]) == [
        Drafts(None, None), Drafts(1, None), Drafts(2, None),
    ]  # fmt: skip
    assert grid("draft-simple", [1, 2], [0.5, 0.7]) == [
        Drafts(None, None), Drafts(1, 0.5), Drafts(1, 0.7), Drafts(2, 0.5), Drafts(2, 0.7),
    ]  # fmt: skip


class Server:
    """Answers at 10 tokens per second without drafts, and at 10 n with n > 0 of them."""

    def __init__(self, texts: Callable[[dict[str, Any]], str]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._texts = texts

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        self.bodies.append(body)
        length = body.get("speculative.n_max", 5)
        timings: dict[str, float] = {"predicted_per_second": 10.0 * max(length, 1)}
        if length:
            timings |= {"draft_n": 8, "draft_n_accepted": 6}
        message = {"role": "assistant", "content": self._texts(body)}
        return httpx2.Response(200, json={"choices": [{"message": message}], "timings": timings})


def measured(server: Server, *ways: Drafts, rounds: int = 2) -> list[Cell]:
    async def go() -> list[Cell]:
        async with ChatClient(URL, transport=httpx2.MockTransport(server)) as client:
            return await measure(client, ways, model="m", tokens=7, rounds=rounds)

    return asyncio.run(go())


def test_every_way_is_measured_in_turn_with_plain_decoding() -> None:
    server = Server(lambda _: "same")
    cells = measured(server, Drafts(None, None), Drafts(4, 0.5))
    assert cells == [
        Cell(prompt, length, threshold, 16, 12, 10.0, speed)
        for prompt in PROMPTS
        for length, threshold, speed in ((None, None, 50.0), (4, 0.5, 40.0))
    ]
    assert [(c.acceptance, c.speed) for c in cells] == [(0.75, 5.0), (0.75, 4.0)] * 2
    fields = [(b.get("speculative.n_max"), b.get("speculative.p_min")) for b in server.bodies[:8]]
    assert fields == [(0, None), (None, None)] * 2 + [(0, None), (4, 0.5)] * 2
    assert len({b["cache_salt"] for b in server.bodies}) == len(server.bodies)
    assert all(b["max_tokens"] == 7 and b["temperature"] == 0 for b in server.bodies)


def test_drafts_that_change_a_text_are_an_error() -> None:
    server = Server(lambda body: "other" if body["speculative.n_max"] else "one")
    with pytest.raises(OxiBonsaiError, match="changed a text"):
        measured(server, Drafts(2, None), rounds=1)


@pytest.mark.slow
def test_a_served_model_is_measured(tmp_path: Path) -> None:
    from oxibonsai.sources import resolve

    flags = ("--draft-model", "seedling-1bit", "--threads", "1", "--alias", "tale")
    with real_server(resolve("seedling-ternary"), tmp_path, *flags) as server:
        line = [sys.executable, "-m", "oxibonsai", "bench", "speculation", "-n", "16", "-r", "1"]
        line += ["--url", f"http://127.0.0.1:{server.port}/v1"]
        more = ["--lengths", "2", "--thresholds", "0.1", "--json"]
        done = subprocess.run([*line, *more], capture_output=True, text=True, check=True)
        report = json.loads(done.stdout)
        assert (report["model"], report["speculation"]) == ("tale", "draft-simple")
        cells = [(c["prompt"], c["length"], c["threshold"]) for c in report["cells"]]
        assert cells == [(p, n, t) for p in PROMPTS for n, t in ((None, None), (2, 0.1))]
        # At so low a threshold something is drafted.
        assert all(c["drafted"] >= c["accepted"] >= 0 for c in report["cells"])
        assert any(c["acceptance"] and c["threshold"] == 0.1 for c in report["cells"])
        assert all(c["tok_s"] > 0 and c["speed"] > 0 for c in report["cells"])
        table = subprocess.run([*line, "--lengths", "65"], capture_output=True, text=True)
    assert table.returncode == 1
    assert "speculative.n_max" in table.stderr
