"""Without extras, every command and the server load: what an extra brings is not there yet."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

# Modules that are there for extras alone can't be found, as where no extra was installed.
WITHOUT = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in {names!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Missing())
"""


def base() -> set[str]:
    """Names of the distributions that a plain installation brings."""
    found: set[str] = set()
    wanted = [Requirement(text) for text in PROJECT["dependencies"]]
    while wanted:
        one = wanted.pop()
        name = canonicalize_name(one.name)
        extras = one.extras or {""}
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        if name in found and not one.extras:
            continue
        found.add(name)
        for text in requires(name) or []:
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in extras):
                inner.marker = None
                wanted.append(inner)
    return found


@pytest.fixture(scope="module")
def without_extras() -> str:
    installed, here = packages_distributions(), base()
    extra = {
        module
        for module, names in installed.items()
        if not here.intersection(map(canonicalize_name, names))
    } - {"oxibonsai"}
    assert {"mcp", "pypdf", "torch", "transformers", "psycopg"} & set(installed) <= extra
    assert not extra & {"flask", "numpy", "pydantic_core", "click"}
    return WITHOUT.format(names=sorted(extra))


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_command_loads(without_extras: str) -> None:
    run(
        f"{without_extras}\nimport rich_click as click\n"
        "from oxibonsai.cli.main import COMMANDS, _group\n"
        "group = _group()\n"
        "for name in COMMANDS:\n    assert group.get_command(click.Context(group), name)"
    )


def test_the_server_loads(without_extras: str) -> None:
    run(
        f"{without_extras}\nimport oxibonsai.server.app, oxibonsai.server.routes, oxibonsai.server.http"
    )


def test_a_story_is_told(without_extras: str) -> None:
    run(f"{without_extras}\nfrom oxibonsai.cli.main import _run\n"
        "sys.exit(_run(['run', 'Once upon a time', '--max-tokens', '4', '--seed', '1']))")  # fmt: skip
