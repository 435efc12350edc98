"""Replicas on a Ray cluster of two nodes with one CPU each, on this machine, with PostgreSQL.

The tests share the cluster and run in their order: it ends with one node.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from databases import own_database, postgresql_server
from model_app import close_model_app, make_model_app
from running_server import wait_until

import tiny_model

pytest.importorskip("ray", reason="Ray is not installed: pip install 'oxibonsai[ray]'")
pytest.importorskip("a2wsgi", reason="a2wsgi is not installed: pip install 'oxibonsai[ray]'")
pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("openai", reason="OpenAI's Python client is not installed")
import httpx
import openai
from ray_site import STREAMS, Site, served_by_ray

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CLIENTS = Path(__file__).resolve().parents[1] / "server" / "clients"
MODEL = "seedling-ternary"
SETTINGS = {"model": MODEL, "threads": 1, "parallel": 8, "seed": 7, "parity": "off"}


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgresql_server() as server:
        yield server


@pytest.fixture(scope="module")
def site(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    args = {
        **SETTINGS,
        "state_dir": str(tmp_path_factory.mktemp("state")),
        "max_replicas": 2,
        "target_ongoing_requests": 4,
        "max_imbalance": 100,  # so that only beginnings decide, where prompts are long enough
        "autoscaling": {
            "upscale_delay_s": 0.5,
            "downscale_delay_s": 2,
            "metrics_interval_s": 0.5,
            "look_back_period_s": 2,
        },
    }
    with served_by_ray(database, args) as made:
        yield made


class Load:
    """Clients that ask for one story after the other, and what became of each request."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._ending = threading.Event()
        self.ended: list[str] = []  # ids of responses
        self.failed: list[str] = []  # ids, "" where none had come
        self._threads = [threading.Thread(target=self._ask, args=(i,)) for i in range(STREAMS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self) -> Callable[[], bool]:
        """Says whether so many more responses have come since that every client had one."""
        enough = len(self.ended) + STREAMS
        return lambda: len(self.ended) >= enough

    def _ask(self, number: int) -> None:
        count = 0
        while not self._ending.is_set():
            response_id, complete, count = "", False, count + 1
            try:
                stream = self._site.client.responses.create(
                    model=MODEL, input=f"Story {number} {count}", max_output_tokens=48, stream=True,
                    extra_body={"ignore_eos": True},
                )  # fmt: skip
                with stream:
                    for event in stream:
                        if event.type == "response.created":
                            response_id = event.response.id
                        complete = complete or event.type in _ENDS
            except (openai.APIError, httpx.HTTPError):
                complete = False
            (self.ended if complete else self.failed).append(response_id)


_ENDS = ("response.completed", "response.incomplete")


def completion(client: Any, number: int) -> str:
    """The text of a stream, drawn at temperature 1."""
    pieces = client.completions.create(
        model=MODEL, prompt=f"One day {number} " * (number % 7 + 1), max_tokens=32, temperature=1,
        seed=number, stream=True,
    )  # fmt: skip
    return "".join(piece.choices[0].text for piece in pieces if piece.choices)


def test_forty_streams_at_once_have_the_bytes_of_one_process(site: Site, tmp_path: Path) -> None:
    app = make_model_app(Path(MODEL), tmp_path, alias=MODEL, parallel=8)
    try:
        with app.test_client() as alone:
            answers = [
                alone.post(
                    "/v1/completions",
                    json={
                        "model": MODEL, "prompt": f"One day {i} " * (i % 7 + 1), "max_tokens": 32,
                        "temperature": 1, "seed": i,
                    },
                ).get_json()
                for i in range(STREAMS)
            ]  # fmt: skip
    finally:
        close_model_app(app)
    expected = [answer["choices"][0]["text"] for answer in answers]
    assert len(set(expected)) == STREAMS
    with ThreadPoolExecutor(STREAMS) as threads:
        got = list(threads.map(lambda i: completion(site.client, i), range(STREAMS)))
    assert got == expected


def test_the_official_client_s_cases_pass_at_an_application_of_its_own(
    site: Site, database: str, tmp_path: Path
) -> None:
    from ray import serve

    from oxibonsai.ray_app import build

    path = tmp_path / "tiny.gguf"
    tiny_model.write(path, changes={"qwen3.context_length": (4096, "u32")})
    with own_database(database, "tiny") as store:
        args = {
            "model": str(path), "alias": "served", "threads": 1, "parallel": 4, "seed": 1,
            "chat_template_file": str(CLIENTS / "chatml_tools.jinja"), "store": store,
            "state_dir": str(tmp_path),
        }  # fmt: skip
        serve.run(build(args), name="tiny", route_prefix="/tiny")
        url = site.url.replace("/v1", "/tiny/v1")
        line = [sys.executable, str(CLIENTS / "openai_matrix.py"), url, "served"]
        done = subprocess.run(line, capture_output=True, text=True, cwd=CLIENTS, timeout=500)
        serve.delete("tiny")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failures"] == {}
    assert found["passed"] >= 68


def test_replicas_come_and_go_with_the_load_and_no_request_fails(site: Site) -> None:
    wait_until(lambda: len(site.servers()) == 1)
    with Load(site) as load:
        wait_until(lambda: len(site.servers()) == 2)
        wait_until(load.goes_on())
    wait_until(lambda: len(site.servers()) == 1)
    assert load.failed == []


def test_a_conversation_goes_on_at_another_replica(site: Site) -> None:
    client = site.client
    fields = {"model": MODEL, "max_output_tokens": 16, "temperature": 0}
    begun = client.responses.create(input="Once upon a time", **fields)

    def go_on(_: int) -> Any:
        return client.responses.create(input="Then", previous_response_id=begun.id, **fields)

    with Load(site), ThreadPoolExecutor(8) as threads:
        wait_until(lambda: len(site.servers()) == 2)
        found: dict[int, set[str]] = {}

        def from_both() -> bool:
            for answer in threads.map(go_on, range(8)):
                found.setdefault(site.server_of(answer.id), set()).add(answer.output_text)
            return len(found) == 2

        wait_until(from_both)
    assert len(set.union(*found.values())) == 1


def test_a_prompt_goes_where_its_beginning_went(site: Site) -> None:
    def server_of(number: int, end: str) -> int:
        answer = site.client.responses.create(
            model=MODEL, input=f"{number} " + "word " * 60 + end, max_output_tokens=1
        )
        return site.server_of(answer.id)

    others = itertools.count(16)
    with Load(site):
        # A replica has begun before the front knows it.
        wait_until(lambda: len({server_of(next(others), "") for _ in range(8)}) == 2)
        first = [server_of(i, "") for i in range(16)]
        assert [server_of(i, "more") for i in range(16)] == first
    assert len(set(first)) == 2  # chance sends all to one in 1 of 32,768 runs


def test_a_killed_replica_fails_only_what_it_was_answering(site: Site) -> None:
    with Load(site) as load:
        wait_until(lambda: len(site.servers()) == 2)
        wait_until(load.goes_on())
        assert load.failed == []
        before = site.servers()
        site.kill_an_engine()
        wait_until(lambda: not before <= site.servers())
        (killed,) = before - site.servers()
        wait_until(load.goes_on())
        wait_until(lambda: len(site.servers()) == 2)
        wait_until(load.goes_on())
    assert len(load.failed) <= STREAMS
    assert {site.server_of(response_id) for response_id in load.failed if response_id} <= {killed}


def test_when_a_node_is_gone_the_other_one_goes_on(site: Site) -> None:
    with Load(site) as load:
        wait_until(load.goes_on())
        failed = len(load.failed)
        site.cluster.remove_node(site.second_node)
        wait_until(load.goes_on())
        wait_until(load.goes_on())
        late = len(load.failed)
        wait_until(load.goes_on())
        assert failed == 0
        assert len(load.failed) == late
