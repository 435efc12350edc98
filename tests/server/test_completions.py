"""``/v1/completions`` and llama-server's ``/completion``: prompts, echo, samples, native form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient
from sse_reader import events

PARTS = {"max_tokens": 8, "seed": 1}


def ask(client: FlaskClient, url: str = "/v1/completions", **fields: Any) -> Any:
    answer = client.post(url, json={"prompt": "ab", **PARTS, **fields})
    assert answer.status_code == 200, answer.text
    return answer.get_json()


def texts(client: FlaskClient, **fields: Any) -> list[str]:
    choices = ask(client, **fields)["choices"]
    assert [c["index"] for c in choices] == list(range(len(choices)))
    return [c["text"] for c in choices]


def refused(client: FlaskClient, url: str = "/v1/completions", **fields: Any) -> str:
    answer = client.post(url, json={"prompt": "ab", **fields})
    assert answer.status_code == 400, answer.text
    return str(answer.get_json()["error"]["message"])


def test_all_forms_of_a_prompt_give_the_same_text(model_client: FlaskClient) -> None:
    ids = model_client.post("/tokenize", json={"content": "ab"}).get_json()["tokens"]
    (text,) = texts(model_client)
    assert texts(model_client, prompt=["ab"]) == [text]
    assert texts(model_client, prompt=ids) == [text]
    assert texts(model_client, prompt=[ids, "ab", "ab"]) == [text] * 3


def test_more_prompts_than_may_run_wait_for_each_other(model_client: FlaskClient) -> None:
    prompts = [f"number {i}" for i in range(9)]
    alone = [texts(model_client, prompt=p)[0] for p in prompts]
    assert texts(model_client, prompt=prompts) == alone
    chunks = events(
        model_client.post("/v1/completions", json={"prompt": prompts, **PARTS, "stream": True})
    )
    joined = [""] * len(prompts)
    for choice in (c for chunk in chunks for c in chunk["choices"]):
        joined[choice["index"]] += choice["text"]
    assert joined == alone


def test_samples_are_numbered_through_all_prompts(model_client: FlaskClient) -> None:
    several = texts(model_client, prompt=["ab", "c"], n=2)
    assert several[:2] == texts(model_client, n=2)
    assert several[2:] == texts(model_client, prompt="c", n=2)


def test_the_best_of_many_have_the_highest_mean_logprob(model_client: FlaskClient) -> None:
    everything = ask(model_client, n=6, logprobs=0)["choices"]
    means = {c["text"]: sum(c["logprobs"]["token_logprobs"]) / 8 for c in everything}
    best = texts(model_client, n=2, best_of=6)
    assert best == sorted(means, key=lambda t: -means[t])[:2]


def test_an_echo_repeats_the_prompt_with_its_logprobs(model_client: FlaskClient) -> None:
    plain = ask(model_client, prompt="hello", logprobs=2)["choices"][0]
    echoed = ask(model_client, prompt="hello", logprobs=2, echo=True)["choices"][0]
    assert echoed["text"] == "hello" + plain["text"]
    form = echoed["logprobs"]
    assert form["tokens"][:5] == list("hello")
    assert form["text_offset"][:6] == [0, 1, 2, 3, 4, 5]
    assert form["token_logprobs"][0] is None
    assert all(p <= 0 for p in form["token_logprobs"][1:])
    assert form["token_logprobs"][5:] == plain["logprobs"]["token_logprobs"]


def test_a_prompts_logprobs_are_those_of_generating_it(model_client: FlaskClient) -> None:
    generated = ask(model_client, regex="[d-h]{8}", logprobs=1)["choices"][0]
    whole = ask(model_client, prompt="ab" + generated["text"], echo=True, max_tokens=0, logprobs=1)[
        "choices"
    ][0]
    assert whole["logprobs"]["tokens"][1:] == generated["logprobs"]["tokens"]
    assert whole["logprobs"]["token_logprobs"][1:] == pytest.approx(
        generated["logprobs"]["token_logprobs"], abs=0
    )


def test_the_echo_of_a_stream_comes_first(model_client: FlaskClient) -> None:
    body = {"prompt": "hello", **PARTS, "echo": True, "logprobs": 1, "stream": True}
    chunks = events(model_client.post("/v1/completions", json=body))
    assert chunks[0]["choices"][0]["text"] == "hello"
    offsets = [
        o
        for c in chunks
        for o in (c["choices"][0]["logprobs"] or {"text_offset": []})["text_offset"]
    ]
    assert offsets == sorted(offsets)
    assert offsets[:5] == [0, 1, 2, 3, 4]


def test_what_is_not_supported_is_refused(model_client: FlaskClient) -> None:
    assert "suffix" in refused(model_client, suffix="x")
    assert "best_of" in refused(model_client, n=3, best_of=2)
    assert "best_of" in refused(model_client, best_of=2, stream=True)
    assert "max_tokens" in refused(model_client, max_tokens=0)
    assert "prompt" in refused(model_client, prompt=[])
    assert "vocabulary" in refused(model_client, prompt=[1, 100_000])
    assert "reads text only" in refused(
        model_client, prompt={"prompt_string": "x", "multimodal_data": ["AAAA"]}
    )


def test_the_native_form_tells_how_the_text_ended(model_client: FlaskClient) -> None:
    answer = ask(model_client, "/completion", n_probs=2, return_tokens=True)
    assert answer["content"] == texts(model_client)[0]
    assert answer["stop"] is True
    assert answer["stop_type"] == "limit"
    assert len(answer["tokens"]) == 8
    assert [p["id"] for p in answer["completion_probabilities"]] == answer["tokens"]
    assert answer["generation_settings"]["seed"] == 1
    assert answer["generation_settings"]["n_predict"] == 8
    stop = answer["content"][2:4]
    stopped = ask(model_client, "/completion", stop=[stop])
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", stop)


def test_probabilities_after_sampling_are_those_of_the_draw(model_client: FlaskClient) -> None:
    asked = {"n_probs": 5, "post_sampling_probs": True, "temperature": 1.0}
    few = ask(model_client, "/completion", **asked, top_k=3, top_p=1.0, min_p=0.0)
    assert len(few["completion_probabilities"]) == 8
    for token in few["completion_probabilities"]:
        assert sum(t["prob"] for t in token["top_probs"]) == pytest.approx(1.0)
        assert len(token["top_probs"]) == 3
        (own,) = [t["prob"] for t in token["top_probs"] if t["id"] == token["id"]]
        assert own == token["prob"]
    body = {"prompt": "ab", **PARTS, **asked, "temperature": 0.0, "stream": True}
    greedy = model_client.post("/completion", json=body).get_data(as_text=True)
    chunks = [json.loads(b.removeprefix("data: ")) for b in greedy.split("\n\n") if b]
    tokens = [t for c in chunks for t in c["completion_probabilities"]]
    assert [t["prob"] for t in tokens] == [1.0] * 8
    assert [[p["id"] for p in t["top_probs"]] for t in tokens] == [[t["id"]] for t in tokens]


def test_a_native_stream_ends_without_done(model_client: FlaskClient) -> None:
    body = {"prompt": "ab", **PARTS, "stream": True, "return_progress": True}
    text = model_client.post("/completion", json=body).get_data(as_text=True)
    chunks = [json.loads(b.removeprefix("data: ")) for b in text.split("\n\n") if b]
    assert "".join(c["content"] for c in chunks) == texts(model_client)[0]
    assert [c["stop"] for c in chunks][-2:] == [False, True]
    assert sum(len(c["tokens"]) for c in chunks) == 8


def test_members_of_the_native_form_can_be_chosen(model_client: FlaskClient) -> None:
    fields = ["content", "generation_settings/n_predict", "no/such"]
    answer = ask(model_client, "/completion", response_fields=fields)
    assert set(answer) == set(fields[:2])
    assert answer["generation_settings/n_predict"] == 8


def test_tokens_of_part_characters_have_names_and_places_of_their_own(
    model_client: FlaskClient,
) -> None:
    asked = {"prompt": "é€xz😀c", "echo": True, "logprobs": 20, "max_tokens": 4}
    (choice,) = ask(model_client, **asked)["choices"]
    form = choice["logprobs"]
    # A byte a token: each has the place of its character.
    assert form["text_offset"][:12] == [0, 0, 1, 1, 1, 2, 3, 4, 4, 4, 4, 5]
    assert form["tokens"][:5] == [
        r"bytes:\xc3",
        r"bytes:\xa9",
        r"bytes:\xe2",
        r"bytes:\x82",
        r"bytes:\xac",
    ]
    for name, logprob, top in zip(
        form["tokens"][1:], form["token_logprobs"][1:], form["top_logprobs"][1:], strict=True
    ):
        assert len(top) == 20
        assert top.get(name, logprob) == logprob
    chunks = events(model_client.post("/v1/completions", json={**PARTS, **asked, "stream": True}))
    forms = [c["logprobs"] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
    for member in ("tokens", "text_offset", "token_logprobs"):
        assert [value for f in forms for value in f[member]] == form[member], member


@pytest.mark.parametrize("seed", range(12))
def test_tokens_end_with_the_text_where_it_is_no_utf8(model_client: FlaskClient, seed: int) -> None:
    biases = {str(token): 5 for token in (0xC3, 0xE2, 0xF0, 0xFF, 0xFE, 0x80)}  # bytes, as tokens
    asked = {"temperature": 1.5, "seed": seed, "max_tokens": 60, "logit_bias": biases}
    result = ask(model_client, "/completion", **asked, n_probs=1, stop=["e", "é", "a", "\ufffd!"])
    data = b"".join(bytes(t["bytes"]) for t in result["completion_probabilities"])
    assert data.decode(errors="replace") == result["content"]
    assert "\ufffd" in result["content"]


def test_a_stream_of_prompts_alone_counts_their_tokens(model_client: FlaskClient) -> None:
    asked = {"echo": True, "max_tokens": 0}
    whole = ask(model_client, **asked)
    *others, last = events(
        model_client.post(
            "/v1/completions",
            json={
                "prompt": "ab",
                **asked,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
        )
    )
    assert last["usage"] == whole["usage"]
    assert all(chunk["usage"] is None for chunk in others)


def test_a_best_of_that_is_no_choice_changes_nothing(model_client: FlaskClient) -> None:
    assert texts(model_client, best_of=1) == texts(model_client)
    assert texts(model_client, best_of=2, n=2) == texts(model_client, n=2)
    assert model_client.post(
        "/v1/completions", json={"prompt": "ab", **PARTS, "best_of": 1, "stream": True}
    ).text.endswith("[DONE]\n\n")


def test_a_native_request_for_nothing_warms_the_cache(model_client: FlaskClient) -> None:
    prompt = "A prompt that is long enough for a page of the cache. " * 3
    result = ask(model_client, "/completion", prompt=prompt, n_predict=0, return_tokens=True)
    assert (result["content"], result["tokens"], result["tokens_predicted"]) == ("", [], 0)
    assert result["stop_type"] == "limit"
    stream = model_client.post(
        "/completion", json={"prompt": prompt, "n_predict": 0, "stream": True}
    )
    assert stream.text.count("data: ") == 1
    assert '"stop":true' in stream.text
    later = ask(model_client, "/completion", prompt=prompt)
    assert later["timings"]["cache_n"] >= 64


def test_native_samples_are_numbered(model_client: FlaskClient) -> None:
    results = ask(model_client, "/completion", prompt=["ab", "c"], n=2)
    assert [r["index"] for r in results] == [0, 1, 2, 3]


def test_a_negative_seed_is_a_seed_but_for_minus_one(model_client: FlaskClient) -> None:
    drawn = {"temperature": 1.0, "max_tokens": 20}
    assert texts(model_client, **drawn, seed=-2) == texts(model_client, **drawn, seed=2**64 - 2)
    assert texts(model_client, **drawn, seed=-2) != texts(model_client, **drawn, seed=-3)
