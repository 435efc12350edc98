"""Writes llama.cpp's hidden states of some encoders; run by the interpreter that has llama-cpp-python.

Usage: llama_cpp_states.py IDS.json MODEL.gguf ... (writes MODEL.npy beside each model)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np


def main(ids_file: str, *models: str) -> None:
    ids = json.loads(Path(ids_file).read_text())
    n = len(ids)
    for path in models:
        model = llama_cpp.Llama(
            path, n_ctx=n, n_batch=n, n_ubatch=n, embedding=True, pooling_type=0, verbose=False,
            logits_all=True, flash_attn=False,
        )  # fmt: skip
        batch = llama_cpp.llama_batch_init(n, 0, 1)
        batch.n_tokens = n
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.logits[i] = token, i, True
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        context = model._ctx.ctx
        if llama_cpp.llama_decode(context, batch) != 0:
            raise RuntimeError(f"llama.cpp cannot run {path}")
        size = llama_cpp.llama_model_n_embd(model._model.model)
        rows = [llama_cpp.llama_get_embeddings_ith(context, i)[:size] for i in range(n)]
        np.save(Path(path).with_suffix(".npy"), np.array(rows, np.float32))
        llama_cpp.llama_batch_free(batch)
        model.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
