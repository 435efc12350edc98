"""Graphs as models have them, in the steps of an engine: what single ops on few rows do not reach.

Ops that devices join, rows that choose other kernels, wide rows, contexts of several parts, several
sequences, caches of every type, replayed steps, and the search for the largest values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from oxibonsai import _core
from oxibonsai.devices import Device
from oxibonsai.errors import UnsupportedError
from oxibonsai.graph import Builder, RopeConfig
from oxibonsai.models.parity_graphs import Describe, graph_of, random_matrix, random_values
from oxibonsai.models.parity_steps import (
    GPU_ROW_COUNTS,
    LONG_DECODING,
    REPEATS,
    Step,
    compare_steps,
    rows_only,
)

WIDE_COLUMNS = (4096, 12288)
# Rows of weights: two blocks of threads, of which the second is not full.
_MATRIX_ROWS = 17
# Rows of a matrix whose result is rounded together with its product: two groups.
_JOINED_ROWS = 64
_TOP, _TOP_ROWS = 33, (1, 3)
# More than one block of the search, and equal values in each.
_VOCABULARY, _EQUAL_FROM = 4300, 2200

Case = tuple[str, Callable[[], bool]]


def compare_wide(
    device: Device, definition: Device, columns: tuple[int, ...]
) -> Iterator[tuple[str, list[str] | UnsupportedError]]:
    """Yield each case's name, and the name again where it gives other bytes.

    Args:
        device: To compare.
        definition: With what.
        columns: Of the matrices whose products are compared.
    """
    for name, compare in _cases(device, definition, columns):
        try:
            differs = compare()
        except UnsupportedError as e:
            yield name, e
            continue
        yield name, [name] if differs else []


def _cases(device: Device, definition: Device, columns: tuple[int, ...]) -> Iterator[Case]:
    def case(
        describe: Describe, steps: Sequence[Step], kv_type: str = _core.KV_TYPES[0]
    ) -> Callable[[], bool]:
        def run() -> bool:
            return compare_steps(graph_of(describe), device, definition, kv_type, steps)[0]

        return run

    for kv_type in _core.KV_TYPES:
        for name, describe in (
            ("norms and rope", heads_of(8, 2, 64, norms=True)),
            (
                "rope, in a window with soft-cap and sinks",
                heads_of(8, 2, 64, norms=False, limited=True),
            ),
            ("interleaved rope", heads_of(4, 4, 128, norms=False)),
            ("wide heads", heads_of(2, 1, 160, norms=False)),
            ("wider heads", heads_of(2, 1, 320, norms=False)),
        ):
            yield (
                f"attention behind {name}, {kv_type} cache",
                case(describe, LONG_DECODING, kv_type),
            )
    yield "the largest values", lambda: compare_top(device, definition)
    for cols in columns:
        for quant_type, importance in _core.encoders().items():
            layer = _feed_forward(quant_type, cols, importance != "unused")
            yield (
                f"feed-forward layer {quant_type}, {cols} columns",
                case(layer, rows_only(*GPU_ROW_COUNTS)),
            )


def heads_of(
    heads: int, kv_heads: int, dim: int, *, norms: bool, limited: bool = False
) -> Describe:
    """Return what describes attention with the ops before and behind it that devices join with it.

    Args:
        heads: Of queries.
        kv_heads: Of keys and values.
        dim: Of each head.
        norms: Queries and keys are normed; otherwise their rope is the interleaved one.
        limited: Attention has a window, a soft-cap and sinks.
    """
    limits: dict[str, Any] = {}
    if limited:
        limits = {"window": 100, "softcap": 5.0, "sinks": random_values(heads)}

    def describe(b: Builder) -> None:
        kv = kv_heads * dim
        q, k, v = b.input("q", heads * dim), b.input("k", kv), b.input("v", kv)
        if norms:
            q, k = (b.head_norm(x, random_values(n, dim)[0], 1e-6) for n, x in ((1, q), (2, k)))
        rope = RopeConfig(dim, theta=10000.0, interleaved=not norms)
        q, k = b.rope(q, rope, dim), b.rope(k, rope, dim)
        out = b.attention(q, k, v, layer=0, head_dim=dim, scale=dim**-0.5, **limits)
        (y,) = b.linear(out, random_matrix(_MATRIX_ROWS, heads * dim, "Q8_0"))
        b.output("y", b.select_outputs(y))

    return describe


def _feed_forward(quant_type: str, cols: int, importance: bool) -> Describe:
    """Return what describes norm, two matrices of one launch, their gate, and a sum behind another.

    Besides, products that GPUs join with the activation or the norm that reads them, which are rounded
    for a third matrix.
    """

    def describe(b: Builder) -> None:
        x, wide = b.input("x", cols), b.input("wide", cols)
        normed = b.rms_norm(x, 1.0 + 0.1 * random_values(cols), 1e-6)
        gate, up = (
            random_matrix(n, cols, quant_type, importance=importance, name=name)
            for name, n in (("gate", _MATRIX_ROWS), ("up", _MATRIX_ROWS + 1))
        )
        first, second = b.linear(normed, gate, up, bias=[random_values(_MATRIX_ROWS), None])
        b.output("gate", first)
        b.output("up", second)
        hidden = b.swiglu(wide, b.scale(x, 0.5))
        down = random_matrix(_MATRIX_ROWS, cols, quant_type, importance=importance, name="down")
        (y,) = b.linear(hidden, down, add=first)
        b.output("y", b.select_outputs(y))
        joined = [
            random_matrix(_JOINED_ROWS, cols, quant_type, importance=importance, name=name)
            for name in ("joined gate", "joined up", "normed")
        ]
        unit = b.swiglu(*b.linear(normed, *joined[:2], bias=[None, random_values(_JOINED_ROWS)]))
        (row,) = b.linear(normed, joined[2], add=b.input("residual", _JOINED_ROWS))
        row = b.rms_norm(row, 1.0 + 0.1 * random_values(_JOINED_ROWS), 1e-6)
        for name, rounded in (("gated", unit), ("normed", row)):
            (result,) = b.linear(rounded, random_matrix(_MATRIX_ROWS, _JOINED_ROWS, "Q8_0"))
            b.output(name, result)

    return describe


def compare_top(device: Device, definition: Device) -> bool:
    """Return whether a GPU's largest values are others than those of all values.

    The values are those of the definition, of which many are equal; a CPU has no such search.
    """
    executable, whole = (d.compile(_vocabulary()) for d in (device, definition))
    if not isinstance(executable, _core.GpuExecutable):
        return False
    differ = False
    for rows in _TOP_ROWS:
        batch = _core.Batch()
        batch.add_span(rows, outputs=rows)
        batch.set_input("x", random_values(rows, 64))
        logits = whole.run(batch)["logits"]
        # By value, the largest first, and by id where values are equal.
        order = np.argsort(-logits, axis=1, kind="stable")
        for k in (1, _TOP):
            ids = order[:, :k]
            wanted = np.take_along_axis(logits, ids, axis=1)
            for _ in range(REPEATS):
                found, values = executable.run_top(batch, [], None, "logits", k)
                differ |= not np.array_equal(found, ids) or values.tobytes() != wanted.tobytes()
    return differ


def _vocabulary() -> _core.Graph:
    b = Builder()
    rows = random_values(_VOCABULARY, 64)
    rows[_EQUAL_FROM:] = rows[: _VOCABULARY - _EQUAL_FROM]
    weight = _core.Weight.from_blocks("vocabulary", "Q8_0", _core.encode(rows, "Q8_0"), 64)
    (logits,) = b.linear(b.select_outputs(b.input("x", 64)), weight)
    b.output("logits", logits)
    return b.graph
