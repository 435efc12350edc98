"""What llama.cpp makes of GGUF files; run in a process of its own, which hostile files may end.

    python llama_cpp_verdicts.py LIBGGML_BASE < NAMES

Prints a line for each name: null where the file is refused, or else what it holds.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any


class _Params(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def _load(library: str) -> ctypes.CDLL:
    ggml = ctypes.CDLL(library)
    handle, index, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
    results = {
        "gguf_get_n_kv": index,
        "gguf_get_n_tensors": index,
        "gguf_get_alignment": ctypes.c_size_t,
        "gguf_get_data_offset": ctypes.c_size_t,
        "gguf_get_key": text,
        "gguf_get_tensor_name": text,
        "gguf_get_tensor_type": ctypes.c_int,
        "gguf_get_tensor_offset": ctypes.c_size_t,
        "gguf_get_tensor_size": ctypes.c_size_t,
        "gguf_free": None,
    }
    for name, result in results.items():
        function = getattr(ggml, name)
        function.restype = result
        of_one = name.startswith(("gguf_get_key", "gguf_get_tensor"))
        function.argtypes = [handle, index] if of_one else [handle]
    ggml.gguf_init_from_file.restype = handle
    ggml.gguf_init_from_file.argtypes = [text, _Params]
    return ggml


def verdict(ggml: ctypes.CDLL, path: str) -> Any:
    file = ggml.gguf_init_from_file(path.encode(), _Params(True, None))
    if not file:
        return None
    start = ggml.gguf_get_data_offset(file)
    found = {
        "alignment": ggml.gguf_get_alignment(file),
        "keys": [
            ggml.gguf_get_key(file, i).decode(errors="replace")
            for i in range(ggml.gguf_get_n_kv(file))
        ],
        "tensors": [
            [
                ggml.gguf_get_tensor_name(file, i).decode(errors="replace"),
                ggml.gguf_get_tensor_type(file, i),
                start + ggml.gguf_get_tensor_offset(file, i),
                ggml.gguf_get_tensor_size(file, i),
            ]
            for i in range(ggml.gguf_get_n_tensors(file))
        ],
    }
    ggml.gguf_free(file)
    return found


def main(library: str) -> None:
    ggml = _load(library)
    for line in sys.stdin:
        print(json.dumps(verdict(ggml, line.rstrip("\n"))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
