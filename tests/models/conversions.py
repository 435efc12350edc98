"""What a converted file is, as small as can be kept: its keys, and hashes of its tensors."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np

RECORDED = Path(__file__).with_name("llama_cpp_conversions.json")
_ELSEWHERE = ("GGUF.", "general.", "tokenizer.")


def summary(path: Path) -> dict[str, Any]:
    """Keys of the architecture and hashes of all tensors, which are float32."""
    reader = gguf.GGUFReader(path)
    keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith(_ELSEWHERE)}
    tensors = {}
    for tensor in reader.tensors:
        digest = hashlib.blake2b(np.ascontiguousarray(tensor.data).tobytes(), digest_size=6)
        tensors[tensor.name] = f"{'x'.join(map(str, tensor.shape))} {digest.hexdigest()}"
    return {"keys": keys, "tensors": tensors}
