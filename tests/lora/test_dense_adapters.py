"""PEFT's adapters for models whose rows lie otherwise in files than in checkpoints, or do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oxibonsai

pytest.importorskip("peft", reason="needs peft, transformers and torch (extra: test)")
import dense_models as dm

pytestmark = [pytest.mark.hf, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("gptneox", ["query_key_value", "dense_h_to_4h"]),  # heads apart, then q, k and v
        ("falcon-two-norms", ["query_key_value"]),  # groups of heads
        ("bloom", ["query_key_value", "dense"]),
        ("granite", ["q_proj", "k_proj"]),  # halves of heads, then pairs
        ("command-r", ["q_proj", "k_proj"]),  # pairs in both
        ("phi3", ["qkv_proj", "gate_up_proj"]),  # as they are, run in parts
        ("gpt2", ["c_attn", "c_fc"]),  # columns for rows
    ],
)
def test_an_adapted_model_gives_the_logits_of_peft(
    name: str, modules: list[str], tmp_path: Path
) -> None:
    import peft
    import torch

    case = next(c for c in dm.CASES if c.name == name)
    model = dm.save(case, tmp_path / "base")
    config = peft.LoraConfig(
        r=4, lora_alpha=10, target_modules=modules, task_type="CAUSAL_LM",
        fan_in_fan_out=name == "gpt2",
    )  # fmt: skip
    adapted = peft.get_peft_model(model, config)
    with torch.no_grad():
        for parameter, values in adapted.named_parameters():
            if "lora_" in parameter:
                drawn = 0.2 * dm.random_values(f"{parameter}.embed", tuple(values.shape))
                values.copy_(torch.from_numpy(drawn))
        adapted.save_pretrained(tmp_path / "lora")
        truth = adapted.double()(torch.tensor([dm.IDS])).logits[0].numpy()
    found = oxibonsai.load(tmp_path / "base", lora=tmp_path / "lora", kv_type="f32").logits(dm.IDS)
    assert np.abs(found - truth).max() <= 1e-5 * np.abs(truth).max()
    base = oxibonsai.load(tmp_path / "base", kv_type="f32").logits(dm.IDS)
    assert np.abs(base - truth).max() > 0.05 * np.abs(truth).max()
