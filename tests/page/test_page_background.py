"""Answers go on while the visitor looks elsewhere; nothing that came, and no draft, is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from selenium.webdriver.common.keys import Keys

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


def begun(visitor: Visitor, question: str, answer: str) -> None:
    visitor.ask(question, finish=False)
    visitor.wait(lambda: visitor.answers[-1:] == [answer])


def test_a_reload_during_an_answer_joins_it_again(visit: Visit, api: FakeApi) -> None:
    reply = Reply([{"reasoning_content": "hm"}, "Once ", "upon", None, " a time"])
    api.replies = [reply]
    visitor = visit()
    begun(visitor, "Tell", "Once upon")
    visitor.reload()
    visitor.wait(lambda: visitor.answering and visitor.answers == ["Once upon"])
    reply.go_on.set()
    visitor.finish()
    assert visitor.answers == ["Once upon a time"]
    assert len(api.requests) == 1
    assert visitor.text(".failure") == visitor.text(".remark") == ""
    assert visitor.js("return document.querySelectorAll('.reasoning:not([hidden])').length") == 1
    assert visitor.text(".figures").startswith("42 tokens · 7.5 tokens/s")
    visitor.reload()
    assert visitor.answers == ["Once upon a time"]


def test_an_answer_that_ended_while_the_page_was_closed_is_there_afterwards(
    visit: Visit, api: FakeApi
) -> None:
    reply = Reply(["Half", None, " and half"])
    api.replies = [reply]
    visitor = visit()
    begun(visitor, "Tell", "Half")
    visitor.chromium.get("about:blank")
    reply.go_on.set()
    visitor.load()
    # It is joined though its conversation is not the one that is open.
    visitor.wait(lambda: visitor.all("#conversations .open"))
    visitor.wait(lambda: not visitor.all("#conversations .writing"))
    visitor.click("#conversations .open")
    visitor.wait(lambda: visitor.answers == ["Half and half"])
    assert not visitor.answering


def test_a_continued_answer_is_joined_with_its_beginning(visit: Visit, api: FakeApi) -> None:
    more = Reply(["two ", None, "three"])
    api.replies = [Reply(["one "], finish="length"), more]
    visitor = visit()
    visitor.ask("Count")
    visitor.click(".proceed")
    visitor.wait(lambda: visitor.answers == ["one two"])
    visitor.reload()
    visitor.wait(lambda: visitor.answering)
    more.go_on.set()
    visitor.finish()
    assert visitor.answers == ["one two three"]


def test_another_conversation_does_not_stop_an_answer(visit: Visit, api: FakeApi) -> None:
    slow = Reply(["Trees ", None, "are green"])
    api.replies = [slow, Reply(["It is wet"])]
    visitor = visit()
    begun(visitor, "trees", "Trees")
    visitor.click("#new")
    visitor.wait(lambda: visitor.questions == [])
    assert not visitor.answering
    assert len(visitor.all("#conversations .writing")) == 1
    visitor.ask("water")
    assert visitor.answers == ["It is wet"]
    visitor.click("#conversations li:last-child .open")
    visitor.wait(lambda: visitor.answers == ["Trees"])
    assert visitor.answering
    visitor.click("#conversations li:first-child .open")
    visitor.wait(lambda: visitor.answers == ["It is wet"])
    slow.go_on.set()
    visitor.wait(lambda: not visitor.all("#conversations .writing"))
    visitor.click("#conversations li:last-child .open")
    visitor.wait(lambda: visitor.answers == ["Trees are green"])
    assert not slow.gone.is_set()
    assert not visitor.answering


def test_stop_ends_only_the_answer_that_is_shown(visit: Visit, api: FakeApi) -> None:
    left, shown = Reply(["Left", None]), Reply(["Shown", None])
    api.replies = [left, shown]
    visitor = visit()
    begun(visitor, "a", "Left")
    visitor.click("#new")
    visitor.wait(lambda: visitor.questions == [])
    begun(visitor, "b", "Shown")
    visitor.click("#stop")
    visitor.finish()
    assert shown.gone.wait(20)
    assert not left.gone.is_set()
    assert visitor.text(".remark") == "Stopped."
    left.go_on.set()


def test_an_answer_that_the_server_forgot_keeps_what_had_come(visit: Visit, api: FakeApi) -> None:
    reply = Reply(["Half", None])
    api.replies = [reply]
    visitor = visit()
    begun(visitor, "Tell", "Half")
    visitor.wait(lambda: "Half" in visitor.js("return JSON.stringify(localStorage)"))
    visitor.js(
        "for (const [key, value] of Object.entries(localStorage))"
        " localStorage[key] = value.replaceAll('chatcmpl-1', 'chatcmpl-9')"
    )
    # As after a restart of the server; the page that leaves must not write the id anew.
    visitor.js("Storage.prototype.setItem = () => {}")
    visitor.reload()
    visitor.wait(lambda: visitor.text(".failure p"))
    assert visitor.text(".failure p") == "The server no longer has the rest of this answer."
    assert visitor.answers == ["Half"]
    reply.go_on.set()


def test_a_lost_connection_is_joined_again(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["Half", " and half"], lost_after=2)]
    visitor = visit()
    visitor.ask("Tell")
    assert visitor.answers == ["Half and half"]
    assert visitor.text(".failure") == ""
    assert len(api.requests) == 1


def test_drafts_are_kept_for_each_conversation(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.ask("about trees")
    visitor.one("#draft").send_keys("half a ques")
    path = visitor.folder / "notes.txt"
    path.write_text("notes")
    visitor.one("#files").send_keys(str(path))
    visitor.wait(lambda: visitor.text("#attached .file span") == "notes.txt")
    visitor.click("#new")
    draft = "return document.querySelector('#draft').value"
    assert visitor.js(draft) == visitor.text("#attached") == ""
    visitor.keys("for a new one")
    visitor.load()
    assert visitor.js(draft) == "for a new one"
    visitor.click("#conversations .open")
    visitor.wait(lambda: visitor.js(draft) == "half a ques")
    assert visitor.text("#attached .file span") == "notes.txt"
    visitor.keys(Keys.END, "tion", Keys.ENTER)
    visitor.finish()
    assert api.requests[-1]["messages"][-1]["content"].startswith("half a question\n")
    visitor.reload()
    assert visitor.js(draft) == visitor.text("#attached") == ""
