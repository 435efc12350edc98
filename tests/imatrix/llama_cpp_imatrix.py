"""Sums of squared inputs in llama.cpp's forward pass; run by the interpreter that has llama-cpp-python.

Usage: llama_cpp_imatrix.py MODEL.gguf TEXT CTX_SIZE CHUNKS OUT.npz

The squares are summed as llama-imatrix does it: at every product with a weight of a layer. OUT holds
float64 [cols] for each weight, and the number of inputs as ``counts``.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

_F32 = 0  # ggml's type id


class _Tensor(ctypes.Structure):
    """``struct ggml_tensor`` of ggml 0.25."""


_Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("src", ctypes.POINTER(_Tensor) * 10),
    ("view_src", ctypes.c_void_p),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
]

_SUMS: dict[str, Any] = {}


def _observe(pointer: int, ask: bool, _: Any) -> bool:
    node = ctypes.cast(pointer, ctypes.POINTER(_Tensor)).contents
    if not node.src[0] or not node.src[1]:
        return False
    weight, x = node.src[0].contents, node.src[1].contents
    name = weight.name.decode()
    if not (name.startswith("blk.") and name.endswith(".weight")) or x.ne[0] != weight.ne[0]:
        return False
    if ask:
        return True
    rows, cols = x.ne[1], x.ne[0]
    assert x.type == _F32
    assert x.nb[1] == 4 * cols
    values = np.ctypeslib.as_array((ctypes.c_float * (rows * cols)).from_address(x.data))
    _SUMS.setdefault(name, np.zeros(cols))
    _SUMS[name] += (values.reshape(rows, cols).astype(np.float64) ** 2).sum(axis=0)
    return True


def main(model_file: str, text_file: str, ctx: int, chunks: int, out: str) -> None:
    callback = llama_cpp.ggml_backend_sched_eval_callback(_observe)
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = ctx
    parameters.type_k = parameters.type_v = _F32
    parameters.flash_attn_type = 0
    parameters.cb_eval = callback
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        model_file.encode(), llama_cpp.llama_model_default_params()
    )
    context = llama_cpp.llama_init_from_model(model, parameters)
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    text = Path(text_file).read_bytes().removesuffix(b"\n")
    room = (llama_cpp.llama_token * (len(text) + 8))()
    count = llama_cpp.llama_tokenize(vocabulary, text, len(text), room, len(room), True, False)
    tokens = list(room[:count])
    for chunk in range(chunks):
        window = tokens[chunk * ctx : (chunk + 1) * ctx]
        if llama_cpp.llama_vocab_get_add_bos(vocabulary):
            window[0] = llama_cpp.llama_vocab_bos(vocabulary)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        batch = llama_cpp.llama_batch_init(ctx, 0, 1)
        batch.n_tokens = ctx
        for i, token in enumerate(window):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, 1
        assert llama_cpp.llama_decode(context, batch) == 0
    np.savez(out, counts=chunks * ctx, **_SUMS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
