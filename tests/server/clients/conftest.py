"""Servers that the clients' tests share, and the clients of npm: each starts, and is fetched, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import node_clients
import pytest
from real_server import real_server
from running_server import RunningServer

import tiny_model

# Neither model's own template knows tools.
TEMPLATE = Path(__file__).with_name("chatml_tools.jinja")
FLAGS = (
    *("--ctx-size", "4096", "--parallel", "4", "--alias", "served", "--seed", "1"),
    *("--chat-template-file", str(TEMPLATE)),
)


@pytest.fixture(autouse=True)
def _no_calls_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """What clients would fetch from elsewhere, or tell."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")


@pytest.fixture(scope="session")
def tiny_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Random weights, one byte a token, and room for a prompt with tools."""
    folder = tmp_path_factory.mktemp("tiny-server")
    path = folder / "tiny.gguf"
    tiny_model.write(path, changes={"qwen3.context_length": (4096, "u32")})
    with real_server(path, folder, *FLAGS) as server:
        yield server


@pytest.fixture(scope="session")
def smollm2_server(
    smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with real_server(smollm2_path, tmp_path_factory.mktemp("smollm2-server"), *FLAGS) as server:
        yield server


@pytest.fixture(scope="session", params=["tiny", "smollm2"])
def server(request: pytest.FixtureRequest) -> RunningServer:
    """Each model in turn."""
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, RunningServer)
    return found


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the clients of npm and the scripts that use them."""
    return node_clients.install(tmp_path_factory.mktemp("node-clients"))
