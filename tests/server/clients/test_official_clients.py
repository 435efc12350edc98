"""OpenAI's own clients: today's Python one, an old one, and the JavaScript one; the AI SDK."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running_server import RunningServer

pytestmark = pytest.mark.suite

HERE = Path(__file__).parent
MODEL = "served"
# llama.cpp's own tests pin this one.
OLD_CLIENT = "openai==2.14.0"
NODE_CLIENTS = ("openai", "ai", "@ai-sdk/anthropic", "@ai-sdk/openai-compatible")


def report(*command: str | Path, folder: Path = HERE) -> tuple[int, dict[str, str]]:
    """How many cases passed, and the failures."""
    done = subprocess.run(
        [str(c) for c in command], cwd=folder, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["passed"], found["failures"]


def url(server: RunningServer) -> str:
    return f"http://127.0.0.1:{server.port}/v1"


@pytest.fixture(scope="session")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the old client."""
    folder = tmp_path_factory.mktemp("old-client")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", OLD_CLIENT]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{OLD_CLIENT} can't be installed: {done.stderr[-200:]}")
    return python


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the JavaScript clients and the cases for them."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed (Debian: nodejs, npm)")
    folder = tmp_path_factory.mktemp("node-client")
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
    done = subprocess.run([*install, *NODE_CLIENTS], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"packages of npm can't be installed: {done.stderr[-200:]}")
    for cases in HERE.glob("*.mjs"):
        shutil.copy(cases, folder)
    return folder


def test_the_python_client_of_today(server: RunningServer) -> None:
    pytest.importorskip("openai", reason="OpenAI's Python client is not installed")
    passed, failures = report(sys.executable, HERE / "openai_matrix.py", url(server), MODEL)
    assert failures == {}
    assert passed >= 68


def test_the_python_client_of_two_years_ago(server: RunningServer, old_python: Path) -> None:
    passed, failures = report(old_python, HERE / "openai_matrix.py", url(server), MODEL)
    assert failures == {}
    assert passed >= 68


def test_the_javascript_client(server: RunningServer, node_folder: Path) -> None:
    passed, failures = report("node", "openai_matrix.mjs", url(server), MODEL, folder=node_folder)
    assert failures == {}
    assert passed == 30


def test_the_ai_sdk_of_vercel(server: RunningServer, node_folder: Path) -> None:
    passed, failures = report("node", "ai_sdk.mjs", url(server), MODEL, folder=node_folder)
    assert failures == {}
    assert passed == 6
