"""What the page shows of the server: models and their state, defaults, context, progress."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


def options(visitor: Visitor) -> list[str]:
    found: list[str] = visitor.js(
        "return [...document.querySelector('#model').options].map(o => o.text)"
    )
    return found


def test_the_chosen_model_is_remembered(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.one("#model").send_keys("smollm2")
    visitor.load()
    visitor.ask("hi")
    assert api.requests[0]["model"] == "smollm2-135m"


def test_only_models_that_chat_are_offered(visit: Visit, api: FakeApi) -> None:
    api.models = ["embedder", "bonsai-1.7b-q1", "ranker", "painter"]
    api.makes = {"embedder": "embeddings", "ranker": "scores", "painter": "image"}
    visitor = visit()
    assert options(visitor) == ["bonsai-1.7b-q1"]
    assert visitor.text("#open-drawing") == "Draw"
    api.models = ["embedder"]
    visitor.chromium.refresh()
    visitor.wait(lambda: visitor.notice == "The server has no model that chats.")
    assert visitor.text("#open-drawing") == ""


def test_models_show_whether_they_are_loaded(visit: Visit, api: FakeApi) -> None:
    api.states = {"bonsai-1.7b-q1": "loaded", "smollm2-135m": "unloaded"}
    visitor = visit()
    assert options(visitor) == ["bonsai-1.7b-q1", "smollm2-135m (not loaded)"]
    assert visitor.text("#load") == "Unload"
    visitor.one("#model").send_keys("smollm2")
    assert visitor.text("#load") == "Load"
    visitor.click("#load")
    visitor.wait(lambda: options(visitor)[1] == "smollm2-135m (loading …)")
    api.states["smollm2-135m"] = "loaded"
    visitor.wait(lambda: options(visitor)[1] == "smollm2-135m")
    visitor.click("#load")
    visitor.wait(lambda: options(visitor)[1] == "smollm2-135m (not loaded)")
    # To ask after its properties would load a model.
    assert api.asked == ["bonsai-1.7b-q1", "smollm2-135m"]


def test_a_server_with_one_model_offers_nothing_to_load(visit: Visit) -> None:
    assert visit().text("#load") == ""


def test_settings_show_the_servers_defaults(visit: Visit) -> None:
    visitor = visit()
    visitor.wait(lambda: visitor.js("return document.querySelector('#model').value"))
    visitor.click("#open-settings")
    shown = "return document.querySelector(`[name=${arguments[0]}]`).placeholder"
    visitor.wait(lambda: visitor.js(shown, "temperature") == "0.5")
    assert visitor.js(shown, "top_k") == "20"
    assert visitor.js(shown, "max_tokens") == "no limit"
    assert visitor.js(shown, "samplers") == "top_k"


def test_the_gauge_shows_how_full_the_context_is(visit: Visit) -> None:
    visitor = visit()
    assert visitor.text("#context") == ""
    visitor.ask("hi")
    visitor.wait(lambda: visitor.text("#context-text") == "53 of 200 tokens")
    meter = "const m = document.querySelector('#context-meter'); return [m.value, m.max, m.high]"
    assert visitor.js(meter) == [53, 200, 160]
    visitor.click("#new")
    visitor.wait(lambda: visitor.text("#context") == "")


def test_a_long_prompt_shows_how_far_it_is_read(visit: Visit, api: FakeApi) -> None:
    progress = {"total": 4000, "cache": 500, "processed": 1500, "time_ms": 9.0}
    reply = Reply([{"choices": [], "prompt_progress": progress}, None, "done"])
    api.replies = [reply]
    visitor = visit()
    visitor.ask("?", finish=False)
    words = "Reading the prompt: 1500 of 4000 tokens"
    visitor.wait(lambda: visitor.text(".waiting .read") == words)
    bar = "const b = document.querySelector('.waiting progress'); return [b.value, b.max]"
    assert visitor.js(bar) == [1500, 4000]
    reply.go_on.set()
    visitor.finish()
    assert visitor.text(".waiting") == ""
    assert visitor.answers == ["done"]
