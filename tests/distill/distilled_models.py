"""Small random models that can be distilled: folders with a tokenizer, and texts to learn from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import dense_models as dm
from small_texts import write_texts, write_tokenizer

# Rows of 64 weights suit q2_0_g64; those of 96, which ffn_down has, do not.
CASES = [
    dm.Case("llama", "Llama", {"num_key_value_heads": 2}),
    dm.Case("qwen3", "Qwen3", {"head_dim": 16}),
    dm.Case("gemma3", "Gemma3Text", {"head_dim": 16, "sliding_window": 24}),
]
TOKENS = 272  # of the tokenizer


def write_model(case: dm.Case, folder: Path) -> Path:
    """Writes a case's folder with random weights and a tokenizer."""
    write_tokenizer(folder)
    eos = 0
    sizes = {"vocab_size": TOKENS, "bos_token_id": eos, "eos_token_id": eos, "pad_token_id": eos}
    dm.save(dataclasses.replace(case, options={**case.options, **sizes}), folder)
    return folder


def write_data(folder: Path) -> Path:
    """Writes examples, some of which are longer than a context of 24 tokens."""
    file = write_texts(folder / "data.jsonl", 12, seed=3)
    rows = [{"prompt": "The cat ", "completion": "sees the dog."}, {"text": "A hen. " * 12}]
    with file.open("a") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    return file
