"""Writes codebook_errors.json: llama.cpp's errors on the matrices of codebook_cases.py.

Usage: record_codebook_errors.py LIBGGML_BASE GEMMA_GGUF. The library is the libggml-base.so of the
package llama-cpp-python (0.3.36 when the file was written).
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import codebook_cases as cases
import numpy as np
import numpy.typing as npt

from oxibonsai import _core

KINDS = {str(t["name"]): t for t in _core.quant_types()}


def encode(
    ggml: ctypes.CDLL, quant_type: str, values: cases.Floats, importance: cases.Floats | None
) -> npt.NDArray[np.uint8]:
    kind = KINDS[quant_type]
    rows, cols = values.shape
    values = np.ascontiguousarray(values)
    out = np.zeros((rows, cols // kind["group"] * kind["bytes"]), dtype=np.uint8)
    ggml.ggml_quantize_chunk(
        ctypes.c_int(kind["gguf_id"]),
        ctypes.c_void_p(values.ctypes.data),
        ctypes.c_void_p(out.ctypes.data),
        ctypes.c_int64(0),
        ctypes.c_int64(rows),
        ctypes.c_int64(cols),
        ctypes.c_void_p(None if importance is None else importance.ctypes.data),
    )
    return out


def main(library: str, gemma: str) -> None:
    ggml = ctypes.CDLL(library)
    ggml.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
    matrices = cases.random_matrices() | cases.gemma_matrices(Path(gemma))
    errors: dict[str, dict[str, dict[str, float]]] = {}
    for quant_type in cases.TYPES:
        needed = ggml.ggml_quantize_requires_imatrix(KINDS[quant_type]["gguf_id"])
        modes = {"weighted": cases.importance_of_columns()} | ({} if needed else {"plain": None})
        errors[quant_type] = {
            mode: {
                name: cases.relative_error(
                    values, quant_type, encode(ggml, quant_type, values, importance), importance
                )
                for name, values in matrices.items()
            }
            for mode, importance in modes.items()
        }
    target = Path(__file__).parents[1] / "quant" / "codebook_errors.json"
    target.write_text(json.dumps(errors, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
