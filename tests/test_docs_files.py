"""What the pages say of the repository is so: files and folders that they name, and what they count."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oxibonsai.architectures.families import all_families
from oxibonsai.architectures.wrappers import TEXT_TYPES
from oxibonsai.convert.families import CONVERTERS

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("docs/architecture.md", "docs/adding.md")

_FILE = re.compile(r"[\w./-]*\w\.(?:py|pyi|cc|h|cu|js|md|cmake|txt|cfg|toml)|(?:[\w-]+/)+")
_FOLDERS = ("python", "csrc", "tests", "docs", "bench", "cmake", ".ci", "seedling", "examples")


def named_in(page: str) -> set[str]:
    """The files and folders that a page sets in code, without placeholders."""
    return {name for name in re.findall(r"`([^`\s]+)`", page) if _FILE.fullmatch(name)}


@pytest.fixture(scope="module")
def paths() -> list[str]:
    found = [p.name for p in ROOT.iterdir()]
    for folder in _FOLDERS:
        inside = [p for p in (ROOT / folder).rglob("*") if "__pycache__" not in p.parts]
        found += [p.relative_to(ROOT).as_posix() + "/" * p.is_dir() for p in inside]
    return [f"/{path}" for path in [*found, *(f"{folder}/" for folder in _FOLDERS)]]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_files_that_exist(page: str, paths: list[str]) -> None:
    names = named_in((ROOT / page).read_text(encoding="utf-8"))
    assert names
    missing = [name for name in names if not any(path.endswith(f"/{name}") for path in paths)]
    assert not missing


def test_a_file_that_does_not_exist_would_be_seen() -> None:
    assert named_in("see `engine/nowhere.py`, `cpu/<name>/` and `a.b`") == {"engine/nowhere.py"}


def test_the_readme_counts_what_can_be_read() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"| {len({family.name for family in all_families()})} GGUF architectures: " in page
    assert f"`convert` reads {len({*CONVERTERS, *TEXT_TYPES})} model types" in page
