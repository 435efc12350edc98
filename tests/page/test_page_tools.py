"""Tools of MCP servers on the page: what the model calls is shown, and runs once it is allowed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


def calling(*calls: tuple[str, dict[str, Any]], text: str = "") -> Reply:
    """An answer that calls tools; arguments come in two pieces."""
    pieces: list[str | dict[str, Any] | None] = [text] if text else []
    for i, (name, arguments) in enumerate(calls):
        written = json.dumps(arguments)
        first = {"index": i, "id": f"id-{i}", "function": {"name": name, "arguments": written[:4]}}
        pieces.append({"tool_calls": [first]})
        pieces.append({"tool_calls": [{"index": i, "function": {"arguments": written[4:]}}]})
    return Reply(pieces, finish="tool_calls")


def waiting(visitor: Visitor) -> list[str]:
    """The buttons that can be pressed."""
    script = (
        "return [...document.querySelectorAll('.tool .ask button')]"
        ".filter((b) => b.checkVisibility()).map((b) => b.innerText)"
    )
    return list(visitor.js(script))


def answers(visitor: Visitor) -> list[str]:
    """The texts of all answers, read at once: the page may be replacing them."""
    script = "return [...document.querySelectorAll('.answer')].map((a) => a.innerText.trim())"
    return list(visitor.js(script))


def ready(visit: Visit, api: FakeApi) -> Visitor:
    visitor = visit()
    visitor.wait(lambda: visitor.text("#open-tools"))
    return visitor


def test_the_page_lists_the_tools_and_offers_them_to_the_model(visit: Visit, api: FakeApi) -> None:
    api.tools = {"t_add": "3", "t_note": "noted"}
    visitor = ready(visit, api)
    visitor.click("#open-tools")
    assert "t_add of tests" in visitor.text("#tool-list")
    assert "Does t_note." in visitor.text("#tool-list")
    visitor.click("#close-tools")
    visitor.ask("hello")
    assert [t["function"]["name"] for t in api.requests[0]["tools"]] == ["t_add", "t_note"]
    visitor.click("#open-tools")
    visitor.click("#offer-tools")
    visitor.click("#close-tools")
    visitor.ask("and now")
    assert "tools" not in api.requests[1]
    assert visitor.complaints() == []


def test_without_tools_there_is_no_word_of_them(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.ask("hello")
    assert visitor.text("#open-tools") == ""
    assert "tools" not in api.requests[0]


def test_an_allowed_call_runs_and_the_model_goes_on_with_its_result(
    visit: Visit, api: FakeApi
) -> None:
    api.tools = {"t_add": "<b>3</b>"}
    api.replies = [calling(("t_add", {"a": 1, "b": 2}), text="Let me see."), Reply(["It is 3."])]
    visitor = ready(visit, api)
    visitor.ask("add")
    visitor.wait(lambda: waiting(visitor) == ["Allow", "Always allow this tool", "Decline"])
    assert "t_add" in visitor.text(".tool summary")
    assert '"a": 1' in visitor.text(".tool .arguments")
    assert api.calls == []
    visitor.click(".tool .allow")
    visitor.wait(lambda: answers(visitor) == ["Let me see.", "It is 3."])
    visitor.finish()
    assert api.calls == [{"tool": "t_add", "params": {"a": 1, "b": 2}}]
    visitor.click(".tool summary")
    assert visitor.text(".tool .result") == "<b>3</b>"
    assert waiting(visitor) == []
    question, answer, result = api.requests[1]["messages"]
    assert question == {"role": "user", "content": "add"}
    (call,) = answer["tool_calls"]
    assert answer["content"] == "Let me see."
    assert json.loads(call["function"]["arguments"]) == {"a": 1, "b": 2}
    assert result == {"role": "tool", "tool_call_id": call["id"], "content": "<b>3</b>"}
    assert visitor.complaints() == []


def test_a_declined_call_does_not_run_and_the_model_is_told(visit: Visit, api: FakeApi) -> None:
    api.tools = {"t_add": "3"}
    api.replies = [calling(("t_add", {"a": 1})), Reply(["Then not."])]
    visitor = ready(visit, api)
    visitor.ask("add")
    visitor.wait(lambda: waiting(visitor))
    visitor.click(".tool .decline")
    visitor.wait(lambda: answers(visitor)[-1] == "Then not.")
    visitor.finish()
    assert api.calls == []
    assert "declined" in json.loads(api.requests[1]["messages"][-1]["content"])["error"]


def test_each_call_of_an_answer_is_asked_about(visit: Visit, api: FakeApi) -> None:
    api.tools = {"t_add": "3", "t_note": "noted"}
    api.replies = [calling(("t_add", {"a": 1}), ("t_note", {"b": 2}), ("gone", {}))]
    visitor = ready(visit, api)
    visitor.ask("both")
    visitor.wait(lambda: len(waiting(visitor)) == 6)
    visitor.click(".tool:first-child .allow")
    visitor.wait(lambda: api.calls and len(waiting(visitor)) == 3 and not visitor.answering)
    assert len(api.requests) == 1
    visitor.click(".tool:nth-child(2) .decline")
    visitor.wait(lambda: len(api.requests) == 2)
    visitor.finish()
    results = [m["content"] for m in api.requests[1]["messages"] if m["role"] == "tool"]
    assert results[0] == "3"
    assert "declined" in results[1]
    assert "no such tool" in results[2]
    assert [c["tool"] for c in api.calls] == ["t_add"]


def test_a_tool_that_is_always_allowed_runs_until_the_page_is_closed(
    visit: Visit, api: FakeApi
) -> None:
    api.tools = {"t_add": "3"}
    api.replies = [
        calling(("t_add", {"a": 1})), calling(("t_add", {"a": 2})), Reply(["Done."]),
        calling(("t_add", {"a": 3})),
    ]  # fmt: skip
    visitor = ready(visit, api)
    visitor.ask("add")
    visitor.wait(lambda: waiting(visitor))
    visitor.click(".tool .always")
    visitor.wait(lambda: answers(visitor)[-1] == "Done.")
    assert [c["params"]["a"] for c in api.calls] == [1, 2]
    visitor.reload()
    visitor.wait(lambda: visitor.text("#open-tools"))
    visitor.ask("again")
    visitor.wait(lambda: waiting(visitor))
    assert len(api.calls) == 2


def test_a_call_that_runs_can_be_stopped_and_a_waiting_one_survives_a_reload(
    visit: Visit, api: FakeApi
) -> None:
    api.tools = {"t_add": "3"}
    api.call_waits = threading.Event()
    api.replies = [calling(("t_add", {"a": 1})), Reply(["Done."])]
    visitor = ready(visit, api)
    visitor.ask("add")
    visitor.wait(lambda: waiting(visitor))
    visitor.click(".tool .allow")
    visitor.wait(lambda: visitor.text(".tool .running"))
    assert waiting(visitor) == []
    visitor.click("#stop")
    visitor.wait(lambda: waiting(visitor))
    api.call_waits.set()
    visitor.reload()
    visitor.wait(lambda: waiting(visitor))
    visitor.click(".tool .allow")
    visitor.wait(lambda: answers(visitor)[-1] == "Done.")
    assert len(api.calls) == 2
