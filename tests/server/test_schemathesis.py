"""schemathesis reads /openapi.json and calls every route with what it allows and forbids."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from real_server import real_server

pytestmark = pytest.mark.suite

EXAMPLES = 2000
CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance"


def test_no_example_of_the_document_breaks_the_server(tiny_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    flags = ("--ctx-size", "128", "--parallel", "4", "--alias", "tiny")
    report = tmp_path / "report.json"
    with real_server(tiny_path, tmp_path, *flags) as server:
        url = f"http://127.0.0.1:{server.port}"
        operations = sum(map(len, server.ask("/openapi.json")[2]["paths"].values()))
        each = 2 * EXAMPLES // operations  # routes without parameters have one example each
        code = "from schemathesis.cli import schemathesis; schemathesis()"
        done = subprocess.run(
            [
                sys.executable, "-c", code, "run", f"{url}/openapi.json", "--checks", CHECKS,
                "--max-examples", str(each), "--phases", "fuzzing", "--seed", "1",
                "--continue-on-failure", "--request-timeout", "30", "--workers", "2",
                "--suppress-health-check", "all", "--warnings", "off", "--no-shrink",
                "--report", "json", "--report-json-path", str(report),
            ],
            capture_output=True, text=True, cwd=tmp_path, timeout=580,
            env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-20_000:]
        server.wait_for("/readyz", 200)
    assert json.loads(report.read_text())["test_cases"]["generated"] >= EXAMPLES
