"""Clients of npm: OpenAI's, Anthropic's, and Vercel's AI SDK with its three providers."""

from __future__ import annotations

from pathlib import Path

import node_clients
import pytest
from running_server import RunningServer
from weather import MODEL, address, openai_url

pytestmark = pytest.mark.suite


def test_openais(server: RunningServer, node_folder: Path) -> None:
    found = node_clients.run(node_folder, "openai_matrix.mjs", openai_url(server), MODEL)
    assert found["failures"] == {}
    assert found["passed"] == 30


def test_anthropics(server: RunningServer, node_folder: Path) -> None:
    found = node_clients.run(node_folder, "anthropic_matrix.mjs", address(server), MODEL)
    assert found["failures"] == {}
    assert found["passed"] == 12


def test_vercels(server: RunningServer, node_folder: Path) -> None:
    found = node_clients.run(node_folder, "ai_sdk.mjs", openai_url(server), MODEL)
    assert found["failures"] == {}
    assert found["passed"] == 4 * 6 + 2
