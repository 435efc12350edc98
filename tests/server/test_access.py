"""Who may call what, how often, and what they see of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_backend import MakeApp, Probe
from url_sweep import PUBLIC, all_calls, assert_error_object

from oxibonsai.errors import RequestError
from oxibonsai.server import app as app_module
from oxibonsai.server.access import KeyRing, duration, owner_of
from oxibonsai.server.rate_limit import Rate, RateLimiter

BEARER = {"Authorization": "Bearer good"}


def test_every_route_but_probes_is_closed_without_a_good_key(make_app: MakeApp) -> None:
    client = make_app(api_key=["good", "other"], metrics=True).test_client()
    wrong = [{}, {"X-Api-Key": "bad"}, {"Authorization": "Bearer bad"}, {"X-Api-Key": ""}]
    wrong += [{"Authorization": "good"}, {"Authorization": "Basic good"}, {"X-Api-Key": "goo"}]
    count = 0
    for method, path, rule in all_calls(client.application):
        for headers in wrong:
            answer = client.open(path, method=method, headers=headers, buffered=True)
            assert (answer.status_code == 401) == (rule not in PUBLIC), (method, rule)
            if answer.status_code == 401:
                assert_error_object(answer)
                error = answer.get_json()["error"]
                assert isinstance(error, str) or error["type"] == "authentication_error"
        with client.open(path, method=method, headers=BEARER) as answer:  # a stream has no end
            assert answer.status_code != 401
        count += 1
    assert count >= 8


def test_a_closed_server_does_not_tell_which_routes_there_are(make_app: MakeApp) -> None:
    client = make_app(api_key="good").test_client()
    assert client.get("/v1/no/such/route").status_code == 401
    assert client.get("/v1/no/such/route", headers=BEARER).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer good"},
        {"Authorization": "bearer good"},
        {"Authorization": "Bearer  good "},
        {"X-Api-Key": "good"},
        {"X-Api-Key": "second"},
    ],
)
def test_a_good_key_opens_it_however_it_is_sent(make_app: MakeApp, headers: dict[str, str]) -> None:
    client = make_app(api_key=["good", "second"]).test_client()
    assert client.get("/v1/models", headers=headers).status_code == 200


def test_each_key_is_an_owner_of_its_own(make_app: MakeApp) -> None:
    app = make_app(api_key=["good", "other"])
    app.register_blueprint(Probe(app.lifecycle).blueprint())
    client = app.test_client()
    owners = [
        client.post("/echo", json={}, headers={"X-Api-Key": key}).get_json()["owner"]
        for key in ("good", "other", "good")
    ]
    assert owners == [owner_of("good"), owner_of("other"), owner_of("good")]
    assert len(set(owners)) == 2
    assert "good" not in owners[0]


def test_without_keys_everyone_is_the_same_owner(make_app: MakeApp) -> None:
    app = make_app()
    app.register_blueprint(Probe(app.lifecycle).blueprint())
    answers = [
        app.test_client().post("/echo", json={}, headers=headers).get_json()["owner"]
        for headers in ({}, BEARER, {"X-Api-Key": "x"})
    ]
    assert answers == ["anonymous"] * 3


def test_without_api_keys_an_admin_key_has_objects_of_its_own(make_app: MakeApp) -> None:
    app = make_app(admin_key=["chief"])
    app.register_blueprint(Probe(app.lifecycle).blueprint())
    answers = [
        app.test_client().post("/echo", json={}, headers=headers).get_json()["owner"]
        for headers in ({}, {"X-Api-Key": "x"}, {"X-Api-Key": "chief"})
    ]
    assert answers == ["anonymous", "anonymous", owner_of("chief")]


def test_a_key_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# those of the team\none\n\n  two  \n")
    keys = KeyRing(["fixed"], [path])
    assert [keys.accepts(k) for k in ("fixed", "one", "two", "# those of the team", "")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    path.write_text("three\n")
    keys.refresh()
    assert [keys.accepts(k) for k in ("fixed", "one", "three")] == [True, False, True]


@pytest.mark.parametrize("damage", ["empty", "gone", "binary"])
def test_a_damaged_key_file_leaves_the_keys_as_they_were(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "keys"
    path.write_text("one\n")
    keys = KeyRing([], [path])
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "empty" else b"\xff\xfe\n")
    keys.refresh()
    assert keys.accepts("one")
    assert not keys.is_open
    with pytest.raises(RequestError, match="API key"):
        KeyRing([], [path])


def test_a_key_that_is_no_text_is_refused_like_any_other(make_app: MakeApp) -> None:
    client = make_app(api_key="good").test_client()
    for key in ("\xff", "g\xf6\xf6d", "x" * 8000):
        assert client.get("/v1/models", headers={"X-Api-Key": key}).status_code == 401


def test_a_bucket_refills_at_its_rate() -> None:
    now = 0.0
    limiter = RateLimiter(clock=lambda: now)

    def take(name: str) -> float:
        return limiter.take(name, Rate(2, capacity=3)).wait

    assert [take("a") for _ in range(3)] == [0, 0, 0]
    assert take("a") == pytest.approx(0.5)
    assert take("b") == 0
    now = 0.5
    assert take("a") == 0
    assert take("a") == pytest.approx(0.5)
    now = 1000.0
    assert [take("a") for _ in range(4)] == [0, 0, 0, pytest.approx(0.5)]


def test_a_balance_says_what_is_left_and_when_the_bucket_is_full() -> None:
    now = 0.0
    limiter = RateLimiter(clock=lambda: now)
    rate = Rate(0.1, capacity=2)
    found = [limiter.take("a", rate) for _ in range(3)]
    assert [int(b.left) for b in found] == [1, 0, 0]
    assert [b.until_full for b in found] == pytest.approx([10, 20, 20])
    now = 15.0
    last = limiter.take("a", rate)
    assert (last.wait, last.capacity, last.until_full) == (0, 2, pytest.approx(15))


def test_a_clock_that_goes_back_gives_and_takes_nothing() -> None:
    now = 100.0
    limiter = RateLimiter(clock=lambda: now)
    assert limiter.take("a", Rate(1, capacity=1)).wait == 0
    now = 0.0
    assert limiter.take("a", Rate(1, capacity=1)).wait == 1


def test_the_number_of_buckets_is_bounded() -> None:
    limiter = RateLimiter(buckets=10, clock=lambda: 0.0)
    for i in range(1000):
        limiter.take(str(i), Rate(1, capacity=1))
    assert len(limiter) == 10


@pytest.mark.parametrize("keys", [["sk-a", "sk-b"], []])
def test_each_caller_gets_its_own_rate_under_load(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, keys: list[str]
) -> None:
    """With keys, an anonymous caller who has a token left is told that a key is missing."""
    now = 0.0
    monkeypatch.setattr(app_module, "RateLimiter", lambda: RateLimiter(clock=lambda: now))
    client = make_app(
        api_key=keys,
        rate_limit="60/minute",
        rate_burst=1,
        per_key_rate_limits={"sk-a": "600/minute", "sk-b": {"capacity": 20, "rate": 3.0}},
        anonymous_rate_limit={"capacity": 2, "rate": "240/minute"},
    ).test_client()
    callers = {
        "a": {"Authorization": "Bearer sk-a"},
        "b": {"X-Api-Key": "sk-b"},
        "nobody": {},
        "stranger": {"X-Api-Key": "sk-c"},
    }
    let_in = dict.fromkeys(callers, 0)
    seconds = 10
    for step in range(seconds * 20):
        now = step / 20
        for name, headers in callers.items():
            if client.get("/v1/models", headers=headers).status_code != 429:
                let_in[name] += 1
    assert let_in["a"] == pytest.approx(10 * seconds, rel=0.05)
    assert let_in["b"] == pytest.approx(3 * seconds + 20, rel=0.05)
    # They share one bucket.
    assert let_in["nobody"] + let_in["stranger"] == pytest.approx(4 * seconds + 2, rel=0.05)


def test_a_key_without_a_rate_of_its_own_has_that_of_all(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "RateLimiter", lambda: RateLimiter(clock=lambda: 0.0))
    given = {"per_key_rate_limits": {"other": {"capacity": 3, "rate": 1}}}
    client = make_app(
        api_key=["good", "other"], rate_limit="60/minute", rate_burst=1, **given
    ).test_client()
    for key, expected in (("good", [200, 429]), ("other", [200, 200, 200, 429])):
        found = [client.get("/v1/models", headers={"X-Api-Key": key}) for _ in expected]
        assert [r.status_code for r in found] == expected
    # A rate lets nobody in: the key must be accepted, too.
    closed = make_app(api_key="good", **given).test_client()
    assert closed.get("/v1/models", headers={"X-Api-Key": "other"}).status_code == 401
    free = [closed.get("/v1/models", headers=BEARER) for _ in range(50)]
    assert {r.status_code for r in free} == {200}
    assert not [h for h in dict(free[0].headers) if h.lower().startswith("x-ratelimit")]


def test_headers_say_the_rate_as_openai_does(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(app_module, "RateLimiter", lambda: RateLimiter(clock=lambda: now))
    client = make_app(
        api_key="good", per_key_rate_limits={"good": {"capacity": 2, "rate": "1/minute"}}
    ).test_client()

    def ask() -> list[str]:
        headers = client.get("/v1/models", headers=BEARER).headers
        names = ("limit", "remaining", "reset")
        told = [headers[f"x-ratelimit-{name}-requests"] for name in names]
        return [*told, headers.get("Retry-After", "")]

    assert ask() == ["2", "1", "1m0s", ""]
    assert ask() == ["2", "0", "2m0s", ""]
    now = 15.0
    assert ask() == ["2", "0", "1m45s", "45"]
    now = 60.0
    assert ask() == ["2", "0", "2m0s", ""]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0195, "20ms"), (1.5, "1.5s"), (59.5, "59.5s"), (60, "1m0s"), (3602, "1h0m2s")],
)
def test_durations_are_written_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_too_many_requests_are_429_for_that_key_alone(make_app: MakeApp) -> None:
    client = make_app(api_key=["good", "other"], rate_limit=0.1, rate_burst=2).test_client()
    statuses = [client.get("/v1/models", headers=BEARER).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    answer = client.get("/v1/models", headers=BEARER)
    assert_error_object(answer)
    assert answer.get_json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(answer.headers["Retry-After"]) <= 11
    assert client.get("/v1/models", headers={"X-Api-Key": "other"}).status_code == 200
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("first", "same", "other"),
    [
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.1", "::ffff:192.0.2.2"),
        # One client of IPv6 has a whole network of 64 bits.
        ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
    ],
)
def test_without_keys_each_address_has_its_own_rate(
    make_app: MakeApp, first: str, same: str, other: str
) -> None:
    client = make_app(rate_limit=0.1, rate_burst=2).test_client()

    def ask(address: str) -> int:
        return client.get("/v1/models", environ_base={"REMOTE_ADDR": address}).status_code

    assert [ask(first), ask(same), ask(first), ask(same)] == [200, 200, 429, 429]
    assert ask(other) == 200


def test_guesses_of_keys_share_one_bucket(make_app: MakeApp) -> None:
    client = make_app(api_key="good", rate_limit=0.1, rate_burst=2).test_client()
    guesses = [
        client.get("/v1/models", headers={"X-Api-Key": f"guess{i}"}).status_code for i in range(4)
    ]
    assert guesses == [401, 401, 429, 429]
    assert client.get("/v1/models", headers=BEARER).status_code == 200


def test_other_origins_may_not_call_unless_told(make_app: MakeApp) -> None:
    origin = {"Origin": "https://page.example"}
    preflight = {**origin, "Access-Control-Request-Method": "GET"}
    closed = make_app().test_client()
    assert not [h for h, _ in closed.get("/v1/models", headers=origin).headers if "Access" in h]
    assert (
        "Access-Control-Allow-Origin" not in closed.options("/v1/models", headers=preflight).headers
    )
    told = make_app(cors_origins="https://page.example", api_key="good").test_client()
    answer = told.options("/v1/models", headers=preflight)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "https://page.example"
    answer = told.get("/v1/models", headers={**origin, **BEARER})
    assert answer.headers["Access-Control-Allow-Origin"] == "https://page.example"
    other = told.get("/v1/models", headers={"Origin": "https://evil.example", **BEARER})
    assert "Access-Control-Allow-Origin" not in other.headers
    # A page must be able to read why it was refused.
    refused = told.get("/v1/models", headers=origin)
    assert refused.status_code == 401
    assert refused.headers.getlist("Access-Control-Allow-Origin") == ["https://page.example"]


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ("localhost", "http://localhost", True),
        ("localhost", "http://localhost:8080", True),
        ("localhost", "https://127.0.0.1:3000", True),
        ("localhost", "http://[::1]:3000", True),
        ("localhost", "http://localhost.evil.com", False),
        ("localhost", "http://notlocalhost", False),
        ("localhost", "http://evil.com", False),
        ("localhost", "null", False),
        ("*", "http://evil.com", True),
        ("http://a.example,http://b.example", "http://b.example", True),
        ("http://a.example", "http://a.example:81", False),
        ("http://a.example", "http://a.example.evil.com", False),
    ],
)
def test_an_origin_is_allowed_as_a_whole(
    make_app: MakeApp, origins: str, origin: str, allowed: bool
) -> None:
    asked = {"Access-Control-Request-Method": "GET"}
    asked["Access-Control-Request-Headers"] = "Authorization"
    client = make_app(cors_origins=origins).test_client()
    answer = client.options("/v1/models", headers={"Origin": origin, **asked})
    assert answer.headers.get("Access-Control-Allow-Origin") == (origin if allowed else None)
    expected = "Authorization" if allowed else None
    assert answer.headers.get("Access-Control-Allow-Headers") == expected
    # Caches must keep the answers for two origins apart.
    assert "Origin" in answer.headers["Vary"]


def test_options_reaches_no_view(make_app: MakeApp) -> None:
    client = make_app(api_key="good").test_client()
    answer = client.options("/v1/models")
    assert answer.data == b""


def test_a_key_file_that_others_replace_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("aaa\n")
    keys = KeyRing([], [path])
    other = tmp_path / "new"
    other.write_text("bbb\n")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    keys.refresh()
    assert keys.accepts("bbb")
