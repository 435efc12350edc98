"""Pre-tokenizers of ``tokenizer.json``: the ids of the converted vocabulary are Hugging Face's."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as FastTokenizer

from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.files.byte_level import (
    _PRE_TOKENIZERS,
    byte_level_keys,
    pre_tokenizer_json,
)
from oxibonsai.tokenizer.pre_tokenizers import PRE_TOKENIZERS

FILE = Path(__file__).parents[1] / "truth" / "tokenizers" / "vocabularies.json.gz"
# Of these llama.cpp's expressions only come near the model's own: see docs/tokenizers.md.
NEAR = ("tekken", "gpt-4o")


@cache
def record() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return loaded


def document(name: str) -> dict[str, Any]:
    vocabulary = record()["vocabularies"]["byte_level"]
    parts = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    return {
        "version": "1.0",
        **dict.fromkeys(parts),
        "added_tokens": [],
        "pre_tokenizer": pre_tokenizer_json(name),
        "model": {
            "type": "BPE",
            "ignore_merges": PRE_TOKENIZERS[name].ignore_merges,
            "vocab": {t: i for i, t in enumerate(vocabulary["tokens"])},
            "merges": vocabulary["merges"],
        },
    }


# One of each kind that convert finds by the splits of our own tokenizers, as save_pretrained writes them.
OWN = {
    (kind.splits, kind.ignore_merges): name
    for name, kind in reversed(PRE_TOKENIZERS.items())
    if kind.byte_level and name not in _PRE_TOKENIZERS.values()
}


@pytest.mark.parametrize("name", [*_PRE_TOKENIZERS.values(), *OWN.values()])
def test_ids_are_those_of_tokenizers(name: str, tmp_path: Path) -> None:
    written = document(name)
    size = len(written["model"]["vocab"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(written))
    keys = byte_level_keys(tmp_path, written, size)
    found = PRE_TOKENIZERS[keys["tokenizer.ggml.pre"][0]]
    wanted = PRE_TOKENIZERS[name]
    assert (found.splits, found.ignore_merges) == (wanted.splits, wanted.ignore_merges)
    assert name in OWN.values() or keys["tokenizer.ggml.pre"] == (name, "str")
    values = {k: v for k, (v, _) in keys.items()}
    values["tokenizer.ggml.token_type"] = np.array(values["tokenizer.ggml.token_type"])
    ours = Tokenizer.from_gguf(values)
    theirs = FastTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    compared = 0
    for text in record()["texts"]:
        if name in NEAR and not text.isascii():
            continue
        compared += 1
        assert ours.encode(text, add_special=False) == theirs.encode(text).ids, text
    assert compared > 5
