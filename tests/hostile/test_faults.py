"""Memory, disks and file systems that fail: one clear error, and nothing half-done under a name."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lying_server
import pytest
from lying_server import serve

import oxibonsai

HERE = Path(__file__).parent
DATA = random.Random(4).randbytes(3 << 20)
# Failures that each operation has at least; fewer would mean that the loop no longer reaches them.
POINTS = {
    "load": 15,
    "load-packed": 200,
    "load-lora": 25,
    "convert-lora": 8,
    "convert": 14,
    "convert-awq": 43,
    "quantize": 20,
    "imatrix": 6,
    "split": 24,
    "merge": 15,
    "save-gguf": 15,
    "save": 50,
    "pull": 20,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("cc") is None or not sys.platform.startswith("linux"),
        reason="needs cc, and a dynamic linker that preloads",
    ),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that lets calls fail."""
    library = tmp_path_factory.mktemp("shim") / "fail_nth.so"
    source = HERE / "fail_nth.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where the file to pull is; its server never fails."""
    with lying_server.running() as web:
        web.script = [serve(DATA)]
        yield web.url


def test_there_are_enough_points() -> None:
    assert sum(POINTS.values()) >= 400


@pytest.mark.parametrize("operation", POINTS)
def test_every_failure_is_an_error_that_leaves_nothing(
    operation: str, shim: Path, url: str, tmp_path: Path
) -> None:
    paths = [Path(oxibonsai.__file__).parents[1], HERE, HERE.parent]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "LD_PRELOAD": str(shim),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "fault_loop.py"), str(shim), operation, str(tmp_path), url],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said["problems"] == []
    assert sum(points for points, _ in said["found"].values()) >= POINTS[operation]
    # What fails may be done without (a cache) or tried again, but not often.
    assert sum(errors for _, errors in said["found"].values()) >= POINTS[operation] // 2
