"""Voice: offered only where the browser has it on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]

# What a browser with voices and recognition has; the headless one has neither.
BROWSER = """
window.said = [];
const voice = { lang: "en-US", localService: LOCAL };
Object.defineProperty(window, "speechSynthesis", { value: Object.assign(new EventTarget(), {
  getVoices: () => [voice],
  speak: (one) => { said.push(one.text); window.utterance = one; },
  cancel: () => window.utterance?.onend(),
}) });
window.SpeechSynthesisUtterance = class { constructor(text) { this.text = text; } };
window.SpeechRecognition = class {
  static available = async ({ processLocally }) => LOCAL && processLocally ? "available" : "unavailable";
  start() { window.recognition = this; }
  stop() { this.onend(); }
};
"""


@pytest.fixture(params=[True, False], ids=["local", "remote"])
def local(request: pytest.FixtureRequest, chromium: object) -> Iterator[bool]:
    script = {"source": BROWSER.replace("LOCAL", str(request.param).lower())}
    command = "Page.addScriptToEvaluateOnNewDocument"
    added = chromium.execute_cdp_cmd(command, script)  # type: ignore[attr-defined]
    yield bool(request.param)
    chromium.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)  # type: ignore[attr-defined]


def test_an_answer_is_read_aloud(visit: Visit, api: FakeApi, local: bool) -> None:
    api.replies = [Reply(["It is **green**.\n\n```\nx = 1\n```"])]
    visitor = visit()
    visitor.ask("What of trees?")
    assert visitor.text(".read-aloud") == ("Read aloud" if local else "")
    if local:
        visitor.click(".read-aloud")
        assert visitor.js("return said") == ["It is green.\nCode."]
        assert visitor.text(".read-aloud") == "Stop reading"
        visitor.click(".read-aloud")
        assert visitor.text(".read-aloud") == "Read aloud"
        assert len(visitor.js("return said")) == 1


def test_what_is_said_is_written_into_the_draft(visit: Visit, local: bool) -> None:
    visitor = visit()
    if not local:
        assert visitor.all("#dictate[hidden]")
        return
    visitor.wait(lambda: visitor.all("#dictate:not([hidden])"))
    visitor.keys("Dear all,")
    visitor.click("#dictate")
    assert visitor.one("#dictate").get_attribute("aria-pressed") == "true"
    visitor.js(
        "recognition.onresult({ resultIndex: 0, results: [[{ transcript: 'good morning' }]] })"
    )
    assert visitor.js("return document.querySelector('#draft').value") == "Dear all, good morning"
    visitor.click("#dictate")
    assert visitor.one("#dictate").get_attribute("aria-pressed") == "false"
    visitor.reload()
    assert visitor.js("return document.querySelector('#draft').value") == "Dear all, good morning"


def test_a_browser_without_voice_offers_none(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.ask("hi")
    assert visitor.text(".read-aloud") == ""
    assert visitor.all("#dictate[hidden]")
