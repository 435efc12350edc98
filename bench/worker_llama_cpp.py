"""The worker of compare_llama_cpp.py that runs llama.cpp; needs llama-cpp-python and nothing else.

llama.cpp's own functions are called, as llama-bench does: the package's ``Llama`` class would add
copies of logits and sampling in Python to every token.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from typing import Any

from worker import peak_bytes, serve

try:
    import llama_cpp
except ModuleNotFoundError:
    sys.exit(
        f"{sys.executable} has no llama_cpp: pip install 'oxibonsai[peers]', or name an "
        "interpreter that has it by --peer-python"
    )

_BATCH = 512  # tokens of one llama_decode, the length of oxibonsai's chunks


class LlamaCpp:
    """One model; flash attention and the types of the cache are llama.cpp's defaults.

    Args:
        model: The file.
        threads: Of prompt and generation alike.
        ctx_size: Positions of the one sequence.
        ids: Where prompts are cut from; the first is the token that generation repeats.
    """

    def __init__(self, model: str, threads: int, ctx_size: int, ids: list[int]) -> None:
        self._ids = ids
        # The package prints llama.cpp's messages from this level on.
        logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(model.encode(), model_params)
        if not self._model:
            raise RuntimeError("llama.cpp can't load the model: see its message above")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = ctx_size
        params.n_batch = _BATCH
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError("llama.cpp can't make a context: see its message above")

    def prompt(self, tokens: int) -> float:
        """Tokens per second of reading a prompt, up to the logits of its last token."""
        self._clear()
        starts = range(0, tokens, _BATCH)
        batches = [_batch(self._ids[i : min(i + _BATCH, tokens)], i, tokens - 1) for i in starts]
        return tokens / self._time(batches)

    def generation(self, tokens: int, depth: int = 1) -> float:
        """Tokens per second of decoding one by one, after a prompt of ``depth`` tokens."""
        self.prompt(depth)
        end = depth + tokens
        return tokens / self._time([_batch(self._ids[:1], i, i) for i in range(depth, end)])

    def facts(self) -> dict[str, Any]:
        """What a report says of this engine."""
        system = llama_cpp.llama_print_system_info().decode()
        return {
            "version": llama_cpp.__version__,
            "kv_type": "f16",  # the default
            "system_info": system.strip(" |\n"),
            "peak_bytes": peak_bytes(),
        }

    def _clear(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def _time(self, batches: Sequence[Any]) -> float:
        """Seconds of decoding; frees the batches."""
        started = time.perf_counter()
        for batch in batches:
            status = llama_cpp.llama_decode(self._context, batch)
            if status != 0:
                raise RuntimeError(f"llama_decode gave {status}: see llama.cpp's message above")
        llama_cpp.llama_synchronize(self._context)
        seconds = time.perf_counter() - started
        for batch in batches:
            llama_cpp.llama_batch_free(batch)
        return seconds


def _batch(ids: Sequence[int], first: int, output: int) -> Any:
    """Tokens at positions ``first`` and on; logits of the one at position ``output`` only."""
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i] = token
        batch.pos[i] = first + i
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = 0
        batch.logits[i] = first + i == output
    return batch


if __name__ == "__main__":
    serve(LlamaCpp)
