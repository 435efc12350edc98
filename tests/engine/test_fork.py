"""A fork of a process with an engine: a sentence that says what to do, and no wait for ever."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oxibonsai
from oxibonsai import SamplingParams
from oxibonsai.engine import Engine, EnginePool

SHORT = SamplingParams(max_tokens=2, temperature=0)
USES: dict[str, Callable[[Engine], object]] = {
    "generate": lambda engine: list(engine.generate("ab", SHORT)),
    "submit": lambda engine: engine.submit([1], SHORT),
    "step": lambda engine: engine.step(),
    "logits": lambda engine: engine.logits([1, 2]),
    "embed": lambda engine: engine.embed(["ab"]),
}
# The child ends as any program does, and takes what it has apart.
CHILD = """
import os, sys
import oxibonsai
engine = oxibonsai.load(sys.argv[1], threads=3)
short = oxibonsai.SamplingParams(max_tokens=2, temperature=0)
begun = engine.generate("ab", short)
next(begun)
child = os.fork()
if child == 0:
    try:
        next(begun)
    except oxibonsai.RequestError as e:
        print("child:", e, flush=True)
    own = oxibonsai.load(sys.argv[1], threads=2)
    print("own:", "".join(own.generate("ab", short)), flush=True)
    sys.exit(3)
_, status = os.waitpid(child, 0)
print("ended:", os.waitstatus_to_exitcode(status))
print("parent:", "".join(engine.generate("ab", short)))
"""


def outcome(
    use: Callable[[Any], object], what: Any, answers: multiprocessing.SimpleQueue[str]
) -> None:
    try:
        answers.put(f"no error: {use(what)}")
    except Exception as e:
        answers.put(f"{type(e).__name__}: {e}")


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Engine:
    engine = oxibonsai.load(tiny_path, threads=2)
    list(engine.generate("ab", SHORT))  # its threads run
    return engine


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("use", USES)
def test_a_fork_cannot_use_the_engine_of_its_parent(engine: Engine, use: str) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=outcome, args=(USES[use], engine, answers))
    child.start()
    answer = answers.get()
    child.join()
    assert answer.startswith("RequestError: ")
    assert "load the model in each process after the fork" in answer
    assert 'multiprocessing.get_context("spawn")' in answer
    assert list(engine.generate("ab", SHORT))  # the parent goes on


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_nor_an_engine_pool(tiny_path: Path) -> None:
    pool = EnginePool.from_pretrained(tiny_path, threads=2)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=outcome, args=(EnginePool.queue_up, pool, answers))
    child.start()
    answer = answers.get()
    child.join()
    pool.close()
    assert "load the model in each process after the fork" in answer


def test_a_fork_ends_and_may_load_a_model_of_its_own(tiny_path: Path) -> None:
    line = [sys.executable, "-W", "ignore", "-c", CHILD, str(tiny_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    said = dict(row.split(": ", 1) for row in done.stdout.splitlines())
    assert "a fork of it" in said["child"]
    assert said["ended"] == "3"
    assert said["own"] == said["parent"]
    assert "Traceback" not in done.stderr
