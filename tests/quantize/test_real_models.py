"""Every type of real models end to end: it loads, and stays as near the original as the type allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oxibonsai
from oxibonsai import _core
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.imatrix import Entry, Imatrix
from oxibonsai.quantize import find_mix, mix_names, quantize
from oxibonsai.quantize.plan import OWN_TYPES
from oxibonsai.quantize.weight_types import type_named

pytestmark = pytest.mark.timeout(3600)

# Scales within blocks, one bit, three values; tests/quantize has the others on small tensors.
SAMPLES = {"Q4_K", "Q1_0", "TQ2_0"}
TYPES = [
    pytest.param(name, marks=pytest.mark.slow if name in SAMPLES else pytest.mark.release)
    for name in _core.encoders()
]
RUINED_BITS = 2.5
FAITHFUL_BITS = 4.0  # from here on, most first choices stay


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def even_importance(file: GgufModel) -> Imatrix:
    """For the types that need some: all columns alike."""
    one = np.ones(1, np.float32)
    matrices = [t for t in file.tensors if len(t.shape) > 1]
    return Imatrix({t.name: Entry(np.ones((1, t.shape[-1]), np.float32), one) for t in matrices})


@pytest.mark.long("encodes 270 million weights and runs the model")
@pytest.mark.parametrize("name", TYPES)
def test_gemma_runs_in_every_type(
    name: str, gemma_path: Path, truth_folder: Path, tmp_path: Path
) -> None:
    source = GgufModel.open(gemma_path)
    out = tmp_path / "m.gguf"
    # Some mixes are called as a type that they don't begin with: IQ2_S begins with IQ2_XS.
    every = [(".", name)]
    if type_named(name).bits < FAITHFUL_BITS:
        # They take longest to encode, and a whole model of them says no more than some layers.
        every = [(".", "Q8_0"), (r"blk\.[0-3]\.", name)]
    losses = quantize(
        source, out, name, pure=True, patterns=every, imatrix=even_importance(source), threads=2
    )
    # Rows of ffn_down have 2,048 weights, which every type's groups divide.
    assert name in {t.quant_type for t in GgufModel.open(out).tensors}
    assert all(loss.relative < 1.0 for loss in losses.values())
    truth = np.load(truth_folder / "oracle" / "gemma270m_logits.npz")
    logits = oxibonsai.load(out, ctx_size=512, parallel=1).logits(truth["tokens"].tolist())
    assert np.isfinite(logits).all()
    top = truth["top_logp"].astype(np.float64)
    ours = np.take_along_axis(log_softmax(logits), truth["top_ids"].astype(np.int64), 1)
    divergence = float((np.exp(top) * (top - ours)).sum(1).mean())
    print(
        f"{name}: divergence {divergence:.4f}; losses", {n: v.relative for n, v in losses.items()}
    )
    if type_named(name).bits >= FAITHFUL_BITS:
        assert divergence < 0.5


@pytest.mark.release
@pytest.mark.long("encodes 135 million weights and runs the model twice")
@pytest.mark.parametrize("mix", [m for m in mix_names() if find_mix(m).base not in OWN_TYPES])
def test_llama_cpp_opens_every_type_that_it_knows(
    mix: str, smollm2_path: Path, tmp_path: Path
) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (extra: peers)")
    source = GgufModel.open(smollm2_path)
    out = tmp_path / "m.gguf"
    quantize(source, out, mix, imatrix=even_importance(source), threads=2)
    ids = oxibonsai.load(smollm2_path).tokenizer.encode(
        "The quick brown fox jumps over the lazy dog."
    )
    model = llama_cpp.Llama(str(out), n_ctx=64, logits_all=True, verbose=False)
    model.eval(ids)
    theirs = np.array(model.scores[: len(ids)], np.float64)
    model.close()
    ours = oxibonsai.load(out, ctx_size=64).logits(ids).astype(np.float64)
    assert np.isfinite(theirs).all()
    # Both round activations to 8 bits, each in its way; a ruined model amplifies the difference.
    if type_named(find_mix(mix).base).bits > RUINED_BITS:
        assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.97
