"""The vendors' own Python clients on an application, without a server in between."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from oxibonsai.server.server import Server


def openai_client(app: Server, key: str = "key") -> Any:
    """OpenAI's client."""
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    return openai.OpenAI(
        base_url="http://localhost/v1",
        api_key=key,
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.WSGITransport(app)),
    )


def anthropic_client(app: Server, key: str = "key") -> Any:
    """Anthropic's client."""
    anthropic = pytest.importorskip("anthropic", reason="Anthropic's client is not installed")
    return anthropic.Anthropic(
        base_url="http://localhost",
        api_key=key,
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.WSGITransport(app)),
    )
