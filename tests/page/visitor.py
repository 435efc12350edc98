"""Someone at the page: what they do and what they see."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from page.fake_api import FakeApi

_PATIENCE = 60.0  # seconds until something that should happen counts as not happening


class Visitor:
    def __init__(self, chromium: Any, api: FakeApi, folder: Path) -> None:
        self.chromium = chromium
        self.api = api
        self.folder = folder

    def open(self, width: int, height: int, dark: bool) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self.chromium.get_log("browser")
        self.load()

    def load(self) -> None:
        self.chromium.get(self.api.url)
        self.wait(
            lambda: self.js("return !document.querySelector('#model').disabled") or self.notice
        )

    def reload(self) -> None:
        """Loads the same address again; `load` begins a new conversation."""
        self.chromium.refresh()
        self.wait(lambda: self.js("return !document.querySelector('#model').disabled"))

    def leave(self) -> None:
        self.chromium.execute_script("localStorage.clear(); sessionStorage.clear()")
        self.chromium.get("about:blank")

    def js(self, script: str, *arguments: Any) -> Any:
        return self.chromium.execute_script(script, *arguments)

    def wait(self, condition: Callable[[], Any]) -> Any:
        end = time.monotonic() + _PATIENCE
        while not (found := condition()):
            assert time.monotonic() < end, f"never came; the page reads:\n{self.text('body')}"
            time.sleep(0.02)
        return found

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.chromium.find_elements(By.CSS_SELECTOR, selector)
        return found

    def texts(self, selector: str) -> list[str]:
        """Texts of all elements, at one moment: the page may replace them between two questions."""
        script = """return [...document.querySelectorAll(arguments[0])].map(
            (e) => (e.getClientRects().length ? e.innerText.trim() : ""))"""
        found: list[str] = self.js(script, selector)
        return found

    def one(self, selector: str) -> Any:
        return self.chromium.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """Text that is shown; innerText alone would give that of a hidden element too."""
        script = (
            "const found = document.querySelector(arguments[0]);"
            "return found?.checkVisibility() ? found.innerText : ''"
        )
        return str(self.js(script, selector))

    def click(self, selector: str) -> None:
        element = self.all(selector)[-1]
        ActionChains(self.chromium).move_to_element(element).click(element).perform()

    def save(self, button: str, name: str) -> Path:
        """Clicks what saves a file; returns the file once it is there."""
        behavior = {"behavior": "allow", "downloadPath": str(self.folder)}
        self.chromium.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
        self.click(button)
        path = self.folder / name
        self.wait(path.exists)
        return path

    def keys(self, *keys: str) -> None:
        ActionChains(self.chromium).send_keys(*keys).perform()

    def shift(self, key: str) -> None:
        ActionChains(self.chromium).key_down(Keys.SHIFT).send_keys(key).key_up(Keys.SHIFT).perform()

    def ask(self, text: str, *, finish: bool = True) -> None:
        self.one("#draft").send_keys(text, Keys.ENTER)
        if finish:
            self.finish()

    def finish(self) -> None:
        self.wait(lambda: not self.answering and self.all(".assistant"))

    @property
    def answering(self) -> bool:
        return bool(self.js("return document.body.classList.contains('answering')"))

    @property
    def notice(self) -> str:
        return self.text("#notice:not([hidden])")

    @property
    def answers(self) -> list[str]:
        return [str(x.text) for x in self.all(".answer")]

    @property
    def questions(self) -> list[str]:
        return [str(x.text) for x in self.all(".user .text")]

    @property
    def focused(self) -> str:
        return str(self.js("return document.activeElement.id || document.activeElement.className"))

    def complaints(self) -> list[str]:
        """What the browser's console says, beside refused requests: CSP, script errors."""
        log = [entry["message"] for entry in self.chromium.get_log("browser")]
        return [message for message in log if "the server responded with a status" not in message]
