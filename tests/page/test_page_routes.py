"""The page of routes at ``/docs``, in Chromium on the real application."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.serving import make_server

from oxibonsai.server.app import create_app
from oxibonsai.server.backend import ModelInfo
from oxibonsai.server.lifecycle import Phase
from oxibonsai.server.setting_sources import load_settings


class NoModel:
    """A backend without weights."""

    pool = None
    chat_template = None
    generates = True
    speculate = None
    ranks = False

    def load(self) -> None:
        pass

    def models(self) -> list[ModelInfo]:
        return [ModelInfo("none", 0, ("none",))]

    def close(self) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server with an API key."""
    app = create_app(load_settings({"state_dir": tmp_path, "api_key": ["key"]}), NoModel())
    app.lifecycle.advance(Phase.READY)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
    app.store.close()


def test_it_asks_for_a_key_and_shows_every_route(chromium: Any, address: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    def found(selector: str) -> list[Any]:
        return list(chromium.find_elements(By.CSS_SELECTOR, selector))

    chromium.get(f"{address}/docs")
    wait = WebDriverWait(chromium, 30)
    wait.until(lambda _: found("#access")[0].is_displayed())
    assert found("#routes details") == []
    found("#key")[0].send_keys("key")
    found("#access button")[0].click()
    wait.until(lambda _: found("#routes details"))
    paths = [code.text for code in found("summary code")]
    assert "/v1/chat/completions" in paths
    assert "/v1/batches/{batch_id}/cancel" in paths
    assert not found("#access")[0].is_displayed()
    chat = next(d for d in found("details") if "Generate the next" in d.text)
    chat.find_element(By.CSS_SELECTOR, "summary").click()
    assert "messages *" in chat.text
    assert "list of" in chat.text
    errors = [entry for entry in chromium.get_log("browser") if "Content Security" in str(entry)]
    assert errors == []
