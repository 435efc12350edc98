"""Records what llama.cpp computes of the packaged models; run by the interpreter that has
llama-cpp-python.

Usage: make_seedling_logprobs.py MODEL.gguf ... > llama_cpp_logprobs.json
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

TEXT = (
    "<|im_start|>user\nTell me a story about a clever fox and a red ball.<|im_end|>\n"
    "<|im_start|>assistant\nOnce upon a time, there was a clever fox who lived in a big forest. One "
    "day, she found a red ball near the river.<|im_end|>\n"
)
TOP = 8
_F32 = 0  # ggml's type id


def record(path: Path) -> dict[str, Any]:
    """The file's hash, the text's ids, and the likeliest tokens after each with their logarithms."""
    # A float32 cache and plain attention leave the weights' arithmetic alone to be compared.
    model = llama_cpp.Llama(
        str(path), n_ctx=512, logits_all=True, verbose=False, type_k=_F32, type_v=_F32,
        flash_attn=False,
    )  # fmt: skip
    ids = model.tokenize(TEXT.encode(), add_bos=False, special=True)
    model.eval(ids)
    logits = np.array(model.scores[: len(ids)], np.float64)
    model.close()
    top = logits.max(axis=1, keepdims=True)
    logprobs = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    likeliest = np.argsort(-logprobs, axis=1)[:, :TOP]
    return {
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "ids": ids,
        "top": [
            [[int(i), round(float(row[i]), 4)] for i in best]
            for row, best in zip(logprobs, likeliest, strict=True)
        ],
    }


def main(*models: str) -> None:
    found = {Path(m).stem: record(Path(m)) for m in models}
    print(json.dumps({"llama_cpp_python": llama_cpp.__version__, "models": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
