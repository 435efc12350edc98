"""Threads may be the first to import: a server loads models while it answers, a program starts threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import oxibonsai

_PROGRAM = """
import importlib, random, sys, threading
import oxibonsai

random.seed(int(sys.argv[1]))
entries = sys.argv[2:]
random.shuffle(entries)
sys.setswitchinterval(1e-5)  # seconds
start = threading.Barrier(len(entries))
failures = []

def first_import(entry):
    module, _, name = entry.partition(":")
    start.wait()
    try:
        found = importlib.import_module(module)
        name and getattr(found, name)
    except BaseException as e:
        failures.append(f"{entry}: {e!r}")

threads = [threading.Thread(target=first_import, args=(entry,)) for entry in entries]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("\\n".join(failures), end="")
"""

# What opening a folder imports when it is first needed; several models may be opened at once.
_OPENING = (
    "checkpoint.folder", "convert.language_model", "convert.vision_tower", "convert.lora",
    "convert.text_encoder",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "entries",
    [
        [f"oxibonsai:{name}" for name in oxibonsai.__all__],
        [f"oxibonsai.{module}" for module in _OPENING],
    ],
    ids=["public names", "opening"],
)
def test_many_threads_import_at_the_same_time(entries: list[str], seed: int) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(seed), *entries]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == ""
