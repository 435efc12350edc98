"""SmolLM2 on two replicas of Ray Serve, and what becomes of one that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from databases import postgresql_server
from model_app import close_model_app, make_model_app
from running_server import wait_until

import oxibonsai
from oxibonsai import SamplingParams

pytest.importorskip("ray", reason="Ray is not installed: pip install 'oxibonsai[ray]'")
pytest.importorskip("a2wsgi", reason="a2wsgi is not installed: pip install 'oxibonsai[ray]'")
pytest.importorskip("httpx", reason="httpx is not installed")
pytest.importorskip("openai", reason="OpenAI's Python client is not installed")
from ray_site import Site, served_by_ray

pytestmark = [
    pytest.mark.release,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

MODEL = "smollm2"
STREAMS = 12
# What the product promises (docs/scale.md), from the kill to an answer of the new replica.
PROMISED_SECONDS = 10
# The server's defaults are others than the engine's.
NAMED: dict[str, Any] = {"max_tokens": 24, "temperature": 1.0, "top_p": 0.95}
OTHERS: dict[str, Any] = {"top_k": 40, "min_p": 0.02}
SETTINGS = {"alias": MODEL, "threads": 1, "parallel": 4, "seed": 7, "parity": "off"}


@pytest.fixture(scope="module")
def site(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    args = {
        **SETTINGS,
        "model": str(smollm2_path),
        "state_dir": str(tmp_path_factory.mktemp("state")),
        "min_replicas": 2,
        "max_replicas": 2,
    }
    with postgresql_server() as database, served_by_ray(database, args) as made:
        wait_until(lambda: len(made.servers()) == 2)
        yield made


def question(i: int) -> dict[str, Any]:
    """Of the responses API: its answers say which replica they are from."""
    return {
        "model": MODEL,
        "input": f"What is the {i + 1}th letter of the alphabet?",
        "max_output_tokens": 16,
        "temperature": 0,
    }


def test_streams_have_the_text_of_the_plain_engine(site: Site, smollm2_path: Path) -> None:
    def prompt(i: int) -> str:
        return f"Chapter {i}. " + "It was a dark night. " * (i % 4)

    def streamed(i: int) -> str:
        pieces = site.client.completions.create(
            model=MODEL, prompt=prompt(i), seed=i, stream=True, **NAMED, extra_body=OTHERS
        )
        return "".join(piece.choices[0].text for piece in pieces if piece.choices)

    engine = oxibonsai.load(smollm2_path, threads=1, parity="off")
    expected = [
        "".join(engine.generate(prompt(i), SamplingParams(seed=i, **NAMED, **OTHERS)))
        for i in range(STREAMS)
    ]
    assert len(set(expected)) == STREAMS
    with ThreadPoolExecutor(STREAMS) as threads:
        assert list(threads.map(streamed, range(STREAMS))) == expected


def test_both_replicas_answer_as_one_process(
    site: Site, smollm2_path: Path, tmp_path: Path
) -> None:
    app = make_model_app(smollm2_path, tmp_path, **SETTINGS)
    try:
        client = app.test_client()
        alone = [client.post("/v1/responses", json=question(i)).get_json() for i in range(STREAMS)]
    finally:
        close_model_app(app)
    expected = [answer["output"][0]["content"][0]["text"] for answer in alone]
    assert len(set(expected)) > 1
    with ThreadPoolExecutor(STREAMS) as threads:
        found = list(
            threads.map(lambda i: site.client.responses.create(**question(i)), range(STREAMS))
        )
    assert [answer.output_text for answer in found] == expected
    assert {site.server_of(answer.id) for answer in found} == site.servers()
    assert len(site.servers()) == 2


def test_a_killed_replica_is_replaced_within_ten_seconds(site: Site) -> None:
    before = site.servers()
    site.kill_an_engine()

    def new_one_answers() -> bool:
        if len(site.servers() - before) != 1:
            return False
        with ThreadPoolExecutor(STREAMS) as threads:
            found = threads.map(lambda i: site.client.responses.create(**question(i)), range(4))
            return any(site.server_of(answer.id) not in before for answer in found)

    wait_until(new_one_answers, site.servers, PROMISED_SECONDS)
    wait_until(lambda: len(site.servers()) == 2)
    assert len(site.servers() & before) == 1
