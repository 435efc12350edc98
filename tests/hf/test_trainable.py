"""Adapters trained on packed weights: beside torch's autograd and PEFT on the dequantized model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
from oxibonsai import AutoModelForCausalLM, RequestError, UnsupportedError, kernels
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert

pytest.importorskip("peft", reason="needs peft, transformers and torch (extra: test)")
import dense_models as dm
import peft
import torch
import transformers

from oxibonsai.hf.torch import QuantEmbedding, QuantLinear

pytestmark = [pytest.mark.hf, pytest.mark.filterwarnings("ignore")]
IDS = torch.tensor([dm.IDS])
STEPS = 4


@pytest.mark.parametrize("quant_type", ["TQ2_0_g128", "Q1_0", "Q4_K", "F16"])
def test_gradients_are_those_of_the_dequantized_layer(quant_type: str) -> None:
    random = np.random.default_rng(3)
    weights = random.normal(0, 0.3, (24, 256)).astype(np.float32)
    matrix = kernels.quantize(weights, quant_type)
    bias = torch.from_numpy(random.normal(0, 1, 24).astype(np.float32))
    plain = torch.nn.Linear(256, 24)
    plain.weight.data, plain.bias.data = torch.from_numpy(matrix.dequantize()), bias
    values = torch.from_numpy(random.normal(0, 1, (2, 5, 256)).astype(np.float32))
    seen = []
    for layer in (QuantLinear(matrix, bias), plain):
        x = values.clone().requires_grad_()
        y = layer(x)
        y.square().sum().backward()
        assert x.grad is not None
        seen.append((y.detach(), x.grad))
    for ours, truth in zip(*seen, strict=True):
        assert (ours - truth).abs().max() <= 1e-5 * truth.abs().max()


def quantized(name: str, quant_type: str, folder: Path) -> Path:
    dm.save(next(c for c in dm.CASES if c.name == name), folder / "floats")
    convert(folder / "floats", folder / "model.gguf", dtype=quant_type)
    return folder / "model.gguf"


def losses(model: Any) -> list[float]:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    found = []
    for _ in range(STEPS):
        loss = model(IDS, labels=IDS).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss))
    return found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("granite", {}),  # whose rows of queries and keys lie in another order in a file
        ("phi3", {"use_rslora": True}),  # one matrix of queries, keys and values
        ("olmo-tied", {"use_dora": True}),
    ],
)
def test_an_adapter_learns_as_on_the_dequantized_model(
    name: str, options: dict[str, bool], tmp_path: Path
) -> None:
    path = quantized(name, "q8_0", tmp_path)
    model = AutoModelForCausalLM.from_pretrained(path, kv_type="f32")
    model.save_pretrained(tmp_path / "dequantized")
    plain = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "dequantized", dtype="float32"
    )
    curves = []
    for base in (plain, model.trainable()):
        torch.manual_seed(5)
        config = peft.LoraConfig(
            r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM", **options
        )
        adapted = peft.get_peft_model(base, config)
        curves.append(losses(adapted))
    truth, ours = curves
    assert truth[-1] < 0.97 * truth[0], "nothing was learnt"
    assert np.abs(np.subtract(ours, truth)).max() <= 0.01 * (truth[0] - truth[-1])


def test_a_trained_adapter_is_served(tmp_path: Path) -> None:
    path = quantized("granite", "q8_0", tmp_path)
    model = AutoModelForCausalLM.from_pretrained(path, kv_type="f32")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")
    adapted = model.trainable(config)
    losses(adapted)
    adapted.save_pretrained(tmp_path / "lora")
    with torch.no_grad():
        truth = adapted(IDS).logits[0].numpy()
    base = model.engine.logits(dm.IDS)
    found = oxibonsai.load(path, lora=tmp_path / "lora", kv_type="f32").logits(dm.IDS)
    moved = np.abs(base - truth).max()
    assert np.abs(found - truth).max() < 0.2 * moved  # the engine rounds activations to int8
    with pytest.raises(RequestError, match="load it without lora"):
        AutoModelForCausalLM.from_pretrained(path, lora=tmp_path / "lora").trainable(config)


def test_weights_stay_packed_and_cannot_be_merged_into(tmp_path: Path) -> None:
    path = quantized("olmo-tied", "q8_0", tmp_path)
    model = AutoModelForCausalLM.from_pretrained(path)
    base = model.trainable()
    layers = [m for m in base.modules() if isinstance(m, QuantLinear | QuantEmbedding)]
    matrices = {id(m.matrix): m.matrix for m in layers}.values()
    held = {t.name: t for t in Checkpoint(path).file.tensors}
    stored = sum(t.shape[0] * t.shape[1] // 32 * 34 for t in held.values() if len(t.shape) == 2)
    assert sum(m.blocks.nbytes for m in matrices) == stored > 0
    assert not [n for n, p in base.named_parameters() if p.ndim == 2]
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    for safely in (False, True):
        with pytest.raises(UnsupportedError, match="no adapter is merged into them"):
            adapted.merge_adapter(safe_merge=safely)


def test_an_unknown_dtype_is_refused() -> None:
    model = AutoModelForCausalLM.from_pretrained("seedling-ternary")
    with pytest.raises(RequestError, match="dtype is 'int8'; it is one of float32, bfloat16"):
        model.trainable(dtype="int8")
