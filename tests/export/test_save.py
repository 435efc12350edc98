"""save_pretrained: what is saved loads again, here and in transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hf_folders import CASES, Case, logits, save

import oxibonsai
import tiny_model
from oxibonsai import AutoModelForCausalLM, RequestError, UnsupportedError
from oxibonsai.convert.language_model import convert

torch = pytest.importorskip("torch", reason="needs transformers and torch")
transformers = pytest.importorskip("transformers", reason="needs transformers and torch")

pytestmark = pytest.mark.hf

IDS: list[int] = np.random.default_rng(2).integers(4, 256, 60).tolist()
TEXT = "Hello world, it's 2026!\n\n  The caf\u00e9  \u4eca\u65e5 </s>"
BY_NAME = {c.name: c for c in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_safetensors_give_the_same_logits_here_and_in_transformers(
    case: Case, tmp_path: Path
) -> None:
    truth = logits(save(case, tmp_path / "model"), IDS)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    model.save_pretrained(tmp_path / "saved")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "saved", dtype=torch.float32, attn_implementation="eager"
    )
    assert np.abs(logits(theirs.eval(), IDS) - truth).max() <= 1e-5 * np.abs(truth).max()
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").logits(IDS)
    assert np.abs(again - model.logits(IDS)).max() <= 1e-6 * np.abs(truth).max()


@pytest.mark.parametrize("name", ["llama", "llama-spm", "gemma3"])
def test_the_tokenizer_is_saved_too(name: str, tmp_path: Path) -> None:
    save(BY_NAME[name], tmp_path / "model")
    first = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    first.save_pretrained(tmp_path / "saved")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "saved")
    tokenizer = oxibonsai.load(tmp_path / "saved").tokenizer
    ids = first.engine.tokenizer.encode(TEXT, parse_special=True)
    assert tokenizer.encode(TEXT, parse_special=True) == theirs(TEXT)["input_ids"] == ids
    assert tokenizer.eos_ids == first.engine.tokenizer.eos_ids
    assert (
        tmp_path / "saved" / "chat_template.jinja"
    ).read_text() == "{{ messages[0]['content'] }}"


def test_gguf_gives_the_file_back(tiny_path: Path, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(tiny_path).save_pretrained(tmp_path / "s", format="gguf")
    assert (tmp_path / "s" / "model.gguf").read_bytes() == tiny_path.read_bytes()


def test_quantized_weights_come_back_from_safetensors_without_loss(tmp_path: Path) -> None:
    tiny_model.write(tmp_path / "tiny.gguf")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "tiny.gguf")
    for dtype in ("float32", "float16"):
        model.save_pretrained(tmp_path / dtype, dtype=dtype)
        convert(tmp_path / dtype, tmp_path / f"{dtype}.gguf", dtype="q1_0")
        again = oxibonsai.load(tmp_path / f"{dtype}.gguf").logits(IDS)
        assert again.tobytes() == model.logits(IDS).tobytes()


def test_what_cannot_be_saved_is_said(tiny_path: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_path)
    with pytest.raises(RequestError, match="format is 'onnx'"):
        model.save_pretrained(tmp_path / "s", format="onnx")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="dtype is 'int8'"):
        model.save_pretrained(tmp_path / "s", dtype="int8")
    tiny_model.write(tmp_path / "odd.gguf", changes={"tokenizer.ggml.model": ("hybriddna", "str")})
    with pytest.raises(UnsupportedError, match="'hybriddna' has no tokenizer"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "odd.gguf").save_pretrained(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_folder_gets_all_files_or_none(tiny_path: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_path)
    taken = tmp_path / "s" / "generation_config.json"
    taken.mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        model.save_pretrained(tmp_path / "s")
    assert list((tmp_path / "s").iterdir()) == [taken]
