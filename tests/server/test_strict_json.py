"""Bodies that two readers could understand differently are refused, and none is an error of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_backend import MakeApp, Probe
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai.server.errors import ApiError
from oxibonsai.server.strict_json import MAX_DEPTH, parse


@pytest.fixture
def client(make_app: MakeApp) -> FlaskClient:
    app = make_app(max_body_mb=1)
    app.register_blueprint(Probe(app.lifecycle).blueprint())
    return app.test_client()


REFUSED = {
    "empty": (b"", "Expecting value"),
    "half": (b'{"a": ', "Expecting value"),
    "no object": (b"[1]", "not a JSON object"),
    "a string": (b'"a"', "not a JSON object"),
    "null": (b"null", "not a JSON object"),
    "key twice": (b'{"a": 1, "a": 2}', "'a' is repeated"),
    "key twice inside": (b'{"b": [{"a": 1, "a": 1}]}', "'a' is repeated"),
    "key twice by escapes": (b'{"a": 1, "\\u0061": 2}', "'a' is repeated"),
    "NaN": (b'{"a": NaN}', "NaN"),
    "Infinity": (b'{"a": -Infinity}', "-Infinity"),
    "1e309": (b'{"a": 1e309}', "1e309 is too large"),
    "-1e999": (b'{"a": [-1e999]}', "too large"),
    "5000 digits": (b'{"a": ' + b"9" * 5000 + b"}", "5000 digits"),
    "latin-1": (b'{"a": "\xe9"}', "byte 7 is not UTF-8"),
    "surrogate bytes": (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
    "utf-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "byte order mark": (b'\xef\xbb\xbf{"a": 1}', "Expecting value"),
    "half a pair": (b'{"a": "\\ud800"}', "an unpaired surrogate (U+D800)"),
    "half a pair in a key": (b'{"\\udc00": 1}', "an unpaired surrogate (U+DC00)"),
    "control character": (b'{"a": "\n"}', "control character"),
    "trailing text": (b'{"a": 1} x', "Extra data"),
    "comment": (b'{"a": 1 /* x */}', "delimiter"),
    "single quotes": (b"{'a': 1}", "property name"),
    "trailing comma": (b'{"a": 1,}', "property name|trailing comma"),
    "depth 101": (b'{"a": ' + b"[" * 101 + b"]" * 101 + b"}", "deeper than 100"),
    "depth 10,000": (b'{"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "deeper than 100"),
    "depth 10,000 open": (b'{"a": ' + b"[" * 10_000, "deeper than 100|Expecting"),
    "objects 10,000": (b'{"a": ' * 10_000 + b"1" + b"}" * 10_000, "deeper than 100"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_body_is_refused_with_the_reason(client: FlaskClient, case: str) -> None:
    body, reason = REFUSED[case]
    answer = client.post("/echo", data=body, content_type="application/json")
    assert answer.status_code == 400, answer.text
    error = answer.get_json()["error"]
    assert error["type"] == "invalid_request_error"
    assert any(part in error["message"] for part in reason.split("|")), error["message"]


def test_the_key_that_is_there_twice_is_the_param(client: FlaskClient) -> None:
    answer = client.post("/echo", data=b'{"n": 1, "n": 1}', content_type="application/json")
    assert answer.get_json()["error"]["param"] == "n"


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_other_content_types_are_415(client: FlaskClient, kind: str) -> None:
    assert client.post("/echo", data=b"{}", content_type=kind).status_code == 415


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/problem+json"])
def test_json_content_types_are_taken(client: FlaskClient, kind: str) -> None:
    assert client.post("/echo", data=b"{}", content_type=kind).status_code == 200


def test_a_body_beyond_the_limit_is_413(client: FlaskClient) -> None:
    answer = client.post("/echo", data=b" " * (2**20 + 1), content_type="application/json")
    assert answer.status_code == 413
    assert answer.get_json()["error"]["message"]


def test_the_deepest_value_that_is_taken() -> None:
    text = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert json.dumps(parse(text)).encode() == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), inner
    ),
)  # fmt: skip


@given(_JSON, st.booleans())
def test_what_json_writes_is_read_as_it_was(value: Any, ascii_only: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=200) | st.text('{}[]",:\\u0019.eE+-ntfalsrue ', max_size=80))
def test_any_bytes_give_a_value_or_a_400(data: bytes | str) -> None:
    raw = data if isinstance(data, bytes) else data.encode()
    try:
        value = parse(raw)
    except ApiError as e:
        assert e.status == 400  # noqa: PT017
    else:
        assert value == json.loads(raw)


STRINGS, CONTAINERS = 2**19, 2**17


@pytest.mark.parametrize("item", [b"[]", b"{}", b'["\\\\",[]]', b'{"\\"":[]}'])
def test_lists_and_objects_are_counted_before_they_are_made(
    item: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = CONTAINERS // (item.count(b"[") + item.count(b"{"))
    assert len(parse(b"[" + b",".join([item] * (count - 1)) + b"]")) == count - 1
    monkeypatch.setattr("oxibonsai.server.strict_json._DECODER", None)
    with pytest.raises(ApiError, match="more than 131072 lists and objects"):
        parse(b"[" + b",".join([item] * count) + b"]")


def test_strings_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(parse(b"[" + b",".join([b'"a"'] * STRINGS) + b"]")) == STRINGS
    monkeypatch.setattr("oxibonsai.server.strict_json._DECODER", None)
    with pytest.raises(ApiError, match="more than 524288 strings"):
        parse(b"[" + b",".join([b'"a"'] * (STRINGS + 1)) + b"]")


def test_what_is_in_a_string_does_not_count() -> None:
    text = '[{"\\\\' * 400_000
    assert parse(json.dumps([text, text]).encode()) == [text, text]
