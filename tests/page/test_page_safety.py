"""Nothing that a model writes runs, loads or navigates; a test, since the text is hostile input."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]

HOSTILE = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "<svg onload=window.hit=1>",
    "<svg><script>window.hit=1</script></svg>",
    "<iframe src='javascript:parent.hit=1'></iframe>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<body onload=window.hit=1>",
    "<details open ontoggle=window.hit=1>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "</div></li></ol><script>window.hit = 1</script>",
    "<<script>script>window.hit=1<</script>/script>",
    "&lt;script&gt;window.hit=1&lt;/script&gt;",
    "[x](javascript:window.hit=1)",
    "[x](JaVaScRiPt:window.hit=1)",
    "[x](java\tscript:window.hit=1)",
    "[x](&#106;avascript:window.hit=1)",
    "[x](%6aavascript:window.hit=1)",
    "[x](data:text/html,<script>window.hit=1</script>)",
    "[x](vbscript:window.hit=1)",
    "[x](//evil.example/x)",
    "[x](file:///etc/passwd)",
    "[x](blob:http://127.0.0.1/x)",
    "<javascript:window.hit=1>",
    "![x](http://127.0.0.1:9/pixel.png)",
    "![x](x \"onerror=window.hit=1\")",
    "![x\" onerror=\"window.hit=1](https://example.org/\"onerror=window.hit=1)",
    "[a](https://example.org/\"onmouseover=\"window.hit=1)",
    "https://example.org/\"onmouseover=window.hit=1",
    "[<img src=x onerror=window.hit=1>](https://example.org)",
    "[[x](javascript:window.hit=1)](https://example.org)",
    "```html\n<script>window.hit=1</script>\n```",
    "```\"><img src=x onerror=window.hit=1>\ncode\n```",
    "```js onload=window.hit=1\ncode",
    "`<img src=x onerror=window.hit=1>`",
    "| <img src=x onerror=window.hit=1> | b |\n|---|---|\n| <script>window.hit=1</script> | c |",
    "# <script>window.hit=1</script>",
    "> <script>window.hit=1</script>",
    "- <script>window.hit=1</script>\n  - <img src=x onerror=window.hit=1>",
    "**<script>window.hit=1</script>**",
    "<style>body { display: none }</style>",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<base href=http://127.0.0.1:9/>",
    "```html\n<img src=x onerror=window.hit=1><script>window.hit=1</script>\n```",
    "<form action=http://127.0.0.1:9/><button id=send>x</button></form>",
    "<a href=javascript:window.hit=1>x</a>",
    "${window.hit=1} {{constructor.constructor('window.hit=1')()}}",
    "\u202ehtml\u2066 \x00 \ufffe <scr\x00ipt>window.hit=1</script>",
]  # fmt: skip

FOREIGN = (
    "script, iframe, object, embed, style, link, meta, base, form, img, svg, math, input, video, "
    "audio, body, [style], [srcdoc], [src], [onerror], [onload], [onmouseover], [ontoggle]"
)


SAFE_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "span", "strong", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip

# Adds what DOMPurify leaves of some HTML to the page, without marked before it.
SANITISE = """
const [html, done] = arguments;
import("./ui/markdown.js").then(({ safeNode }) => {
  const root = document.createElement("div");
  root.className = "sanitised";
  root.append(safeNode(html));
  document.body.append(root);
  requestAnimationFrame(() => done());
});
"""


def check_nothing_is_there(visitor: Visitor, where: str, links: str = "a") -> None:
    assert visitor.js("return window.hit") is None
    found = "return [...document.querySelectorAll(arguments[0])].map(n => n.outerHTML)"
    chosen = ", ".join(f"{where} {selector.strip()}" for selector in FOREIGN.split(","))
    assert visitor.js(found, chosen) == []
    targets = visitor.js(
        f"return [...document.querySelectorAll('{where} {links}')].map(a => [a.href, a.rel])"
    )
    for address, relation in targets:
        assert address.startswith(("http://", "https://"))
        assert "noopener" in relation
    loaded = visitor.js("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(address.startswith(visitor.api.url) for address in loaded)


def check_nothing_happened(visitor: Visitor, where: str) -> None:
    check_nothing_is_there(visitor, where)
    assert visitor.complaints() == []


def hostile_reply(text: str) -> Reply:
    call = {"index": 0, "function": {"name": text, "arguments": text}}
    # Piece by piece too: half a construct must be as harmless as the whole.
    pieces = [text[i : i + 7] for i in range(0, len(text), 7)]
    return Reply([{"reasoning_content": text}, *pieces, {"tool_calls": [call]}])


@pytest.mark.parametrize("first", range(0, len(HOSTILE), 8))
def test_hostile_text_stays_text(visit: Visit, api: FakeApi, first: int) -> None:
    texts = HOSTILE[first : first + 8]
    api.replies = [hostile_reply(text) for text in texts]
    visitor = visit()
    for _ in texts:
        visitor.ask("?")
        visitor.js("document.querySelectorAll('details').forEach(d => d.open = true)")
        check_nothing_happened(visitor, ".message")


@pytest.mark.parametrize(
    "formula",
    [
        r"\href{javascript:window.hit=1}{x}",
        r"\url{https://example.org}",
        r"\includegraphics{http://127.0.0.1:9/pixel.png}",
        r"\htmlStyle{background: url(http://127.0.0.1:9/pixel.png)}{x}",
        r"\htmlId{draft}{x}",
        r"\html@mathml{<img src=x onerror=window.hit=1>}{x}",
        r"\text{<img src=x onerror=window.hit=1>}",
    ],
)
def test_a_formula_holds_no_link_picture_or_markup(
    visit: Visit, api: FakeApi, formula: str
) -> None:
    api.replies = [Reply([f"a ${formula}$ b"])]
    visitor = visit()
    visitor.ask("?")
    assert visitor.all(".answer .katex")
    forbidden = ".answer :is(a, img, script, [href], [src], [id], [onerror])"
    assert visitor.all(forbidden) == []
    assert visitor.js("return window.hit") is None
    loaded = visitor.js("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(address.startswith(api.url) for address in loaded)
    assert visitor.complaints() == []


def test_what_marked_might_let_through_is_taken_out_before_the_page_sees_it(visit: Visit) -> None:
    visitor = visit()
    for html in [
        *(text for text in HOSTILE if "<" in text),
        "<p>a<img src=http://127.0.0.1:9/pixel.png></p>",
        "<p>a<picture><source srcset=http://127.0.0.1:9/pixel.png></picture></p>",
        "<p style='background: url(http://127.0.0.1:9/pixel.png)'>a</p>",
        "<table background=http://127.0.0.1:9/pixel.png><tr><td>a</td></tr></table>",
        "<p><a href=ftp://example.org>a</a> <a href=//evil.example>b</a> <a ping=x>c</a></p>",
        "<p id=draft name=draft data-x=1 aria-label=x tabindex=0>a</p>",
        "<p><select><option>a</select><textarea>b</textarea><label>c</label></p>",
        "<p><template><script>window.hit=1</script></template><slot>a</slot></p>",
    ]:
        visitor.chromium.execute_async_script(SANITISE, html)
        found = visitor.js(
            "return [...document.querySelectorAll('.sanitised *')]"
            ".filter(n => !n.closest('.code, .table'))"
            ".map(n => [n.localName, n.getAttributeNames()])"
        )
        for tag, attributes in found:
            assert tag in SAFE_TAGS, html
            assert set(attributes) <= {"align", "class", "href", "rel", "start", "target"}, html
        check_nothing_is_there(visitor, ".sanitised", links="a[href]")
        visitor.js("document.querySelectorAll('.sanitised').forEach((n) => n.remove())")


def test_hostile_names_questions_and_errors_stay_text(visit: Visit, api: FakeApi) -> None:
    text = "<img src=x onerror=window.hit=1>"
    api.models = [text]
    api.replies = [Reply(status=500, message=text)]
    visitor = visit()
    visitor.ask(text)
    assert visitor.questions == [text]
    assert text in visitor.text(".failure p")
    visitor.load()
    assert visitor.text("#conversations .open") == text
    for where in (".message", "#conversations", "#model"):
        check_nothing_happened(visitor, where)


def test_the_browser_refuses_markup_even_from_the_pages_own_scripts(visit: Visit) -> None:
    visitor = visit()
    attempt = (
        "try { document.body.innerHTML = '<b>x</b>'; return 'done' } catch (e) { return e.name }"
    )
    assert visitor.js(attempt) == "TypeError"
    inline = (
        "const s = document.createElement('div'); s.setAttribute('onclick', 'window.hit = 1');"
        "document.body.append(s); s.click(); s.remove(); return window.hit ?? null"
    )
    try:
        refused = visitor.js(inline) is None
    except Exception:  # newer browsers refuse to set the attribute at all
        refused = True
    assert refused
    for name in ("default", "other", "dompurify"):
        policy = (
            f"try {{ trustedTypes.createPolicy('{name}', {{}}) }} catch (e) {{ return e.name }}"
        )
        assert visitor.js(policy) == "TypeError", name
    visitor.complaints()


@pytest.mark.parametrize(
    "text",
    [
        "[" * 150_000,
        "*a " * 60_000,
        "**a _b " * 30_000,
        "`" * 90_001 + "a",
        " ".join("`" * n for n in range(1, 300)),
        "> " * 60_000,
        "- " * 60_000,
        "\n".join(" " * n + "- x" for n in range(300)),
        "|" * 90_000 + "\n" + "|-" * 90_000,
        "| a " * 2_000 + "|\n" + "|---" * 2_000 + "|\n" + "| b " * 2_000,
        "[a](" * 30_000,
        "![](" * 30_000 + ")" * 30_000,
        "https://" * 24_000,
        "https://a" + "." * 150_000,
        "# " + "#" * 150_000,
        "# a" + " #" * 60_000 + "a",
        "-" * 150_000 + "a",
        "- - " * 60_000 + "a",
        "```" + " " * 150_000 + "`",
        "~" * 150_000 + "`",
        "_" * 150_000,
        "<https://" * 30_000,
        "\\" * 150_001,
        "a\n" * 60_000,
        "*a **b " * 5_000 + "c** d* " * 5_000,
        "1-**" * 5_000,
        "$" * 150_000,
        "$a$ " * 40_000,
        "$a " * 50_000,
        "\\( a" * 40_000,
        "\\[\n" * 50_000,
        "$$\na\n" * 30_000,
        "$" + "{" * 5_000 + "}" * 5_000 + "$",
        "$\\sqrt" * 3_000 + "$",
        "$\\def\\a{\\a\\a}\\a$",
        "```js\n" + "/*'\"`${(" * 2_400,
    ],
    ids=range(36),
)
def test_no_text_takes_the_page_long(visit: Visit, api: FakeApi, text: str) -> None:
    """Quadratic parsing of these would take ten minutes, far more than anybody waits."""
    api.replies = [Reply([text])]
    visitor = visit()
    visitor.ask("?")
    assert visitor.js("return document.querySelector('.answer').childElementCount") > 0
    assert visitor.complaints() == []
