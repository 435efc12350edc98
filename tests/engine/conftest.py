"""Engines of toy models with recurrent state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oxibonsai
import recurrent_model
from oxibonsai.architectures.families import BY_NAME
from oxibonsai.engine import Engine
from recurrent_model import IDS, Load, run, told


@pytest.fixture(scope="session")
def _registered() -> Iterator[None]:
    BY_NAME.update({name: [family] for name, family in recurrent_model.FAMILIES.items()})
    yield
    for name in recurrent_model.FAMILIES:
        del BY_NAME[name]


@pytest.fixture(scope="module", params=list(recurrent_model.FAMILIES))
def recurrent_path(
    _registered: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Of one of the two."""
    path = tmp_path_factory.mktemp("recurrent") / f"{request.param}.gguf"
    return recurrent_model.write(path, request.param)


@pytest.fixture(scope="module")
def load(recurrent_path: Path) -> Load:
    """Loads it, with the options given."""

    def load(**options: Any) -> Engine:
        return oxibonsai.load(recurrent_path, **({"threads": 2, "parity": "off"} | options))

    return load


@pytest.fixture(scope="module")
def alone(load: Load) -> tuple[object, ...]:
    """What is told of the text of ``IDS``, run by itself in one thread."""
    engine = load(threads=1, parallel=1, prefix_cache=False)
    return told(run(engine, IDS)[0])
