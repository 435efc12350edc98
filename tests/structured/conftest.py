"""The JSON-Schema-Test-Suite, which a process fetches once."""

from __future__ import annotations

from pathlib import Path

import pytest
from schema_suite import fetch


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite's folder of tests."""
    return fetch(tmp_path_factory.mktemp("suite"))
