"""Perplexity of two real models, beside what llama.cpp's logits give (llama_cpp_perplexity.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

import oxibonsai
from oxibonsai.evaluate import cut_windows, measure_perplexity, text_tokens

TEXT = Path(__file__).resolve().parents[2] / "LICENSE"

# llama-cpp-python 0.3.36, float32 cache; its integer arithmetic rounds otherwise than ours.
PPL = {"smollm2_path": (15.92866, 1.42470), "gemma_path": (10.11293, 0.86326)}


@pytest.mark.slow
@pytest.mark.parametrize("model", list(PPL))
def test_the_figure_is_llama_cpps(model: str, request: pytest.FixtureRequest) -> None:
    engine = oxibonsai.load(request.getfixturevalue(model), ctx_size=512, parallel=1, kv_type="f32")
    tokens = text_tokens(engine.tokenizer, TEXT.read_bytes().decode())
    bos = engine.tokenizer.bos_id if engine.tokenizer.add_bos else None
    result = measure_perplexity(engine, cut_windows(tokens, 512, bos))
    assert result.tokens == 1020
    assert result.ppl.value == pytest.approx(PPL[model][0], rel=5e-3)
    assert result.ppl.error == pytest.approx(PPL[model][1], rel=1e-2)
