"""Conversations: kept, found again, renamed, branched, and carried between browsers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from selenium.webdriver.common.keys import Keys

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


def titles(visitor: Visitor) -> list[str]:
    return visitor.texts("#conversations .open")


def sent(api: FakeApi, index: int = -1) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in api.requests[index]["messages"]]


def test_conversations_are_kept_listed_and_deleted(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.ask("about trees")
    visitor.click("#new")
    visitor.wait(lambda: visitor.questions == [])
    visitor.ask("about water")
    visitor.load()
    titles = visitor.texts("#conversations .open")
    assert titles == ["about water", "about trees"]
    visitor.click("#conversations li:last-child .open")
    visitor.wait(lambda: visitor.questions == ["about trees"])
    assert visitor.answers == ["ok"]
    visitor.click("#conversations li:last-child .remove")
    visitor.chromium.switch_to.alert.accept()
    visitor.wait(lambda: len(visitor.all("#conversations .open")) == 1)
    visitor.click("#clear")
    visitor.chromium.switch_to.alert.accept()
    visitor.wait(lambda: visitor.all("#conversations .open") == [])
    assert visitor.js("return Object.keys(localStorage)") == []


def test_a_conversation_deleted_while_it_is_answered_is_gone(visit: Visit, api: FakeApi) -> None:
    reply = Reply(["Half", None])
    api.replies = [reply]
    visitor = visit()
    visitor.ask("trees", finish=False)
    visitor.wait(lambda: visitor.answers == ["Half"])
    visitor.click("#clear")
    visitor.chromium.switch_to.alert.accept()
    visitor.wait(lambda: not visitor.answering)
    assert reply.gone.wait(20)
    visitor.wait(lambda: titles(visitor) == [])
    assert visitor.js("return Object.keys(localStorage)") == []


def test_export_gives_all_conversations(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.ask("trees")
    path = visitor.save("#export", "conversations.json")
    (exported,) = json.loads(path.read_text())
    assert [m["content"] for m in exported["messages"]] == ["trees", "ok"]


def test_a_reload_opens_the_conversation_of_the_address(visit: Visit) -> None:
    visitor = visit()
    visitor.ask("about trees")
    trees = visitor.js("return location.hash")
    visitor.click("#new")
    visitor.wait(lambda: visitor.questions == [])
    assert visitor.js("return location.hash") == ""
    visitor.ask("about water")
    visitor.chromium.refresh()
    visitor.wait(lambda: visitor.questions == ["about water"])
    visitor.chromium.back()
    visitor.wait(lambda: visitor.questions == [])
    visitor.chromium.back()
    visitor.wait(lambda: visitor.questions == ["about trees"])
    assert visitor.js("return location.hash") == trees
    visitor.js("location.hash = '#chat=nothing'")
    visitor.wait(lambda: "no conversation at that address" in visitor.notice)
    assert visitor.questions == []


def test_search_looks_into_titles_and_messages(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["They have leaves."]), Reply(["It is wet."])]
    visitor = visit()
    visitor.ask("about trees")
    visitor.click("#new")
    visitor.ask("about water")
    visitor.one("#search").send_keys("LEAVES about")
    assert titles(visitor) == ["about trees"]
    visitor.one("#search").send_keys("x")
    assert titles(visitor) == []
    assert visitor.text("#no-match") == "Nothing found."
    visitor.keys(Keys.ESCAPE)
    assert titles(visitor) == ["about water", "about trees"]


def test_a_conversation_is_renamed_and_keeps_its_name(visit: Visit) -> None:
    visitor = visit()
    visitor.ask("about trees")
    visitor.click("#conversations .rename")
    visitor.keys("Oaks", Keys.ENTER)
    assert titles(visitor) == ["Oaks"]
    visitor.ask("more")
    visitor.load()
    assert titles(visitor) == ["Oaks"]
    visitor.click("#conversations .rename")
    visitor.keys("Elms", Keys.ESCAPE)
    assert titles(visitor) == ["Oaks"]


def test_answers_and_questions_have_versions(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["one"]), Reply(["two"]), Reply(["after two"]), Reply(["edited"])]
    visitor = visit()
    visitor.ask("say")
    assert visitor.text(".assistant .versions") == ""
    visitor.click(".again")
    visitor.wait(lambda: visitor.answers == ["two"])
    visitor.finish()
    visitor.ask("go on")
    assert visitor.text(".assistant .versions span") == "2/2"
    visitor.js("document.querySelector('.assistant .previous').click()")
    assert (visitor.answers, visitor.questions) == (["one"], ["say"])
    visitor.js("document.querySelector('.assistant .next').click()")
    assert visitor.answers == ["two", "after two"]
    visitor.js("document.querySelectorAll('.user .edit')[1].click()")
    visitor.keys(" please", Keys.ENTER)
    visitor.wait(lambda: visitor.answers == ["two", "edited"])
    visitor.finish()
    assert sent(api) == [("user", "say"), ("assistant", "two"), ("user", "go on please")]
    visitor.reload()
    assert visitor.answers == ["two", "edited"]
    visitor.js("document.querySelectorAll('.user .previous')[1].click()")
    assert visitor.questions == ["say", "go on"]


def test_a_message_is_deleted_with_what_follows_it(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["one"]), Reply(["two"]), Reply(["three"])]
    visitor = visit()
    visitor.ask("a")
    visitor.click(".again")
    visitor.wait(lambda: visitor.answers == ["two"])
    visitor.finish()
    visitor.ask("b")

    def delete(selector: str) -> None:
        visitor.js("document.querySelector(arguments[0]).click()", selector)
        visitor.chromium.switch_to.alert.accept()

    delete("li:nth-child(3) .delete")
    visitor.wait(lambda: visitor.questions == ["a"])
    assert visitor.answers == ["two"]
    delete("li:nth-child(2) .delete")
    visitor.wait(lambda: visitor.answers == ["one"])
    visitor.reload()
    assert (visitor.questions, visitor.answers) == (["a"], ["one"])


def test_a_cut_answer_goes_on_where_it_ended(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply([{"reasoning_content": "hm"}, "Half "], finish="length"), Reply(["more"])]
    visitor = visit()
    visitor.ask("say")
    visitor.click(".proceed")
    visitor.wait(lambda: visitor.answers == ["Half more"])
    visitor.finish()
    request = api.requests[1]
    assert sent(api) == [("user", "say"), ("assistant", "Half ")]
    assert request["messages"][-1]["reasoning_content"] == "hm"
    assert request["continue_final_message"] is True
    assert request["add_generation_prompt"] is False
    assert visitor.text(".remark") == ""


def test_only_an_answer_that_was_cut_can_be_continued(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["whole"]), Reply(["cut"], finish="length"), Reply(["Half", None])]
    visitor = visit()
    visitor.ask("a")
    assert visitor.text("#messages > :last-child .proceed") == ""
    visitor.ask("b")
    assert visitor.text("#messages > :last-child .proceed") == "Continue"
    visitor.ask("c", finish=False)
    visitor.wait(lambda: visitor.answers[-1] == "Half")
    visitor.click("#stop")
    visitor.finish()
    assert visitor.text("#messages > :last-child .proceed") == "Continue"


def test_an_answer_is_edited_as_a_version_of_its_own(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["The cat sat"]), Reply(["ok"])]
    visitor = visit()
    visitor.ask("Tell")
    visitor.click(".assistant .edit")
    assert visitor.text(".editor .primary") == "Keep"
    visitor.keys(" down", Keys.ENTER)
    visitor.wait(lambda: visitor.answers == ["The cat sat down"])
    assert visitor.text(".remark") == "Edited by you."
    assert visitor.text(".assistant .versions span") == "2/2"
    visitor.ask("More")
    assert sent(api)[1] == ("assistant", "The cat sat down")
    visitor.reload()
    visitor.js("document.querySelector('.assistant .previous').click()")
    assert visitor.answers == ["The cat sat"]


def test_conversations_are_pinned_and_put_into_folders(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    for topic in ("trees", "water", "stones"):
        visitor.click("#new")
        visitor.ask(topic)
    groups = (
        "return [...document.querySelectorAll('#conversations > li')].map((li) =>"
        " [li.querySelector('summary')?.textContent ?? '',"
        " ...[...li.querySelectorAll('.open')].map((open) => open.textContent)])"
    )

    def more(title: str) -> None:
        visitor.js(
            "[...document.querySelectorAll('#conversations .open')]"
            ".find((open) => open.textContent === arguments[0]).parentElement"
            ".querySelector('.more').click()",
            title,
        )

    more("trees")
    assert visitor.text("#conversation-title") == "trees"
    visitor.one("#conversation-dialog [name=folder]").send_keys("Nature", Keys.ENTER)
    more("water")
    visitor.click("#conversation-dialog [name=pinned]")
    visitor.click("#conversation-dialog .primary")
    expected = [["Pinned", "water"], ["Nature", "trees"], ["", "stones"]]
    assert visitor.js(groups) == expected
    visitor.click("#conversations .folder:nth-child(2) summary")
    visitor.wait(lambda: "trees" not in titles(visitor))
    visitor.ask("more of it")
    assert visitor.js(groups) == expected
    assert "trees" not in titles(visitor)
    visitor.one("#search").send_keys("trees")
    assert titles(visitor) == ["trees"]
    visitor.load()
    assert visitor.js(groups) == expected


def test_one_conversation_is_saved_as_a_file(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply([{"reasoning_content": "hm"}, "They have **leaves**.\n\n```\nx\n```"])]
    visitor = visit()
    visitor.ask("What of trees?")
    visitor.click("#conversations .more")
    path = visitor.save("#save-markdown", "What of trees.md")
    assert path.read_text() == (
        "# What of trees?\n\n## You\n\nWhat of trees?\n\n## bonsai-1.7b-q1\n\n"
        "They have **leaves**.\n\n```\nx\n```\n"
    )
    visitor.click("#save-json")
    path = visitor.folder / "What of trees.json"
    visitor.wait(path.exists)
    assert json.loads(path.read_text())["messages"][0]["content"] == "What of trees?"
    visitor.click("#cancel-conversation")
    visitor.click("#clear")
    visitor.chromium.switch_to.alert.accept()
    visitor.wait(lambda: visitor.questions == [])
    visitor.one("#import-file").send_keys(str(path))
    visitor.wait(lambda: visitor.notice == "1 conversation imported.")


def test_conversations_are_imported_from_a_file(visit: Visit, api: FakeApi) -> None:
    # As the first version of the page exported them: no branches, no ids.
    old = [
        {
            "id": "1-2",
            "changed": 5,
            "messages": [
                {"role": "user", "content": "trees"},
                {"role": "assistant", "content": "<b>green</b>", "figures": {"tokens": "x"}},
            ],
        }
    ]
    visitor = visit()
    path = visitor.folder / "old.json"
    path.write_text(json.dumps(old))
    visitor.one("#import-file").send_keys(str(path))
    visitor.wait(lambda: visitor.notice == "1 conversation imported.")
    visitor.click("#conversations .open")
    visitor.wait(lambda: visitor.answers == ["<b>green</b>"])
    visitor.ask("more")
    assert [role for role, _ in sent(api)] == ["user", "assistant", "user"]
    visitor.one("#import-file").send_keys(str(path))
    visitor.wait(lambda: visitor.notice == "0 conversations imported, 1 conversation already here.")
    assert visitor.questions == ["trees", "more"]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"id": "1"}',
        '[{"id": "1", "messages": [{"role": "tool", "content": "x"}]}]',
        '[{"id": "1", "messages": [{"id": "a", "parent": "a", "role": "user", "content": "x"}]}]',
        '[{"id": "1", "messages": [{"id": "a", "parent": "b", "role": "user", "content": "x"},'
        ' {"id": "b", "parent": "a", "role": "user", "content": "x"}]}]',
        '[{"id": "1", "messages": [{"role": "user", "content": 7}]}]',
    ],
)
def test_a_file_that_is_none_of_conversations_is_refused(visit: Visit, content: str) -> None:
    visitor = visit()
    path = visitor.folder / "bad.json"
    path.write_text(content)
    visitor.one("#import-file").send_keys(str(path))
    visitor.wait(lambda: "“bad.json” is no file of conversations" in visitor.notice)
    assert titles(visitor) == []
    assert visitor.complaints() == []


def test_a_system_prompt_belongs_to_its_conversation(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.click("#open-prompt")
    visitor.one("#prompt [name=preset]").send_keys("Concise")
    visitor.one("#prompt [name=name]").send_keys("Brief")
    visitor.click("#keep-prompt")
    visitor.click("#prompt .primary")
    visitor.ask("hi")
    assert sent(api)[0][0] == "system"
    assert sent(api)[0][1].startswith("Answer briefly")
    assert visitor.text("#open-prompt").startswith("System prompt: Answer briefly")
    visitor.reload()
    visitor.ask("again")
    assert sent(api)[0][0] == "system"
    visitor.click("#new")
    visitor.ask("hi")
    assert [role for role, _ in sent(api)] == ["user"]
    visitor.click("#open-prompt")
    visitor.one("#prompt [name=preset]").send_keys("Brief")
    visitor.click("#prompt [name=always]")
    visitor.click("#prompt .primary")
    visitor.click("#new")
    visitor.ask("hi")
    assert sent(api)[0][1].startswith("Answer briefly")


def test_a_preset_of_ones_own_can_be_deleted(visit: Visit) -> None:
    visitor = visit()
    visitor.click("#open-prompt")
    visitor.one("#prompt [name=text]").send_keys("Talk like a pirate.")
    visitor.one("#prompt [name=name]").send_keys("Pirate")
    visitor.click("#keep-prompt")
    names = "return [...document.querySelector('#prompt [name=preset]').options].map(o => o.text)"
    assert "Pirate" in visitor.js(names)
    visitor.click("#remove-prompt")
    assert "Pirate" not in visitor.js(names)
    assert "Concise" in visitor.js(names)
