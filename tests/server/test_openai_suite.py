"""The openai package's own tests of routes and parameters, against our server.

They were generated for a mock server that accepts everything, so some send what no server can mean.
The suite is taken from the source package at the time of the test.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_backend import free_port

_HERE = Path(__file__).parent
_FILES = (
    "test_files.py",
    "test_responses.py",
    "responses/test_input_items.py",
    "responses/test_input_tokens.py",
    "beta/test_assistants.py",
    "beta/test_threads.py",
    "beta/threads",
)
# Installed beside the suite: as plugins of our own tests they would not do.
_PLUGINS = ("pytest-asyncio", "pytest-xdist", "execnet", "time-machine", "dirty-equals")

# Patterns of names of tests, and why we refuse what they send.
EXCLUDED = {
    r"Files::test_method_list_with_all_params": "a limit of 0",
    r"InputItems::test_method_list_with_all_params": "a limit of 0 and a cursor that is nowhere",
    r"Assistants::test_method_list_with_all_params": "a limit of 0 and a cursor that is nowhere",
    r"Steps::test_method_list_with_all_params": "a limit of 0 and a cursor that is nowhere",
    r"Messages::test_method_list_with_all_params": "a limit of 0 and a cursor that is nowhere",
    r"Runs::test_method_list_with_all_params": "a limit of 0 and a cursor that is nowhere",
    r"Responses::test_\w+_create_(with_all_params_)?overload": "no input",
    r"InputTokens::test_method_count_with_all_params": "a conversation",
    r"Responses::test_\w+_compact": "no input, or an earlier response that is nowhere",
    r"Assistants::test_method_(create|update)_with_all_params": "the code interpreter",
    r"Threads::test_method_create_with_all_params": "an attached file, which no tool would read",
    r"Threads::test_method_create_and_run_with_all_params": "an attached file",
    r"Messages::test_method_create_with_all_params": "an attached file",
    r"Runs::test_method_create_with_all_params": "an attached file and the code interpreter",
    r"Runs::test_\w+_submit_tool_outputs_": "an output of no call",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the source package of the installed version."""
    openai = pytest.importorskip("openai", reason="the openai package is not installed")
    folder = tmp_path_factory.mktemp("openai")
    wanted = [f"openai=={openai.__version__}", "-d", str(folder)]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, *wanted], check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", str(folder / "plugins"), *_PLUGINS], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (source,) = folder.glob("openai-*/tests")
    return source.parent


@pytest.fixture(scope="module")
def base_url(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    folder = tmp_path_factory.mktemp("state")
    main = [sys.executable, str(_HERE / "openai_suite_server.py"), str(port), str(tiny_path)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*main, str(folder)], env=_environment(_HERE, _HERE.parent), stderr=log, stdout=log
        )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()


def _environment(*more: Path) -> dict[str, str]:
    package = Path(str(importlib.util.find_spec("oxibonsai").origin)).parents[1]  # type: ignore[union-attr]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [package, *more]))}


@pytest.mark.suite
def test_the_packages_own_tests_pass(suite: Path, base_url: str) -> None:
    files = [f"tests/api_resources/{name}" for name in _FILES]
    # The synchronous clients, loose and strict: the others send the same.
    options = ["-q", "-rA", "--tb=no", "-n", "0", "-p", "openai_suite_plugin", "-k", "not Async"]
    environment = _environment(_HERE / "openai_suite", suite.parent / "plugins")
    environment["TEST_API_BASE_URL"] = base_url
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=suite, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    passed = [name for outcome, name in outcomes if outcome == "PASSED"]
    failed = [name for outcome, name in outcomes if outcome != "PASSED"]
    assert [n for n in failed if not any(re.search(p, n) for p in EXCLUDED)] == []
    assert len(passed) >= 280, done.stdout[-2000:]
    for pattern in EXCLUDED:
        assert any(re.search(pattern, n) for n in failed), f"{pattern} is left out for nothing"
