"""Rows of float weights give the same bytes from a file, an array, a slice and for any rows at once."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai import _core
from oxibonsai.graph import Builder, Value

ROWS, COLS, FIRST, LAST, EXPERTS = 70, 72, 19, 53, 3
TIERS = _core.cpu.tiers()
Bytes = npt.NDArray[np.uint8]


@pytest.fixture(params=["F32", "F16", "BF16"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str, Bytes]:
    """A file with a matrix ``w`` and matrices of experts ``e``, its type, and the bytes of e."""
    quant_type = gguf.GGMLQuantizationType[request.param]
    path = tmp_path / "w.gguf"
    w = np.random.default_rng(4).standard_normal((EXPERTS, ROWS, COLS), dtype=np.float32)
    blocks = np.asarray(gguf.quants.quantize(w, quant_type)).view(np.uint8)
    writer = gguf.GGUFWriter(path, "none")
    writer.add_tensor("w", blocks[0], raw_dtype=quant_type)
    writer.add_tensor("e", blocks, raw_dtype=quant_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, request.param, blocks


def product(weight: _core.Weight, x: npt.NDArray[np.float32], tier: str) -> bytes:
    """x by the weight, whose experts take turns at the rows where there are several."""
    g = Builder()
    value: Value = g.input("x", COLS)
    if weight.experts > 1:
        routing = g.route(g.input("scores", EXPERTS), 1)
        value = g.expert_linear(g.dispatch(value, routing), routing, weight)
        value = g.combine(value, routing, weighted=False)
    else:
        (value,) = g.linear(value, weight)
    g.output("y", g.select_outputs(value))
    batch = _core.Batch()
    batch.add_span(len(x), outputs=len(x))
    batch.set_input("x", x)
    if weight.experts > 1:
        batch.set_input("scores", np.eye(EXPERTS, dtype=np.float32)[np.arange(len(x)) % EXPERTS])
    return _core.CpuDevice(2, tier).compile(g.graph).run(batch)["y"].tobytes()


def test_every_place_and_tier_gives_the_same_bytes(stored: tuple[Path, str, Bytes]) -> None:
    path, quant_type, blocks = stored
    file = _core.GgufFile(str(path))
    x = np.random.default_rng(5).standard_normal((11, COLS), dtype=np.float32)
    e = _core.Weight(file, "e")
    in_memory = _core.Weight.from_blocks(
        "e", quant_type, blocks.reshape(-1, blocks.shape[-1]), COLS, EXPERTS
    )
    w = _core.Weight(file, "w")
    part = _core.Weight.from_blocks("w", quant_type, blocks[0, FIRST:LAST], COLS)
    assert _core.CpuDevice(1).packed_size([in_memory, part]) == 0, "an array is read in place"
    for tier in TIERS:
        assert product(e, x, tier) == product(in_memory, x, "scalar")
        assert product(w.slice(FIRST, LAST), x, tier) == product(part, x, "scalar")


def test_a_slice_of_a_packed_matrix_is_not_packed_again(stored: tuple[Path, str, Bytes]) -> None:
    path, quant_type, blocks = stored
    w = _core.Weight(_core.GgufFile(str(path)), "w")
    device = _core.CpuDevice(2)
    held = device.pack([w])
    assert held.nbytes > 0
    half = w.slice(FIRST, LAST)
    assert device.packed_size([half]) == 0
    g = Builder()
    g.output("y", g.select_outputs(g.linear(g.input("x", COLS), half)[0]))
    batch = _core.Batch()
    batch.add_span(1, outputs=1)
    x = np.random.default_rng(6).standard_normal((1, COLS), dtype=np.float32)
    batch.set_input("x", x)
    part = _core.Weight.from_blocks("w", quant_type, blocks[0, FIRST:LAST], COLS)
    assert device.compile(g.graph).run(batch)["y"].tobytes() == product(part, x, "scalar")


@pytest.mark.parametrize("tier", TIERS)
def test_rows_alone_give_the_bytes_that_they_give_together(
    stored: tuple[Path, str, Bytes], tier: str
) -> None:
    w = _core.Weight(_core.GgufFile(str(stored[0])), "w")
    x = np.random.default_rng(7).standard_normal((37, COLS), dtype=np.float32)
    together = product(w, x, tier)
    for count in (1, 2, 3, 5):
        alone = [product(w, x[i : i + count], tier) for i in range(0, len(x), count)]
        assert b"".join(alone) == together
