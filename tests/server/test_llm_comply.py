"""An independent checker of the chat, Responses and Anthropic APIs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from real_server import real_server

# What the checker asks of a tool call is that there is one: a template that knows of calls, and a
# model that was trained on such.
_TEMPLATE = Path(__file__).with_name("calling_template.jinja")


# No model here reads images; reasoning summaries are only asked of models of certain names.
LEFT_OUT = {
    "openai-chat": {"chat-image-input": "failed", "chat-reasoning-summary": "skipped"},
    "open-responses": {"image-input": "failed", "reasoning-summary": "skipped"},
    "anthropic": {"anth-image-input": "failed", "anth-thinking-display": "skipped"},
}
CHECKS = {"openai-chat": 9, "open-responses": 13, "anthropic": 9}


@pytest.mark.suite
def test_the_apis_pass_all_checks_but_those_of_images(smollm2_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("llm_comply", reason="llm-comply is not installed")
    flags = ["--alias", "m", "--require-model", "--api-key", "k", "--temp", "0"]
    with real_server(
        smollm2_path, tmp_path, *flags, "--chat-template-file", str(_TEMPLATE)
    ) as server:
        results = {api: check(api, server.port) for api in CHECKS}
    for api, result in results.items():
        assert {k: v for k, v in result.items() if v != "passed"} == LEFT_OUT[api]
    assert {api: len(result) for api, result in results.items()} == CHECKS


def check(api: str, port: int) -> dict[str, str]:
    """What came of each check of an API."""
    code = "from llm_comply.cli import main; main()"
    line = [sys.executable, "-c", code, "-u", f"http://127.0.0.1:{port}/v1", "-k", "k", "-m", "m"]
    done = subprocess.run(
        [*line, "--format", api, "--json"], capture_output=True, text=True, timeout=300
    )
    return {r["id"]: r["status"] for r in json.loads(done.stdout)["results"]}
