"""Perplexity of a text with llama.cpp's logits; run by the interpreter that has llama-cpp-python.

Usage: llama_cpp_perplexity.py MODEL.gguf TEXT CTX_SIZE CHUNKS (prints one JSON object)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

_F32 = 0  # ggml's type id


def main(model_file: str, text_file: str, ctx: int, chunks: int) -> None:
    model = llama_cpp.Llama(
        model_file, n_ctx=ctx, n_batch=ctx, n_ubatch=ctx, logits_all=True, verbose=False,
        type_k=_F32, type_v=_F32, flash_attn=False,
    )  # fmt: skip
    text = Path(text_file).read_bytes().removesuffix(b"\n")
    tokens = model.tokenize(text, add_bos=True, special=False)
    add_bos = llama_cpp.llama_vocab_get_add_bos(llama_cpp.llama_model_get_vocab(model.model))
    scores = []
    for start in range(0, min(chunks, len(tokens) // ctx) * ctx, ctx):
        window = tokens[start : start + ctx]
        model.reset()
        model.eval([model.token_bos(), *window[1:]] if add_bos else window)
        logits = np.array(model.scores[:ctx], np.float64)
        for i in range(ctx // 2, ctx - 1):
            top = logits[i].max()
            log_sum = top + np.log(np.exp(logits[i] - top).sum())
            scores.append(log_sum - logits[i, window[i + 1]])
    mean = float(np.mean(scores))
    error = float(np.std(scores)) / (len(scores) - 1) ** 0.5
    print(json.dumps({"ppl": float(np.exp(mean)), "error": float(np.exp(mean)) * error,
                      "tokens": tokens[: chunks * ctx], "nll": scores}))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
