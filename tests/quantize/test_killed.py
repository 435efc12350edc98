"""SIGKILL at a hundred random moments: under the final name lies the old file or the whole new one."""

from __future__ import annotations

import os
import random
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest

import bert_folder
import float_model
from forked import PROCESSES, run_command_line

pytestmark = [
    pytest.mark.release,
    pytest.mark.long("starts the command a hundred times"),
    pytest.mark.timeout(3600),
]

KILLS = 100


def start(arguments: list[str]) -> BaseProcess:
    """A run of the command line, from the moment when all is imported."""
    reader, pipe = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=run_command_line, args=(arguments, pipe))
    process.start()
    pipe.close()
    with reader:
        assert reader.recv() == "ready"
    return process


def sources(folder: Path) -> dict[str, list[str]]:
    """A run of each command that takes long enough to be hit."""
    table = np.random.default_rng(2).normal(0, 0.1, (20_000, 128)).astype(np.float32)
    float_model.write(
        folder / "floats.gguf", tensors={"more.weight": (table.shape, 0, table.tobytes())}
    )
    weights = bert_folder.parameters() | {"embeddings.word_embeddings.weight": table}
    config = {"vocab_size": len(table)}
    model = bert_folder.write(folder / "model", config=config, weights=weights)
    return {
        "quantize": ["quantize", str(folder / "floats.gguf"), "OUT", "q4_0"],
        "convert": ["convert", str(model), "OUT", "--type", "q8_0"],
    }


@pytest.mark.parametrize("command", ["quantize", "convert"])
def test_nothing_broken_is_left_under_the_final_name(command: str, tmp_path: Path) -> None:
    arguments = sources(tmp_path)[command]
    place = tmp_path / "out"
    place.mkdir()
    out = place / "m.gguf"
    arguments[arguments.index("OUT")] = str(out)
    longest = 0.0
    for _ in range(3):
        process = start(arguments)
        began = time.monotonic()
        process.join()
        longest = max(longest, time.monotonic() - began)
        assert process.exitcode == 0
    whole = out.read_bytes()
    moments = random.Random(5)
    found = {"old": 0, "new": 0, "parts": 0}
    for _ in range(KILLS):
        out.write_bytes(b"old")
        process = start(arguments)
        time.sleep(moments.uniform(0, longest))
        process.kill()
        process.join()
        data = out.read_bytes()
        assert data in (b"old", whole)
        found["old" if data == b"old" else "new"] += 1
        for part in set(place.iterdir()) - {out}:
            found["parts"] += 1
            os.unlink(part)
    print(found)
    assert found["old"] >= KILLS // 10
    assert found["parts"] > 0  # some moments lay between the first byte and the last
