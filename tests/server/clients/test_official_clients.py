"""OpenAI's Python client: today's and an old one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running_server import RunningServer
from weather import MODEL
from weather import openai_url as url

pytestmark = pytest.mark.suite

HERE = Path(__file__).parent
# llama.cpp's own tests pin this one.
OLD_CLIENT = "openai==2.14.0"


def report(*command: str | Path) -> tuple[int, dict[str, str]]:
    """How many cases passed, and the failures."""
    done = subprocess.run(
        [str(c) for c in command], cwd=HERE, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["passed"], found["failures"]


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


def test_the_python_client_of_today(server: RunningServer) -> None:
    pytest.importorskip("openai", reason="OpenAI's Python client is not installed")
    passed, failures = report(sys.executable, HERE / "openai_matrix.py", url(server), MODEL)
    assert failures == {}
    assert passed >= 68


def test_the_python_client_of_two_years_ago(server: RunningServer, old_python: Path) -> None:
    passed, failures = report(old_python, HERE / "openai_matrix.py", url(server), MODEL)
    assert failures == {}
    assert passed >= 68
