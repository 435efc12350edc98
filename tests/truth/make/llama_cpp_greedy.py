"""Writes what llama.cpp continues a text with; run by the interpreter that has llama-cpp-python.

Usage: llama_cpp_greedy.py MODEL.gguf TEXT COUNT (prints JSON: the text's tokens, the likeliest COUNT
tokens after it, and by how much each leads the next, as a share of the largest logit)
"""

from __future__ import annotations

import ctypes
import json
import sys

import llama_cpp
import numpy as np
import numpy.typing as npt

_F32 = 0  # ggml's type id


class Runner:
    """A model and its context."""

    def __init__(self, path: str, n_ctx: int) -> None:
        # A float32 cache and plain attention, so that nothing but the arithmetic of floats is left.
        self.model = llama_cpp.Llama(
            path, n_ctx=n_ctx, n_batch=n_ctx, n_ubatch=n_ctx, logits_all=True, verbose=False,
            type_k=_F32, type_v=_F32, flash_attn=False, n_threads=1, n_threads_batch=1,
        )  # fmt: skip
        self._context = self.model._ctx.ctx

    def run(self, ids: list[int], first: int, *, encode: bool = False) -> npt.NDArray[np.float32]:
        """Logits of the last token."""
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.logits[i] = token, first + i, True
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
        call = llama_cpp.llama_encode if encode else llama_cpp.llama_decode
        code = call(self._context, batch)
        llama_cpp.llama_batch_free(batch)
        if code != 0:
            raise RuntimeError(f"llama.cpp cannot run the model: {code}")
        if encode:
            return np.empty(0, np.float32)
        row = llama_cpp.llama_get_logits_ith(self._context, len(ids) - 1)
        pointer = ctypes.cast(row, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(pointer, (self.model.n_vocab(),)).copy()


def main(path: str, text: str, count: str) -> None:
    runner = Runner(path, len(text) + int(count))
    model = runner.model
    prompt = ids = model.tokenize(text.encode(), add_bos=False)
    first = 0
    if llama_cpp.llama_model_has_encoder(model._model.model):
        runner.run(ids, 0, encode=True)
        ids = [llama_cpp.llama_model_decoder_start_token(model._model.model)]
    tokens: list[int] = []
    leads: list[float] = []
    while len(tokens) < int(count):
        logits = runner.run(ids, first)
        second, best = np.partition(logits, -2)[-2:]
        leads.append(float((best - second) / np.abs(logits).max()))
        first += len(ids)
        ids = [int(logits.argmax())]
        tokens += ids
        if ids[0] == model.token_eos():
            break
    print(json.dumps({"prompt": prompt, "tokens": tokens, "leads": leads}))


if __name__ == "__main__":
    main(*sys.argv[1:])
