"""Random models with recurrent state in an engine: one text, however its sequence came to run."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
from oxibonsai.convert.language_model import convert
from oxibonsai.engine import Engine, Options, restore, save, submit_samples
from recurrent_model import DRAWN, FixedDraft, finish, run, told

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import recurrent_models as rm

pytestmark = pytest.mark.hf

IDS = [int(i) for i in np.random.default_rng(3).integers(0, rm.VOCABULARY, 150)]
PARAMS = replace(DRAWN, max_tokens=60)


@pytest.mark.parametrize("case", rm.CASES, ids=lambda c: c.name)
def test_a_text_is_the_same_however_its_sequence_runs(case: rm.Case, tmp_path: Path) -> None:
    case.save(tmp_path / "folder")
    convert(tmp_path / "folder", tmp_path / "model.gguf", dtype="f32")

    def load(**options: Any) -> Engine:
        path = tmp_path / "model.gguf"
        return oxibonsai.load(path, threads=2, parity="off", ctx_size=512, **options)

    alone = told(run(load(prefix_cache=False), IDS, params=PARAMS)[0])
    engine = load()
    others = [IDS[i:90] for i in range(1, 4)]
    for cached in (0, 128):
        *_, found = run(engine, *others, IDS, params=PARAMS)
        assert (told(found), found.num_cached) == (alone, cached)
    samples = submit_samples(engine, IDS, PARAMS, n=3)
    finish(engine, *samples)
    assert told(samples[0]) == alone

    for wrong in (1, 3):  # every so many of the proposed tokens
        draft = list(alone[0])  # type: ignore[call-overload]
        draft[::wrong] = [(t + 1) % rm.VOCABULARY for t in draft[::wrong]]
        sequence = engine.submit(IDS, PARAMS, Options(speculate=partial(FixedDraft, draft)))
        finish(engine, sequence)
        assert told(sequence) == alone

    sequence = engine.submit(IDS, PARAMS)
    for _ in range(30):
        engine.step()
    # The last token that was drawn has not been read.
    assert save(engine, sequence, tmp_path / "saved") == len(IDS) + 29
    finish(engine, sequence)
    other = load()
    restored = restore(other, tmp_path / "saved").sequence
    finish(other, restored)
    assert told(restored) == alone
