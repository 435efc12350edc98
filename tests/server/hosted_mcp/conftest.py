"""A tiny model that is forced to call tools, and an MCP server with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "mcp_servers"))

from flask.testing import FlaskClient
from given_servers import program, write_config
from model_app import close_model_app, make_model_app
from tool_template import TEMPLATE

import tiny_model
from oxibonsai.server.server import Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosted")


@pytest.fixture(scope="module")
def app(folder: Path) -> Iterator[Server]:
    tiny_model.write(folder / "tiny.gguf", changes={"qwen3.context_length": (8192, "u32")})
    config = write_config(
        folder, t=program(env={"NOTES": str(folder / "notes")}), away={"command": "/no/such/file"}
    )
    made = make_model_app(
        folder / "tiny.gguf", folder, chat_template=TEMPLATE, mcp_servers_config=config
    )
    yield made
    assert made.mcp is not None
    made.mcp.close()
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> FlaskClient:
    return app.test_client()


@pytest.fixture
def visits(folder: Path) -> Path:
    """The file that the tool writes to, empty."""
    path = folder / "notes"
    path.write_text("")
    return path
