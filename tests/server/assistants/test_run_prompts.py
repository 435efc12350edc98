"""What a run gives the model to read: threads longer than the context, limits."""

from __future__ import annotations

import re
from typing import Any

import pytest
from assistant_calls import outputs_for, post, settled, waiting_run
from flask.testing import FlaskClient

from oxibonsai.chat import PreparedPrompt
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.generation import Generation
from oxibonsai.server.submitter import Submitter


def long_thread(client: FlaskClient, messages: int) -> str:
    """About 70 tokens for each message; the context has 512."""
    said = [
        {"role": ("user", "assistant")[i % 2], "content": f"m{i:02} " + "x" * 50}
        for i in range(messages)
    ]
    return str(post(client, "threads", messages=said)["id"])


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the model was asked, the oldest first."""
    asked: list[str] = []
    submit = Submitter.prompt

    def spy(self: Submitter, prepared: PreparedPrompt, params: SamplingParams) -> Generation:
        asked.append(prepared.prompt)
        return submit(self, prepared, params)

    monkeypatch.setattr(Submitter, "prompt", spy)
    return asked


def finished(client: FlaskClient, assistant: str, thread: str, **fields: Any) -> Any:
    """A run that makes no calls, when it has ended."""
    asked = {"assistant_id": assistant, "tool_choice": "none", **fields}
    run = settled(client, post(client, f"threads/{thread}/runs", **asked))
    assert run["status"] in ("completed", "incomplete"), run
    return run


def shown(prompt: str) -> list[int]:
    """Numbers of the messages that a prompt holds."""
    return [int(n) for n in re.findall(r"m(\d\d) ", prompt)]


def test_of_a_thread_longer_than_the_context_the_middle_is_left_out(
    client: FlaskClient, assistant: str, prompts: list[str]
) -> None:
    run = finished(client, assistant, long_thread(client, 21), max_completion_tokens=6)
    first, *rest = shown(prompts[-1])
    # The first message and the newest are there, and as many of the others as fit.
    assert (first, rest) == (0, list(range(rest[0], 21)))
    assert len(rest) > 2
    assert 512 - 6 - 80 < run["usage"]["prompt_tokens"] <= 512 - 6


@pytest.mark.parametrize(("wanted", "room"), [(None, 128), (6, 6), (100_000, 128)])
def test_a_thread_that_is_cut_leaves_room_for_the_answer(
    client: FlaskClient, assistant: str, wanted: int | None, room: int
) -> None:
    run = finished(client, assistant, long_thread(client, 21), max_completion_tokens=wanted)
    assert 512 - room - 80 < run["usage"]["prompt_tokens"] <= 512 - room


def test_a_thread_is_cut_to_the_tokens_that_its_run_may_read(
    client: FlaskClient, assistant: str
) -> None:
    run = finished(client, assistant, long_thread(client, 5), max_prompt_tokens=250)
    assert run["incomplete_details"] != {"reason": "max_prompt_tokens"}
    assert 250 - 80 < run["usage"]["prompt_tokens"] <= 250


def test_a_first_message_is_left_out_where_only_the_newest_fits(
    client: FlaskClient, assistant: str, prompts: list[str]
) -> None:
    texts = ("m00 " + "x" * 600, "m01 hi", "m02 and?")
    said = [{"role": "user", "content": text} for text in texts]
    finished(client, assistant, post(client, "threads", messages=said)["id"])
    assert shown(prompts[-1]) == [2]
    # A newest message that is too long by itself can't be answered.
    alone = post(client, "threads", messages=said[:1])["id"]
    error = post(client, f"threads/{alone}/runs", 400, assistant_id=assistant)["error"]
    assert error["code"] == "context_length_exceeded"


def test_a_thread_is_cut_for_the_outputs_of_calls_too(
    client: FlaskClient, assistant: str, prompts: list[str]
) -> None:
    thread = long_thread(client, 21)
    run = waiting_run(client, assistant, thread)
    path = f"threads/{thread}/runs/{run['id']}"
    post(client, f"{path}/submit_tool_outputs", tool_outputs=outputs_for(run, "sunny " * 15))
    assert settled(client, run)["status"] in ("completed", "incomplete")
    assert len(shown(prompts[-1])) < len(shown(prompts[-2]))
    assert "sunny" in prompts[-1]


def test_the_sides_take_turns_where_messages_are_left_out(
    client: FlaskClient, assistant: str, prompts: list[str]
) -> None:
    """Many chat templates refuse a conversation in which they don't."""
    for extra in range(3):
        thread = long_thread(client, 21)
        more = [{"role": "user", "content": "x" * 70 * extra}]
        finished(client, assistant, thread, additional_messages=more, max_completion_tokens=6)
        sides = re.findall(r"<\|im_start\|>(\w+)", prompts[-1])[:-2]
        assert sides == [("user", "assistant")[i % 2] for i in range(len(sides))]


def test_only_the_last_messages_are_read_where_their_number_is_given(
    client: FlaskClient, assistant: str, prompts: list[str]
) -> None:
    path = f"threads/{long_thread(client, 21)}/runs"
    last = {"type": "last_messages", "last_messages": 2}
    asked = {"assistant_id": assistant, "tool_choice": "none", "max_completion_tokens": 2}
    run = settled(client, post(client, path, **asked, truncation_strategy=last))
    assert (run["status"], run["truncation_strategy"]) == ("incomplete", last)
    assert shown(prompts[-1]) == [19, 20]
    many = {**last, "last_messages": 20}
    error = post(client, path, 400, **asked, truncation_strategy=many)["error"]
    assert error["code"] == "context_length_exceeded"
    unsaid = {"type": "last_messages"}
    error = post(client, path, 400, **asked, truncation_strategy=unsaid)["error"]
    assert (error["param"], "last_messages" in error["message"]) == ("truncation_strategy", True)


@pytest.mark.parametrize("sides", [["user", "assistant"], ["assistant"]])
def test_a_run_never_goes_on_with_a_message_of_the_thread(
    client: FlaskClient, assistant: str, prompts: list[str], sides: list[str]
) -> None:
    said = [{"role": side, "content": "I say"} for side in sides]
    thread = post(client, "threads", messages=said)["id"]
    finished(client, assistant, thread, max_completion_tokens=2)
    assert prompts[-1].endswith("\nI say<|im_end|>\n<|im_start|>assistant\n")


def test_a_run_thinks_as_hard_as_its_assistant_unless_it_says_so(
    client: FlaskClient, thread: str
) -> None:
    made = post(client, "assistants", model="tiny", reasoning_effort="low")
    assert made["reasoning_effort"] == "low"
    for given, expected in (({}, "low"), ({"reasoning_effort": "none"}, "none")):
        run = post(client, f"threads/{thread}/runs", assistant_id=made["id"], **given)
        assert run["reasoning_effort"] == expected
        settled(client, run)
    post(client, "assistants", 400, model="tiny", reasoning_effort="much")


def test_in_an_empty_thread_the_model_begins(client: FlaskClient, assistant: str) -> None:
    given = {"assistant_id": assistant, "max_completion_tokens": 2, "tool_choice": "none"}
    run = settled(client, post(client, "threads/runs", **given))
    assert run["status"] in ("completed", "incomplete")


def test_a_prompt_beyond_its_limit_ends_the_run(
    client: FlaskClient, assistant: str, thread: str
) -> None:
    given = {"assistant_id": assistant, "max_prompt_tokens": 3}
    run = settled(client, post(client, f"threads/{thread}/runs", **given))
    assert run["status"] == "incomplete"
    assert run["incomplete_details"] == {"reason": "max_prompt_tokens"}
