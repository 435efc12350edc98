"""A real headless Chromium on the chat page; skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flask", reason="the page's tests need the browser extra (flask)")
webdriver: Any = pytest.importorskip("selenium.webdriver", reason="browser tests need selenium")

from page.fake_api import FakeApi, serving  # noqa: E402  (after the check for flask)
from page.visitor import Visitor  # noqa: E402


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serving(FakeApi()) as fake:
        yield fake


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.set_capability("unhandledPromptBehavior", "ignore")
    # Names that anybody may have resolved to this machine.
    options.add_argument("--host-resolver-rules=MAP *.test 127.0.0.1")
    for flag in ("--headless=new", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # which Chromium asks for as root
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    running.set_script_timeout(300)  # of modules that a busy machine loads; a failed import says so
    yield running
    running.quit()


@pytest.fixture
def visit(chromium: Any, api: FakeApi, tmp_path: Path) -> Iterator[Callable[..., Visitor]]:
    """Opens the page with nothing stored: visit(width=1200, height=800, dark=False)."""
    visitors = []

    def open_page(width: int = 1200, height: int = 800, *, dark: bool = False) -> Visitor:
        visitor = Visitor(chromium, api, tmp_path)
        visitor.open(width, height, dark)
        visitors.append(visitor)
        return visitor

    yield open_page
    for visitor in visitors:
        visitor.leave()
