"""A model's file is written to while it is served: the server lives, and serves what is there next."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from real_server import real_server
from running_server import RunningServer, wait_until

import oxibonsai
import tiny_model
from oxibonsai import SamplingParams

GREEDY = {"prompt": "ab ab ab", "max_tokens": 8, "temperature": 0}
FLAGS = ("--threads", "1", "--parity", "off")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tiny_model.write(tmp_path / "model.gguf")
    return tmp_path / "model.gguf"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The same model with other weights: files of one size."""
    tiny_model.write(tmp_path / "other.gguf.new", seed=7)
    return tmp_path / "other.gguf.new"


def text_of(model: Path) -> str:
    params = SamplingParams(max_tokens=8, temperature=0)
    return "".join(oxibonsai.load(model, parity="off").generate("ab ab ab", params))


def complete(server: RunningServer, **fields: Any) -> tuple[int, Any]:
    body = json.dumps({**GREEDY, **fields}).encode()
    status, _, answer = server.ask(
        "/v1/completions", "POST", body, **{"Content-Type": "application/json"}
    )
    return status, answer["choices"][0]["text"] if status == 200 else answer["error"]


def cut(file: Path) -> None:
    """As ``cp`` leaves a target that it has just begun to write."""
    os.truncate(file, 100)


def test_a_cut_file_is_an_error_and_a_whole_one_is_served_again(
    model: Path, other: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    shutil.copy(model, whole)
    with real_server(model, tmp_path, *FLAGS) as server:
        assert complete(server) == (200, text_of(whole))
        worker = server.worker_pid()
        cut(model)
        status, error = complete(server)
        assert (status, error["code"]) == (503, "model_changed")
        status, error = complete(server)
        assert (status, error["code"]) == (503, "model_failed")
        shutil.copyfile(other, model)
        wait_until(lambda: complete(server) == (200, text_of(other)))
        assert server.worker_pid() == worker


def test_every_text_is_of_the_old_weights_or_of_the_new_ones(
    model: Path, other: Path, tmp_path: Path
) -> None:
    old, new = text_of(model), text_of(other)
    assert old != new
    seen = []

    def is_new() -> bool:
        status, text = complete(server)
        seen.append(text if status == 200 else status)
        return text == new

    with real_server(model, tmp_path, *FLAGS) as server:
        assert complete(server) == (200, old)
        shutil.copyfile(other, model)
        wait_until(is_new)
    assert set(seen) <= {old, new, 503}


def test_a_changed_model_disturbs_no_other(model: Path, other: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.move(model, folder / "a.gguf")
    shutil.copy(other, folder / "b.gguf")
    flags = ("--models-dir", str(folder), *FLAGS)
    with real_server(folder / "a.gguf", tmp_path, *flags) as server:
        good = complete(server, model="b")
        assert good[0] == complete(server, model="a")[0] == 200
        worker = server.worker_pid()
        cut(folder / "a.gguf")
        assert complete(server, model="a")[0] == 503
        assert complete(server, model="b") == good
        assert server.ask("/health")[0] == 200
        assert server.worker_pid() == worker


def test_a_model_that_was_loaded_once_is_tried_again(model: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copy(model, whole)
    with real_server(model, tmp_path, *FLAGS) as server:
        good = complete(server)
        worker = server.worker_pid()
        cut(model)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: server.log.read_text().count("the next try is in") >= 2)
        assert server.process.poll() is None
        shutil.copyfile(whole, model)
        server.wait_for("/readyz", 200)
        assert complete(server) == good
