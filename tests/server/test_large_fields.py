"""Every list and every text of every route, as large as a body may be: others go on meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from flask.testing import FlaskClient
from large_field_sweep import ENCODINGS, Outcome, Sweep, sweep_server
from large_fields import LargeField, fields_of, large_fields, one_of_each
from model_app import close_model_app, make_model_app
from pydantic import BaseModel, Field, ValidationError
from valid_bodies import VALID_BODIES, make_objects

from oxibonsai.engine import Engine
from oxibonsai.output import stop
from oxibonsai.server import inputs
from oxibonsai.server.admin.operations import OPERATIONS
from oxibonsai.server.server import Server
from oxibonsai.tokenizer import Tokenizer

MB = 1_000_000
SIZE = 15 * MB
MOST_MB = 1024  # of memory
FIELDS = large_fields(OPERATIONS)
# They take any number of tokens, so that the whole text is tokenized: some megabytes a second.
UNLIMITED = ("tokens.", "chat.count_tokens", "responses.count_tokens", "messages.count_tokens")
PAID = 2**16  # characters that may be tokenized while others wait


class _Inner(BaseModel):
    text: str
    kind: Literal["a"]


class _Outer(BaseModel):
    words: list[str] = Field(default_factory=list)
    inner: _Inner | None = None
    pairs: dict[str, float] | None = None
    anything: Any = None
    number: int = 1


def test_every_list_and_text_of_a_schema_is_filled() -> None:
    found = fields_of("a", _Outer.model_json_schema(), {"number": 2})
    bodies = {(".".join(map(str, f.path)), f.fill): f.body(50).decode() for f in found}
    assert bodies == {
        ("words", "empty lists"): '{"number": 2, "words": [[],[],[],[],[],[],[],[]]}',
        ("words", "list"): '{"number": 2, "words": ["a","a","a","a","a","a"]}',
        ("words.0", "text"): '{"number": 2, "words": ["hello, world "]}',
        ("inner.text", "text"): '{"number": 2, "inner": {"text": "", "kind": "a"}}',
        ("pairs", "keys"): '{"number": 2, "pairs": {"0000000":1,"0000001":1}}',
        ("anything", "text"): '{"number": 2, "anything": "hello, world "}',
        ("anything", "empty lists"): '{"number": 2, "anything": [[],[],[],[],[],[],[]]}',
    }


def test_every_route_with_a_body_is_in_the_sweep() -> None:
    assert {f.endpoint for f in FIELDS} == set(VALID_BODIES) | {"files.upload", "images.edit"}
    assert len(one_of_each(FIELDS)) > 350


@pytest.mark.parametrize("fill", ["empty lists", "list", "keys"])
def test_a_check_ends_at_the_first_mistake(fill: str) -> None:
    """Thousands of wrong items or unknown names make a few errors: one for each way to be right."""
    most = {}
    for field in FIELDS:
        model = OPERATIONS[field.endpoint].body
        if field.fill != fill or model is None:
            continue
        try:
            model.model_validate(json.loads(field.body(50_000)))
        except ValidationError as e:
            most[field.name] = e.error_count()
    assert {name: count for name, count in most.items() if count > 30} == {}
    assert len(most) > 10


@pytest.fixture(scope="module")
def app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = make_model_app(
        tiny_path,
        tmp_path_factory.mktemp("large"),
        parallel=1,
        n_predict=2,
        slot_save_path=tmp_path_factory.mktemp("slots"),
        max_batches=10_000,
    )
    yield made
    close_model_app(made)


@pytest.fixture(scope="module")
def client(app: Server) -> FlaskClient:
    return app.test_client()


def test_no_long_text_is_worked_on_while_a_permit_is_held(
    app: Server, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = make_objects(client)
    paths = {r.endpoint: r.rule for r in app.url_map.iter_rules()}
    held: list[int] = []
    encode = Tokenizer.encode

    def observed(self: Tokenizer, text: str, **named: Any) -> list[int]:
        if app.submitter.pool.running:
            held[-1] += len(text)
        return encode(self, text, **named)

    monkeypatch.setattr(Tokenizer, "encode", observed)
    wrong = []
    fields = [f for f in one_of_each(FIELDS, 1) if f.fill in ("text", "list", "part")]
    for field in fields:
        path = paths[field.endpoint]
        for name, value in ids.items():
            path = path.replace(f"<{name}>", value)
        body = field.body(2 * PAID).replace(b"ASSISTANT", ids["assistant_id"].encode())
        held.append(0)
        answer = client.post(path, data=body, content_type=field.content_type)
        answer.get_data()
        if answer.status_code in (500, 503) or held[-1] > PAID:
            wrong.append(f"{field.name}: {answer.status_code}, {held[-1]} characters")
    assert not wrong, "\n".join(wrong)
    assert len(held) > 100


LITTLE: list[tuple[dict[str, Any], str, str]] = [
    ({"bad_words": ["x" * 4097]}, "bad_words.0", "at most 4096 characters"),
    ({"bad_words": ["x" * 4096] * 17}, "bad_words", "69632 characters; at most 65536"),
    ({"bad_words": ["x"] * 1025}, "bad_words", "at most 1024 items"),
    ({"logit_bias": [["x" * 4097, 1]]}, "logit_bias.0.0", ""),
    ({"logit_bias": {f"{i}" + "x" * 4000: 1 for i in range(17)}}, "logit_bias", "at most 65536"),
    ({"logit_bias": [["x" * 4000, 1]] * 17}, "logit_bias", "68000 characters; at most 65536"),
    ({"prompt": [1] * (2**20 + 1)}, "prompt", "at most 1048576 items"),
    ({"stop": ["x"] * 17}, "stop", "at most 16 items"),
    ({"logit_bias": [[1, 1]] * 1025}, "logit_bias", "at most 1024 items"),
    ({"stop": "x" * 4097}, "stop", "at most 4096 characters"),
    ({"dry_sequence_breakers": ["x" * 4097]}, "dry_sequence_breakers.0", "at most 4096"),
]


@pytest.mark.parametrize(("fields", "param", "reason"), LITTLE)
def test_lists_that_belong_to_sampling_are_bounded_in_number_and_length(
    client: FlaskClient, fields: dict[str, Any], param: str, reason: str
) -> None:
    answer = client.post("/v1/completions", json={"prompt": "a", **fields})
    assert answer.status_code == 400
    error = answer.get_json()["error"]
    assert error["param"].startswith(param)
    assert reason in error["message"]


def test_bad_words_are_given_up_as_the_client_leaves(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "client_is_gone", lambda _: True)
    monkeypatch.setattr(inputs, "_LOOK_SECONDS", 0.0)
    body = {"prompt": [5], "bad_words": ["a word"], "max_tokens": 1}
    assert client.post("/v1/completions", json=body).status_code == 499


def test_the_samples_of_a_request_share_what_finds_their_stop_strings(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    make = stop._Trie.__init__

    def counted(self: stop._Trie, words: tuple[str, ...]) -> None:
        made.append(1)
        make(self, words)

    monkeypatch.setattr(stop._Trie, "__init__", counted)
    body = {"prompt": "a", "max_tokens": 1, "n": 8, "stop": ["of its own", "and another"]}
    assert client.post("/v1/completions", json=body).status_code == 200
    assert len(made) == 1


def test_a_structure_that_no_text_can_follow_is_a_wrong_request_and_costs_no_step_again(
    app: Server, client: FlaskClient
) -> None:
    properties = {f"p{i}": {"type": "string"} for i in range(800)}
    body = {"prompt": "a", "max_tokens": 8, "json_schema": {"properties": properties}}
    first = client.post("/v1/completions", json=body)
    assert first.status_code == 400
    assert "the structure can't be followed to its end" in first.get_json()["error"]["message"]
    engine: Engine = app.submitter.engine
    steps = engine.counts.steps
    second = client.post("/v1/completions", json=body)
    assert second.status_code == 400
    assert second.get_json() == first.get_json()
    assert engine.counts.steps == steps


def test_an_error_quotes_little_of_a_request(client: FlaskClient) -> None:
    for body in (
        {"prompt": "a", "preset": "x" * MB},
        {"prompt": "a", "x" * MB: 1},
        {"prompt": "a", "samplers": ["x" * MB]},
        {"prompt": "a", **{f"{i}": 1 for i in range(2000)}},
    ):
        answer = client.post("/v1/completions", json=body)
        assert answer.status_code == 400
        assert len(answer.data) < 4000
    assert answer.get_json()["error"]["message"].startswith("the body: it has 2001 fields")


@pytest.fixture
def sweep(tiny_path: Path, tmp_path: Path) -> Iterator[Sweep]:
    with sweep_server(tiny_path, tmp_path) as made:
        yield made


def blocks(outcome: Outcome) -> bool:
    return outcome.blocked and outcome.seconds > 0.5


def check(sweep: Sweep, fields: list[LargeField], encodings: list[tuple[str, ...]]) -> None:
    """Bodies of 15 MB leave another key its tokens, and the server its memory.

    A large body may by chance be answered while the other key's request is under way, so each field
    has three tries at that; and one that is refused within half a second keeps nobody waiting longer.
    """
    wrong = []
    for i, field in enumerate(fields):
        size = 2 * MB if field.endpoint.startswith(UNLIMITED) else SIZE
        names = encodings[i % len(encodings)]
        outcome = sweep.run(field, size, names)
        for _ in range(2):
            if blocks(outcome):
                outcome = sweep.run(field, size, names)
        good = all(status < 500 or status == 501 for status in outcome.statuses)
        if blocks(outcome) or outcome.refused or outcome.peak_mb > MOST_MB or not good:
            wrong.append(f"{field.name} as {names}: {outcome}")
    assert not wrong, "\n".join(wrong)


# One of each kind: what makes tokens, what samples with them, what checks them, what is ignored.
REPRESENTATIVE = {
    "bad_words.0 (text)", "stop (text)", "samplers (empty lists)", "dry_sequence_breakers (list)",
    "prompt (text)", "prompt (list)", "logit_bias (keys)", "grammar (text)", "user (text)",
    "messages.0.content (text)", "messages (list)", "tools (empty lists)", "choice (list)",
}  # fmt: skip


@pytest.mark.long("sends megabytes in every field that takes them")
def test_large_fields_of_one_key_leave_another_its_tokens(sweep: Sweep) -> None:
    fields = [f for f in one_of_each(FIELDS) if f.name.partition(" ")[2] in REPRESENTATIVE]
    assert {f.name.partition(" ")[2] for f in fields} == REPRESENTATIVE
    check(sweep, fields, [(name, name) for name in ENCODINGS])


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(0, marks=pytest.mark.release),
        *(pytest.param(i, marks=pytest.mark.release) for i in (1, 2, 3)),
    ],
)
def test_every_large_field_of_one_key_leaves_another_its_tokens(sweep: Sweep, part: int) -> None:
    fields = one_of_each(FIELDS, 1)[part::4]
    check(sweep, fields, [(name, name) for name in ENCODINGS])


@pytest.mark.suite
@pytest.mark.timeout(3 * 3600)
def test_every_large_field_of_every_route_in_every_encoding(sweep: Sweep) -> None:
    only = os.environ.get("LARGE_FIELDS", "")
    check(sweep, [f for f in FIELDS if only in f.name], [ENCODINGS])
