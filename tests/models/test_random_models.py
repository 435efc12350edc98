"""Logits of random models against transformers' float32 forward pass of the same weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from oxibonsai import AutoModelForCausalLM, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine.embedding import Embedder
from oxibonsai.models import load_model

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import random_models as rm
from random_blocks import INTEGER_TYPES

pytestmark = pytest.mark.hf

# Made by measure_llama_cpp.py from the same files.
LLAMA_CPP = json.loads(
    (Path(__file__).parents[1] / "truth/models/llama_cpp_distances.json").read_text()
)
# llama.cpp runs none of these; what it reaches with its own 2-bit or 8-bit type stands in.
STAND_INS = {t: "Q2_0_g64" for t in ("Q2_0_g128", "PTQ1_0", "TQ2_0_g128")}
STAND_INS |= {"Q8_1": "Q8_0", "Q8_K": "Q8_0"}


def truth_and_logits(
    recipe: rm.RandomModel, quant_type: str, path: Path
) -> tuple[rm.Floats, rm.Floats]:
    truth = rm.reference_logits(rm.build(recipe, path, quant_type), rm.IDS)
    logits = AutoModelForCausalLM.from_pretrained(path).logits(rm.IDS)
    assert logits.shape == truth.shape == (len(rm.IDS), rm.VOCABULARY)
    assert truth.std(axis=0).mean() > 0.5  # logits that hardly change with the text prove nothing
    return truth, logits


@pytest.mark.parametrize("recipe", rm.STRUCTURES, ids=lambda r: r.name)
def test_float_weights_give_the_logits_of_transformers(
    recipe: rm.RandomModel, tmp_path: Path
) -> None:
    truth, logits = truth_and_logits(recipe, "F32", tmp_path / "model.gguf")
    assert np.abs(logits - truth).max() <= 1e-4 * np.abs(truth).max()


@pytest.mark.parametrize("quant_type", ["F16", "BF16"])
def test_half_weights_give_the_logits_of_transformers(quant_type: str, tmp_path: Path) -> None:
    truth, logits = truth_and_logits(rm.QWEN3, quant_type, tmp_path / "model.gguf")
    assert np.abs(logits - truth).max() <= 1e-4 * np.abs(truth).max()


# Activations rounded to int8 are all that separates either engine from the float32 run.
@pytest.mark.parametrize("quant_type", INTEGER_TYPES)
def test_integer_weights_stay_as_close_to_their_float_run_as_those_of_llama_cpp(
    quant_type: str, tmp_path: Path
) -> None:
    truth, logits = truth_and_logits(rm.QWEN3, quant_type, tmp_path / "model.gguf")
    measured = LLAMA_CPP["quant_types"][STAND_INS.get(quant_type, quant_type)]
    assert rm.relative_distance(logits, truth) <= 1.3 * measured


@pytest.mark.parametrize("recipe", [rm.QWEN3, rm.STRUCTURES[-2]], ids=lambda r: r.name)
def test_embeddings_are_poolings_of_the_states_of_transformers(
    recipe: rm.RandomModel, tmp_path: Path
) -> None:
    import torch

    reference = rm.build(recipe, tmp_path / "model.gguf", "F32")
    with torch.no_grad():
        truth = reference.model(torch.tensor([rm.IDS])).last_hidden_state[0].numpy()
    model = load_model(Checkpoint(tmp_path / "model.gguf"), _core.CpuDevice(2))
    embedder = Embedder(model, None)
    limit = 1e-4 * np.abs(truth).max()
    (last,) = embedder.embed([rm.IDS], normalize=False)
    assert np.abs(last - truth[-1]).max() <= limit
    (mean,) = embedder.embed([rm.IDS], pooling="mean", normalize=False)
    assert np.abs(mean - truth.mean(axis=0)).max() <= limit
