"""The models that the package carries."""

from __future__ import annotations

from pathlib import Path

import pytest

import oxibonsai
from oxibonsai.sources.local import PACKAGED, resolve_packaged


@pytest.fixture(scope="session", params=PACKAGED)
def seedling_path(request: pytest.FixtureRequest) -> Path:
    """The file of each in turn."""
    return resolve_packaged(request.param)


@pytest.fixture(scope="session")
def seedling(seedling_path: Path) -> oxibonsai.Engine:
    """It, loaded with the defaults."""
    return oxibonsai.load(seedling_path)
