"""The page of an exported folder, in Chromium: it says what the command line says."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from native_build import needs_compiler
from web_folders import SEEDLINGS, export

MODEL = SEEDLINGS / "seedling-1bit.gguf"
PROMPT = "One day, a small bird"

pytestmark = [
    pytest.mark.release,
    pytest.mark.long("compiles the core to WebAssembly"),
    pytest.mark.timeout(2400),
    needs_compiler,
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def opened(chromium: Any, folder: Path) -> Iterator[Any]:
    """The page of a folder, of an origin for which the browser has nothing yet."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    chromium.get_log("browser")  # what others have left
    chromium.get(f"http://127.0.0.1:{server.server_port}/")
    yield chromium
    chromium.get("about:blank")
    server.shutdown()
    server.server_close()


@contextmanager
def loaded(chromium: Any, folder: Path) -> Iterator[Any]:
    """The page with its model."""
    with opened(chromium, folder) as page:
        wait(page, "!document.querySelector('#send').disabled")
        yield page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(MODEL, tmp_path_factory.mktemp("exported"))


@pytest.fixture
def page(chromium: Any, folder: Path) -> Iterator[Any]:
    with loaded(chromium, folder) as ready:
        yield ready


def wait(page: Any, condition: str) -> None:
    WebDriverWait(page, 300).until(lambda _: page.execute_script(f"return {condition}"), condition)


def set_up(page: Any, *, continues: bool, **values: str) -> None:
    page.find_element("id", "open-settings").click()
    for name, value in values.items():
        field = page.find_element("name", name)
        field.clear()
        field.send_keys(value)
    if page.find_element("name", "continues").is_selected() != continues:
        page.find_element("name", "continues").click()
    page.find_element("css selector", "#settings .primary").click()


def last(page: Any, selector: str) -> Any:
    return page.find_elements("css selector", f".assistant {selector}")[-1]


def ask(page: Any, text: str) -> str:
    """Sends a text; returns the answer as the page's button copies it."""
    page.find_element("id", "draft").send_keys(text, Keys.ENTER)
    wait(page, "document.querySelector('#stop').hidden")
    assert not last(page, ".failure").is_displayed(), last(page, ".failure").text
    page.execute_script(
        "navigator.clipboard.writeText = async (text) => { window.copied = text; };"
        "[...document.querySelectorAll('.copy')].at(-1).click()"
    )
    return str(page.execute_script("return window.copied"))


def run(model: Path, *options: str) -> str:
    line = [sys.executable, "-m", "oxibonsai", "run", "-m", str(model), *options]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def test_the_page_chats_with_smollm2_as_the_command_line_does(
    chromium: Any, smollm2_path: Path, tmp_path: Path
) -> None:
    question = "Name three colours."
    with loaded(chromium, export(smollm2_path, tmp_path / "exported")) as page:
        set_up(page, continues=False, maxTokens="40", seed="7")
        answer = ask(page, question)
        assert f"{answer}\n" == run(smollm2_path, "-n", "40", "--seed", "7", question)
        assert last(page, ".answer").text.split()[:3] == answer.split()[:3]
        assert page.get_log("browser") == []


def test_the_page_goes_on_with_a_conversation(page: Any) -> None:
    set_up(page, continues=False, maxTokens="40", seed="5")
    question = "Tell me about a cat."
    first = ask(page, question)
    second = ask(page, question)
    assert f"{first}\n" == run(MODEL, "-n", "40", "--seed", "5", question)
    assert second != first
    page.find_element("id", "new").click()
    assert ask(page, question) == first


def test_the_page_continues_a_text_as_the_command_line_does(page: Any) -> None:
    assert page.title == "seedling-1bit"
    seed = "12345678901234567"
    set_up(page, continues=True, maxTokens="80", temperature="0.8", seed=seed)
    options = ("--raw", "-n", "80", "--temperature", "0.8", "--seed", seed)
    assert f"{PROMPT}{ask(page, PROMPT)}\n" == run(MODEL, *options, PROMPT)
    assert page.get_log("browser") == []


# Where the first word of a text comes.
STOP = """
new MutationObserver((changes, observer) => {
  if (![...document.querySelectorAll(".answer")].at(-1)?.textContent) return;
  observer.disconnect();
  document.querySelector("#stop").click();
}).observe(document.querySelector("#messages"), { childList: true, subtree: true, characterData: true });
"""


def test_a_text_can_be_stopped_and_another_one_begun(page: Any) -> None:
    set_up(page, continues=True, maxTokens="200", seed="1")
    whole = ask(page, PROMPT)
    page.execute_script(STOP)
    stopped = ask(page, PROMPT)
    assert len(stopped) < len(whole)
    assert whole.startswith(stopped)
    assert last(page, ".remark").text == "Stopped."
    assert ask(page, PROMPT) == whole


def test_an_altered_weight_is_not_loaded(chromium: Any, folder: Path) -> None:
    (piece,) = folder.glob("weights-*.bin")
    content = piece.read_bytes()
    piece.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    try:
        with opened(chromium, folder) as page:
            wait(page, "document.querySelector('#notice').textContent.includes('Failed to fetch')")
            assert not page.find_element("id", "send").is_enabled()
    finally:
        piece.write_bytes(content)
