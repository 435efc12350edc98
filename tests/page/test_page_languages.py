"""The page in the language that the browser asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

import oxibonsai.server.page as page_module
from oxibonsai.export import web_folder
from page.fake_api import FakeApi
from page.visitor import Visitor

Visit = Callable[..., Visitor]
STATIC = Path(page_module.__file__).with_name("static")
WEB = Path(web_folder.__file__).with_name("web")  # its page has the same tables
LANGUAGES = ["de", "fr"]


class _Words(HTMLParser):
    """Texts and attributes that a visitor reads; noscript and title stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._left_out = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._left_out += tag in ("noscript", "title")
        read = ("aria-label", "placeholder", "title", "alt")
        self.found |= {value for name, value in attrs if name in read and _has_words(value)}  # type: ignore[misc]

    def handle_endtag(self, tag: str) -> None:
        self._left_out -= tag in ("noscript", "title")

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if not self._left_out and _has_words(text):
            self.found.add(text)


def _has_words(text: str | None) -> bool:
    return bool(text and re.search(r"[A-Za-z]{2}", text))


def _used() -> set[str]:
    words = _Words()
    for folder in (STATIC, WEB):
        words.feed((folder / "index.html").read_text())
    found = words.found
    for path in [*STATIC.glob("*.js"), WEB / "page.js"]:
        if not path.name.startswith("words"):
            found |= set(_templates(path.read_text()))
    return found


def _templates(script: str) -> list[str]:
    """The keys of t`...`: each ${value} is its number."""
    keys = []
    for match in re.finditer(r"(?<![\w$])t`", script):
        at, key, count = match.end(), "", 0
        while script[at] != "`":
            if script.startswith("${", at):
                depth, at = 1, at + 2
                while depth:
                    depth += {"{": 1, "}": -1}.get(script[at], 0)
                    at += 1
                key, count = f"{key}{{{count}}}", count + 1
            else:
                key, at = key + script[at], at + 1
        keys.append(key)
    return keys


def _table(language: str) -> dict[str, str]:
    source = (STATIC / f"words_{language}.js").read_text()
    return dict(json.loads(source.partition("export default ")[2].rstrip().removesuffix(";")))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_of_the_page_is_in_each_table_and_no_other(language: str) -> None:
    used, table = _used(), _table(language)
    assert len(used) > 150
    assert used - set(table) == set()
    assert set(table) - used == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations_have_the_same_values(language: str) -> None:
    for key, words in _table(language).items():
        assert sorted(re.findall(r"\{\d\}", words)) == sorted(re.findall(r"\{\d\}", key)), key


def speak(visitor: Visitor, languages: str) -> None:
    agent = visitor.js("return navigator.userAgent")
    override = {"userAgent": agent, "acceptLanguage": languages}
    visitor.chromium.execute_cdp_cmd("Emulation.setUserAgentOverride", override)
    visitor.reload()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("languages", "language", "send", "tokens"),
    [
        ("de-AT,en", "de", "Senden", "42 Tokens"),
        ("fr", "fr", "Envoyer", "42 jetons"),
        ("ja,en-GB,de", "en", "Send", "42 tokens"),
        ("ja", "en", "Send", "42 tokens"),
    ],
)
def test_the_browsers_first_known_language_is_spoken(
    visit: Visit, api: FakeApi, languages: str, language: str, send: str, tokens: str
) -> None:
    visitor = visit(390)
    try:
        speak(visitor, languages)
        assert visitor.js("return document.documentElement.lang") == language
        assert visitor.text("#send") == send
        visitor.ask("hi")
        assert visitor.text(".figures").startswith(tokens)
        assert visitor.js("return document.documentElement.scrollWidth") <= 390
        assert visitor.complaints() == []
    finally:
        speak(visitor, "en-US")
