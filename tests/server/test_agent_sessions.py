"""A long session of an agent: whatever the client edits at its end, each token of a prompt is read once.

An answer is that of a server which keeps nothing.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from model_app import close_model_app, make_model_app
from real_server import real_server
from running_server import RunningServer

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
from agent_sessions import CONTEXT, LONG_CONTEXT, TURNS, Agent, Turn, long_agent, make_model, told

from oxibonsai.server.server import Server

pytestmark = pytest.mark.hf

Serve = Callable[..., Server]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("agent"))


@pytest.fixture
def serve(model: Path, tmp_path: Path) -> Iterator[Serve]:
    """Starts servers, which end with the test."""
    running: list[Server] = []

    def start(**values: Any) -> Server:
        settings = {
            "ctx_size": CONTEXT,
            "parallel": 1,
            "reasoning_budget": 12,
            "metrics": True,
            **values,
        }
        running.append(make_model_app(model, tmp_path / f"state{len(running)}", **settings))
        return running[-1]

    yield start
    for server in running:
        close_model_app(server)


@pytest.fixture(scope="module")
def fresh(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that keeps nothing from one request to the next."""
    folder = tmp_path_factory.mktemp("fresh")
    server = make_model_app(
        model, folder, ctx_size=CONTEXT, parallel=1, reasoning_budget=12, cache_ram=0
    )
    yield server
    close_model_app(server)


def check_read_once(turns: list[Turn]) -> None:
    """Counted by the answers: at most 1.1 times what is new."""
    assert all(t.read + t.cached == t.prompt for t in turns)
    assert sum(t.read for t in turns) <= 1.1 * sum(t.new for t in turns)


def check_answers(fresh: Server, agent: Agent, turns: dict[int, Turn]) -> None:
    """They are those of a server without a cache."""
    for number, turn in turns.items():
        again = Agent(agent.thinks, agent.messages[: turn.messages]).ask(fresh, number)
        assert again.cached == 0
        assert told(again) == told(turn), number


@pytest.mark.long("talks for thirty turns to servers with and without a cache")
@pytest.mark.parametrize(("thinks", "step"), [(False, 5), (True, 1)], ids=["plain", "thinking"])
def test_a_session_reads_each_token_once(
    serve: Serve, fresh: Server, thinks: bool, step: int
) -> None:
    server = serve()
    agent = Agent(thinks)
    turns = agent.run(server)
    check_read_once(turns)
    assert len({str(told(t)) for t in turns}) > 2, "answers that differ"
    counts = server.backend.pool.engines[0].counts  # type: ignore[attr-defined]
    generated = sum(len(text) for text in agent.texts) - sum(t.prompt for t in turns)
    # The first token of an answer comes from the prompt's last row.
    assert counts.rows == sum(t.read for t in turns) + generated - TURNS
    metrics = server.test_client().get("/metrics").text
    assert f"oxibonsai_snapshot_hits_total {TURNS - 1}.0" in metrics
    # Another session begins with the same system's turn, and reads nothing of it.
    (other,) = Agent(thinks).run(server, end=1)
    assert other.read < 30
    (slot,) = server.test_client().get("/slots").get_json()
    assert slot["state_cache"]["hits"] == TURNS
    check_answers(fresh, agent, dict(list(enumerate(turns))[::step]))


def test_an_edited_turn_is_all_that_is_read(serve: Serve, fresh: Server) -> None:
    server = serve()
    agent = Agent(thinks=True)
    agent.run(server, end=8)
    del agent.messages[-2:]  # the last result and the answer to it
    (call,) = agent.messages[-1]["tool_calls"]
    for number in range(3):
        text = f"{number} reports say that the lamp is broken, with all their reasons. " * 4
        agent.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        turn = agent.ask(server, number)
        check_read_once([turn])
        check_answers(fresh, agent, {number: turn})
        agent.messages.pop()


def test_a_session_whose_pages_were_taken_reads_each_token_once(
    serve: Serve, fresh: Server
) -> None:
    """Another text fills the whole cache between two turns."""
    size = CONTEXT // 3
    server = serve(ctx_size=size)
    agent, turns = Agent(thinks=True), []
    for first in (0, 6):
        turns += agent.run(server, first, first + 6)
        filler = {"prompt": [200 + first] * (size - 8), "n_predict": 1}
        assert server.test_client().post("/completion", json=filler).status_code == 200
    turns += agent.run(server, 12, 14)
    check_read_once(turns)
    check_answers(fresh, agent, {n: turns[n] for n in (6, 12, 13)})


def test_a_session_goes_on_after_a_restart(serve: Serve, fresh: Server, tmp_path: Path) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    first = serve(slot_save_path=folder)
    agent = Agent(thinks=True)
    turns = agent.run(first, end=8)
    first.backend.close()
    second = serve(slot_save_path=folder)
    turns += agent.run(second, 8, 12)
    check_read_once(turns)
    check_answers(fresh, agent, {n: turns[n] for n in (8, 11)})


def test_without_room_in_memory_state_lies_on_disk(
    serve: Serve, fresh: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    server = serve(slot_save_path=folder, ctx_checkpoints=1)
    agent = Agent(thinks=True)
    turns = agent.run(server, end=8)
    check_read_once(turns)
    check_answers(fresh, agent, {7: turns[7]})
    metrics = server.test_client().get("/metrics").text
    assert "oxibonsai_state_spilled_bytes_total 0.0" not in metrics


@pytest.mark.release
@pytest.mark.long("reads 32K tokens three times")
def test_a_context_of_32k_tokens_is_read_once(tmp_path: Path) -> None:
    """Over 30 turns, with evicted pages, a restart and an edited last turn."""
    model = make_model(tmp_path / "long", LONG_CONTEXT)
    folder = tmp_path / "slots"
    folder.mkdir()
    settings = {
        "ctx_size": LONG_CONTEXT, "parallel": 1, "reasoning_budget": 12, "slot_save_path": folder,
    }  # fmt: skip
    agent = long_agent()
    first = make_model_app(model, tmp_path / "first", **settings)
    turns = agent.run(first, end=20)
    filler = {"prompt": [200] * (LONG_CONTEXT - 8), "n_predict": 1}
    assert first.test_client().post("/completion", json=filler).status_code == 200
    turns += agent.run(first, 20, 25)
    close_model_app(first)
    second = make_model_app(model, tmp_path / "second", **settings)
    turns += agent.run(second, 25)
    assert turns[-1].prompt > 32768
    check_read_once(turns)
    check_read_once(turns[20:])
    del agent.messages[-2:]  # the last result and the answer to it
    (call,) = agent.messages[-1]["tool_calls"]
    text = "another report says that the lamp is broken, with all its reasons. " * 4
    agent.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    edited = agent.ask(second, TURNS)
    check_read_once([edited])
    close_model_app(second)
    fresh = make_model_app(
        model,
        tmp_path / "fresh",
        ctx_size=LONG_CONTEXT,
        parallel=1,
        reasoning_budget=12,
        cache_ram=0,
    )
    check_answers(fresh, agent, {TURNS: edited})
    close_model_app(fresh)


@pytest.mark.parametrize(
    "ends_by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_server_that_is_stopped_leaves_what_the_next_one_goes_on_from(
    model: Path, tmp_path: Path, ends_by: int
) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    flags = (
        "--slot-save-path",
        str(folder),
        "-c",
        "1024",
        "-np",
        "1",
        "--parity",
        "off",
        "-t",
        "1",
    )

    def complete(server: RunningServer, prompt: list[int]) -> Any:
        body = {"prompt": prompt, "n_predict": 8, "temperature": 0, "return_tokens": True}
        status, _, answer = server.ask(
            "/completion", "POST", json.dumps(body).encode(), **{"Content-Type": "application/json"}
        )
        assert status == 200, answer
        return answer

    prompt = list(range(20, 170))
    with real_server(model, tmp_path, *flags, ends_by=ends_by) as server:
        first = complete(server, prompt)
    longer = [*prompt, *first["tokens"], 5, 6]
    with real_server(model, tmp_path, *flags) as server:
        second = complete(server, longer)
        assert second["timings"]["cache_n"] == len(longer) - 3
    with real_server(model, tmp_path, *flags[2:]) as server:
        assert complete(server, longer)["tokens"] == second["tokens"]
