"""Errors and times of the encoders beside llama.cpp's, in one process, one thread each.

    python bench/encode.py [MODEL.gguf ...] [--library libggml-base.so] [--types Q4_K,Q6_K]
        [--importance] [--weights 262144] [--out JSON]

Tensors are read from the models and made at random. Both sides
encode the same rows; the error is the mean of squares, weighted by the importance where one is given.
Without the library only our own figures are shown.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Encode = Callable[[Floats, str, "Floats | None"], Bytes]

TYPES = {str(t["name"]): t for t in _core.quant_types()}
UNKNOWN_TO_PEER = {"Q2_0_g128", "TQ2_0_g128", "PTQ1_0", "F8_E4M3", "F8_E5M2", "Q8_1", "Q8_K"}
RANDOM_COLS = 2048
TENSORS_OF_A_MODEL = 6


def random_tensors(weights: int) -> Iterator[tuple[str, Floats]]:
    """Deterministic matrices: normal, heavy-tailed, and with a few large columns."""
    shape = (max(1, weights // RANDOM_COLS), RANDOM_COLS)
    random = np.random.default_rng(6)
    yield "normal", random.normal(0, 0.02, shape).astype(np.float32)
    yield "laplace", random.laplace(0, 0.02, shape).astype(np.float32)
    yield "student-t 4", (random.standard_t(4, shape) * 0.02).astype(np.float32)
    columns = np.where(random.random(RANDOM_COLS) < 0.01, 8.0, 1.0)
    yield "large columns", (random.normal(0, 0.02, shape) * columns).astype(np.float32)


def model_tensors(path: Path, weights: int) -> Iterator[tuple[str, Floats]]:
    """Matrices of a model, one a kind, cut to `weights`; rows are joined to whole blocks of 256."""
    file = _core.GgufFile(str(path))
    kinds: set[str] = set()
    for info in file.tensors:
        kind = info.name.split(".", 2)[-1]
        if len(info.shape) != 2 or kind in kinds or len(kinds) == TENSORS_OF_A_MODEL:
            continue
        kinds.add(kind)
        values = _core.decode(info.quant_type, file.tensor_bytes(info.name))
        cols = int(info.shape[-1])
        wide = math.lcm(cols, 256)
        rows = max(1, min(weights, values.size) // wide)
        yield f"{path.stem} {kind} ({info.quant_type})", values[: rows * wide].reshape(rows, wide)


def importance_of(cols: int) -> Floats:
    """Deterministic, spread over two orders of magnitude, as measured ones are."""
    return np.exp(np.random.default_rng(7).normal(0, 1.2, cols)).astype(np.float32)


def load_peer(library: Path) -> Encode:
    """llama.cpp's ggml_quantize_chunk."""
    ggml = ctypes.CDLL(str(library))
    quantize = ggml.ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    pointer = ctypes.c_void_p
    quantize.argtypes = [ctypes.c_int, pointer, pointer, *([ctypes.c_int64] * 3), pointer]

    def encode(values: Floats, name: str, importance: Floats | None) -> Bytes:
        rows, cols = values.shape
        kind = TYPES[name]
        out = np.zeros((rows, cols // kind["group"] * kind["bytes"]), dtype=np.uint8)
        weights = None if importance is None else importance.ctypes.data
        quantize(kind["gguf_id"], values.ctypes.data, out.ctypes.data, 0, rows, cols, weights)
        return out

    return encode


def ours(values: Floats, name: str, importance: Floats | None) -> Bytes:
    return _core.encode(values, name, importance, 1)


def error_of(values: Floats, name: str, blocks: Bytes, importance: Floats | None) -> float:
    """Mean of squares; the importance counts relative to its own mean."""
    decoded = _core.decode(name, blocks.ravel()).reshape(values.shape)
    squares = np.square(decoded.astype(np.float64) - values)
    if importance is not None:
        squares = squares * (importance / importance.mean(dtype=np.float64))
    return float(squares.mean())


def measure(
    encode: Encode, values: Floats, name: str, importance: Floats | None, repeats: int
) -> dict[str, float]:
    """Error and nanoseconds a weight (the least of `repeats` runs)."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        blocks = encode(values, name, importance)
        times.append(time.perf_counter() - start)
    error = error_of(values, name, blocks, importance)
    return {"mse": error, "ns": min(times) * 1e9 / values.size}


def compare(
    values: Floats, name: str, importance: Floats | None, peer: Encode | None, repeats: int
) -> dict[str, Any]:
    row: dict[str, Any] = {"ours": measure(ours, values, name, importance, repeats)}
    if peer is not None and name not in UNKNOWN_TO_PEER:
        row["peer"] = measure(peer, values, name, importance, repeats)
        row["ns_ratio"] = row["ours"]["ns"] / row["peer"]["ns"]
        mine, theirs = row["ours"]["mse"], row["peer"]["mse"]
        row["mse_ratio"] = mine / theirs if theirs > 0 else 1.0 if mine == 0 else math.inf
    return row


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'type':10} {'tensor':38} {'mse':>10} {'of peer':>8} {'ns':>7} {'of peer':>8}")
    for row in rows:
        ratios = [row.get("mse_ratio"), row.get("ns_ratio")]
        mse_ratio, ns_ratio = ("-" if r is None else f"{r:.4f}" for r in ratios)
        mine = row["ours"]
        print(
            f"{row['type']:10} {row['tensor']:38} {mine['mse']:10.3e} {mse_ratio:>8} "
            f"{mine['ns']:7.1f} {ns_ratio:>8}"
        )
    print()
    for name in dict.fromkeys(row["type"] for row in rows):
        of_type = [r for r in rows if r["type"] == name and r.get("mse_ratio") is not None]
        if of_type:
            mse = [r["mse_ratio"] for r in of_type]
            ns = statistics.geometric_mean(r["ns_ratio"] for r in of_type)
            mean = statistics.geometric_mean(max(r, 1e-6) for r in mse)
            print(f"{name:10} mse of peer {mean:.4f} (worst {max(mse):.4f}), time {ns:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--library", type=Path, help="libggml-base.so of llama.cpp")
    parser.add_argument("--types", default=",".join(_core.encoders()))
    parser.add_argument("--importance", action="store_true")
    parser.add_argument("--weights", type=int, default=1 << 18, help="of a tensor, at most")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    peer = load_peer(options.library) if options.library else None
    tensors = dict(random_tensors(options.weights))
    for path in options.models:
        tensors.update(model_tensors(path, options.weights))
    rows = []
    for name in options.types.split(","):
        for label, values in tensors.items():
            importance = importance_of(values.shape[1]) if options.importance else None
            row = compare(values, name, importance, peer, options.repeats)
            rows.append({"type": name, "tensor": label, **row})
    show(rows)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
