"""The page by keyboard, on a phone, in the dark, and to a screen reader."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from selenium.webdriver.common.keys import Keys

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]

RICH = (
    "# Title\n\nText with `code` and [a link](https://example.org).\n\n> quote\n\n"
    "| " + " | ".join(f"column {i}" for i in range(12)) + " |\n|" + "---|" * 12 + "\n\n"
    "```python\n" + "x = 1  # long " * 30 + "\n```\n\n" + "Unbreakable" * 40
)

# Elements with text of their own, each with its colour and the first opaque ground behind it.
CONTRASTS = """
const parse = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return [m.slice(0, 3), m[3] ?? 1]; };
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * x + .7152 * y + .0722 * z;
};
const ground = (n) => {
  for (; n; n = n.parentElement) {
    const [c, alpha] = parse(getComputedStyle(n).backgroundColor);
    if (alpha === 1) return c;
  }
  return null;
};
return [...document.querySelectorAll("body *")].filter((n) =>
  n.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !n.disabled &&
  (n.matches("input, textarea, select") || [...n.childNodes].some((c) => c.nodeType === 3 && c.data.trim()))
).map((n) => {
  const [a, b] = [light(parse(getComputedStyle(n).color)[0]), light(ground(n))];
  return [n.outerHTML.slice(0, 80), (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
});
"""

# Everything that takes the focus, with the name that a screen reader would say.
NAMES = """
return [...document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex='0']")]
  .filter((n) => n.checkVisibility({ visibilityProperty: true }))
  .map((n) => [n.outerHTML.slice(0, 80), (n.getAttribute("aria-label") ?? n.labels?.[0]?.textContent
    ?? n.textContent).trim()]);
"""


def fill(visitor: Visitor) -> None:
    visitor.api.replies = [Reply([{"reasoning_content": "hm"}, RICH]), Reply(status=500)]
    visitor.ask("A question that is long enough for a bubble of more than one line on a phone")
    visitor.ask("And one that fails")
    visitor.js("document.querySelectorAll('details').forEach(d => d.open = true)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(visit: Visit, dark: bool) -> None:
    visitor = visit(dark=dark)
    visitor.click("#theme")  # to light by hand; three steps lead round to the system's again
    visitor.click("#theme")
    visitor.click("#theme")
    fill(visitor)
    for _ in range(2):
        contrasts = visitor.js(CONTRASTS)
        assert len(contrasts) > 15
        assert [(what, ratio) for what, ratio in contrasts if ratio < 4.5] == []
        visitor.click("#open-settings")


def test_colours_follow_the_system_and_the_button(visit: Visit) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    visitor = visit(dark=False)
    light = visitor.js(ground)
    visitor.open(1200, 800, True)
    dark = visitor.js(ground)
    assert light != dark
    seen = []
    for _ in range(3):
        visitor.click("#theme")
        seen.append(
            (visitor.js("return document.documentElement.dataset.theme"), visitor.js(ground))
        )
    assert seen == [("light", light), ("dark", dark), ("system", dark)]
    visitor.click("#theme")
    visitor.load()
    assert visitor.js(ground) == light
    # Saving settings leaves the colours alone.
    visitor.click("#open-settings")
    visitor.click("#settings-form .primary")
    visitor.load()
    assert visitor.js(ground) == light


@pytest.mark.parametrize("width", [320, 375, 600, 895, 896, 1400])
def test_nothing_scrolls_sideways_but_code_and_tables(visit: Visit, width: int) -> None:
    visitor = visit(width, 640)
    fill(visitor)
    wide = (
        "return [...document.querySelectorAll('*')].filter(n => n.scrollWidth > n.clientWidth + 1 &&"
        " ['auto', 'scroll'].includes(getComputedStyle(n).overflowX)).map(n => n.className || n.localName)"
    )
    assert set(visitor.js(wide)) <= {"table", "pre"}
    outside = (
        "return [...document.querySelectorAll('#page *, dialog *')].filter(n => n.checkVisibility() &&"
        " !n.closest('.table, pre, .visually-hidden') && n.getBoundingClientRect().right > innerWidth + 1)"
        ".map(n => n.outerHTML.slice(0, 80))"
    )
    assert visitor.js(outside) == []
    visitor.click("#open-settings")
    assert visitor.js(outside) == []
    assert set(visitor.js(wide)) <= {"table", "pre"}


def test_on_a_phone_the_list_slides_in_and_out(visit: Visit) -> None:
    visitor = visit(320, 640)
    visitor.ask("trees")
    assert not visitor.one("#new").is_displayed()
    visitor.click("#menu")
    assert visitor.one("#menu").get_attribute("aria-expanded") == "true"
    assert visitor.focused == "new"
    assert visitor.js("return document.querySelector('#page').inert")
    visitor.keys(Keys.ESCAPE)
    assert visitor.focused == "menu"
    visitor.wait(lambda: not visitor.one("#new").is_displayed())
    visitor.click("#menu")
    visitor.wait(lambda: visitor.one("#conversations .open").is_displayed())
    visitor.click("#conversations .open")
    visitor.wait(lambda: visitor.focused == "draft")
    assert not visitor.js("return document.querySelector('#page').inert")


def test_everything_that_takes_the_focus_has_a_name(visit: Visit) -> None:
    visitor = visit()
    fill(visitor)
    visitor.click(".user .edit")
    names = visitor.js(NAMES)
    assert len(names) > 20
    assert [what for what, name in names if not name] == []
    visitor.keys(Keys.ESCAPE)
    visitor.click("#open-settings")
    assert [what for what, name in visitor.js(NAMES) if not name] == []


def test_ids_are_unique_and_references_lead_somewhere(visit: Visit) -> None:
    visitor = visit()
    fill(visitor)
    ids = visitor.js("return [...document.querySelectorAll('[id]')].map(n => n.id)")
    assert len(ids) == len(set(ids))
    references = visitor.js(
        "return ['aria-controls', 'aria-describedby', 'aria-labelledby', 'for'].flatMap(a =>"
        " [...document.querySelectorAll(`[${a}]`)].map(n => n.getAttribute(a)))"
    )
    assert set(references) <= set(ids)
    headings = visitor.js(
        "return [...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(n => +n.localName[1])"
    )
    assert min(headings) == 1
    assert visitor.js("return document.documentElement.lang") == "en"


def test_the_keyboard_alone_is_enough(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    assert visitor.focused == "draft"
    visitor.keys("line one")
    visitor.shift(Keys.ENTER)
    visitor.keys("line two", Keys.ENTER)
    visitor.wait(lambda: visitor.answers == ["ok"])
    visitor.finish()
    assert api.requests[0]["messages"][0]["content"] == "line one\nline two"
    assert visitor.focused == "draft"
    # Backwards from the draft: the answer's buttons, then the question's.
    passed = []
    for _ in range(8):
        visitor.shift(Keys.TAB)
        passed.append(visitor.focused)
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        assert visitor.js(outline) == "solid"
        assert visitor.js("return getComputedStyle(document.activeElement).opacity") == "1"
    assert passed == [
        *("attach", "quiet delete", "quiet again", "quiet copy", "quiet edit"),
        *("quiet delete", "quiet copy", "quiet edit"),
    ]
    visitor.keys(Keys.ENTER)
    visitor.keys(" edited", Keys.ENTER)
    visitor.wait(lambda: len(api.requests) == 2)
    visitor.finish()
    assert visitor.questions == ["line one\nline two edited"]


def test_the_focus_goes_from_the_skip_link_down_the_page(visit: Visit) -> None:
    visitor = visit()
    visitor.ask("trees")
    visitor.js("document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus()")
    order = []
    for _ in range(16):
        visitor.keys(Keys.TAB)
        order.append(visitor.focused)
    assert order == [
        *("skip", "new", "search", "open", "more", "rename", "remove", "import", "export", "clear"),
        *("model", "second-model", "theme", "open-settings", "open-prompt", "quiet edit"),
    ]
    visitor.js("document.querySelector('.skip').focus()")
    assert visitor.one(".skip").location["y"] >= 0
    visitor.keys(Keys.ENTER)
    assert visitor.focused == "draft"


def test_the_focus_stays_in_the_settings_and_comes_back(visit: Visit) -> None:
    visitor = visit()
    visitor.js("document.querySelector('#open-settings').focus()")
    visitor.keys(Keys.ENTER)
    for _ in range(16):
        visitor.keys(Keys.TAB)
        # The browser's own controls come between the last field and the first.
        assert visitor.js("return document.activeElement.matches('body, #settings *')")
    visitor.keys(Keys.ESCAPE)
    assert visitor.focused == "open-settings"


def test_an_input_methods_enter_does_not_send(visit: Visit, api: FakeApi) -> None:
    visitor = visit()
    visitor.keys("ni")
    visitor.js(
        "document.querySelector('#draft').dispatchEvent(new KeyboardEvent('keydown',"
        " { key: 'Enter', isComposing: true, bubbles: true }))"
    )
    assert visitor.questions == []
    assert api.requests == []


def test_an_answer_is_read_out_by_whole_blocks(visit: Visit, api: FakeApi) -> None:
    reply = Reply(["First *block*.\n\nSec", None, "ond.\n\n```\ncode\n```"])
    api.replies = [reply]
    visitor = visit()
    visitor.ask("?", finish=False)
    spoken = "return [...document.querySelectorAll('#spoken p')].map(p => p.textContent)"
    visitor.wait(lambda: visitor.js(spoken) == ["First block."])
    assert visitor.one(".assistant").get_attribute("aria-busy") == "true"
    reply.go_on.set()
    visitor.finish()
    assert visitor.js(spoken) == ["First block.", "Second.", "Code."]
    assert visitor.one(".assistant").get_attribute("aria-busy") == "false"
    region = visitor.one("#spoken")
    assert (region.get_attribute("role"), region.get_attribute("aria-live")) == ("log", "polite")


def test_the_page_follows_the_text_unless_the_reader_looks_back(visit: Visit, api: FakeApi) -> None:
    lines = "\n\n".join(f"line {i}" for i in range(60))
    reply = Reply([lines, None, f"\n\n{lines}"])
    api.replies = [reply]
    visitor = visit()
    visitor.ask("?", finish=False)
    from_end = (
        "const s = document.querySelector('#scroller');"
        "return s.scrollHeight - s.scrollTop - s.clientHeight"
    )
    visitor.wait(lambda: visitor.text(".answer").endswith("59") and visitor.js(from_end) < 5)
    visitor.js("document.querySelector('#scroller').scrollTop = 0")
    visitor.wait(lambda: visitor.one("#latest").is_displayed())
    reply.go_on.set()
    visitor.finish()
    assert visitor.js("return document.querySelector('#scroller').scrollTop") == 0
    visitor.click("#latest")
    visitor.wait(lambda: visitor.js(from_end) < 5)
    assert visitor.focused == "draft"
