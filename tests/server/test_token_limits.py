"""Limits of tokens in a time and on a day, and the rate of all callers together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_backend import MakeApp
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from named_events import read_events
from test_batches import HI, create, ended, line, until
from url_sweep import assert_error_object

from oxibonsai.errors import RequestError
from oxibonsai.server import app as app_module
from oxibonsai.server.access import register_access
from oxibonsai.server.lifecycle import Phase
from oxibonsai.server.limits import TokenLimits
from oxibonsai.server.rate_limit import Rate, RateLimiter
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.server.stores import Store, StoreError

DAY = 86400
NOON = 20_000 * DAY + DAY // 2  # 2024-10-04
TEXT = "/v1/completions"
BODY = {"prompt": "ab", "max_tokens": 4, "ignore_eos": True}
MakeServer = Callable[..., Server]


class Clock:
    """Unix time, which a test moves."""

    def __init__(self) -> None:
        self.now = float(NOON)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(app_module, "RateLimiter", partial(RateLimiter, clock=made))
    monkeypatch.setattr(app_module, "TokenLimits", partial(TokenLimits, clock=made))
    monkeypatch.setattr(app_module, "register_access", partial(register_access, clock=made))
    return made


@pytest.fixture
def make_server(tiny_path: Path, tmp_path: Path, clock: Clock) -> Iterator[MakeServer]:
    """Makes the application on the tiny model."""
    made = []

    def make(**values: Any) -> Server:
        made.append(make_model_app(tiny_path, tmp_path, **values))
        return made[-1]

    yield make
    for app in made:
        app.lifecycle.advance(Phase.STOPPED)
        close_model_app(app)


def key(name: str) -> dict[str, str]:
    return {"X-Api-Key": name}


def left(client: FlaskClient, headers: dict[str, str] | None = None) -> int:
    answer = client.get("/v1/models", headers=headers or {})
    return int(answer.headers["x-ratelimit-remaining-tokens"])


def test_tokens_that_are_owed_are_waited_for() -> None:
    now = 0.0
    limiter, rate = RateLimiter(clock=lambda: now), Rate(2, capacity=10)
    assert limiter.take("a", rate, 4).left == pytest.approx(6)
    assert limiter.take("a", rate, 7).wait == pytest.approx(0.5)
    assert limiter.charge("a", rate, 16).left == 0
    assert limiter.look("a", rate).until_full == pytest.approx(10)
    # Ten tokens are owed, so four are there after seven seconds.
    assert limiter.take("a", rate, 4).wait == pytest.approx(7)
    assert limiter.charge("a", rate, -20).left == pytest.approx(10)
    assert limiter.look("b", rate).left == pytest.approx(10)
    now = 100.0
    assert limiter.look("a", rate).left == pytest.approx(10)


def _openai(answer: Any) -> int:
    return int(answer["usage"]["total_tokens"])


def _anthropic(answer: Any) -> int:
    return int(answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"])


def _ollama(answer: Any) -> int:
    return int(answer["prompt_eval_count"] + answer.get("eval_count", 0))


CALLS: list[tuple[str, dict[str, Any], Callable[[Any], int]]] = [
    (TEXT, BODY, _openai),
    (TEXT, {**BODY, "n": 3}, _openai),
    (TEXT, {**BODY, "prompt": ["ab", "cde"]}, _openai),
    (TEXT, {"prompt": "ab", "max_tokens": 4, "use_beam_search": True, "n": 2}, _openai),
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 4}, _openai),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 4}, _openai),
    ("/v1/embeddings", {"input": ["a", "bcd"]}, _openai),
    ("/v1/messages", {"model": "tiny", "messages": HI, "max_tokens": 4}, _anthropic),
    ("/api/chat", {"messages": HI, "options": {"num_predict": 4}, "stream": False}, _ollama),
    ("/api/generate", {"prompt": "a", "options": {"num_predict": 4}, "stream": False}, _ollama),
    ("/api/embed", {"input": ["a", "bcd"]}, _ollama),
    (
        "/completion",
        {"prompt": "ab", "n_predict": 4},
        lambda a: int(a["tokens_evaluated"] + a["tokens_predicted"]),
    ),
]


def test_every_api_counts_what_its_usage_says(make_server: MakeServer) -> None:
    client = make_server(token_rate_limit={"capacity": 10_000, "rate": 1}).test_client()
    before = left(client)
    assert before == 10_000
    for path, body, tokens_of in CALLS:
        answer = client.post(path, json={"model": "tiny", **body})
        assert answer.status_code == 200, answer.text
        used = tokens_of(answer.get_json())
        assert used > 2
        assert left(client) == before - used, path
        if path != "/v1/messages":  # the answer itself says so, too
            assert int(answer.headers["x-ratelimit-remaining-tokens"]) == before - used, path
        before -= used


def _last_usage(text: str) -> int:
    frames = [json.loads(f[6:]) for f in text.split("\n\n") if f.startswith("data: {")]
    return _openai(frames[-1])


def _last_response(text: str) -> int:
    return _openai(read_events(text)[-1][1]["response"])


def _message_usage(text: str) -> int:
    events = [data for _, data in read_events(text)]
    (begun,) = (e["message"]["usage"] for e in events if e["type"] == "message_start")
    (done,) = (e["usage"] for e in events if e["type"] == "message_delta")
    return int(begun["input_tokens"] + done["output_tokens"])


STREAMS: list[tuple[str, dict[str, Any], Callable[[str], int]]] = [
    (TEXT, {**BODY, "stream_options": {"include_usage": True}}, _last_usage),
    (
        "/v1/chat/completions",
        {"messages": HI, "max_tokens": 4, "stream_options": {"include_usage": True}},
        _last_usage,
    ),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 4}, _last_response),
    ("/v1/messages", {"messages": HI, "max_tokens": 4}, _message_usage),
    (
        "/api/chat",
        {"messages": HI, "options": {"num_predict": 4}},
        lambda text: _ollama(json.loads(text.splitlines()[-1])),
    ),
]


def test_streams_count_alike(make_server: MakeServer) -> None:
    client = make_server(token_rate_limit={"capacity": 10_000, "rate": 1}).test_client()
    before = left(client)
    for path, body, tokens_of in STREAMS:
        body = {"model": "tiny", **body, "stream": True}
        answer = client.post(path, json=body, buffered=True)
        assert answer.status_code == 200, answer.text
        used = tokens_of(answer.text)
        assert used > 2
        assert left(client) == before - used, path
        before -= used


def test_headers_say_the_tokens_as_openai_and_as_anthropic_do(
    make_server: MakeServer, clock: Clock
) -> None:
    client = make_server(rate_limit="60/minute", token_rate_limit="600/minute").test_client()
    headers = client.post(TEXT, json={**BODY, "stream": True}).headers
    prompt = 600 - int(headers["x-ratelimit-remaining-tokens"])
    assert headers["x-ratelimit-limit-tokens"] == "600"
    assert headers["x-ratelimit-reset-tokens"] == f"{prompt * 100}ms"
    assert headers["x-ratelimit-remaining-requests"] == "19"
    clock.now += 600
    body = {"model": "tiny", "messages": HI, "max_tokens": 4}
    answer = client.post("/v1/messages", json=body)
    used = _anthropic(answer.get_json())
    assert 20 < used <= 30
    found = {k.lower(): v for k, v in answer.headers if "ratelimit" in k.lower()}
    assert found == {
        "anthropic-ratelimit-requests-limit": "20",
        "anthropic-ratelimit-requests-remaining": "19",
        "anthropic-ratelimit-requests-reset": "2024-10-04T12:10:01Z",
        "anthropic-ratelimit-tokens-limit": "600",
        "anthropic-ratelimit-tokens-remaining": str(600 - used),
        "anthropic-ratelimit-tokens-reset": "2024-10-04T12:10:03Z",
    }


@pytest.mark.parametrize("path", [TEXT, "/v1/messages"])
def test_too_many_tokens_are_429_until_they_are_there(
    make_server: MakeServer, clock: Clock, path: str
) -> None:
    client = make_server(token_rate_limit={"capacity": 40, "rate": 2}).test_client()
    body = {"model": "tiny", "messages": HI, "max_tokens": 30} if path != TEXT else BODY
    if path == TEXT:
        body = {**BODY, "max_tokens": 50}
    assert client.post(path, json=body).status_code == 200
    refused = client.post(path, json=body)
    assert refused.status_code == 429
    error = refused.get_json()["error"]
    assert error["type"] == "rate_limit_error"
    wait = int(refused.headers["Retry-After"])
    assert 1 < wait < 30
    # Whoever asks for no tokens is not refused.
    assert client.get("/v1/models").status_code == 200
    clock.now += wait - 1.1
    assert client.post(path, json=body).status_code == 429
    clock.now += 1.1
    assert client.post(path, json=body).status_code == 200


def test_what_never_fits_is_told_so(make_server: MakeServer) -> None:
    client = make_server(token_rate_limit={"capacity": 10, "rate": 100}).test_client()
    answer = client.post(TEXT, json={"prompt": "abcdefghijklmnop", "max_tokens": 1})
    assert answer.status_code == 429
    assert_error_object(answer)
    assert "never lets more than 10 in at once" in answer.get_json()["error"]["message"]
    assert "Retry-After" not in answer.headers
    assert left(client) == 10


def test_a_request_that_is_not_run_gives_its_tokens_back(make_server: MakeServer) -> None:
    app = make_server(token_rate_limit={"capacity": 20, "rate": 1}, token_budget=20)
    client = app.test_client()
    for _ in range(5):
        app.lifecycle.circuits.fail(str(app.settings.model))
    for body in ({}, {"stream": True}, {"use_beam_search": True, "n": 2}):
        asked = {"prompt": "abc", "max_tokens": 4, **body}
        for _ in range(8):
            assert client.post(TEXT, json=asked).status_code == 503
    assert left(client) == 20


def test_each_caller_gets_its_own_rate_of_tokens_under_load(
    make_server: MakeServer, clock: Clock
) -> None:
    """The bucket's first fill comes on top, and the last answer may leave a debt."""
    client = make_server(
        token_rate_limit={"capacity": 10, "rate": 4},
        per_key_token_rate_limits={
            "sk-a": {"capacity": 10, "rate": 20},
            "sk-b": {"capacity": 12, "rate": "600/minute"},
        },
    ).test_client()
    callers = {"a": (key("sk-a"), 20, 10), "b": (key("sk-b"), 10, 12), "nobody": ({}, 4, 10)}
    used = dict.fromkeys(callers, 0)
    seconds, begun = 20, clock.now
    for step in range(seconds * 4):
        clock.now = begun + step / 4
        for name, (headers, _, _) in callers.items():
            answer = client.post(TEXT, json=BODY, headers=headers)
            if answer.status_code == 200:
                used[name] += _openai(answer.get_json())
            else:
                assert answer.status_code == 429
    for name, (_, rate, capacity) in callers.items():
        assert used[name] == pytest.approx(rate * seconds + capacity, rel=0.05), name


def test_a_budget_ends_at_midnight_and_survives_a_restart(
    make_server: MakeServer, clock: Clock
) -> None:
    given = {
        "api_key": ["sk-a", "sk-b"],
        "token_budget": "8/day",
        "per_key_token_budgets": {"sk-b": 50},
    }

    def ask(app: Server, name: str) -> Any:
        return app.test_client().post(TEXT, json=BODY, headers=key(name))

    app = make_server(**given)
    assert [ask(app, "sk-a").status_code for _ in range(3)] == [200, 200, 429]
    again = make_server(**given)
    refused = ask(again, "sk-a")
    assert refused.status_code == 429
    assert_error_object(refused)
    error = refused.get_json()["error"]
    assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")
    assert int(refused.headers["Retry-After"]) == DAY // 2
    statuses = [ask(again, "sk-b").status_code for _ in range(11)]
    assert statuses == [200] * 10 + [429]
    clock.now = NOON + DAY / 2 - 1
    assert ask(again, "sk-a").status_code == 429
    clock.now += 1
    assert ask(again, "sk-a").status_code == 200


def test_a_request_that_its_budget_refuses_costs_no_rate(make_server: MakeServer) -> None:
    app = make_server(token_budget=1, token_rate_limit={"capacity": 100, "rate": 1})
    client = app.test_client()
    assert client.post(TEXT, json={**BODY, "prompt": "abcdef"}).status_code == 429
    assert left(client) == 100


def test_callers_without_a_key_share_one_budget(make_server: MakeServer) -> None:
    client = make_server(token_budget=8).test_client()
    statuses = [
        client.post(TEXT, json=BODY, environ_base={"REMOTE_ADDR": f"192.0.2.{i}"}).status_code
        for i in range(3)
    ]
    assert statuses == [200, 200, 429]


def test_batches_and_background_work_count_for_their_key(make_server: MakeServer) -> None:
    app = make_server(
        api_key=["sk-a", "sk-b"], token_rate_limit={"capacity": 1000, "rate": 1}, token_budget=1000
    )
    client = app.test_client()
    client.environ_base["HTTP_X_API_KEY"] = "sk-a"
    body = {"input": "hi", "max_output_tokens": 4, "background": True}
    made = client.post("/v1/responses", json=body).get_json()

    def done() -> Any:
        found = client.get(f"/v1/responses/{made['id']}").get_json()
        return found if found["status"] in ("completed", "incomplete") else None

    used = _openai(until(done))
    until(lambda: left(client) == 1000 - used or None)
    lines = [line("one", {"messages": HI, "max_tokens": 4})]
    assert ended(client, create(client, *lines)["id"])["request_counts"]["completed"] == 1
    # Batches have no rate, so that they don't take that of other requests.
    assert left(client) == 1000 - used
    assert left(client, key("sk-b")) == 1000


def test_a_batch_without_budget_fails_at_once(make_server: MakeServer) -> None:
    client = make_server(token_budget=5).test_client()
    lines = [line("one", {"messages": HI, "max_tokens": 4})]
    assert ended(client, create(client, *lines)["id"])["request_counts"]["failed"] == 1


def test_the_rate_of_all_is_shared_by_all(make_app: MakeApp, clock: Clock) -> None:
    client = make_app(
        api_key=["sk-a", "sk-b"],
        global_rate_limit={"capacity": 5, "rate": 1},
        rate_limit={"capacity": 4, "rate": 0.001},
        anonymous_rate_limit=1000,
        rate_burst=1000,
    ).test_client()

    def ask(*names: str) -> list[int]:
        return [client.get("/v1/models", headers=key(n)).status_code for n in names]

    # Those who have no key can't use it up.
    assert ask(*["guess"] * 20) == [401] * 20
    assert ask("sk-a", "sk-b", "sk-a", "sk-b", "sk-a", "sk-b") == [200] * 5 + [429]
    refused = client.get("/v1/models", headers=key("sk-b"))
    assert refused.headers["Retry-After"] == "1"
    assert refused.headers["x-ratelimit-limit-requests"] == "5"
    clock.now += 10
    # What was refused for the sake of all did not count against the key, and the fifth one does.
    assert ask("sk-b", "sk-b", "sk-b") == [200, 200, 429]
    assert ask("sk-a") == [200]


def test_anonymous_callers_share_the_rate_of_all(make_app: MakeApp, clock: Clock) -> None:
    client = make_app(global_rate_limit={"capacity": 2, "rate": 1}).test_client()
    addresses = [{"REMOTE_ADDR": f"192.0.2.{i}"} for i in range(3)]
    found = [client.get("/v1/models", environ_base=a).status_code for a in addresses]
    assert found == [200, 200, 429]


def test_a_store_that_fails_after_an_answer_costs_nobody_the_answer(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_server(token_budget=1000)

    def fail(*_: Any) -> None:
        raise StoreError("the store is gone")

    monkeypatch.setattr("oxibonsai.server.stores.counters.StoredBudgets.charge", fail)
    assert app.test_client().post(TEXT, json=BODY).status_code == 200
    assert "4 tokens were not counted against a limit: the store is gone" in caplog.text
    monkeypatch.setattr("oxibonsai.server.stores.counters.StoredBudgets.take", fail)
    assert app.test_client().post(TEXT, json=BODY).status_code == 503


def test_budgets_in_both_databases(store: Store) -> None:
    budgets = store.budgets()
    assert not budgets.take("a", 1, 11, 10)
    assert [budgets.take("a", 1, 4, 10) for _ in range(3)] == [True, True, False]
    assert budgets.take("b", 1, 10, 10)
    assert budgets.take("a", 2, 10, 10)
    budgets.charge("a", 1, 100)
    assert not budgets.take("a", 1, 1, 100)
    budgets.charge("a", 1, -100)
    assert budgets.take("a", 1, 2, 10)
    store.forget_counters()  # days long past
    assert budgets.take("a", 1, 10, 10)


@pytest.mark.parametrize(
    ("value", "budget"), [(5, 5), ("5", 5), ("1000000/day", 10**6), ("7 / day", 7)]
)
def test_a_budget_is_a_number_of_tokens_a_day(value: object, budget: int) -> None:
    assert load_settings({"token_budget": value}).token_budget == budget
    found = load_settings({"per_key_token_budgets": {"secret": value}})
    assert found.per_key_token_budgets == {"secret": budget}


@pytest.mark.parametrize("value", ["5/hour", "0", -1, "x", 1.5, True, "/day"])
def test_what_is_no_budget_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match=r"^--token-budget is "):
        load_settings({"token_budget": value})
    with pytest.raises(RequestError, match=r"^--per-key-token-budgets: ") as error:
        load_settings({"per_key_token_budgets": {"secret": value}})
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "capacity"), [("600/minute", 600), ("7200/hour", 7200), (2.5, 2.5), ("0.5/second", 1)]
)
def test_a_rate_of_tokens_lets_in_at_once_what_it_names(value: object, capacity: float) -> None:
    rate = load_settings({"token_rate_limit": value}).token_rate_limit
    assert rate is not None
    assert rate.holding_a_unit().capacity == pytest.approx(capacity)
