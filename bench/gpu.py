"""What a GPU reaches of its own limits; needs the package's core and numpy alone.

usage: python bench/gpu.py [cuda] [--rows 4096 --cols 14336] [--tokens 1 8 512] > result.json

Products with one row against the bandwidth of copies within the card, products with many rows in
multiply-adds per second. A step of 17 equal layers less one of 1, so that what surrounds a layer cancels;
each layer has weights of its own, so that no cache holds them all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np

from oxibonsai import _core
from oxibonsai.devices import chosen_device, list_devices, open_device

TYPES = ("Q1_0", "Q2_0_g128", "TQ2_0_g128", "Q4_0", "Q4_K", "Q8_0", "F16")
TOKENS = (1, 8, 512, 4096)
_LAYERS = 17
_ROUNDS = 7


def layer_seconds(device: Any, quant_type: str, rows: int, cols: int, tokens: int) -> float:
    """Seconds of one linear layer, the median of some rounds."""
    one, many = (executable(device, quant_type, rows, cols, n) for n in (1, _LAYERS))
    batch = _core.Batch()
    batch.add_span(tokens)
    batch.set_input("x", np.ones((tokens, cols), np.float32))
    rounds = [(seconds(many, batch) - seconds(one, batch)) / (_LAYERS - 1) for _ in range(_ROUNDS)]
    return statistics.median(rounds)


def executable(device: Any, quant_type: str, rows: int, cols: int, layers: int) -> Any:
    """A graph of equal layers side by side, of whose results none comes back but a row of the last."""
    graph = _core.Graph()
    x = graph.input("x", cols)
    bytes_of = {t["name"]: (t["bytes"], t["group"]) for t in _core.quant_types()}
    size, group = bytes_of[quant_type]
    y = None
    for i in range(layers):
        blocks = np.zeros((rows, cols // group * size), np.uint8)  # any codes take the same time
        weight = _core.Weight.from_blocks(f"w{i}", quant_type, blocks, cols)
        (y,) = graph.linear(x, [weight])
    assert y is not None
    graph.set_output("y", graph.select_outputs(y))
    return device.compile(graph)


def seconds(executable: Any, batch: _core.Batch) -> float:
    """Of one step, after one to warm up."""
    executable.run(batch)
    started = time.perf_counter()
    executable.run(batch)
    return time.perf_counter() - started


def measure(
    device: Any, quant_type: str, options: argparse.Namespace, bandwidth: float
) -> dict[str, Any]:
    """One line of the result."""
    rows, cols = options.rows, options.cols
    traits = next(t for t in _core.quant_types() if t["name"] == quant_type)
    stored = rows * cols // traits["group"] * traits["bytes"]
    line: dict[str, Any] = {"type": quant_type, "rows": rows, "cols": cols}
    for tokens in options.tokens:
        taken = layer_seconds(device, quant_type, rows, cols, tokens)
        line[f"us_{tokens}"] = round(taken * 1e6, 2)
        if tokens == 1:
            line["share_of_copy"] = round(stored / taken / bandwidth, 4)
        else:
            line[f"tera_macs_{tokens}"] = round(rows * cols * tokens / taken / 1e12, 3)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", nargs="?", default="cuda")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=14336)
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--copy-bytes", type=int, default=1 << 30)
    options = parser.parse_args()
    name = chosen_device(options.device)
    device: Any = open_device(name)
    bandwidth = device.copy_bandwidth(options.copy_bytes, _ROUNDS)
    report = {
        "device": next(d.description for d in list_devices() if d.name == name),
        "copy_gb_s": round(bandwidth / 1e9, 1),
        "layers": [measure(device, t, options, bandwidth) for t in TYPES],
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
