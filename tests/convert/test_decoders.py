"""Random decoders as transformers saves them: converted, opened, compared with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hf_folders import CASES, Case, logits, save

import oxibonsai
from oxibonsai.chat import model_template
from oxibonsai.convert.language_model import convert

torch = pytest.importorskip("torch", reason="needs transformers and torch")
transformers = pytest.importorskip("transformers", reason="needs transformers and torch")

pytestmark = pytest.mark.hf

IDS: list[int] = np.random.default_rng(2).integers(4, 256, 100).tolist()
TEXT = "Hello world, it's 2026!\n\n  The caf\u00e9  \u4eca\u65e5 </s>"
BY_NAME = {c.name: c for c in CASES}


def close(found: Any, truth: Any) -> bool:
    return bool(np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_logits_are_those_of_transformers(case: Case, tmp_path: Path) -> None:
    truth = logits(save(case, tmp_path / "model"), IDS)
    convert(tmp_path / "model", tmp_path / "m.gguf", dtype="f32")
    found = oxibonsai.load(tmp_path / "m.gguf").logits(IDS)
    assert truth.std(axis=0).mean() > 0.1  # logits that hardly change prove nothing
    assert close(found, truth)


@pytest.mark.parametrize("name", ["llama", "llama-spm", "gemma3"])
def test_ids_frame_and_template_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    save(BY_NAME[name], tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "m.gguf")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "model")
    engine = oxibonsai.load(tmp_path / "m.gguf")
    assert engine.tokenizer.encode(TEXT, parse_special=True) == theirs(TEXT)["input_ids"]
    assert engine.tokenizer.bos_id == theirs.bos_token_id
    assert engine.tokenizer.eos_id == theirs.eos_token_id
    assert engine.tokenizer.pad_id == theirs.pad_token_id
    assert model_template(engine) is not None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_auto_keeps_every_parameter_as_it_is_stored(dtype: str, tmp_path: Path) -> None:
    case = BY_NAME["llama"]
    save(case, tmp_path / "first")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "first", dtype=getattr(torch, dtype)
    )
    model.save_pretrained(tmp_path / "model")
    truth = logits(model.float(), IDS)
    convert(tmp_path / "model", tmp_path / "m.gguf")
    kinds = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    assert tensors["blk.0.ffn_up.weight"].tensor_type.name == kinds[dtype]
    assert tensors["blk.0.ffn_norm.weight"].tensor_type.name == "F32"
    assert close(oxibonsai.load(tmp_path / "m.gguf").logits(IDS), truth)


def test_shards_give_the_same_file(tmp_path: Path) -> None:
    save(BY_NAME["qwen3"], tmp_path / "model")
    save(BY_NAME["qwen3"], tmp_path / "cut", max_shard_size="300KB")
    assert len(list((tmp_path / "cut").glob("*.safetensors"))) > 2
    for folder in ("model", "cut"):
        convert(tmp_path / folder, tmp_path / f"{folder}.gguf", name="same")
    assert (tmp_path / "model.gguf").read_bytes() == (tmp_path / "cut.gguf").read_bytes()


def test_a_folder_without_a_tokenizer_gives_a_file_for_ids(tmp_path: Path) -> None:
    truth = logits(save(BY_NAME["llama"], tmp_path / "model", tokenizer=False), IDS)
    convert(tmp_path / "model", tmp_path / "m.gguf", dtype="f32")
    engine = oxibonsai.load(tmp_path / "m.gguf")
    assert not engine.has_tokenizer
    assert close(engine.logits(IDS), truth)


def test_older_configurations_say_rope_in_their_own_way(tmp_path: Path) -> None:
    for name in ("llama-linear", "gemma3-linear"):
        truth = logits(save(BY_NAME[name], tmp_path / name), IDS)
        file = tmp_path / name / "config.json"
        config = json.loads(file.read_text())
        rope = config.pop("rope_parameters")
        if "full_attention" in rope:
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            rope = rope["full_attention"]
            config.pop("layer_types")
            config["sliding_window_pattern"] = 6
        config["rope_theta"] = rope["rope_theta"]
        config["rope_scaling"] = {"type": rope["rope_type"], "factor": rope["factor"]}
        file.write_text(json.dumps(config))
        convert(tmp_path / name, tmp_path / f"{name}.gguf", dtype="f32")
        assert close(oxibonsai.load(tmp_path / f"{name}.gguf").logits(IDS), truth)


def test_generation_defaults_are_carried(tmp_path: Path) -> None:
    save(BY_NAME["llama"], tmp_path / "model")
    generation = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [262, 263, 5]}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(generation))
    convert(tmp_path / "model", tmp_path / "m.gguf")
    keys = {k: f.contents() for k, f in gguf.GGUFReader(tmp_path / "m.gguf").fields.items()}
    assert keys["general.sampling.temp"] == pytest.approx(0.6)
    assert keys["general.sampling.top_k"] == 20
    assert keys["general.sampling.top_p"] == pytest.approx(0.95)
    assert oxibonsai.load(tmp_path / "m.gguf").tokenizer.eos_ids >= {262, 263, 5}
