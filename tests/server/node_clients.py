"""The clients of npm, installed into a folder of their own, with the scripts that use them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).with_name("clients")


def install(folder: Path) -> Path:
    """Installs what ``clients/package.json`` names, and copies the scripts beside it.

    Skips the test where there is no node, or npm can't fetch the packages.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed (Debian: nodejs, npm)")
    for file in (SCRIPTS / "package.json", *SCRIPTS.glob("*.mjs")):
        shutil.copy(file, folder)
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
    done = subprocess.run(npm, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"packages of npm can't be installed: {done.stderr[-200:]}")
    return folder


def run(folder: Path, script: str, *arguments: str | Path) -> Any:
    """What a script prints, which is JSON."""
    command = ["node", script, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
