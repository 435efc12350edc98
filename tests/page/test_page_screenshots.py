"""The page as a visitor sees it: nothing sticks out, nothing complains.

``PAGE_SCREENSHOTS=FOLDER`` keeps the screenshots, which renews those in ``docs/assets``.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]

ANSWERS = [
    "A **juniper** is forgiving: it bears sun, wind and a missed day of water.\n\n"
    "1. Put it outdoors.\n2. Water it when the soil is dry.\n3. Wire it in winter.",
    "Take a *ficus*.\n\n| | Ficus | Juniper |\n|---|---|---|\n| light | window | sun |\n"
    "| water | weekly | daily |",
]

LOADED = "return [...document.querySelectorAll('#gallery img')].filter(i => i.naturalWidth).length"
OUTSIDE = """
const shown = (n) => n.checkVisibility({ visibilityProperty: true });
return [...document.querySelectorAll("#page *, dialog[open] *")].filter((n) => shown(n) &&
  !n.closest(".table, pre, .visually-hidden") && n.getBoundingClientRect().right > innerWidth + 1
).map((n) => n.outerHTML.slice(0, 80));
"""


@pytest.fixture(params=[390, 1280])
def width(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=["light", pytest.param("dark", marks=pytest.mark.release)])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def visitor(visit: Visit, api: FakeApi, width: int, scheme: str) -> Visitor:
    api.models = ["bonsai-1.7b-q1", "smollm2-135m", "bonsai-image"]
    api.makes = {"bonsai-image": "image"}
    api.context = 8192
    made = visit(width, 780, dark=scheme == "dark")
    made.wait(lambda: made.text("#open-drawing"))
    return made


def check(visitor: Visitor, name: str, width: int, scheme: str) -> None:
    assert visitor.js("return document.documentElement.scrollWidth") <= width
    assert visitor.js(OUTSIDE) == []
    assert visitor.complaints() == []
    shot = visitor.chromium.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    folder = Path(os.environ.get("PAGE_SCREENSHOTS", visitor.folder))
    (folder / f"chat_page_{name}_{width}_{scheme}.png").write_bytes(base64.b64decode(shot))


def test_two_models(visitor: Visitor, api: FakeApi, width: int, scheme: str) -> None:
    api.replies = [Reply([text]) for text in ANSWERS]
    visitor.one("#second-model").send_keys("smollm2")
    visitor.ask("Which tree should be my first bonsai?")
    visitor.wait(lambda: len(visitor.all(".pair .message:not(.busy)")) == 2)
    check(visitor, "two_models", width, scheme)


def test_drawing(visitor: Visitor, width: int, scheme: str) -> None:
    visitor.click("#open-drawing")
    visitor.keys("A golden moon over a green hill")
    for count in (1, 2, 3):
        seed = visitor.one("#drawing [name=seed]")
        seed.clear()
        seed.send_keys(str(7 * count))
        visitor.click("#draw")
        visitor.wait(lambda n=count: visitor.js(LOADED) == n and visitor.text("#draw"))
    check(visitor, "drawing", width, scheme)
    visitor.js("indexedDB.deleteDatabase('oxibonsai:/:drawings')")


def test_the_dialog_of_a_conversation_and_that_of_the_key(
    visitor: Visitor, api: FakeApi, width: int, scheme: str
) -> None:
    visitor.ask("Which tree should be my first bonsai?")
    visitor.js("document.querySelector('.more').click()")
    check(visitor, "conversation", width, scheme)
    visitor.click("#cancel-conversation")
    api.key = "s3cret"
    visitor.chromium.refresh()
    visitor.wait(lambda: visitor.js("return document.querySelector('#key-dialog').open"))
    check(visitor, "key", width, scheme)
