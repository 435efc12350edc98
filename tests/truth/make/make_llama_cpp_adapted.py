"""Records llama.cpp's logits of the tiny float model with an adapter; needs llama-cpp-python.

Usage: make_llama_cpp_adapted.py MODEL.gguf ADAPTER.gguf IDS.json > llama_cpp_adapted.json
(MODEL and ADAPTER as the fixture of test_adapters.py writes them.)
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

_F32 = 0  # ggml's type id
_ROWS = (0, 1, 40, 89)
_SCALES = (1.0, -0.5)


def main(model_file: str, adapter_file: str, ids_file: str) -> None:
    ids = json.loads(Path(ids_file).read_text())
    logits = {}
    for scale in _SCALES:
        model = llama_cpp.Llama(
            model_file, lora_path=adapter_file, lora_scale=scale, n_ctx=256, logits_all=True,
            verbose=False, type_k=_F32, type_v=_F32, flash_attn=False,
        )  # fmt: skip
        model.eval(ids)
        rows = np.array(model.scores[: len(ids)], np.float32)[list(_ROWS)]
        logits[str(scale)] = [[float(f"{v:.7g}") for v in row] for row in rows]
        model.close()
    digests = [hashlib.sha256(Path(f).read_bytes()).hexdigest() for f in (model_file, adapter_file)]
    found = {
        "version": llama_cpp.__version__,
        "model": digests[0],
        "adapter": digests[1],
        "rows": _ROWS,
        "logits": logits,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
