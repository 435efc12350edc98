"""Gemma 3 with a part for images: the text part alone is converted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
import torch
import transformers
from hf_folders import CASES, write_tokenizer
from safetensors.torch import load_file, save_file

import oxibonsai
from oxibonsai import FormatError, UnsupportedError, _core
from oxibonsai.convert.language_model import convert

pytestmark = pytest.mark.hf

IDS: list[int] = np.random.default_rng(2).integers(4, 256, 60).tolist()
TEXT_CONFIG = next(c for c in CASES if c.name == "gemma3-linear").config


def save(folder: Path, **text: Any) -> Any:
    """Writes a small model and its tokenizer; returns the model."""
    torch.manual_seed(3)
    vision = transformers.SiglipVisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        image_size=28, patch_size=14,
    )  # fmt: skip
    config = transformers.Gemma3Config(
        text_config={**TEXT_CONFIG().to_dict(), **text},
        vision_config=vision.to_dict(),
        mm_tokens_per_image=4,
    )
    config._attn_implementation = "eager"
    model = transformers.Gemma3ForConditionalGeneration(config).float().eval()
    model.save_pretrained(folder)
    write_tokenizer(folder, spm=True)
    return model


def truth_of(model: Any) -> Any:
    with torch.no_grad():
        return model(input_ids=torch.tensor([IDS])).logits[0].numpy()


def rename(folder: Path, old: str, new: str) -> None:
    """Renames parameters by their beginning, as another version of transformers would."""
    file = folder / "model.safetensors"
    tensors = {n.replace(old, new, 1): t for n, t in load_file(file).items()}
    save_file(tensors, file)


@pytest.mark.parametrize("style", ["language_model.model.", "model.language_model."])
def test_logits_are_those_of_transformers_for_texts(style: str, tmp_path: Path) -> None:
    truth = truth_of(save(tmp_path / "m"))
    rename(tmp_path / "m", "language_model.model.", style)
    if style.startswith("model."):
        rename(tmp_path / "m", "vision_tower.", "model.vision_tower.")
    assert convert(tmp_path / "m", tmp_path / "m.gguf") == []
    found = oxibonsai.load(tmp_path / "m.gguf").logits(IDS)
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()
    file = _core.GgufFile(str(tmp_path / "m.gguf"))
    assert not any("vision" in t.name or "mm" in t.name for t in file.tensors)


def test_loading_says_why_it_does_not_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    save(tmp_path / "m")
    convert(tmp_path / "m", tmp_path / "m.gguf")
    with pytest.warns(UserWarning, match=r"not used: .*no preprocessor_config"):
        model = oxibonsai.AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    truth = oxibonsai.load(tmp_path / "m.gguf").logits(IDS)
    assert model.logits(IDS).tobytes() == truth.tobytes()


def test_what_a_configuration_leaves_out_is_as_in_transformers(tmp_path: Path) -> None:
    """The hub's say the sizes and little else."""
    model = save(
        tmp_path / "m", num_attention_heads=8, num_key_value_heads=4, head_dim=256,
        query_pre_attn_scalar=256, max_position_embeddings=131072, sliding_window=4096,
    )  # fmt: skip
    truth = truth_of(model)
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    kept = ("hidden_size", "intermediate_size", "model_type", "num_hidden_layers", "vocab_size")
    config["text_config"] = {
        **{k: config["text_config"][k] for k in kept},
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }
    path.write_text(json.dumps(config))
    convert(tmp_path / "m", tmp_path / "m.gguf")
    found = oxibonsai.load(tmp_path / "m.gguf", ctx_size=128).logits(IDS)
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()


def test_other_parts_are_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path / "m")
    rename(tmp_path / "m", "vision_tower.", "audio_tower.")
    with pytest.raises(UnsupportedError, match=r"audio_tower\..* none of Gemma 3's"):
        convert(tmp_path / "m", tmp_path / "m.gguf")


def test_a_configuration_without_its_text_part_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps({"model_type": "gemma3"}))
    with pytest.raises(FormatError, match="no object text_config"):
        convert(tmp_path / "m", tmp_path / "m.gguf")
