"""Previews of HTML, SVG and Mermaid's diagrams: shown, and shut in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]

# A page that tries what a preview must not be able to do, and tells of each try in its own text.
HOSTILE = """<!doctype html><title>x</title><h1 id=seen>Hello</h1><ol id=tried></ol><script>
const tell = (text) => tried.append(Object.assign(document.createElement('li'), { textContent: text }));
const tries = {
  parent: () => parent.document.title,
  storage: () => localStorage.length,
  cookie: () => document.cookie,
  top: () => { top.location = 'about:blank'; return 'went'; },
  popup: () => { if (!window.open('about:blank')) throw new Error('no'); },
};
for (const [name, act] of Object.entries(tries)) {
  try { act(); tell(name + ' worked'); } catch { tell(name + ' failed'); }
}
fetch('SERVER/v1/models').then(() => tell('fetch worked'), () => tell('fetch failed'));
const image = new Image();
image.onload = () => tell('image worked');
image.onerror = () => tell('image failed');
image.src = 'SERVER/ui/icon.svg';
</script>"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9" id="r"/></svg>'


def within(visitor: Visitor, script: str) -> Any:
    visitor.chromium.switch_to.frame(visitor.one("iframe.preview"))
    try:
        return visitor.js(script)
    finally:
        visitor.chromium.switch_to.default_content()


def show(visit: Visit, api: FakeApi, language: str, code: str) -> Visitor:
    api.replies = [Reply([f"```{language}\n{code}\n```"])]
    visitor = visit()
    visitor.ask("Show")
    visitor.click(".code-head [aria-expanded]")
    return visitor


def test_html_runs_shut_in(visit: Visit, api: FakeApi) -> None:
    visitor = show(visit, api, "html", HOSTILE.replace("SERVER/", api.url))
    tried = "return [...document.querySelectorAll('#tried li')].map(x => x.textContent)"
    visitor.wait(lambda: len(within(visitor, tried)) == 7)
    assert {line.split()[1] for line in within(visitor, tried)} == {"failed"}
    assert within(visitor, "return document.querySelector('#seen').textContent") == "Hello"
    assert within(visitor, "return origin") == "null"
    assert visitor.one("iframe.preview").get_attribute("sandbox") == "allow-scripts"
    assert visitor.questions == ["Show"]
    assert visitor.js("return document.title").startswith("OxiBonsai")


def test_a_preview_can_not_lead_to_another_server(visit: Visit, api: FakeApi) -> None:
    elsewhere = api.url.replace("127.0.0.1", "localhost")
    code = f"<p>x</p><script>location = '{elsewhere}props?model=secret'</script>"
    visitor = show(visit, api, "html", code)
    complaints: list[str] = []

    def is_blocked() -> bool:
        complaints.extend(visitor.complaints())
        return any("frame-src" in line and "localhost" in line for line in complaints)

    visitor.wait(is_blocked)
    assert "secret" not in api.asked


@pytest.mark.parametrize("language", ["svg", "xml"])
def test_svg_is_drawn_and_folded_away(visit: Visit, api: FakeApi, language: str) -> None:
    visitor = show(visit, api, language, SVG)
    visitor.wait(
        lambda: within(visitor, "return document.querySelector('#r')?.getBBox().width") == 9
    )
    assert visitor.one(".code-head [aria-expanded]").get_attribute("aria-expanded") == "true"
    visitor.click(".code-head [aria-expanded]")
    assert visitor.all("iframe") == []


def test_a_diagram_is_drawn(visit: Visit, api: FakeApi) -> None:
    visitor = show(visit, api, "mermaid", "graph TD\n  A[Bonsai] -->|grows| B[Tree]")
    shown = "return document.querySelector('#drawn svg')?.textContent ?? ''"
    visitor.wait(
        lambda: all(word in within(visitor, shown) for word in ("Bonsai", "grows", "Tree"))
    )
    assert within(visitor, "return origin") == "null"


@pytest.mark.parametrize(
    "label", ["<img src=x onerror=document.title='run'>", "<script>document.title='run'</script>"]
)
def test_a_diagram_s_labels_run_nothing(visit: Visit, api: FakeApi, label: str) -> None:
    code = f'graph TD\n  A["{label} end"] --> B\n  click A href "javascript:document.title=1"'
    visitor = show(visit, api, "mermaid", code)
    visitor.wait(lambda: "end" in within(visitor, "return document.body.textContent"))
    assert within(visitor, "return document.title") == ""
    links = "return [...document.querySelectorAll('a')].map(a => a.outerHTML)"
    assert not any("javascript:" in link for link in within(visitor, links))


def test_what_is_no_diagram_says_so(visit: Visit, api: FakeApi) -> None:
    visitor = show(visit, api, "mermaid", "a story </script><b>of</b> a tree")
    told = "return document.querySelector('#drawn')?.textContent ?? ''"
    visitor.wait(lambda: "This is no diagram that Mermaid can draw" in within(visitor, told))
    assert visitor.one("iframe.preview").is_displayed()


def test_other_code_has_no_preview(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["```python\nx\n```\n\n```xml\n<a/>\n```"])]
    visitor = visit()
    visitor.ask("Show")
    assert visitor.texts(".code-head button") == ["Copy", "Copy"]
