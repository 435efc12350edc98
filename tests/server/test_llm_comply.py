"""An independent checker of OpenAI's chat API."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running_model import served

# What the checker asks of a tool call is that there is one: a template that knows of calls, and a
# model that was trained on such.
_TEMPLATE = Path(__file__).with_name("calling_template.jinja")


@pytest.mark.suite
def test_the_chat_api_passes_all_checks_but_that_of_images(
    smollm2_path: Path, tmp_path: Path
) -> None:
    pytest.importorskip("llm_comply", reason="llm-comply is not installed")
    flags = ["--alias", "m", "--require-model", "--api-key", "k", "--temp", "0"]
    with served(smollm2_path, tmp_path, *flags, "--chat-template-file", str(_TEMPLATE)) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        code = "from llm_comply.cli import main; main()"
        line = [sys.executable, "-c", code, "-u", url, "-k", "k", "-m", "m"]
        done = subprocess.run(
            [*line, "--format", "openai-chat", "--json"],
            capture_output=True,
            text=True,
            timeout=300,
        )
    results = {r["id"]: r["status"] for r in json.loads(done.stdout)["results"]}
    # The models read no images; reasoning summaries are only asked of models of certain names.
    left_out = {"chat-image-input": "failed", "chat-reasoning-summary": "skipped"}
    assert {k: v for k, v in results.items() if v != "passed"} == left_out
    assert len(results) == 9
