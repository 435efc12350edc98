"""What the page says when something goes wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


def test_a_missing_key_is_asked_for_and_then_used(visit: Visit, api: FakeApi) -> None:
    api.key = "s3cret"
    visitor = visit()
    visitor.wait(lambda: visitor.js("return document.querySelector('#key-dialog').open"))
    assert visitor.focused == "key"
    visitor.keys("s3cret", "\ue007")
    visitor.wait(lambda: not visitor.js("return document.querySelector('#model').disabled"))
    assert visitor.notice == ""
    visitor.ask("hi")
    assert visitor.answers == ["ok"]
    assert visitor.js("return Object.values(sessionStorage)") == ["s3cret"]
    assert "s3cret" not in visitor.js("return JSON.stringify(localStorage)")


def test_a_key_that_is_refused_later_is_asked_for_again(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    api.key = "changed"
    visitor.ask("hi")
    assert visitor.text(".failure p") == "The server wants an API key."
    assert visitor.text("#key-refused") == ""
    visitor.keys("wrong", "\ue007")
    visitor.wait(lambda: "did not take the key" in visitor.text("#key-refused"))
    visitor.keys("changed", "\ue007")
    visitor.wait(lambda: not visitor.js("return document.querySelector('#key-dialog').open"))
    visitor.click(".retry")
    visitor.wait(lambda: visitor.answers == ["ok"])


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(status=429, headers={"Retry-After": "7"}), "Too many requests. Try again in 7 seconds."),
        (Reply(status=429), "Too many requests. Try again in a moment."),
        (
            Reply(status=503, headers={"Retry-After": "200"}),
            "The server is busy or not ready yet. Try again in 4 minutes.",
        ),
        (Reply(status=500, message="<b>kernel</b>"), "The server says (500): <b>kernel</b>"),
        (Reply(status=400, message="too long"), "The server says (400): too long"),
    ],
)  # fmt: skip
def test_refusals_are_told_in_words_and_can_be_tried_again(
    visit: Visit, api: FakeApi, reply: Reply, words: str
) -> None:
    api.replies = [reply]
    visitor = visit()
    visitor.ask("hi")
    assert visitor.text(".failure p") == words
    visitor.click(".retry")
    visitor.wait(lambda: visitor.answers == ["ok"])
    assert visitor.text(".failure") == ""
    assert visitor.questions == ["hi"]


def test_a_date_says_when_to_retry_too(visit: Visit, api: FakeApi) -> None:
    from email.utils import formatdate
    from time import time

    date = formatdate(time() + 3000, usegmt=True)
    api.replies = [Reply(status=503, headers={"Retry-After": date})]
    visitor = visit()
    visitor.ask("hi")
    assert visitor.text(".failure p").endswith(("in 50 minutes.", "in 49 minutes."))


def test_an_answer_that_ends_in_order_but_unfinished_says_so(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["Half"], finish="")]
    visitor = visit()
    visitor.ask("hi")
    assert visitor.answers == ["Half"]
    assert visitor.text(".failure p") == "The connection ended before the answer did."


def test_a_connection_that_ends_early_keeps_the_text_and_says_so(
    visit: Visit, api: FakeApi
) -> None:
    api.replies = [Reply(["Half"], whole=False)]
    visitor = visit()
    visitor.ask("hi")
    assert visitor.answers == ["Half"]
    assert visitor.text(".failure p") == "The connection ended before the answer did."


def test_an_error_inside_a_stream_is_told(visit: Visit, api: FakeApi, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    import page.fake_api as fake

    event = fake._event
    monkeypatch.setattr(
        fake, "_event", lambda e: event({"error": {"message": "no pages"}} if "x!" in str(e) else e)
    )
    api.replies = [Reply(["Half", "x!"])]
    visitor = visit()
    visitor.ask("hi")
    assert visitor.answers == ["Half"]
    assert visitor.text(".failure p") == "The server broke off: no pages"


def test_a_server_that_is_gone_is_told(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.chromium.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    visitor.chromium.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    try:
        visitor.ask("hi")
        assert visitor.text(".failure p") == "The server can't be reached."
    finally:
        online = {**offline, "offline": False}
        visitor.chromium.execute_cdp_cmd("Network.emulateNetworkConditions", online)


def test_a_browser_without_room_says_that_nothing_is_kept(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.js(
        "Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError') }"
    )
    visitor.ask("hi")
    assert visitor.answers == ["ok"]
    assert "no room left" in visitor.notice


def test_foreign_entries_in_the_storage_do_no_harm(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.js(
        "for (const [i, v] of ['{', '3', 'null', '{\"messages\": 1}'].entries())"
        " localStorage.setItem(`oxibonsai:/:conversation:${i}`, v);"
        " localStorage.setItem('oxibonsai:/:settings', '[broken')"
    )
    visitor.load()
    visitor.ask("hi")
    assert visitor.answers == ["ok"]
    assert visitor.complaints() == []
