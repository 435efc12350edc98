"""Calls of every route in an application's map, those that come later included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

# What answers without a key. Nothing else may.
PUBLIC = {
    "/health",
    "/v1/health",
    "/livez",
    "/readyz",
    "/",
    "/docs",
    "/ui/<name>",
    "/ui/preview/frame.html",
    "/ui/vendor/<name>",
    "/ui/vendor/fonts/<name>",
}


def all_calls(app: Flask, object_id: str = "unknown") -> Iterator[tuple[str, str, str]]:
    """Method, path and rule of each call; ids in paths are ``object_id``, files are there."""
    for rule in app.url_map.iter_rules():
        path = rule.rule.replace("/vendor/<name>", "/vendor/marked.esm.js")
        path = path.replace("/fonts/<name>", "/fonts/KaTeX_AMS-Regular.woff2")
        path = path.replace("<name>", "style.css")
        for argument in rule.arguments:
            for converter in ("", "path:", "string:"):
                path = path.replace(f"<{converter}{argument}>", object_id)
        assert "<" not in path, rule
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            yield method, path, rule.rule


def assert_error_object(answer: TestResponse) -> None:
    """OpenAI's error shape, or Anthropic's on the routes of its API."""
    assert answer.mimetype == "application/json"
    body = answer.get_json()
    error = body["error"]
    if answer.request.path.startswith("/v1/messages"):
        assert set(body) == {"type", "error", "request_id"}
        assert body["type"] == "error"
        assert set(error) == {"type", "message"}
        return
    assert set(body) == {"error"}
    if answer.request.path.startswith("/api/"):
        assert isinstance(error, str)
        assert error
        return
    assert {"message", "type", "param", "code"} <= set(error)
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert error["param"] is None or isinstance(error["param"], str)
    assert error["code"] is None or isinstance(error["code"], str)


def id_calls(app: Flask, ids: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Method and path of each call of a route that names objects, by their argument's name.

    Args:
        app: The application.
        ids: An id for each argument that routes have; one that is missing fails the test, so that
            a route that comes later can't be forgotten.
    """
    for rule in app.url_map.iter_rules():
        # Models, the page and the numbers of slots are everyone's; test_slots.py has what is in one.
        if not rule.arguments or rule.arguments in ({"model_id"}, {"name"}, {"slot_id"}):
            continue
        path = rule.rule
        for argument in rule.arguments:
            assert argument in ids, f"{rule.rule}: say which object {argument} names"
            path = path.replace(f"<{argument}>", ids[argument])
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            yield method, path


def assert_hidden(
    client: FlaskClient,
    headers: Mapping[str, str],
    foreign: Mapping[str, str],
    unknown: Mapping[str, str],
    **request: Any,
) -> int:
    """Each route answers ids of another key exactly as it answers ids that nobody has.

    Args:
        client: Of the application.
        headers: Those of a key that owns none of the objects.
        foreign: Ids of another key's objects, by argument.
        unknown: Ids as long, of no object.
        **request: Passed on to each call: a body that the routes accept.

    Returns:
        How many calls were compared.
    """
    calls = 0
    headers = {**headers, "X-Request-Id": "same"}  # Anthropic's errors repeat it
    pairs = zip(
        id_calls(client.application, foreign), id_calls(client.application, unknown), strict=True
    )
    for (method, path), (_, other) in pairs:
        answers = [client.open(p, method=method, headers=headers, **request) for p in (path, other)]
        assert [a.status_code for a in answers] == [404, 404], (method, path)
        texts = [a.text for a in answers]
        for name in foreign:
            texts[0] = texts[0].replace(foreign[name], "ID")
            texts[1] = texts[1].replace(unknown[name], "ID")
        assert texts[0] == texts[1], (method, path)
        for answer in answers:
            assert_error_object(answer)
        calls += 1
    return calls
