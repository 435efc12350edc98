"""Pages of the KV cache: their bytes, their copies, and several pools in one step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import oxibonsai
import tiny_model
from oxibonsai import _core
from oxibonsai.engine.memory import kv_bytes_per_token
from oxibonsai.errors import RequestError
from oxibonsai.models.model import Model

IDS = [int(i) for i in np.random.default_rng(3).integers(0, 256, 100)]
Logits = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> Model:
    return oxibonsai.load(tiny_path, threads=2).model


def one_row() -> _core.Batch:
    batch = _core.Batch()
    batch.add([1], pages=[0], outputs=1)
    return batch


def run(
    model: Model, pools: list[_core.KvPages], first: int, last: int, table: list[int]
) -> Logits:
    """Logits of the last position of IDS[first:last], whose pages lie in the last pool."""
    batch = _core.Batch()
    batch.add(IDS[first:last], first=first, pages=table, pool=len(pools) - 1, outputs=1)
    return model.run(batch, pools)


@pytest.mark.parametrize("kv_type", _core.KV_TYPES)
@pytest.mark.parametrize("head_dim", [1, 15, 16, 33, 64, 80, 128, 256])
def test_a_page_has_the_bytes_that_its_positions_are_said_to_take(
    kv_type: str, head_dim: int
) -> None:
    layers = [_core.PagedLayer(2, head_dim, head_dim)] * 3
    pages = _core.KvPages(layers, kv_type, 2)
    assert pages.page_bytes == kv_bytes_per_token(layers, kv_type) * _core.PAGE_POSITIONS
    assert len(pages.read(0)) == pages.page_bytes
    assert (pages.type, pages.pages) == (kv_type, 2)


def test_each_type_takes_the_bits_of_its_name(model: Model) -> None:
    values = 2 * tiny_model.LAYERS * tiny_model.KV_HEADS * tiny_model.HEAD_DIM
    bits = [kv_bytes_per_token(model.graph.paged_layers, t) * 8 / values for t in _core.KV_TYPES]
    assert bits == [32, 16, 8.5, 4.5, 8]  # q8_0 and q4_0 have a scale of 16 bits for 32 values


@pytest.mark.parametrize("kv_type", _core.KV_TYPES)
def test_a_copied_page_continues_the_text_and_leaves_the_first_alone(
    model: Model, kv_type: str
) -> None:
    pages = model.new_pages(kv_type, 4)
    run(model, [pages], 0, 80, [0, 1])
    pages.copy(1, 3)
    truth = run(model, [pages], 80, 100, [0, 1])
    pages.write(1, bytes(pages.page_bytes))
    assert run(model, [pages], 80, 100, [0, 3]).tobytes() == truth.tobytes()
    assert pages.read(3) != pages.read(1)


@pytest.mark.parametrize("kv_type", _core.KV_TYPES)
def test_pages_that_were_read_go_on_in_another_pool(model: Model, kv_type: str) -> None:
    first, second = model.new_pages(kv_type, 2), model.new_pages(kv_type, 5)
    run(model, [first], 0, 80, [0, 1])
    saved = [first.read(0), first.read(1)]
    truth = run(model, [first], 80, 100, [0, 1])
    for page, data in zip((4, 2), saved, strict=True):
        second.write(page, data)
    assert run(model, [second], 80, 100, [4, 2]).tobytes() == truth.tobytes()


def test_a_released_page_can_be_written_again(model: Model) -> None:
    pages = model.new_pages("q8_0", 3)
    truth = run(model, [pages], 0, 80, [0, 1])
    kept = pages.read(0)
    pages.release(1)
    assert pages.read(0) == kept
    assert run(model, [pages], 64, 80, [0, 1]).tobytes() == truth.tobytes()


def test_sequences_of_all_types_share_a_step_and_get_what_they_get_alone(model: Model) -> None:
    alone = [run(model, [model.new_pages(t, 2)], 0, 70, [0, 1]) for t in _core.KV_TYPES]
    pools = [model.new_pages(t, 4) for t in _core.KV_TYPES]
    owners = [3, 0, 2, 1, 3]  # by sequence; two share a pool
    batch = _core.Batch()
    tables = [[0, 1], [3, 2], [1, 0], [2, 0], [3, 2]]
    for table, owner in zip(tables, owners, strict=True):
        batch.add(IDS[:70], pages=table, pool=owner, outputs=1)
    together = model.run(batch, pools)
    for row, owner in zip(together, owners, strict=True):
        assert row.tobytes() == alone[owner].tobytes()
    assert len({rows.tobytes() for rows in alone}) == len(_core.KV_TYPES)


@pytest.mark.parametrize(
    ("table", "pool", "first", "message"),
    [
        ([0], 1, 0, r"no such pool of KV pages: 1 of 1 \(span 0"),
        ([0], -1, 0, "no such pool of KV pages: -1 of 1"),
        ([2], 0, 0, r"no such page: 2 of 2 \(span 0"),
        ([-1], 0, 0, "no such page: -1 of 2"),
        ([0], 0, 64, r"position 64 has no page \(span 0"),
        ([0], 0, -1, r"a span needs a first position .*\(span 0"),
        ([0], 0, 2**31 - 1, r"a span needs a first position .*\(span 0"),
    ],
)
def test_tables_and_pools_are_checked(
    model: Model, table: list[int], pool: int, first: int, message: str
) -> None:
    batch = _core.Batch()
    batch.add([1], first=first, pages=table, pool=pool, outputs=1)
    with pytest.raises(RequestError, match=message):
        model.run(batch, [model.new_pages("f16", 2)])


def test_a_pool_of_another_shape_is_refused_even_if_nobody_uses_it(model: Model) -> None:
    good = model.new_pages("f16", 1)
    dim = tiny_model.HEAD_DIM + 16
    other = _core.KvPages(
        [_core.PagedLayer(tiny_model.KV_HEADS, dim, dim)] * tiny_model.LAYERS, "f16", 1
    )
    with pytest.raises(RequestError, match="another shape"):
        model.run(one_row(), [good, other])


def test_a_step_needs_rows_and_a_pool(model: Model) -> None:
    with pytest.raises(RequestError, match="no such pool"):
        model.run(one_row(), [])
    with pytest.raises(RequestError, match="at least one row"):
        model.run(_core.Batch(), [model.new_pages("f16", 1)])
    with pytest.raises(RequestError, match="at least one row"):
        _core.Batch().add([])


@pytest.mark.parametrize("outputs", [2, -1, [1], [-1]])
def test_an_output_is_a_row_of_its_span(outputs: int | list[int]) -> None:
    with pytest.raises(RequestError, match="an output row is not in the batch"):
        _core.Batch().add([1], outputs=outputs)


def test_each_layer_may_have_a_shape_and_a_type_of_its_own() -> None:
    layers = [_core.PagedLayer(*shape) for shape in ((2, 64, 64), (1, 128, 32), (4, 16, 48))]
    types = ["f32", "q8_0", "f16"]
    pages = _core.KvPages(layers, types, 2)
    alone = [_core.kv_page_bytes([s], t) for s, t in zip(layers, types, strict=True)]
    assert pages.page_bytes == _core.kv_page_bytes(layers, types) == sum(alone)
    assert pages.type == "f32+q8_0+f16"
    with pytest.raises(RequestError, match="a type for each"):
        _core.KvPages(layers, types[:2], 1)


@pytest.mark.parametrize("page", [-1, 2])
def test_a_page_that_does_not_exist_is_refused(model: Model, page: int) -> None:
    pages = model.new_pages("q4_0", 2)
    for call in (
        lambda: pages.copy(page, 0),
        lambda: pages.copy(0, page),
        lambda: pages.read(page),
        lambda: pages.write(page, bytes(pages.page_bytes)),
        lambda: pages.release(page),
    ):
        with pytest.raises(RequestError, match=f"no page {page}; it has 2"):
            call()


@pytest.mark.parametrize("more", [-1, 1])
def test_a_page_is_written_whole(model: Model, more: int) -> None:
    pages = model.new_pages("q8_0", 1)
    with pytest.raises(RequestError, match=f"has {pages.page_bytes} bytes, not"):
        pages.write(0, bytes(pages.page_bytes + more))


def test_a_type_that_does_not_exist_is_refused(model: Model, tiny_path: Path) -> None:
    with pytest.raises(RequestError, match="f32, f16, q8_0, q4_0 and fp8_e4m3"):
        model.new_pages("q5_0", 1)
    with pytest.raises(RequestError, match="kv_type is 'q5_0'; it is one of f32, f16, q8_0, q4_0"):
        oxibonsai.load(tiny_path, kv_type="q5_0")
