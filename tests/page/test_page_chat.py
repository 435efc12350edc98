"""Talking with a model through the page, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from selenium.webdriver.common.keys import Keys

from page.fake_api import FakeApi, Reply, serving
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


def sent(api: FakeApi, index: int = -1) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in api.requests[index]["messages"]]


def test_a_message_is_sent_and_its_answer_streams_in(visit: Visit, api: FakeApi) -> None:
    reply = Reply(["Hel", "lo", None, " there"])
    api.replies = [reply]
    visitor = visit()
    visitor.ask("Good morning", finish=False)
    visitor.wait(lambda: visitor.answers == ["Hello"])
    assert visitor.answering
    reply.go_on.set()
    visitor.finish()
    assert visitor.answers == ["Hello there"]
    assert visitor.questions == ["Good morning"]
    assert api.requests[0]["model"] == "bonsai-1.7b-q1"
    assert api.requests[0]["stream"] is True
    assert api.requests[0]["stream_options"] == {"include_usage": True}
    assert api.requests[0]["return_progress"] is True
    assert api.requests[0]["background"] is True
    assert set(api.requests[0]) == {
        *("model", "messages", "stream", "background", "stream_options", "return_progress"),
    }
    assert visitor.complaints() == []


def test_the_conversation_so_far_goes_with_each_message(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply([{"reasoning_content": "hm"}, "one"]), Reply(["two"])]
    visitor = visit()
    visitor.ask("a")
    visitor.ask("b")
    assert sent(api) == [("user", "a"), ("assistant", "one"), ("user", "b")]


def test_stop_ends_the_request_and_keeps_the_text(visit: Visit, api: FakeApi) -> None:
    reply = Reply(["Half of it", None, "never"])
    api.replies = [reply]
    visitor = visit()
    visitor.ask("go", finish=False)
    visitor.wait(lambda: visitor.answers == ["Half of it"])
    visitor.click("#stop")
    visitor.finish()
    assert reply.gone.wait(20), "the server was not told"
    assert visitor.answers == ["Half of it"]
    assert visitor.text(".remark") == "Stopped."
    assert visitor.focused == "draft"


def test_escape_stops_too(visit: Visit, api: FakeApi) -> None:
    reply = Reply(["Half", None])
    api.replies = [reply]
    visitor = visit()
    visitor.ask("go", finish=False)
    visitor.wait(lambda: visitor.answers == ["Half"])
    visitor.keys(Keys.ESCAPE)
    visitor.finish()
    assert reply.gone.wait(20)


def test_an_edited_message_is_asked_again_and_what_followed_goes(
    visit: Visit, api: FakeApi
) -> None:
    visitor = visit()
    for text in ("first", "second", "third"):
        visitor.ask(text)
    visitor.js("document.querySelectorAll('.user .edit')[1].click()")
    visitor.keys(" thoughts", Keys.ENTER)
    visitor.wait(lambda: len(api.requests) == 4)
    visitor.finish()
    assert visitor.questions == ["first", "second thoughts"]
    assert sent(api) == [("user", "first"), ("assistant", "ok"), ("user", "second thoughts")]


def test_an_edit_can_be_left_without_a_change(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.ask("first")
    visitor.click(".user .edit")
    visitor.keys("xyz", Keys.ESCAPE)
    assert visitor.questions == ["first"]
    assert visitor.focused == "quiet edit"
    assert len(api.requests) == 1


def test_regenerate_asks_the_same_again(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["one"]), Reply(["two"])]
    visitor = visit()
    visitor.ask("say")
    visitor.click(".again")
    visitor.wait(lambda: visitor.answers == ["two"])
    visitor.finish()
    assert sent(api, 0) == sent(api, 1) == [("user", "say")]


def test_reasoning_is_folded_and_can_be_opened(visit: Visit, api: FakeApi) -> None:
    reply = Reply([{"reasoning_content": "Let me "}, {"reasoning_content": "*think*"}, None, "42"])
    api.replies = [reply]
    visitor = visit()
    visitor.ask("?", finish=False)
    visitor.wait(lambda: visitor.text(".reasoning summary") == "Thinking…")
    reply.go_on.set()
    visitor.finish()
    assert visitor.answers == ["42"]
    assert visitor.text(".reasoning summary").startswith("Thought")
    assert not visitor.one(".reasoning .markdown").is_displayed()
    visitor.click(".reasoning summary")
    assert visitor.one(".reasoning .markdown").text == "Let me think"
    assert visitor.all(".reasoning em")


def test_tool_calls_are_shown_as_their_pieces_come(visit: Visit, api: FakeApi) -> None:
    def piece(index: int, **function: str) -> dict[str, object]:
        return {"tool_calls": [{"index": index, "function": function}]}

    calls = [
        piece(0, name="weather", arguments=""),
        piece(0, arguments='{"city": '),
        piece(0, arguments='"<b>Oslo</b>"}'),
        piece(1, name="clock", arguments="{broken"),
    ]
    api.replies = [Reply(calls, finish="tool_calls")]
    visitor = visit()
    visitor.ask("?")
    assert visitor.texts(".tool summary") == ["Calls weather", "Calls clock"]
    visitor.click(".tool:first-child summary")
    assert json.loads(visitor.text(".tool:first-child pre")) == {"city": "<b>Oslo</b>"}
    assert visitor.js("return document.querySelectorAll('.tool code')[1].textContent") == "{broken"


def test_tokens_and_their_rate_are_the_servers_or_counted(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["a", "b"]), Reply(["a", "b", "c"], usage=False)]
    visitor = visit()
    visitor.ask("?")
    shown = visitor.text(".figures")
    assert shown.startswith("42 tokens · 7.5 tokens/s · first after ")
    assert shown.endswith("prompt of 11")
    visitor.click(".again")
    visitor.wait(lambda: visitor.text(".figures").startswith("3 tokens"))


def test_a_cut_answer_says_so(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["long"], finish="length")]
    visitor = visit()
    visitor.ask("?")
    assert visitor.text(".remark") == "Cut off at the limit of tokens."


def test_settings_reach_the_request_and_stay(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.click("#open-settings")
    visitor.js("document.querySelectorAll('#sampling details').forEach(d => d.open = true)")
    fields = {"temperature": "0.3", "top_p": "0.9", "top_k": "40", "max_tokens": "77"}
    for name, value in {**fields, "repeat_penalty": "1.1", "stop": "END, ###"}.items():
        visitor.one(f"[name={name}]").send_keys(value)
    visitor.one("[name=thinking]").send_keys("Off")
    visitor.click("#settings-form .primary")
    visitor.ask("hi")
    visitor.load()  # a reload keeps them
    visitor.ask("again")
    for request in api.requests:
        assert request["messages"][0]["role"] == "user"
        assert (request["temperature"], request["top_p"]) == (0.3, 0.9)
        assert (request["repeat_penalty"], request["stop"]) == (1.1, ["END", "###"])
        assert (request["top_k"], request["max_tokens"]) == (40, 77)
        assert request["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_setting_out_of_range_is_not_saved(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.click("#open-settings")
    visitor.one("[name=top_p]").send_keys("3")
    visitor.click("#settings-form .primary")
    assert visitor.js("return document.querySelector('#settings').open")
    visitor.click("#cancel-settings")
    visitor.ask("hi")
    assert "top_p" not in api.requests[0]


def test_the_chosen_model_is_asked(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.one("#model").send_keys("smollm2")
    visitor.ask("hi")
    assert api.requests[0]["model"] == "smollm2-135m"


def test_the_page_works_behind_a_prefix(visit: Visit, api: FakeApi) -> None:
    with serving(FakeApi(), prefix="/tools/chat") as behind:
        visitor = visit()
        visitor.api = behind
        visitor.load()
        visitor.ask("hi")
        assert visitor.answers == ["ok"]
        assert len(behind.requests) == 1
        visitor.leave()
    assert api.requests == []
    visitor.api = api
    visitor.load()
