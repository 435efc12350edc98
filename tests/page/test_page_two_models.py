"""One question to two models, their answers side by side."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


def compare(visitor: Visitor, question: str, *, finish: bool = True) -> None:
    visitor.one("#second-model").send_keys("smollm2")
    visitor.ask(question, finish=finish)


def names(visitor: Visitor) -> list[str]:
    return visitor.texts(".pair .name")


def boxes(visitor: Visitor) -> list[tuple[float, float]]:
    script = (
        "return [...document.querySelectorAll('.pair .message')].map((part) => {"
        " const { left, top } = part.getBoundingClientRect(); return [left, top]; })"
    )
    return [(left, top) for left, top in visitor.js(script)]


@pytest.mark.parametrize("width", [390, 1280])
def test_both_models_answer_at_once(visit: Visit, api: FakeApi, width: int) -> None:
    replies = [Reply(["from ", None, "one"]), Reply(["from ", None, "two"])]
    api.replies = list(replies)
    visitor = visit(width)
    compare(visitor, "Who?", finish=False)
    visitor.wait(lambda: visitor.answers == ["from", "from"])
    assert visitor.answering
    for reply in replies:
        reply.go_on.set()
    visitor.finish()
    assert sorted(visitor.answers) == ["from one", "from two"]
    assert names(visitor) == ["bonsai-1.7b-q1", "smollm2-135m"]
    assert {request["model"] for request in api.requests} == {"bonsai-1.7b-q1", "smollm2-135m"}
    (left, top), (right, below) = boxes(visitor)
    assert (left < right and top == below) if width == 1280 else (left == right and top < below)
    assert visitor.js("return document.documentElement.scrollWidth") <= width


def test_the_conversation_goes_on_with_the_answer_that_is_chosen(
    visit: Visit, api: FakeApi
) -> None:
    visitor = visit()
    compare(visitor, "Who?")
    answers = dict(zip(names(visitor), ["first", "second"], strict=True))
    assert [box.text for box in visitor.all(".choose") if box.is_displayed()] == [
        "Go on with this one"
    ]
    visitor.click(".pair .message:not(.chosen) .choose")
    visitor.wait(lambda: visitor.text(".pair .message:last-child .choose") == "")
    visitor.one("#second-model").send_keys("Compare")
    visitor.ask("And then?")
    assert len(api.requests) == len(answers) + 1
    assert visitor.text(".pair .message.chosen .name") == "smollm2-135m"
    visitor.reload()
    assert names(visitor) == ["bonsai-1.7b-q1", "smollm2-135m"]
    assert visitor.text(".pair .message.chosen .name") == "smollm2-135m"


def test_a_reload_joins_both_answers(visit: Visit, api: FakeApi) -> None:
    replies = [Reply(["one ", None, "end"]), Reply(["two ", None, "end"])]
    api.replies = list(replies)
    visitor = visit()
    compare(visitor, "Count", finish=False)
    visitor.wait(lambda: sorted(visitor.answers) == ["one", "two"])
    visitor.reload()
    visitor.wait(lambda: visitor.answering)
    for reply in replies:
        reply.go_on.set()
    visitor.finish()
    assert sorted(visitor.answers) == ["one end", "two end"]
    assert len(api.requests) == 2


def test_one_model_has_nothing_to_be_compared_with(visit: Visit, api: FakeApi) -> None:
    api.models = ["alone"]
    assert visit().text("#second-model") == ""
