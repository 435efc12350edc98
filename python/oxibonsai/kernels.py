"""The kernels on their own: products with quantized matrices, attention, and quantizing.

They take arrays of numpy, or of torch and others that speak DLPack, in the machine's memory, and give
the kind that came in. Results are defined down to the bit (``docs/arithmetic.md``): every tier of the
processor, every number of threads and every device gives the same.

>>> from oxibonsai import kernels
>>> matrix = kernels.quantize(weights, "TQ2_0_g128")        # float32 [rows, cols]
>>> y = kernels.gemv(matrix, x)                             # float32 [cols] -> [rows]
>>> y = kernels.gemm_tq2(matrix, tokens, device="cuda")     # float32 [n, cols] -> [n, rows]
"""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.devices import Device, Executable, default_threads, one_device, open_device
from oxibonsai.errors import RequestError, UnsupportedError

__all__ = ["QuantizedMatrix", "flash_attention", "gemm_tq2", "gemv", "quantize"]

Floats = npt.NDArray[np.float32]

# Types of ternary weights at 2 bits each.
_TQ2 = ("TQ2_0_g128", "TQ2_0", "Q2_0_g64", "Q2_0_g128")


class QuantizedMatrix:
    """A matrix of quantized weights, packed once for each device that multiplies with it.

    Args:
        blocks: uint8 [rows, bytes of a row], as GGUF stores them; kept, not copied.
        quant_type: Their type, ``"TQ2_0_g128"`` say; ``oxibonsai info`` has the names.
        cols: Weights of a row: a multiple of the type's group.

    Attributes:
        rows, cols: Its shape.
        quant_type: As above.
        blocks: As above.

    Raises:
        RequestError: No such type, or the shapes make no sense together.
    """

    def __init__(self, blocks: npt.NDArray[np.uint8], quant_type: str, cols: int) -> None:
        self.blocks = np.ascontiguousarray(blocks)
        if self.blocks.dtype != np.uint8:
            raise RequestError(f"blocks are {self.blocks.dtype}; they must be uint8")
        self._weight = _core.Weight.from_blocks("matrix", quant_type, self.blocks, cols)
        self.quant_type = self._weight.quant_type
        self.rows, self.cols = self._weight.rows, cols
        self._executables: WeakKeyDictionary[Device, Executable] = WeakKeyDictionary()

    def dequantize(self) -> Floats:
        """Return the weights as float32 [rows, cols]."""
        return _core.decode(self.quant_type, self.blocks.reshape(-1)).reshape(self.rows, self.cols)

    def multiply(self, x: Floats, device: Device) -> Floats:
        """Return float32 [n, rows] of [n, cols]."""
        if device not in self._executables:
            graph = _core.Graph()
            (y,) = graph.linear(graph.input("x", self.cols), [self._weight])
            graph.set_output("y", y)
            self._executables[device] = device.compile(graph)
        batch = _core.Batch()
        batch.add_span(len(x))
        batch.set_input("x", x)
        return self._executables[device].run(batch)["y"]


def quantize(
    values: Any,
    quant_type: str = "TQ2_0_g128",
    *,
    importance: Any = None,
    threads: int | None = None,
) -> QuantizedMatrix:
    """Encode a matrix, with the same bytes for any number of threads.

    Args:
        values: float32 [rows, cols], finite; cols is a multiple of the type's group.
        quant_type: Any type of GGUF; ``"TQ2_0_g128"`` is ternary with a scale for 128 weights.
        importance: float32 [cols], how much each column counts; some types need it.
        threads: Worker threads; None: ``OXIBONSAI_THREADS`` or all usable cores.

    Raises:
        RequestError: No such type, or the shapes make no sense.
        FormatError: A value is not finite, or too large for the type.
    """
    matrix = _floats(values, "values", 2)
    weights = None if importance is None else _floats(importance, "importance", 1)
    blocks = _core.encode(matrix, quant_type, weights, threads or default_threads())
    return QuantizedMatrix(blocks, quant_type, matrix.shape[1])


def gemv(matrix: QuantizedMatrix, x: Any, *, device: str | Device | None = None) -> Any:
    """Return the product of a quantized matrix of any type and a vector.

    Args:
        matrix: [rows, cols].
        x: float32 [cols]. For integer weights it is rounded to int8 in groups of 32 first.
        device: A name as ``--device`` takes it, but for ``auto``; an opened device; None:
            ``OXIBONSAI_DEVICE``, else the CPU.

    Returns:
        float32 [rows], of x's kind.

    Raises:
        RequestError: x has another shape or type.
        UnsupportedError: This machine lacks the device, or it lacks the matrix's type.
        CapacityError: The device has too little memory.
        DeviceError: The device failed.
    """
    vector = _floats(x, "x", 1)
    return _like(x, _product(matrix, vector[None], device)[0])


def gemm_tq2(matrix: QuantizedMatrix, x: Any, *, device: str | Device | None = None) -> Any:
    """Return the product of a matrix of 2-bit ternary weights and the rows of another.

    Args:
        matrix: [rows, cols], of type TQ2_0_g128, TQ2_0, Q2_0_g64 or Q2_0_g128.
        x: float32 [n, cols], rounded to int8 in groups of 32 first.
        device: As of :func:`gemv`.

    Returns:
        float32 [n, rows], of x's kind: row i is x[i] times each row of the matrix, and does not
        depend on the other rows.

    Raises:
        RequestError: x has another shape or type, or the matrix another type.
        UnsupportedError: This machine lacks the device.
        CapacityError: The device has too little memory.
        DeviceError: The device failed.
    """
    if matrix.quant_type not in _TQ2:
        raise RequestError(
            f"gemm_tq2 multiplies with {', '.join(_TQ2)}; the matrix is {matrix.quant_type}"
        )
    return _like(x, _product(matrix, _floats(x, "x", 2), device))


def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = True,
    scale: float | None = None,
    window: int = 0,
    softcap: float = 0.0,
    kv_type: str = "f32",
    device: str | Device | None = None,
) -> Any:
    """Compute softmax attention that never holds all scores, for one sequence or a batch of them.

    Args:
        q: float32 [heads, n, dim] or [batch, heads, n, dim].
        k: float32 [kv_heads, m, dim], or with a batch in front; kv_heads divides heads.
        v: As k.
        causal: Query i sees the keys 0 to m - n + i; else it sees all, and n is m.
        scale: Of the scores; None: 1 / sqrt(dim).
        window: Keys that a query may look back on, itself counted; 0: all. Causal alone.
        softcap: ``softcap * tanh(score / softcap)``; 0: none. Causal alone.
        kv_type: What keys and values are rounded to: ``"f32"`` (not at all), ``"f16"``, ``"q8_0"``
            or ``"q4_0"``. Causal alone.
        device: As of :func:`gemv`.

    Returns:
        float32, of q's shape and kind.

    Raises:
        RequestError: Shapes or types make no sense together.
        UnsupportedError: A case that no kernel computes, or no such device.
        CapacityError: The device has too little memory.
        DeviceError: The device failed.
    """
    arrays = [_floats(a, name, 3, 4) for a, name in ((q, "q"), (k, "k"), (v, "v"))]
    shape = arrays[0].shape
    queries, keys, values = (a[None] if a.ndim == 3 else a for a in arrays)
    _check_attention(queries, keys, values)
    dim = queries.shape[3]
    factor = 1.0 / math.sqrt(dim) if scale is None else scale
    opened = _opened(device)
    if causal:
        settings = (factor, window, softcap, kv_type)
        out = _attend_causally(opened, queries, keys, values, *settings)
    else:
        if window or softcap or kv_type != "f32" or queries.shape[2] != keys.shape[2]:
            raise UnsupportedError(
                "attention that is not causal has no window, softcap and kv_type, and as many "
                "queries as keys"
            )
        out = _attend_locally(opened, queries, keys, values, factor)
    return _like(q, out.reshape(shape))


def _product(matrix: QuantizedMatrix, x: Floats, device: str | Device | None) -> Floats:
    if x.shape[1] != matrix.cols or len(x) == 0:
        raise RequestError(
            f"x has the shape {x.shape}; the matrix has {matrix.cols} columns, and x needs as many "
            "and at least one row"
        )
    return matrix.multiply(x, _opened(device))


def _check_attention(q: Floats, k: Floats, v: Floats) -> None:
    fits = (
        q.ndim == k.ndim == v.ndim == 4
        and k.shape == v.shape
        and q.shape[0] == k.shape[0]
        and q.shape[3] == k.shape[3]
        and min(q.shape) > 0
        and k.shape[1] > 0
        and q.shape[1] % k.shape[1] == 0
        and q.shape[2] <= k.shape[2]
    )
    if not fits:
        raise RequestError(
            f"q {q.shape}, k {k.shape} and v {v.shape} do not fit: [batch, heads, n, dim] and twice "
            "[batch, kv_heads, m, dim], where kv_heads divides heads and n is at most m"
        )


def _attend_causally(
    device: Device,
    q: Floats,
    k: Floats,
    v: Floats,
    scale: float,
    window: int,
    softcap: float,
    kv_type: str,
) -> Floats:
    batch, heads, n, dim = q.shape
    kv_heads, before = k.shape[1], k.shape[2] - n
    store, attend = _causal_graphs(heads, kv_heads, dim, scale, window, softcap)
    count = -(-k.shape[2] // _core.PAGE_POSITIONS)
    pages = device.make_pages(attend.paged_layers, kv_type, batch * count)
    tables = [list(range(i * count, (i + 1) * count)) for i in range(batch)]
    if before:
        parts = {"k": k[:, :, :before], "v": v[:, :, :before]}
        device.compile(store).run(_spans(tables, 0, before, parts), [pages])
    parts = {"q": q, "k": k[:, :, before:], "v": v[:, :, before:]}
    rows = device.compile(attend).run(_spans(tables, before, n, parts), [pages])["out"]
    return rows.reshape(batch, n, heads, dim).transpose(0, 2, 1, 3)


def _causal_graphs(
    heads: int, kv_heads: int, dim: int, scale: float, window: int, softcap: float
) -> tuple[_core.Graph, _core.Graph]:
    """Return a graph that only stores keys and values, and one that attends to them too."""
    store, attend = _core.Graph(), _core.Graph()
    for graph in (store, attend):
        graph.add_paged_layer(_core.PagedLayer(kv_heads, dim, dim))
        keys, values = (graph.input(name, kv_heads * dim) for name in "kv")
        graph.store_kv(keys, values, 0)
        if graph is store:  # every graph has a result; this one is without rows
            graph.set_output("none", graph.select_outputs(keys))
    out = attend.attend(attend.input("q", heads * dim), 0, heads, scale, window, softcap)
    attend.set_output("out", out)
    return store, attend


def _attend_locally(device: Device, q: Floats, k: Floats, v: Floats, scale: float) -> Floats:
    batch, heads, n, dim = q.shape
    graph = _core.Graph()
    arrays = {"q": q, "k": k, "v": v}
    queries, keys, values = (graph.input(name, a.shape[1] * dim) for name, a in arrays.items())
    graph.set_output("out", graph.attend_local(queries, keys, values, dim, scale))
    rows = device.compile(graph).run(_spans([[]] * batch, 0, n, arrays))["out"]
    return rows.reshape(batch, n, heads, dim).transpose(0, 2, 1, 3)


def _spans(
    tables: list[list[int]], first: int, count: int, arrays: dict[str, Floats]
) -> _core.Batch:
    """Return one span for each sequence; arrays [batch, heads, n, dim] become rows [batch * n, ...]."""
    batch = _core.Batch()
    for pages in tables:
        batch.add_span(count, first=first, pages=pages)
    for name, array in arrays.items():
        rows = np.ascontiguousarray(array.transpose(0, 2, 1, 3))
        batch.set_input(name, rows.reshape(len(tables) * count, -1))
    return batch


def _opened(device: str | Device | None) -> Device:
    if device is not None and not isinstance(device, str):
        return device
    name = one_device(device)
    if name == "auto":
        raise RequestError("a kernel runs on the device that is named: auto is for whole models")
    return _open_once(name)


@cache
def _open_once(name: str) -> Device:
    return open_device(name)


def _floats(values: Any, name: str, *ndims: int) -> Floats:
    """Return an array as numpy's, without a copy where it is contiguous."""
    array = values
    if not isinstance(values, np.ndarray):
        try:
            array = np.from_dlpack(values) if hasattr(values, "__dlpack__") else np.asarray(values)
        except (BufferError, RuntimeError, TypeError, ValueError) as e:
            raise RequestError(
                f"{name} cannot be read ({e}): it must be detached, in the machine's memory and of "
                "float32"
            ) from e
    if array.dtype != np.float32:
        raise RequestError(f"{name} is {array.dtype}; it must be float32")
    if array.ndim not in ndims:
        wanted = " or ".join(map(str, ndims))
        raise RequestError(f"{name} has {array.ndim} dimensions; it must have {wanted}")
    return np.ascontiguousarray(array)


def _like(example: Any, values: Floats) -> Any:
    """Return a result of the kind that came in: numpy's, or that of the library whose array it was."""
    values = np.ascontiguousarray(values)
    if isinstance(example, np.ndarray):
        return values
    library = sys.modules.get(type(example).__module__.partition(".")[0])
    convert = getattr(library, "from_dlpack", None)
    return values if convert is None else convert(values)
