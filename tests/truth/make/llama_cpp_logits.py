"""Writes llama.cpp's logits of some models; run by the interpreter that has llama-cpp-python.

Usage: llama_cpp_logits.py IDS.json MODEL.gguf ... (writes MODEL.npy beside each model)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

_F32 = 0  # ggml's type id


def main(ids_file: str, *models: str) -> None:
    ids = json.loads(Path(ids_file).read_text())
    n = len(ids)
    for path in models:
        # A float32 cache and plain attention leave the weights' arithmetic alone to be measured.
        model = llama_cpp.Llama(
            path, n_ctx=n, n_batch=n, n_ubatch=n, logits_all=True, verbose=False,
            type_k=_F32, type_v=_F32, flash_attn=False, n_threads=1, n_threads_batch=1,
        )  # fmt: skip
        model.eval(ids)
        np.save(Path(path).with_suffix(".npy"), np.array(model.scores[:n], np.float32))
        model.close()
    info = llama_cpp.llama_print_system_info().decode()
    print(json.dumps({"version": llama_cpp.__version__, "instructions": info.strip(" |")}))


if __name__ == "__main__":
    main(*sys.argv[1:])
