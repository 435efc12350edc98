"""Beam search finds the texts that transformers finds with the same float32 weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oxibonsai
from oxibonsai.engine import beam_search

torch = pytest.importorskip("torch", reason="needs transformers and torch (extra: test)")
import random_models as rm  # noqa: E402

pytestmark = pytest.mark.hf


@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize("length_penalty", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("width", [2, 5])
def test_transformers_finds_the_same_texts(
    tmp_path: Path, early_stopping: bool, length_penalty: float, width: int
) -> None:
    model = rm.build(rm.QWEN3, tmp_path / "model.gguf", "F32")
    engine = oxibonsai.load(tmp_path / "model.gguf")
    prompt = rm.IDS[:20]
    # Ends that this random model does reach.
    ends = np.argsort(-engine.logits(prompt)[-1])[[3, 11, 19]].tolist()
    reference = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=12,
        num_beams=width,
        num_return_sequences=width,
        do_sample=False,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        eos_token_id=ends,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    beams = beam_search(
        engine,
        prompt,
        width=width,
        max_new_tokens=12,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        stop_token_ids=ends,
    )
    scores = reference.sequences_scores.tolist()
    assert [b.score for b in beams] == pytest.approx(scores, rel=1e-3)
    for beam, row in zip(beams, reference.sequences[:, len(prompt) :].tolist(), strict=True):
        assert beam.tokens == row[: len(beam.tokens)]
