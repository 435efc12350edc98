"""A fake server with known delays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadtest.fake_server import FakeServer, running


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with running(FakeServer()) as fake:
        yield fake
