"""What the server's flags turn on in the engine: speculation, context shift, pressure on the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app

from oxibonsai.errors import RequestError

BODY = {"prompt": "ab" * 20, "max_tokens": 60, "temperature": 0, "ignore_eos": True}


def text(client: FlaskClient, **fields: Any) -> str:
    answer = client.post("/v1/completions", json={**BODY, **fields})
    assert answer.status_code == 200, answer.text
    return str(answer.get_json()["choices"][0]["text"])


def drafted(client: FlaskClient) -> tuple[float, float]:
    """Tokens that were proposed, and those that were accepted."""
    text = client.get("/metrics").text
    lines = dict(line.split(" ") for line in text.splitlines() if line.startswith("llamacpp:"))
    names = ("draft_tokens", "accepted_tokens")
    proposed, accepted = (float(lines[f"llamacpp:spec_decode_num_{n}_total"]) for n in names)
    return proposed, accepted


def settings_of(how: str, draft: Path) -> dict[str, Any]:
    if how == "draft":
        return {"draft_model": str(draft), "draft_threshold": 0.0, "draft_length": 5}
    return {"speculate": how, "draft_length": 5}


@pytest.mark.parametrize("how", ["ngram", "draft"])
def test_speculation_changes_no_text(
    how: str, tiny_path: Path, tmp_path: Path, model_client: FlaskClient
) -> None:
    app = make_model_app(
        tiny_path, tmp_path, metrics=True, temperature=1.0, **settings_of(how, tiny_path)
    )
    try:
        client = app.test_client()
        assert text(client) == text(model_client)
        assert text(client, temperature=1, seed=5) == text(model_client, temperature=1, seed=5)
        proposed, accepted = drafted(client)
        assert 0 < accepted <= proposed
    finally:
        close_model_app(app)


@pytest.mark.parametrize("how", ["ngram", "draft"])
def test_a_request_says_how_it_is_drafted(
    how: str, tiny_path: Path, tmp_path: Path, model_client: FlaskClient
) -> None:
    app = make_model_app(tiny_path, tmp_path, **settings_of(how, tiny_path))
    try:
        client = app.test_client()

        def ask(path: str, body: dict[str, Any], **fields: Any) -> Any:
            given = {f"speculative.{name}": value for name, value in fields.items()}
            return client.post(path, json={**BODY, **body, **given})

        def drafts(**fields: Any) -> tuple[int, int]:
            """Tokens of drafts, and the number of drafts."""
            counts = app.submitter.engine.counts
            before = counts.drafts
            answer = ask("/completion", {}, **fields).get_json()
            assert answer["content"] == text(model_client)
            return answer["timings"].get("draft_n", 0), counts.drafts - before

        tokens, count = drafts()
        assert tokens > count > 0
        tokens, count = drafts(n_max=1)
        assert tokens == count > 0
        assert drafts(n_max=0) == (0, 0)
        for path, body in (
            ("/v1/completions", {}),
            (
                "/v1/chat/completions",
                {"prompt": None, "messages": [{"role": "user", "content": "ab" * 20}]},
            ),
        ):
            body = {k: v for k, v in {**BODY, **body}.items() if v is not None}
            timings = client.post(path, json={**body, "speculative.n_max": 0}).get_json()["timings"]
            assert "draft_n" not in timings
            timings = client.post(path, json={**body, "speculative.n_max": 3}).get_json()["timings"]
            assert 0 < timings["draft_n_accepted"] <= timings["draft_n"]
        refused = ask("/v1/completions", {}, p_min=0.999)
        if how == "ngram":
            assert refused.status_code == 400
            assert "drafts of n-grams have no probabilities" in refused.text
        else:
            assert "draft_n" not in refused.get_json()["timings"]  # a random model is never so sure
        for wrong in ({"n_max": 65}, {"n_max": "2"}, {"p_min": 1.5}):
            answer = ask("/v1/completions", {}, **wrong)
            assert answer.status_code == 400
            assert f"speculative.{next(iter(wrong))}" in answer.text
    finally:
        close_model_app(app)


def test_a_request_wants_no_drafts_where_nothing_makes_them(model_client: FlaskClient) -> None:
    refused = model_client.post("/v1/completions", json={**BODY, "speculative.n_max": 2})
    assert refused.status_code == 400
    assert "--draft-model" in refused.text
    assert text(model_client, **{"speculative.n_max": 0}) == text(model_client)


def test_a_text_goes_on_after_the_context_is_full(tiny_path: Path, tmp_path: Path) -> None:
    def finish(**settings: Any) -> tuple[str, int]:
        app = make_model_app(tiny_path, tmp_path, ctx_size=64, **settings)
        try:
            body = {**BODY, "prompt": "ab", "max_tokens": 100}
            answer = app.test_client().post("/v1/completions", json=body).get_json()
            return answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]
        finally:
            close_model_app(app)

    assert finish()[1] < 64
    assert finish(context_shift=True, keep=2) == ("length", 100)


def test_pressure_excludes_a_type(tiny_path: Path, tmp_path: Path) -> None:
    app = make_model_app(tiny_path, tmp_path, kv_pressure="balanced", metrics=True)
    try:
        engine = app.submitter.engine
        assert [p.type for p in engine.cache.pools] == ["f16", "q8_0", "q4_0"]
        assert text(app.test_client())
        lines = app.test_client().get("/metrics").text.splitlines()
        (told,) = [line for line in lines if line.startswith("oxibonsai_kv_pressure_ratio ")]
        assert engine.policy is not None
        assert float(told.split()[1]) == engine.policy.smoothed > 0
    finally:
        close_model_app(app)
    with pytest.raises(RequestError, match="exclude each other"):
        make_model_app(tiny_path, tmp_path, kv_pressure="balanced", kv_type="f16")


def test_a_draft_model_that_nothing_uses_is_refused(tiny_path: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="leave out --speculate or --draft-model"):
        make_model_app(tiny_path, tmp_path, speculate="ngram", draft_model=str(tiny_path))


@pytest.mark.parametrize(
    ("settings", "kinds", "reason"),
    [
        ({}, "none", "no layer that predicts further tokens, and no draft model is given"),
        ({"speculate": "off"}, "none", "as asked for"),
        ({"speculate": "ngram"}, "ngram-simple", "as asked for"),
        ({"draft": True}, "draft-simple", "is for it"),
        ({"draft": True, "speculate": "ngram-simple,draft-simple"}, None, "as asked for"),
    ],
    ids=str,
)
def test_props_say_what_drafts_and_why(
    settings: dict[str, Any], kinds: str | None, reason: str, tiny_path: Path, tmp_path: Path
) -> None:
    given = (
        {**settings, "draft_model": str(tiny_path)} if settings.pop("draft", False) else settings
    )
    app = make_model_app(tiny_path, tmp_path, **given)
    try:
        props = app.test_client().get("/props").get_json()
        told = props["default_generation_settings"]["params"]["speculative.types"]
        assert told == (kinds or settings["speculate"])
        assert reason in props["speculation_reason"]
    finally:
        close_model_app(app)
