"""The page of an exported folder, in Chromium: it tells what the command line tells."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(MODEL, tmp_path_factory.mktemp("exported"))


@pytest.fixture
def page(chromium: Any, folder: Path) -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    chromium.get_log("browser")  # what others have left
    chromium.get(f"http://127.0.0.1:{server.server_port}/")
    yield chromium
    chromium.get("about:blank")
    server.shutdown()
    server.server_close()


def state(page: Any) -> str:
    return str(page.find_element("id", "state").text)


def wait(page: Any, end: str) -> None:
    WebDriverWait(page, 120).until(lambda _: end in state(page), f"state: {state(page)}")


def fill(page: Any, **values: str) -> None:
    for name, value in values.items():
        field = page.find_element("name", name)
        field.clear()
        field.send_keys(value)


def test_the_page_tells_what_the_command_line_tells(page: Any) -> None:
    wait(page, "Ready")
    assert page.title == "seedling-1bit"
    fill(page, prompt=PROMPT, tokens="80", temperature="0.8", seed="12345678901234567")
    shown = shown_by(page)
    options = ("-n", "80", "--temperature", "0.8", "--seed", "12345678901234567")
    line = [sys.executable, "-m", "oxibonsai", "run", "--raw", "-m", str(MODEL), *options, PROMPT]
    wanted = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert f"{PROMPT}{shown}\n" == wanted
    assert page.get_log("browser") == []


# Where the first word of a text comes.
STOP = """
const output = document.querySelector("output");
new MutationObserver((changes, observer) => {
  if (output.textContent === "") return;
  observer.disconnect();
  document.querySelector("button").click();
}).observe(output, { childList: true });
"""


def shown_by(page: Any) -> str:
    page.execute_script("document.querySelector('#state').textContent = ''")
    page.find_element("tag name", "button").click()
    wait(page, "a second")
    return str(page.find_element("tag name", "output").get_property("textContent"))


def test_a_text_can_be_stopped_and_another_one_begun(page: Any) -> None:
    wait(page, "Ready")
    fill(page, prompt=PROMPT, tokens="200", seed="1")
    whole = shown_by(page)
    page.execute_script(STOP)
    stopped = shown_by(page)
    assert len(stopped) < len(whole)
    assert whole.startswith(stopped)
    assert page.find_element("tag name", "button").text == "Continue the text"
    assert shown_by(page) == whole


def test_an_altered_weight_is_not_loaded(chromium: Any, page: Any, folder: Path) -> None:
    (piece,) = folder.glob("weights-*.bin")
    content = piece.read_bytes()
    piece.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    try:
        page.refresh()
        WebDriverWait(page, 60).until(lambda _: "Failed to fetch" in state(page))
        assert not page.find_element("tag name", "button").is_enabled()
    finally:
        piece.write_bytes(content)
