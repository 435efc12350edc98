"""Prints the types that llama-quantize would choose; run by the interpreter that has llama-cpp-python.

Usage: llama_cpp_dry_run.py IMATRIX PURE MODEL.gguf ... (IMATRIX and PURE are 0 or 1); one JSON
object: model -> mix -> tensor -> type.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from typing import Any

from llama_cpp import llama_cpp as llama

_PREFIX = "LLAMA_FTYPE_MOSTLY_"
_NOT_OURS = ("MXFP4_MOE", "NVFP4")  # for experts; not offered
_LINE = re.compile(
    r"\[ *\d+/ *\d+\] (\S+) +- \[ *(\d+).*?type = +(\S+), size.*?MiB(?: -> .*\((\S+)\))?\n"
)
_lines: list[str] = []


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _keep(level: int, text: bytes, data: Any) -> None:
    _lines.append(text.decode(errors="replace"))


def choices(path: str, mix: int, pure: bool, imatrix: Any = None) -> list[re.Match[str]]:
    """A line of the dry run for each tensor."""
    _lines.clear()
    params = llama.llama_model_quantize_default_params()
    params.ftype, params.pure, params.dry_run = mix, pure, True
    if imatrix is not None:
        params.imatrix = imatrix
    llama.llama_model_quantize(path.encode(), b"unused", ctypes.byref(params))
    return list(_LINE.finditer("".join(_lines)))


def even_imatrix(path: str) -> Any:
    """Importance 1 for each column of each tensor."""
    tensors = [(m[1], int(m[2])) for m in choices(path, 1, pure=False)]
    entries = (llama.llama_model_imatrix_data * (len(tensors) + 1))()  # the last one is empty
    for entry, (name, cols) in zip(entries, tensors, strict=False):
        ones = (ctypes.c_float * cols)(*[1.0] * cols)
        entry.name, entry.size = name.encode(), cols
        entry.data = ctypes.cast(ones, ctypes.POINTER(ctypes.c_float))
    return entries


def main(measured: str, pure: str, *paths: str) -> None:
    llama._lib.llama_log_set(_keep, None)
    mixes = {n[len(_PREFIX) :]: getattr(llama, n) for n in dir(llama) if n.startswith(_PREFIX)}
    found: dict[str, dict[str, dict[str, str]]] = {}
    for path in paths:
        imatrix = even_imatrix(path) if measured == "1" else None
        found[path] = {
            name: {m[1]: m[4] or m[3] for m in choices(path, number, pure == "1", imatrix)}
            for name, number in mixes.items()
            if name not in _NOT_OURS
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
