"""A random Qwen3 as transformers saves it: converted, then compared with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
from oxibonsai import FormatError, UnsupportedError
from oxibonsai.chat import model_template
from oxibonsai.convert.language_model import convert
from oxibonsai.tokenizer.byte_level import BYTE_OF

torch = pytest.importorskip("torch", reason="needs transformers and torch")
transformers = pytest.importorskip("transformers", reason="needs transformers and torch")

pytestmark = pytest.mark.hf

YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e6,
}  # fmt: skip
PLAIN = {"rope_type": "default", "rope_theta": 1e6}
IDS: list[int] = np.random.default_rng(2).integers(0, 300, 80).tolist()
TEXT = "Hello world, it's 2026!\n\n  The caf\u00e9's <|im_start|>na\u00efve\t\u4eca\u65e5"


def save(folder: Path, *, tied: bool = True, rope: dict[str, Any] = YARN) -> Any:
    """Writes model and tokenizer, and returns the model in float32."""
    torch.manual_seed(1)
    config = transformers.Qwen3Config(
        vocab_size=300, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=256,
        tie_word_embeddings=tied, rope_parameters=rope, initializer_range=0.1,
    )  # fmt: skip
    transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    pieces = [*BYTE_OF, "He", "ll", "Hell", "wo", "rl"]
    tokenizer = transformers.Qwen2Tokenizer(
        vocab={p: i for i, p in enumerate(pieces)},
        merges=[("H", "e"), ("l", "l"), ("He", "ll"), ("w", "o"), ("r", "l")],
        eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"], chat_template="{{ messages }}",
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    return transformers.Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize(("tied", "rope"), [(True, YARN), (False, PLAIN)])
def test_logits_are_those_of_transformers(tied: bool, rope: dict[str, Any], tmp_path: Path) -> None:
    model = save(tmp_path / "model", tied=tied, rope=rope)
    with torch.no_grad():
        truth = model(torch.tensor([IDS])).logits[0].numpy()
    convert(tmp_path / "model", tmp_path / "m.gguf", dtype="f32")
    logits = oxibonsai.load(tmp_path / "m.gguf").logits(IDS)
    assert truth.std(axis=0).mean() > 0.1
    assert np.abs(logits - truth).max() <= 1e-4 * np.abs(truth).max()


def test_ids_and_template_are_those_of_transformers(tmp_path: Path) -> None:
    save(tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "m.gguf")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    engine = oxibonsai.load(tmp_path / "m.gguf")
    assert engine.tokenizer.encode(TEXT, parse_special=True) == theirs(TEXT)["input_ids"]
    assert engine.tokenizer.eos_id == theirs.eos_token_id
    assert engine.tokenizer.pad_id == theirs.pad_token_id
    assert model_template(engine) is not None


@pytest.mark.parametrize(
    ("file", "key", "value", "error", "sentence"),
    [
        ("config.json", "rope_parameters", {"rope_type": "llama3"}, UnsupportedError, "llama3"),
        ("config.json", "rope_parameters", {**YARN, "beta_fast": 1}, UnsupportedError, "beta_fast"),
        ("config.json", "rope_parameters", {**PLAIN, "rope_theta": 0}, FormatError, "rope_theta"),
        ("config.json", "attention_bias", True, UnsupportedError, "attention_bias"),
        ("tokenizer.json", "pre_tokenizer", {"type": "ByteLevel"}, UnsupportedError, "pre-token"),
        ("tokenizer.json", "model", {"type": "WordLevel"}, UnsupportedError, "not BPE"),
        ("tokenizer_config.json", "eos_token", "nothing", FormatError, "eos_token is 'nothing'"),
    ],
)
def test_what_cannot_be_converted_is_said(
    file: str, key: str, value: Any, error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    save(tmp_path / "model")
    path = tmp_path / "model" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(error, match=sentence):
        convert(tmp_path / "model", tmp_path / "m.gguf")
