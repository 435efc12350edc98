"""``/openapi.json``: request and response schemas of all routes, from the models that validate them.

Each endpoint has its row in :data:`oxibonsai.server.admin.operations.OPERATIONS`; a test walks the
application's URL map and fails for one that has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flask import Blueprint, Flask, Response, current_app, jsonify
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from oxibonsai.server.admin.features import Feature

_SCHEMAS = "#/components/schemas/"
_UNDOCUMENTED_METHODS = {"HEAD", "OPTIONS"}

Schema = dict[str, Any]


@dataclass(frozen=True)
class Operation:
    """The documentation of one endpoint.

    Attributes:
        summary: One line of description.
        body: The model of its JSON body; None if it has none.
        form: The JSON schema of a multipart form, for uploads.
        query: The model of its query parameters.
        response: The JSON schema of a successful response; None if that isn't JSON.
        media_type: Media type of a successful response.
        streams: The response is a stream of events if the body has ``"stream": true``.
        public: It needs no API key.
        failure: The name of the schema of its errors.
        needs: The feature it needs; without it, it responds with 501 and is left out of the document.
    """

    summary: str
    body: type[BaseModel] | None = None
    form: Schema | None = None
    query: type[BaseModel] | None = None
    response: Schema | None = None
    media_type: str = "application/json"
    streams: bool = False
    public: bool = False
    failure: str = "Error"
    needs: Feature | None = None


def openapi_blueprint(
    operations: Mapping[str, Operation], features: Callable[[], Set[Feature]]
) -> Blueprint:
    """Return the route of the document; it needs an API key like any other.

    Args:
        operations: By endpoint, as ``blueprint.view``.
        features: The enabled features; called after the model is loaded.
    """
    bp = Blueprint("openapi", __name__)

    @lru_cache(maxsize=1)
    def document_of(app: Flask) -> Schema:
        there = features()
        served = {k: o for k, o in operations.items() if o.needs is None or o.needs in there}
        return openapi_document(app, served)

    @bp.get("/openapi.json")
    def openapi() -> Response:
        return jsonify(document_of(current_app._get_current_object()))  # type: ignore[attr-defined]

    return bp


def openapi_document(app: Flask, operations: Mapping[str, Operation]) -> Schema:
    """Return the OpenAPI 3.1 document of an application's routes.

    Args:
        app: The application; endpoints without an operation are left out.
        operations: By endpoint, as ``blueprint.view``.
    """
    from oxibonsai import __version__

    references, schemas = _model_schemas(operations.values())
    paths: dict[str, Schema] = {}
    for rule in app.url_map.iter_rules():
        operation = operations.get(rule.endpoint)
        if operation is None:
            continue
        path, parameters = _path(rule.rule)
        for method in sorted((rule.methods or set()) - _UNDOCUMENTED_METHODS):
            described = _operation(operation, parameters, references)
            described["operationId"] = _operation_id(method, path)
            described["tags"] = [rule.endpoint.partition(".")[0]]
            paths.setdefault(path, {})[method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "oxibonsai", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {
                **schemas,
                "Error": _ERROR,
                "AnthropicError": _ANTHROPIC_ERROR,
                "OllamaError": _OLLAMA_ERROR,
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
        # Either key, or none where the server has none.
        "security": [{"bearer": []}, {"key": []}, {}],
    }


def object_with(*required: str, **values: Schema) -> Schema:
    """Return the schema of an object with these required members; ``values`` has schemas of members."""
    properties = {name: values.get(name, {}) for name in (*required, *values)}
    return {"type": "object", "required": list(required), "properties": properties}


def _model_schemas(operations: Iterable[Operation]) -> tuple[dict[type[BaseModel], str], Schema]:
    """Return where each model's schema is found, and all schemas by name."""
    models = {m for o in operations for m in (o.body, o.query) if m is not None}
    ordered = sorted(models, key=lambda m: (m.__module__, m.__name__))
    references, definitions = models_json_schema(
        [(m, "validation") for m in ordered], ref_template=_SCHEMAS + "{model}"
    )
    found = {m: references[m, "validation"]["$ref"] for m in ordered}
    return found, definitions.get("$defs", {})


def _path(rule: str) -> tuple[str, list[Schema]]:
    """Return a rule of the URL map as OpenAPI writes it, with the parameters in it."""
    pattern = r"<(?:\w+:)?(\w+)>"
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(pattern, rule)
    ]
    return re.sub(pattern, r"{\1}", rule), parameters


def _operation_id(method: str, path: str) -> str:
    words = re.findall(r"\w+", path)
    return "_".join([method.lower(), *words]) if words else f"{method.lower()}_root"


def _operation(
    operation: Operation, parameters: list[Schema], references: Mapping[type[BaseModel], str]
) -> Schema:
    described: Schema = {
        "summary": operation.summary,
        "parameters": [*parameters, *_query_parameters(operation.query)],
        "responses": {"200": _success(operation), "default": _failure(operation)},
    }
    if operation.body is not None:
        content = {"application/json": {"schema": {"$ref": references[operation.body]}}}
        described["requestBody"] = {"required": True, "content": content}
    elif operation.form is not None:
        content = {"multipart/form-data": {"schema": operation.form}}
        described["requestBody"] = {"required": True, "content": content}
    if operation.public:
        described["security"] = [{}]
    return described


def _query_parameters(model: type[BaseModel] | None) -> Iterator[Schema]:
    if model is None:
        return
    schema = model.model_json_schema()
    for name, value in schema["properties"].items():
        required = name in schema.get("required", ())
        yield {"name": name, "in": "query", "required": required, "schema": value}


def _success(operation: Operation) -> Schema:
    schema = {"schema": operation.response} if operation.response is not None else {}
    content = {operation.media_type: schema}
    if operation.streams:
        content["text/event-stream"] = {}
    return {"description": "Success.", "content": content}


_TEXT_OR_NULL = {"type": ["string", "null"]}
_ERROR = object_with(
    "error",
    error=object_with(
        "message",
        "type",
        "param",
        "code",
        message={"type": "string"},
        type={"type": "string"},
        param=_TEXT_OR_NULL,
        code=_TEXT_OR_NULL,
    ),
)
_ANTHROPIC_ERROR = object_with(
    "type",
    "error",
    type={"const": "error"},
    error=object_with("type", "message", type={"type": "string"}, message={"type": "string"}),
)

_OLLAMA_ERROR = object_with("error", error={"type": "string"})


def _failure(operation: Operation) -> Schema:
    schema = {"$ref": _SCHEMAS + operation.failure}
    return {"description": "Error.", "content": {"application/json": {"schema": schema}}}
