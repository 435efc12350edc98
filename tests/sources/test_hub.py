"""Models from the hub, against a local server: choice, resume, refusals, offline mode."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hub_server
import pytest

RESOLVE = (
    "import sys; from oxibonsai.sources import resolve; from oxibonsai.errors import SourceError\n"
    "try: print(resolve(sys.argv[1]))\n"
    "except SourceError as e: print('refused:', e)"
)
DATA = bytes(range(256)) * 100_000  # two and a half of the pieces that huggingface_hub writes


@pytest.fixture
def hub() -> Iterator[hub_server.Hub]:
    with hub_server.running() as hub:
        hub.repositories["org/model"] = {
            "README.md": b"x",
            "model-Q1_0.gguf": DATA,
            "model-Q2_0.gguf": b"two",
            "sub/model-F16.gguf": b"half",
            "mmproj-model.gguf": b"eyes",
        }
        hub.repositories["org/one"] = {"only.gguf": b"one", "config.json": b"{}"}
        yield hub


def resolve(hub: hub_server.Hub, source: str, home: Path, **environment: str) -> str:
    """What a fresh process resolves: huggingface_hub reads its settings when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, source],
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("hf:org/one", b"one"),
        ("hf:org/model:Q1_0", DATA),
        ("hf:org/model:q2_0", b"two"),
        ("hf:org/model:model-Q2_0.gguf", b"two"),
        ("hf:org/model:sub/model-F16.gguf", b"half"),
        ("hf:org/model:F16", b"half"),
    ],
)
def test_a_model_is_found_and_fetched(
    hub: hub_server.Hub, source: str, content: bytes, tmp_path: Path
) -> None:
    path = Path(resolve(hub, source, tmp_path))
    assert path.read_bytes() == content
    count = len(hub.requests)
    assert resolve(hub, source, tmp_path) == str(path)
    assert not any(r.startswith("GET /org") for r in hub.requests[count:])  # from the cache


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hf:org/model", "several models; choose with hf:org/model:FILE from: model-Q1_0.gguf"),
        ("hf:org/model:Q4_0", "no model that match Q4_0"),
        ("hf:org/absent", "no repository org/absent"),
        ("hf:org", "no repository; write hf:ORG/REPO"),
    ],
)
def test_what_is_not_there_or_ambiguous_is_said(
    hub: hub_server.Hub, source: str, message: str, tmp_path: Path
) -> None:
    answer = resolve(hub, source, tmp_path)
    assert answer.startswith("refused:")
    assert message in answer
    assert "mmproj" not in answer


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, "RepoNotFound", "or it is private"),
        (403, "GatedRepo", "accept its terms"),
        (500, "", "the hub refuses"),
    ],
)
def test_refusals_of_the_hub_are_one_sentence(
    hub: hub_server.Hub, status: int, code: str, message: str, tmp_path: Path
) -> None:
    hub.refuse["org/one"] = (status, code)
    answer = resolve(hub, "hf:org/one", tmp_path)
    assert message in answer
    assert "\n" not in answer


def test_an_interrupted_download_resumes(hub: hub_server.Hub, tmp_path: Path) -> None:
    hub.cut_next_download = 15_000_000
    path = Path(resolve(hub, "hf:org/model:Q1_0", tmp_path))
    assert path.read_bytes() == DATA
    assert any(int(r.removeprefix("bytes=").split("-")[0]) > 0 for r in hub.ranges)


def test_offline_mode_takes_what_the_cache_has(hub: hub_server.Hub, tmp_path: Path) -> None:
    path = resolve(hub, "hf:org/model:Q2_0", tmp_path)
    count = len(hub.requests)
    assert resolve(hub, "hf:org/model", tmp_path, HF_HUB_OFFLINE="1") == path
    answer = resolve(hub, "hf:org/one", tmp_path, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE is set and the cache holds nothing of org/one" in answer
    assert len(hub.requests) == count


def test_a_hub_out_of_reach_is_one_sentence(hub: hub_server.Hub, tmp_path: Path) -> None:
    hub.url = "http://127.0.0.1:9"
    answer = resolve(hub, "hf:org/one", tmp_path)
    assert "cannot reach the hub for org/one" in answer
