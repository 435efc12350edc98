"""A tiny model with tools, an assistant and a thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from assistant_calls import TOOL, post
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from tool_template import TEMPLATE

from oxibonsai.server.server import Server


@pytest.fixture(scope="module")
def app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("state")
    made = make_model_app(tiny_path, folder, chat_template=TEMPLATE, n_predict=200)
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def assistant(client: FlaskClient) -> str:
    made = post(client, "assistants", model="tiny", tools=[TOOL], temperature=0.0)
    return str(made["id"])


@pytest.fixture
def thread(client: FlaskClient) -> str:
    return str(post(client, "threads", messages=[{"role": "user", "content": "hi"}])["id"])
