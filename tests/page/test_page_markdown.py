"""Markdown to nodes, in the browser that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from page.fake_api import FakeApi, Reply
from page.visitor import Visitor

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]

RENDER = """
const [text, done] = arguments;
import("./ui/markdown.js").then(({ MarkdownView }) => {
  const root = document.createElement("div");
  new MarkdownView(root).update(text);
  // Line ends between elements are marked's, and show nowhere.
  done(root.innerHTML.replace(/\\n+(?=<)/g, "").replace(/>\\n+/g, ">"));
}, (error) => done(`import failed: ${error}`));
"""
READ_CODE = """
const [text, done] = arguments;
import("./ui/markdown.js").then(({ MarkdownView }) => {
  const root = document.createElement("div");
  new MarkdownView(root).update(text);
  done(root.querySelector("pre").textContent);
}, (error) => done(`import failed: ${error}`));
"""
LINK = 'rel="noopener noreferrer nofollow" target="_blank"'


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    from page.fake_api import serving

    with serving(FakeApi()) as api:
        yield api.url


@pytest.fixture
def render(chromium: Any, served: str) -> Callable[[str], str]:
    # Another test may have led the browser to a page whose server has ended.
    if chromium.current_url != served:
        chromium.get(served)
    return lambda text: chromium.execute_async_script(RENDER, text)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"),
        ("*a* **b** ***c*** ~~d~~", "<p><em>a</em> <strong>b</strong> <em><strong>c</strong></em> "
         "<del>d</del></p>"),
        ("_a_ __b__ snake_case_name", "<p><em>a</em> <strong>b</strong> snake_case_name</p>"),
        ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
        ("*a **b***", "<p><em>a <strong>b</strong></em></p>"),
        ("**a *b***", "<p><strong>a <em>b</em></strong></p>"),
        ("2 * 3 * 4 and a*b", "<p>2 * 3 * 4 and a*b</p>"),
        ("**open", "<p>**open</p>"),
        (r"\*no\* \`no\` C:\dir", "<p>*no* `no` C:\\dir</p>"),
        ("`a*b*` ``c ` d`` `open", "<p><code>a*b*</code> <code>c ` d</code> `open</p>"),
        ("[a *b*](https://e.org/x_(y))", f'<p><a href="https://e.org/x_(y)" {LINK}>a <em>b</em>'
         "</a></p>"),
        ('[a](https://e.org "title")', f'<p><a href="https://e.org/" {LINK}>a</a></p>'),
        ("see https://e.org/a.", f'<p>see <a href="https://e.org/a" {LINK}>https://e.org/a</a>.</p>'),
        ("(https://e.org/a)", f'<p>(<a href="https://e.org/a" {LINK}>https://e.org/a</a>)</p>'),
        ("<https://e.org/>", f'<p><a href="https://e.org/" {LINK}>https://e.org/</a></p>'),
        ("[a](ftp://e.org) [b]", "<p>[a](ftp://e.org) [b]</p>"),
        ("# A\n### B *c* ##\n#no", '<h3 class="level-1">A</h3><h5 class="level-3">B <em>c</em></h5>'
         "<p>#no</p>"),
        ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
        ("> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"
         "<p>c</p>"),
        ("- a\n- b", "<ul><li>a</li><li>b</li></ul>"),
        ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("1. a\n   - b\n   - c\n2. d", "<ol><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ol>"),
        ("- a\n\n  b\n- c", "<ul><li><p>a</p><p>b</p></li><li><p>c</p></li></ul>"),
        ("1. a\n\n2. b\n\n3. c", "<ol><li><p>a</p></li><li><p>b</p></li><li><p>c</p></li></ol>"),
        ("- a\n1. b", "<ul><li>a</li></ul><ol><li>b</li></ol>"),
        ("- a\n  more\nlazy", "<ul><li>a<br>more<br>lazy</li></ul>"),
        ("born in\n1984. A good year", "<p>born in<br>1984. A good year</p>"),
        ("text:\n- a", "<p>text:</p><ul><li>a</li></ul>"),
        ("1 < 2 && 3 > 2 &amp;", "<p>1 &lt; 2 &amp;&amp; 3 &gt; 2 &amp;</p>"),
        ("a <b>b</b>\n\n<i>\n\n&lt;i&gt;", "<p>a &lt;b&gt;b&lt;/b&gt;</p><p>&lt;i&gt;</p><p>&lt;i&gt;</p>"),
        ("a\n---\nb", "<p>a</p><hr><p>b</p>"),
        ("- [ ] a\n- [x] b", '<ul><li class="task">☐ a</li><li class="task">☑ b</li></ul>'),
        ("![a](https://e.org/p.png)", f'<p><a href="https://e.org/p.png" {LINK}>a</a></p>'),
        ("![](https://e.org/p.png)", f'<p><a href="https://e.org/p.png" {LINK}>https://e.org/p.png'
         "</a></p>"),
        ("![a](p.png)", "<p>![a](p.png)</p>"),
        ("[a]\n\n[a]: https://e.org/", f'<p>[a]</p><p>[a]: <a href="https://e.org/" {LINK}>'
         "https://e.org/</a></p>"),
        ("so[^1] and[^a b] x^2", "<p>so<sup>1</sup> and[^a b] x^2</p>"),
        ("a\n\n[^1]: *b*\nmore\n[^x]: c[^1]\n\nd", '<p>a</p><p class="note"><sup>1</sup> <em>b</em><br>'
         'more</p><p class="note"><sup>x</sup> c<sup>1</sup></p><p>d</p>'),
        ("", ""),
        ("\n \n", ""),
    ],
)  # fmt: skip
def test_text_becomes(render: Callable[[str], str], text: str, html: str) -> None:
    assert render(text) == html


def test_a_table_keeps_its_columns(render: Callable[[str], str]) -> None:
    text = "| a | b | c |\n|:--|:-:|--:|\n| 1 | `x\\|y` | **3** |\n| 4 |\n\nafter"
    html = render(text)
    assert '<th class="left">a</th><th class="center">b</th><th class="right">c</th>' in html
    assert (
        '<td class="center"><code>x|y</code></td><td class="right"><strong>3</strong></td>' in html
    )
    assert html.count("<tr>") == 3
    assert html.count("<td") == 6
    assert html.endswith("<p>after</p>")


@pytest.mark.parametrize("text", ["a | b\n---", "| a | b |\n|---|", "a\n---|---"])
def test_what_is_no_table_is_not_made_one(render: Callable[[str], str], text: str) -> None:
    assert "<table" not in render(text)


@pytest.mark.parametrize(
    ("text", "code", "language"),
    [
        ("```python\nx = 1\n\n# no heading\n```", "x = 1\n\n# no heading", "python"),
        ("~~~\n```\n~~~", "```", "code"),
        ("````md\n```\n````", "```", "md"),
        ("```c\nopen\n- still", "open\n- still", "c"),
        ("```\n```", "", "code"),
        ("- a\n  ```sh\n  ls\n    x\n  ```", "ls\n  x", "sh"),
        ("> ```\n> q\n> ```", "q", "code"),
    ],
)
def test_fenced_code_is_kept_to_the_letter(
    render: Callable[[str], str], chromium: Any, text: str, code: str, language: str
) -> None:
    html = render(text)
    assert f"<span>{language}</span>" in html
    assert html.count("<pre") == 1
    assert chromium.execute_async_script(READ_CODE, text) == code


GROW = """
const [text, done] = arguments;
import("./ui/markdown.js").then(({ MarkdownView }) => {
  const root = document.createElement("div");
  const view = new MarkdownView(root);
  const differ = [];
  for (let end = 1; end <= text.length; end += 1) {
    view.update(text.slice(0, end));
    const whole = document.createElement("div");
    new MarkdownView(whole).update(text.slice(0, end));
    const shown = (node) => node.innerHTML.replace(/\\n+(?=<)/g, "").replace(/>\\n+/g, ">");
    if (shown(root) !== shown(whole)) differ.push([text.slice(0, end), shown(root), shown(whole)]);
  }
  done(differ);
});
"""


@pytest.mark.parametrize(
    "text",
    [
        "a\n***\nb\n***bold*** c\n#\n#no\n# yes\n--\n---\n---x",
        "1. a\n\n2. b\n\n   c\n\n3\n\n3. d\n- e\n\n-\n\n-f\n\n- g\nlazy\n\n  - h\n\nend",
        "| a | b |\n|---|---|\n| 1 | 2 |\nlazy\n\n| no |\n|---|x\n",
        "> a\n> - b\nlazy\n>\n> ```\n> c\n> ```\n\n> d\n\n>e",
        "```py\nx\n\n\ny\n``\n```\n    z\n\n    code\n\n    more\ntext\n    lazy",
        "a $x$ b\n$$\ny\n- z\n$$\nc\n\n$$\nopen\n\n$$ d \\(e\n\\) \\[f\n\n\\] $5 and $6",
        "a[^1] b[^2]\n\n[^1]: c\nmore\n[^2]: d\n\n[^3]\n\n[^4]: \n\nend",
        "- a\n\n  \\[\n  b\n  \\]\n- $c$\n\n> $$d$$\n> e",
        "a\r\nb\r\n\r\n- c\r\n\r\n\td\n\n\te\n\n***\n\n[x](https://e.org) `a\nb` **c\nd**",
    ],
)
def test_a_text_looks_the_same_whether_it_came_at_once_or_grew(
    render: Callable[[str], str], chromium: Any, text: str
) -> None:
    assert chromium.execute_async_script(GROW, text) == []


FORMULAS = """
const [text, done] = arguments;
import("./ui/markdown.js").then(({ MarkdownView }) => {
  const root = document.createElement("div");
  new MarkdownView(root).update(text);
  const source = (n) => n.querySelector("annotation").textContent;
  const found = [...root.querySelectorAll(".katex")].map(
    (n) => [source(n), Boolean(n.closest(".katex-display"))]);
  root.querySelectorAll(".katex").forEach((n) => n.replaceWith("#"));
  const rest = [...root.children].map((n) => n.textContent.trim().replace(/\\s+/g, " "));
  done([found, rest.join(" ")]);
});
"""


@pytest.mark.parametrize(
    ("text", "formulas", "rest"),
    [
        ("so $a_1 * b_2$ is", [["a_1 * b_2", False]], "so # is"),
        (r"so \(a\) is", [["a", False]], "so # is"),
        ("$$\na\n$$", [["a", True]], "#"),
        ("text\n$$\na\n= b\n- c\n$$\nmore", [["a\n= b\n- c", True]], "text # more"),
        ("\\[\na \\\\[2pt]\n\\]", [["a \\\\[2pt]", True]], "#"),
        ("it is $$a$$ inside", [["a", True]], "it is # inside"),
        ("a\n\\begin{align}\nx &= 1 \\\\\ny &= 2\n\\end{align}\nb",
         [["\\begin{align}\nx &= 1 \\\\\ny &= 2\n\\end{align}", True]], "a # b"),
        ("\\begin{equation*}\\begin{aligned}x\\end{aligned}\\end{equation*}",
         [["\\begin{equation*}\\begin{aligned}x\\end{aligned}\\end{equation*}", True]], "#"),
        ("\\begin{gather}a", [], "\\begin{gather}a"),
        ("\\begin{document}a\\end{document}", [], "\\begin{document}a\\end{document}"),
        ("$5 and $10 a piece", [], "$5 and $10 a piece"),
        (r"\$a$ and $b\$", [], "$a$ and $b$"),
        ("`$a$` and\n\n```\n$b$\n```", [], "$a$ and codeCopy$b$"),
        ("$a", [], "$a"),
        ("$$\na\n\nb\n$$", [], "$$a b$$"),
        (r"$\frac{a}{$", [], r"\frac{a}{"),
        (r"$\undefined$", [], r"\undefined"),
    ],
)  # fmt: skip
def test_formulas(chromium: Any, render: Any, text: str, formulas: Any, rest: str) -> None:
    assert chromium.execute_async_script(FORMULAS, text) == [formulas, rest]


def nested(command: str, times: int) -> str:
    return command * times + "x" + "}" * times


@pytest.mark.parametrize(
    "formula",
    [
        nested(r"\frac{1}{", 40),
        nested(r"\sqrt{", 40),
        r"\def\a{x}" + r"\a" * 50,
        r"\newcommand{\Fn}{\mathbb{F}} f: \Fn^n \to \Fn",
        r"a \iff b \implies c \dots " * 20,
    ],
)
def test_formulas_of_some_depth_are_typeset(chromium: Any, render: Any, formula: str) -> None:
    found = chromium.execute_async_script(FORMULAS, f"$${formula}$$")
    assert found == [[[formula.strip(), True]], "#"]


@pytest.mark.parametrize(
    "formula",
    [
        nested(r"\frac{1}{", 200),
        nested(r"\sqrt{", 400),
        nested("x^{", 800),
        nested("{", 3000),
        r"\begin{matrix}" * 200 + "x" + r"\end{matrix}" * 200,
        r"\def\a{" + "x" * 3500 + "}" + r"\a" * 400,
        r"\def\a{" + r"\sqrt x" * 60 + r"}\def\b{" + r"\a" * 60 + "}" + r"\b" * 60,
    ],
    ids=["fractions", "roots", "powers", "braces", "matrices", "a macro", "macros"],
)
def test_a_formula_that_would_freeze_the_page_stays_as_it_was_written(
    visit: Visit, api: FakeApi, formula: str
) -> None:
    api.replies = [Reply([f"a $${formula}$$ b"])]
    visitor = visit()
    visitor.ask("?")
    assert visitor.all(".answer .katex") == []
    assert formula in visitor.text(".answer")
    assert visitor.complaints() == []


def test_code_has_the_colours_of_its_language(render: Callable[[str], str]) -> None:
    assert '<span class="hljs-keyword">def</span>' in render("```python\ndef f(): pass\n```")
    assert "hljs" not in render("```nonsense\ndef f(): pass\n```")
    assert "hljs" not in render("```python\n" + "def f(): pass\n" * 2000 + "```")


def test_code_is_copied_as_it_stands(visit: Visit, api: FakeApi) -> None:
    api.replies = [Reply(["```py\nif a < b:\n\tpass  # **no**\n```"])]
    visitor = visit()
    visitor.ask("?")
    visitor.click(".code-head button")
    visitor.wait(lambda: visitor.text(".code-head button") == "Copied")
    visitor.click("#draft")
    visitor.one("#draft").send_keys(Keys.CONTROL, "v")
    assert visitor.js("return document.querySelector('#draft').value") == (
        "if a < b:\n\tpass  # **no**"
    )


def test_finished_items_of_a_list_keep_their_nodes_while_the_text_grows(
    visit: Visit, api: FakeApi
) -> None:
    reply = Reply(["1. one\n2. two\n3. thr", None, "ee\n4. four"])
    api.replies = [reply]
    visitor = visit()
    visitor.ask("?", finish=False)
    visitor.wait(lambda: visitor.text(".answer").endswith("thr"))
    visitor.js("for (const n of document.querySelectorAll('.answer li')) n.seen = true")
    reply.go_on.set()
    visitor.finish()
    kept = "return [...document.querySelectorAll('.answer li')].map(n => n.seen === true)"
    assert visitor.js(kept) == [True, True, False, False]
    assert visitor.text(".answer li:nth-child(3)") == "three"


def test_finished_blocks_keep_their_nodes_while_the_text_grows(visit: Visit, api: FakeApi) -> None:
    reply = Reply(["first\n\n```\ncode\n```\n\nthi", None, "rd and on"])
    api.replies = [reply]
    visitor = visit()
    visitor.ask("?", finish=False)
    visitor.wait(lambda: visitor.text(".answer").endswith("thi"))
    visitor.js("for (const n of document.querySelector('.answer').children) n.seen = true")
    reply.go_on.set()
    visitor.finish()
    kept = "return [...document.querySelector('.answer').children].map(n => n.seen === true)"
    assert visitor.js(kept) == [True, True, False]
