"""One arithmetic, on trained low-bit weights: no tier, thread, cut or company changes a byte."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import oxibonsai
from oxibonsai import _core

TIERS = _core.cpu.tiers()
STORY = (
    "Once upon a time, there was a little girl named Lily who lived in a small village. One day she "
    "found a red ball under a big tree. She took it home, and her mother smiled. "
)


def digest(logits: npt.NDArray[np.float32]) -> str:
    assert np.isfinite(logits).all()
    return hashlib.sha256(logits.tobytes()).hexdigest()


@pytest.fixture(scope="session")
def ids(seedling: oxibonsai.Engine) -> list[int]:
    return seedling.tokenizer.encode(STORY * 4)[:150]


def test_every_tier_gives_the_bytes_of_scalar(
    seedling_path: Path, ids: list[int], tmp_path: Path
) -> None:
    program = Path(__file__).parents[1] / "models" / "logits_digest.py"
    ids_file = tmp_path / "ids.json"
    ids_file.write_text(json.dumps(ids))
    digests = {}
    for tier in TIERS:
        environment = {
            **os.environ,
            "OXIBONSAI_ISA": tier,
            "PYTHONPATH": str(Path(oxibonsai.__file__).parents[1]),
        }
        line = [sys.executable, str(program), "default", str(ids_file), str(seedling_path)]
        done = subprocess.run(line, check=True, env=environment, capture_output=True, text=True)
        said = json.loads(done.stdout)
        assert said["tier"] == tier
        digests[tier] = said["digests"]
    assert len(digests) >= 2
    assert len({tuple(d) for d in digests.values()}) == 1


def test_threads_do_not_change_a_byte(seedling_path: Path, ids: list[int]) -> None:
    digests = {digest(oxibonsai.load(seedling_path, threads=n).logits(ids)) for n in (1, 2, 3)}
    assert len(digests) == 1


def test_cuts_of_the_prompt_do_not_change_a_byte(
    seedling: oxibonsai.Engine, ids: list[int]
) -> None:
    whole = digest(seedling.logits(ids, chunk_size=len(ids)))
    assert {digest(seedling.logits(ids, chunk_size=n)) for n in (1, 7, 64)} == {whole}


def test_company_does_not_change_a_byte(seedling: oxibonsai.Engine, ids: list[int]) -> None:
    texts = [ids[:5], ids, ids[3:67], ids[40:]]
    alone = [digest(seedling.logits(text)) for text in texts]
    assert [digest(rows) for rows in seedling.logits_batch(texts)] == alone


def test_texts_are_the_same_alone_and_together(seedling_path: Path) -> None:
    engine = oxibonsai.load(seedling_path, parallel=4)
    openings = ["One day", "Long ago, a fox", "In a small house", "Tom and his dog"]
    every = [
        oxibonsai.SamplingParams(seed=n, max_tokens=40, temperature=1.0)
        for n in range(len(openings))
    ]
    alone = ["".join(engine.generate(o, p)) for o, p in zip(openings, every, strict=True)]
    assert len(set(alone)) == 4
    sequences = [
        engine.submit(engine.tokenizer.encode(o), p) for o, p in zip(openings, every, strict=True)
    ]
    while any(s.finish_reason is None for s in sequences):
        engine.step()
    together = [engine.tokenizer.decode(s.history[s.num_prompt_tokens :]) for s in sequences]
    assert together == alone


def test_the_prefix_cache_does_not_change_a_text(seedling_path: Path) -> None:
    params = oxibonsai.SamplingParams(seed=5, max_tokens=40, temperature=1.0)
    texts = set()
    for keep in (True, False):
        engine = oxibonsai.load(seedling_path, prefix_cache=keep)
        texts |= {"".join(engine.generate(STORY * 2, params)) for _ in range(2)}
    assert len(texts) == 1
