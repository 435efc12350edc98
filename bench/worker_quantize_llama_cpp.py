"""Quantizes by llama.cpp for quantize.py; needs llama-cpp-python and numpy, nothing else."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

try:
    from llama_cpp import llama_cpp
except ModuleNotFoundError:
    sys.exit(
        f"{sys.executable} has no llama_cpp: pip install 'oxibonsai[peers]', or name an "
        "interpreter that has it by --peer-python"
    )


def importance(path: str) -> tuple[Any, list[Any]]:
    """The entries that llama.cpp takes, and the arrays that they point to."""
    with np.load(path) as found:
        arrays = {name: np.ascontiguousarray(found[name], np.float32) for name in found.files}
    entries = (llama_cpp.llama_model_imatrix_data * (len(arrays) + 1))()  # the last one is empty
    for entry, (name, values) in zip(entries, arrays.items(), strict=False):
        entry.name, entry.size = name.encode(), values.size
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    return entries, list(arrays.values())


def overrides(patterns: list[tuple[str, int]]) -> Any:
    """The types of tensors whose names a regular expression matches."""
    entries = (llama_cpp.llama_model_tensor_override * (len(patterns) + 1))()  # the last is empty
    for entry, (pattern, kind) in zip(entries, patterns, strict=False):
        entry.pattern, entry.type = pattern.encode(), kind
    return entries


_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def main(text: str) -> None:
    silent = _LOG(lambda level, line, data: None)  # instead of a line for each tensor
    llama_cpp.llama_log_set(silent, None)
    asked = json.loads(text)
    params = llama_cpp.llama_model_quantize_default_params()
    number = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{asked['mix']}", None)
    if number is None:
        sys.exit(f"llama.cpp has no mix {asked['mix']}")
    params.ftype, params.pure, params.nthread = number, asked["pure"], asked["threads"]
    params.allow_requantize = True
    kept = None
    if "imatrix" in asked:
        params.imatrix, kept = importance(asked["imatrix"])
    params.tt_overrides = overrides(asked.get("patterns", []))
    source, out = (str(Path(asked[k])).encode() for k in ("source", "out"))
    began = time.monotonic()
    if llama_cpp.llama_model_quantize(source, out, ctypes.byref(params)) != 0:
        sys.exit(f"llama.cpp failed to write {asked['mix']}")
    print(time.monotonic() - began)
    del kept


if __name__ == "__main__":
    main(sys.argv[1])
