"""``/openapi.json`` describes every route, and what it says is true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator
from model_app import close_model_app, make_model_app
from url_sweep import PUBLIC
from valid_bodies import VALID_BODIES, valid_body

from oxibonsai.server.admin.features import features_of
from oxibonsai.server.admin.openapi import openapi_document
from oxibonsai.server.admin.operations import OPERATIONS
from oxibonsai.server.server import Server


@pytest.fixture(scope="module")
def app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("openapi")
    made = make_model_app(tiny_path, folder, metrics=True, slot_save_path=folder)
    yield made
    close_model_app(made)


@pytest.fixture(scope="module")
def document(app: Server) -> dict[str, Any]:
    answer = app.test_client().get("/openapi.json")
    assert answer.status_code == 200
    return dict(answer.get_json())


def test_every_route_has_an_operation_and_no_operation_lacks_a_route(app: Server) -> None:
    endpoints = {rule.endpoint for rule in app.url_map.iter_rules()}
    assert endpoints == set(OPERATIONS)


def test_every_route_that_reads_a_body_says_which(app: Server) -> None:
    for rule in app.url_map.iter_rules():
        operation = OPERATIONS[rule.endpoint]
        if operation.body is not None or operation.form is not None:
            assert (rule.methods or set()) & {"POST", "PUT"}, rule


def test_the_document_has_every_rule_and_method(app: Server, document: dict[str, Any]) -> None:
    described = {
        (path, method.upper()) for path, methods in document["paths"].items() for method in methods
    }
    ruled = set()
    there = features_of(app.settings, app.models)
    for rule in app.url_map.iter_rules():
        if OPERATIONS[rule.endpoint].needs not in {None, *there}:
            continue
        ruled |= {(_templated(rule.rule), m) for m in (rule.methods or set()) - {"HEAD", "OPTIONS"}}
    # This model does not rank; test_rerank.py has one that does.
    assert described == {(path, m) for path, m in ruled if "rerank" not in path}


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [o["operationId"] for methods in document["paths"].values() for o in methods.values()]
    assert len(ids) == len(set(ids))


def test_public_routes_are_said_to_be_and_no_others(document: dict[str, Any]) -> None:
    opened = {
        path
        for path, methods in document["paths"].items()
        for operation in methods.values()
        if operation.get("security") == [{}]
    }
    rules = {rule.replace("<", "{").replace(">", "}") for rule in PUBLIC}
    assert opened == rules


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item
            else:
                yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_reference_leads_to_a_sound_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.startswith("#/components/schemas/")
        assert reference.rpartition("/")[2] in schemas
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_the_document_can_be_read_by_others(document: dict[str, Any]) -> None:
    validate = pytest.importorskip(
        "openapi_spec_validator", reason="openapi-spec-validator is not installed"
    ).validate
    validate(json.loads(json.dumps(document)))


def test_the_document_says_what_answers_look_like(app: Server, document: dict[str, Any]) -> None:
    client = app.test_client()
    for path in ("/health", "/livez", "/readyz", "/v1/models", "/openapi.json"):
        assert_as_described(client, document, path)


def assert_as_described(client: FlaskClient, document: dict[str, Any], path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    content = document["paths"][path]["get"]["responses"]["200"]["content"]
    schema = {**content["application/json"]["schema"], "components": document["components"]}
    Draft202012Validator(schema).validate(answer.get_json())


@pytest.mark.parametrize("settings", [{"slots": False}, {"embedding": True, "pooling": "mean"}])
def test_what_this_server_lacks_answers_501_and_is_left_out(
    tiny_path: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    app = make_model_app(tiny_path, tmp_path, **settings)
    client = app.test_client()
    described = client.get("/openapi.json").get_json()["paths"]
    ids = {"slot_id": "0", "batch_file": "file-1"} | {
        f"{kind}_id": client.post(path, json=body).get_json()["id"]
        for kind, path, body in (
            ("assistant", "/v1/assistants", {"model": "tiny"}),
            ("thread", "/v1/threads", {}),
        )
    }
    lacking = set()
    for rule in app.url_map.iter_rules():
        if "POST" not in (rule.methods or ()) and rule.arguments:
            continue
        path = rule.rule
        for argument in rule.arguments:
            path = path.replace(f"<{argument}>", ids.get(argument, "unknown"))
        body = valid_body(rule.endpoint, ids) if rule.endpoint in VALID_BODIES else {}
        for method in (rule.methods or set()) & {"GET", "POST"}:
            given = {"json": body} if method == "POST" else {}
            with client.open(path, method=method, **given) as answer:
                status = answer.status_code
            shown = method.lower() in described.get(_templated(rule.rule), {})
            assert shown == (status != 501), (method, path, status)
            lacking |= {rule.rule} if status == 501 else set()
    assert {"/metrics", "/slots/<slot_id>"} <= lacking
    assert ("/slots" in lacking) == (not app.settings.slots)
    assert ("/v1/threads/<thread_id>/runs" in lacking) == app.settings.embedding
    close_model_app(app)


def _templated(rule: str) -> str:
    return rule.replace("<path:", "<").replace("<", "{").replace(">", "}")


def test_a_route_without_an_operation_is_left_out(app: Server) -> None:
    paths = openapi_document(app, {"health.livez": OPERATIONS["health.livez"]})["paths"]
    assert list(paths) == ["/livez"]
