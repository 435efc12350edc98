"""Probes, the list of models, errors, metrics, logs, streams: what every route relies on."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from fake_backend import MakeApp
from flask import Flask
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families
from url_sweep import PUBLIC, all_calls, assert_error_object

from oxibonsai.errors import CapacityError, FormatError, RequestError, UnsupportedError
from oxibonsai.server.admin.logs import JsonFormatter, configure_logs
from oxibonsai.server.errors import ApiError
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.server.sse import DONE, frame, stream_response


def test_models_are_listed_and_found_by_id_and_alias(client: FlaskClient) -> None:
    for prefix in ("/v1/models", "/models"):
        listed = client.get(prefix).get_json()
        assert listed["object"] == "list"
        (model,) = listed["data"]
        assert (model["id"], model["object"], model["created"]) == ("fake", "model", 1_700_000_000)
        assert client.get(f"{prefix}/fake").get_json() == model
        assert client.get(f"{prefix}/alias").get_json() == model
        missing = client.get(f"{prefix}/a/b")
        assert missing.status_code == 404
        assert missing.get_json()["error"]["code"] == "model_not_found"


def test_a_server_that_loads_or_drains_answers_probes_only(make_app: MakeApp) -> None:
    app = make_app(metrics=True)
    client = app.test_client()
    app.lifecycle.advance(Phase.DRAINING)
    for method, path, rule in all_calls(app):
        status = client.open(path, method=method, buffered=True).status_code
        expected = 200 if rule in (PUBLIC - {"/readyz"}) | {"/metrics"} else 503
        assert status == expected, rule


def test_the_phase_never_goes_back() -> None:
    lifecycle = Lifecycle()
    lifecycle.advance(Phase.DRAINING)
    lifecycle.advance(Phase.READY)
    assert lifecycle.phase == Phase.DRAINING
    with lifecycle.work(), lifecycle.work():
        assert lifecycle.background == 2
    assert lifecycle.background == 0


def test_every_wrong_method_and_path_is_an_error_object(client: FlaskClient) -> None:
    assert_error_object(client.get("/none"))
    for _, path, _ in all_calls(client.application):
        for method in ("DELETE", "PUT", "PATCH", "TRACE"):
            answer = client.open(path, method=method)
            assert 400 <= answer.status_code < 500
            assert_error_object(answer)
    answer = client.delete("/v1/models")
    assert answer.status_code == 405
    assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("top_p is 2"), 400, "invalid_request_error"),
        (UnsupportedError("no images"), 400, "invalid_request_error"),
        (CapacityError("the queue is full"), 503, "unavailable_error"),
        (ApiError(501, "off"), 501, "not_supported_error"),
        (ApiError(429, "slow down", retry_after=2.5), 429, "rate_limit_error"),
        (FormatError("/secret/path is damaged"), 500, "server_error"),
        (RuntimeError("/secret/path"), 500, "server_error"),
        (RecursionError("/secret/path"), 500, "server_error"),
    ],
)
def test_errors_of_views_become_error_objects(
    make_app: MakeApp, error: Exception, status: int, kind: str
) -> None:
    app = make_app()

    @app.get("/fail")
    def fail() -> str:
        raise error

    answer = app.test_client().get("/fail")
    assert answer.status_code == status
    assert_error_object(answer)
    assert answer.get_json()["error"]["type"] == kind
    assert "secret" not in answer.text
    if status in (429, 503):
        assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("status", [400, 403, 404, 406, 413, 414, 415, 422, 429, 500, 502, 503])
def test_http_exceptions_become_error_objects(make_app: MakeApp, status: int) -> None:
    app = make_app()

    @app.get("/fail")
    def fail() -> str:
        from werkzeug.exceptions import abort

        abort(status)

    answer = app.test_client().get("/fail")
    assert answer.status_code == status
    assert_error_object(answer)


@pytest.mark.parametrize("host", ["", "a, b"])
def test_a_host_that_is_none_is_refused(client: FlaskClient, host: str) -> None:
    answer = client.get("/health", environ_overrides={"HTTP_HOST": host})
    assert answer.status_code == 400
    assert_error_object(answer)


def test_each_answer_has_the_id_of_its_request(client: FlaskClient) -> None:
    assert client.get("/health").headers["X-Request-Id"].startswith("req_")
    sent = {"X-Request-Id": "client-7.x_Y"}
    assert client.get("/none", headers=sent).headers["X-Request-Id"] == "client-7.x_Y"
    for wrong in ("a b", "x" * 65, "é", '"'):
        answer = client.get("/health", headers={"X-Request-Id": wrong})
        assert answer.headers["X-Request-Id"].startswith("req_")


def test_metrics_count_by_route_and_never_by_path(make_app: MakeApp) -> None:
    client = make_app(metrics=True).test_client()
    for i in range(5):
        client.get(f"/v1/models/{i}").close()
        client.get(f"/none/{i}").close()
        client.open("/health", method=f"M{i}").close()
    answer = client.get("/metrics")
    assert int(answer.headers["Process-Start-Time-Unix"]) <= time.time()
    families = {f.name: f for f in text_string_to_metric_families(answer.text)}
    counted = {
        (s.labels["method"], s.labels["route"], s.labels["status"]): s.value
        for s in families["oxibonsai_http_requests"].samples
        if s.name.endswith("_total")
    }
    assert counted == {
        ("GET", "/v1/models/<path:model_id>", "404"): 5,
        ("GET", "none", "404"): 5,
        ("other", "none", "405"): 5,
    }
    assert families["oxibonsai_ready"].samples[0].value == 1
    assert families["oxibonsai_http_requests_running"].samples[0].value == 1


def test_metrics_that_are_off_say_how_to_turn_them_on(client: FlaskClient) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 501
    assert_error_object(answer)
    assert "--metrics" in answer.text


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("oxibonsai")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.mark.parametrize("prompts", [False, True])
def test_a_request_is_one_line_without_its_text(
    make_app: MakeApp, log_lines: io.StringIO, prompts: bool
) -> None:
    from fake_backend import Probe

    app = make_app(api_key="topsecret", log_prompts=prompts)
    app.register_blueprint(Probe(app.lifecycle).blueprint())
    headers = {"X-Api-Key": "topsecret", "X-Request-Id": "r1"}
    app.test_client().post("/echo?q=1", json={"prompt": "my words"}, headers=headers).close()
    (line,) = log_lines.getvalue().splitlines()
    record = json.loads(line)
    assert record["request_id"] == "r1"
    assert (record["method"], record["path"], record["status"]) == ("POST", "/echo", 200)
    assert record["seconds"] >= 0
    assert ("my words" in line) == prompts
    assert "topsecret" not in line


def test_an_unforeseen_error_is_logged_with_its_request(
    make_app: MakeApp, log_lines: io.StringIO
) -> None:
    app = make_app()

    @app.get("/fail")
    def fail() -> str:
        raise ZeroDivisionError("why")

    app.test_client().get("/fail", headers={"X-Request-Id": "r2"}).close()
    first = json.loads(log_lines.getvalue().splitlines()[0])
    assert first["level"] == "error"
    assert first["request_id"] == "r2"
    assert "ZeroDivisionError: why" in first["exception"]


def test_the_log_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "server.log"
    settings = load_settings({"log_file": path, "log_max_mb": 0.01, "state_dir": tmp_path})
    loggers = [logging.getLogger(name) for name in ("oxibonsai", "gunicorn")]
    before = [(x, x.handlers, x.level, x.propagate) for x in loggers]
    try:
        configure_logs(settings)
        for i in range(2000):
            logging.getLogger("oxibonsai.test").info("line %d %s", i, "x" * 50_000 * (i % 500 == 0))
        files = list(path.parent.iterdir())
        assert len(files) == 3
        assert sum(f.stat().st_size for f in files) < 3 * 12_000
        for file in files:
            for line in file.read_text().splitlines():
                json.loads(line)
    finally:
        for handler in loggers[0].handlers:
            handler.close()
        for logger, handlers, level, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)


def read_stream(
    app: Flask, frames: Iterable[str | None], **options: object
) -> tuple[list[str], int]:
    """What a stream writes, and how often it was closed before its end."""
    closed: list[None] = []
    values = {"stopping": lambda: False, **options}
    with app.test_request_context():
        response = stream_response(iter(frames), close=lambda: closed.append(None), **values)  # type: ignore[arg-type]
        assert response.mimetype == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["X-Accel-Buffering"] == "no"
        pieces = [p if isinstance(p, str) else p.decode() for p in response.response]  # type: ignore[union-attr]
    return pieces, len(closed)


def test_a_stream_writes_frames_until_there_are_no_more(app: Flask) -> None:
    frames = [frame({"text": "é\n\n"}), frame([1], "response.done"), DONE]
    pieces = ['data: {"text":"é\\n\\n"}\n\n', "event: response.done\ndata: [1]\n\n", DONE]
    assert read_stream(app, frames) == (pieces, 1)


def test_an_error_ends_a_stream_with_an_event(app: Flask) -> None:
    def frames() -> Iterator[str]:
        raise RequestError("too long")
        yield ""

    (piece,), closed = read_stream(app, frames())
    assert closed == 1
    assert piece.startswith("event: error\ndata: ")
    assert json.loads(piece.split("data: ")[1])["error"]["message"] == "too long"


def test_a_silent_stream_pings(app: Flask) -> None:
    def frames() -> Iterator[None]:
        for _ in range(6):
            time.sleep(0.06)
            yield None

    pieces, _ = read_stream(app, frames(), ping_seconds=0.05)
    assert pieces == [": ping\n\n"] * 6


@pytest.mark.parametrize("begun", [True, False])
def test_a_stream_that_is_closed_early_or_never_begun_is_closed(app: Flask, begun: bool) -> None:
    closed: list[None] = []
    with app.test_request_context():
        response = stream_response(
            iter(["a", "b"]), close=lambda: closed.append(None), stopping=lambda: False
        )
    if begun:
        assert next(iter(response.response)) == "a"
    response.close()
    assert closed


def test_a_stopping_server_ends_streams_with_an_error(app: Flask) -> None:
    pieces, closed = read_stream(app, [frame(1), frame(2)], stopping=lambda: True)
    assert len(pieces) == 1
    assert '"code":"stopped"' in pieces[0]
    assert closed == 1
