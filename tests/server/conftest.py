"""A fake model, the application on it, and stores on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from databases import postgresql_server
from fake_backend import FakeBackend, MakeApp
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app

from oxibonsai.server.app import create_app
from oxibonsai.server.lifecycle import Phase
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.server.stores import Store


@pytest.fixture
def make_app(tmp_path: Path) -> Iterator[MakeApp]:
    """Makes a ready application with the given settings."""
    made = []

    def make(**values: Any) -> Server:
        settings = load_settings({"state_dir": tmp_path, **values})
        app = create_app(settings, FakeBackend())
        app.lifecycle.advance(Phase.READY)
        made.append(app)
        return app

    yield make
    for app in made:
        app.lifecycle.advance(Phase.STOPPED)  # ends its threads
        app.store.close()


@pytest.fixture
def app(make_app: MakeApp) -> Server:
    return make_app()


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


@pytest.fixture(scope="module")
def model_app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The application on the tiny model, with all that can be turned on."""
    app = make_model_app(tiny_path, tmp_path_factory.mktemp("state"), metrics=True, temperature=1.0)
    yield app
    close_model_app(app)


@pytest.fixture
def model_client(model_app: Server) -> FlaskClient:
    return model_app.test_client()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """A PostgreSQL server of this test run: the URL of its database."""
    with postgresql_server() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.sqlite'}"
        return
    url = request.getfixturevalue("postgresql")
    yield url
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()


@pytest.fixture
def store(store_url: str, tmp_path: Path) -> Iterator[Store]:
    opened = Store(store_url, tmp_path / "files", max_file_bytes=10_000, max_total_bytes=25_000)
    yield opened
    opened.close()
