"""The cookbook in examples/: every recipe runs, prints something and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECIPES = sorted((ROOT / "examples").glob("*.py"))
# What a recipe needs beside the package: a module, and the extra that has it.
NEEDS = {
    "07_transformers": ("transformers", "hf"),
    "17_lora": ("peft", "finetune"),
    "18_merge": ("mergekit", "merge"),
    "19_eval": ("lm_eval", "eval"),
    "20_distill": ("peft", "finetune"),
}
LARGE = {"17_lora", "18_merge", "19_eval", "20_distill"}
SLOW = (pytest.mark.slow, pytest.mark.long("loads libraries of many modules"))


@pytest.mark.parametrize(
    "recipe",
    [pytest.param(p, marks=SLOW if p.stem in LARGE else ()) for p in RECIPES],
    ids=[path.stem for path in RECIPES],
)
def test_a_recipe_runs(recipe: Path, tmp_path: Path) -> None:
    if recipe.stem in NEEDS:
        module, extra = NEEDS[recipe.stem]
        pytest.importorskip(module, reason=f"the recipe needs the extra {extra}")
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


def test_the_page_shows_each() -> None:
    assert RECIPES
    page = (ROOT / "docs" / "cookbook.md").read_text()
    for recipe in RECIPES:
        assert f'--8<-- "examples/{recipe.name}"' in page
