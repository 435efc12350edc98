"""Answers of a real model under schemas, judged by jsonschema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import oxibonsai
from oxibonsai.engine import Engine, Options
from oxibonsai.sampling import SamplingParams
from oxibonsai.structured import Structure

_SCHEMAS: dict[str, dict[str, Any]] = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 30},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "email": {"type": "string", "pattern": "^[a-z]{1,12}@[a-z]{1,12}\\.com$"},
        },
        "required": ["name", "age", "email"],
        "additionalProperties": False,
    },
    "tasks": {
        "type": "array",
        "minItems": 1,
        "maxItems": 3,
        "items": {
            "type": "object",
            "properties": {
                "title": {"type": "string", "maxLength": 20},
                "state": {"enum": ["open", "done", "in progress"]},
                "due": {"type": "string", "format": "date"},
            },
            "required": ["title", "state"],
            "additionalProperties": False,
        },
    },
    "measure": {
        "type": "object",
        "properties": {
            "value": {"type": "number", "exclusiveMinimum": -1, "maximum": 100.5},
            "unit": {"anyOf": [{"const": "kg"}, {"const": "m"}, {"type": "null"}]},
            "exact": {"type": "boolean"},
        },
        "required": ["value", "unit", "exact"],
        "additionalProperties": False,
    },
    "book": {
        "$defs": {
            "person": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1, "maxLength": 20},
                    "born": {"type": "integer", "minimum": 1000, "maximum": 2020},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
        "type": "object",
        "properties": {
            "title": {
                "type": "string",
                "pattern": "^[A-Z][a-z]+( [A-Z][a-z]+){0,4}$",
                "maxLength": 40,
            },
            "author": {"$ref": "#/$defs/person"},
            "editor": {"anyOf": [{"$ref": "#/$defs/person"}, {"type": "null"}]},
        },
        "required": ["title", "author", "editor"],
        "additionalProperties": False,
    },
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "integer", "multipleOf": 5}, {"type": "string", "maxLength": 8}],
        "items": False,
        "minItems": 2,
    },
}
_MAX_TOKENS = 160


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Engine:
    return oxibonsai.load(smollm2_path, ctx_size=512)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n == "tasks" else pytest.mark.release)
        for n in _SCHEMAS
    ],
)
def test_forty_answers_fit_their_schema(engine: Engine, name: str) -> None:
    schema = _SCHEMAS[name]
    options = Options(structure=Structure.json_schema(schema))
    prompt = engine.tokenizer.encode(
        f"<|im_start|>user\nWrite an example of a {name} as JSON.<|im_end|>\n"
        "<|im_start|>assistant\n",
        parse_special=True,
    )
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    complete = 0
    for seed in range(40):
        params = SamplingParams(
            temperature=(0.0, 0.7, 1.5)[seed % 3], seed=seed, max_tokens=_MAX_TOKENS
        )
        sequence = engine.submit(prompt, params, options)
        while not sequence.finished:
            engine.step()
        if not sequence.complete:
            assert sequence.finish_reason == "length"
            continue
        validator.validate(json.loads(sequence.text))
        complete += 1
    # The rest was cut at the limit of tokens, and said so.
    assert complete >= 30
