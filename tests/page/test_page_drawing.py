"""Pictures that the server's image model draws: asked for, watched, kept, used again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from selenium.webdriver.common.keys import Keys

from page.fake_api import FakeApi
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


@pytest.fixture
def painting(api: FakeApi) -> FakeApi:
    api.models.append("painter")
    api.makes = {"painter": "image"}
    return api


def drawn(visitor: Visitor) -> list[str]:
    script = "return [...document.querySelectorAll('#gallery .said')].map(x => x.textContent)"
    return list(visitor.js(script))


def draw(visitor: Visitor, prompt: str) -> None:
    count = len(drawn(visitor))
    visitor.one("#drawing [name=prompt]").send_keys(prompt)
    visitor.click("#draw")
    visitor.wait(lambda: len(drawn(visitor)) == count + 1 and visitor.text("#draw"))


def opened(visit: Visit, width: int = 1200, *, dark: bool = False) -> Visitor:
    visitor = visit(width, dark=dark)
    visitor.wait(lambda: visitor.text("#open-drawing"))
    visitor.click("#open-drawing")
    visitor.js("indexedDB.deleteDatabase('oxibonsai:/:drawings')")
    return visitor


def test_a_picture_is_drawn_with_a_preview_and_kept(visit: Visit, painting: FakeApi) -> None:
    painting.draws = threading.Event()
    visitor = opened(visit)
    visitor.keys("a golden ball", Keys.TAB, "512", Keys.TAB, "11", Keys.TAB, "3")
    visitor.click("#draw")
    loaded = "return document.querySelector(arguments[0])?.naturalWidth"
    visitor.wait(lambda: visitor.js(loaded, "#preview") == 64)
    assert visitor.text("#drawing-notice") == "Drawing…"
    painting.draws.set()
    visitor.wait(lambda: drawn(visitor) == ["a golden ball"])
    fields = {"prompt": "a golden ball", "size": "512x512", "seed": 11, "steps": 3}
    assert painting.drawings == [{**fields, "stream": True, "partial_images": 3}]
    visitor.wait(lambda: visitor.js(loaded, "#gallery img") == 64)
    assert visitor.text("#gallery small") == "64x48 · seed 11 · 3 steps"
    assert visitor.text("#drawing-notice") == visitor.text("#preview") == ""
    visitor.reload()
    visitor.click("#open-drawing")
    visitor.wait(lambda: drawn(visitor) == ["a golden ball"])
    assert visitor.complaints() == []


def test_a_picture_is_a_reference_of_the_next(visit: Visit, painting: FakeApi) -> None:
    visitor = opened(visit)
    draw(visitor, "a ball")
    visitor.js("document.querySelectorAll('#gallery button')[1].click()")
    assert visitor.text("#references .file span") == "a ball"
    draw(visitor, " in the rain")
    assert painting.drawings[1]["prompt"] == "a ball in the rain"
    assert painting.drawings[1]["stream"] == "true"
    assert [file[:4] for file in painting.references[1]] == [b"\x89PNG"]
    visitor.click("#references button")
    draw(visitor, "!")
    assert painting.references[2] == []


def test_a_picture_is_asked_for_again_and_deleted(visit: Visit, painting: FakeApi) -> None:
    visitor = opened(visit)
    draw(visitor, "a ball")
    visitor.js("document.querySelector('#drawing [name=prompt]').value = ''")
    visitor.js("document.querySelectorAll('#gallery button')[2].click()")
    value = "return document.querySelector(`#drawing [name=${arguments[0]}]`).value"
    assert [visitor.js(value, name) for name in ("prompt", "seed")] == ["a ball", "7"]
    visitor.js("document.querySelectorAll('#gallery button')[3].click()")
    visitor.chromium.switch_to.alert.accept()
    visitor.wait(lambda: drawn(visitor) == [])
    assert visitor.text("#no-drawings")


def test_a_drawing_is_stopped_and_goes_on_while_the_dialog_is_closed(
    visit: Visit, painting: FakeApi
) -> None:
    painting.draws = threading.Event()
    visitor = opened(visit)
    visitor.keys("a ball")
    visitor.click("#draw")
    visitor.wait(lambda: visitor.text("#stop-drawing"))
    visitor.click("#stop-drawing")
    visitor.wait(lambda: visitor.text("#drawing-notice") == "Stopped.")
    assert drawn(visitor) == []
    visitor.click("#draw")
    visitor.wait(lambda: len(painting.drawings) == 2)
    visitor.click("#close-drawing")
    visitor.ask("Meanwhile")
    painting.draws.set()
    visitor.click("#open-drawing")
    visitor.wait(lambda: drawn(visitor) == ["a ball"])


def test_a_refusal_is_told(visit: Visit, painting: FakeApi) -> None:
    visitor = opened(visit)
    painting.key = "s3cret"
    visitor.keys("a ball")
    visitor.click("#draw")
    visitor.wait(lambda: visitor.focused == "key")
    assert visitor.text("#drawing-notice") == "The server wants an API key."
    visitor.keys("s3cret", Keys.ENTER)
    visitor.wait(lambda: not visitor.js("return document.querySelector('#key-dialog').open"))
    visitor.click("#draw")
    visitor.wait(lambda: drawn(visitor) == ["a ball"])
