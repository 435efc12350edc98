"""The cookbook in examples/: every recipe runs, prints something and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECIPES = sorted((ROOT / "examples").glob("*.py"))
NEEDS_TRANSFORMERS = {"07_transformers.py"}


@pytest.mark.parametrize("recipe", RECIPES, ids=[path.stem for path in RECIPES])
def test_a_recipe_runs(recipe: Path, tmp_path: Path) -> None:
    if recipe.name in NEEDS_TRANSFORMERS:
        pytest.importorskip("transformers", reason="the recipe needs the extra hf")
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", str(recipe)],
        cwd=tmp_path,
        env={**os.environ, "OXIBONSAI_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert list(tmp_path.iterdir()) == []


def test_there_are_twelve_and_the_page_shows_each() -> None:
    assert len(RECIPES) == 12
    page = (ROOT / "docs" / "cookbook.md").read_text()
    for recipe in RECIPES:
        assert f'--8<-- "examples/{recipe.name}"' in page
