"""What a converted file is, as small as can be kept: its keys, and hashes of its tensors."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np

RECORDED = Path(__file__).parents[1] / "truth/models/llama_cpp_conversions.json"
_ELSEWHERE = ("GGUF.", "general.", "tokenizer.")


# What we always write and llama.cpp's converter for some only; the value is then the default.
_ALWAYS = {"attention.key_length", "attention.value_length", "attention.head_count_kv"}
_ALWAYS |= {"vocab_size", "rope.freq_base"}


def different_keys(found: dict[str, Any], theirs: dict[str, Any]) -> set[str]:
    """Keys of two summaries that differ, without the architecture's name."""
    names = {key.partition(".")[2]: key for key in (*found["keys"], *theirs["keys"])}
    return {
        name
        for name, key in names.items()
        if found["keys"].get(key) != theirs["keys"].get(key)
        and not (name in _ALWAYS and key not in theirs["keys"])
    }


def summary(path: Path) -> dict[str, Any]:
    """Keys of the architecture and hashes of all tensors, which are float32."""
    reader = gguf.GGUFReader(path)
    keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith(_ELSEWHERE)}
    tensors = {}
    for tensor in reader.tensors:
        digest = hashlib.blake2b(np.ascontiguousarray(tensor.data).tobytes(), digest_size=6)
        tensors[tensor.name] = f"{'x'.join(map(str, tensor.shape))} {digest.hexdigest()}"
    return {"keys": keys, "tensors": tensors}
