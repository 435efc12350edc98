"""Every operation between folders and files is undone by its inverse, in both directions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from oxibonsai.architectures.schema.arithmetic import (
    Add,
    LogOfNegative,
    NegativeExp,
    Scale,
    ScaleRows,
)
from oxibonsai.architectures.schema.operations import (
    Array,
    Concatenate,
    Duplicate,
    MergeAxes,
    OneWay,
    OnPart,
    Operation,
    PermuteGrid,
    SkipRows,
    Split,
    SplitAxis,
    Stack,
    TakeRows,
    Transpose,
    Unstack,
    inverse_of,
    over_groups,
)

SIDES = st.integers(1, 4)


@st.composite
def moves(draw: st.DrawFn) -> tuple[Operation, list[Array]]:
    """An operation that moves values, and arrays that it is for."""
    axis = draw(st.integers(0, 2))
    grid = tuple(draw(st.lists(SIDES, min_size=2, max_size=4)))
    shape = [draw(SIDES), draw(SIDES), draw(SIDES)]
    size, count = int(np.prod(grid)), draw(SIDES)
    kind = draw(
        st.sampled_from(
            ["split", "merge", "permute", "transpose", "parts", "join", "stack", "one", "twice"]
        )
    )
    whole = [*shape[:axis], size, *shape[axis + 1 :]]
    dtype = draw(st.sampled_from([np.float32, np.uint8, np.uint16]))

    def array(*sizes: int) -> Array:
        found: Array = draw(hn.arrays(dtype, sizes, elements=st.integers(0, 255)))
        return found

    if kind == "split":
        return SplitAxis(grid[0], axis), [array(*whole)]
    if kind == "merge":
        return MergeAxes(grid[0], axis), [array(*shape[:axis], *grid[:2], *shape[axis + 1 :])]
    if kind == "permute":
        order = tuple(draw(st.permutations(range(len(grid)))))
        return PermuteGrid(grid, order, axis), [array(*whole), array(*whole)]
    if kind == "one":
        order = tuple(draw(st.permutations(range(len(grid)))))
        return OnPart(1, PermuteGrid(grid, order, axis)), [array(*shape), array(*whole)]
    if kind == "twice":
        return Duplicate(), [array(*shape)]
    if kind == "transpose":
        return Transpose(), [array(*shape)]
    others = [array(*shape)] * draw(st.integers(0, 1))
    if kind == "parts":
        whole = [*shape[:axis], sum(grid), *shape[axis + 1 :]]
        return Split(grid, axis, len(others)), [array(*whole), *others]
    if kind == "join":
        parts = [array(*shape[:axis], n, *shape[axis + 1 :]) for n in grid]
        return Concatenate(grid, axis, len(others)), [*parts, *others]
    return draw(
        st.sampled_from(
            [
                (Stack(count), [array(*shape) for _ in range(count)]),
                (Unstack(count), [array(count, *shape)]),
            ]
        )
    )


def same(a: list[Array], b: list[Array]) -> bool:
    """Whether both are the same arrays, bit by bit."""
    pairs = zip(a, b, strict=True)
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


@given(moves())
def test_a_move_and_its_inverse_give_every_bit_back(case: tuple[Operation, list[Array]]) -> None:
    operation, arrays = case
    there = operation.apply(arrays)
    assert same(operation.inverse.apply(there), arrays)
    assert same(operation.apply(operation.inverse.apply(there)), there)
    assert operation.moves


@given(moves())
def test_shapes_are_told_without_arrays(case: tuple[Operation, list[Array]]) -> None:
    operation, arrays = case
    shapes = [a.shape for a in operation.apply(arrays)]
    assert operation.shapes([a.shape for a in arrays]) == shapes
    assert operation.inverse.shapes(shapes) == [a.shape for a in arrays]


def test_rows_that_nothing_reads_come_back_as_zeros() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    (kept,) = SkipRows(3).apply([rows])
    assert same([kept], [rows[3:]])
    (back,) = SkipRows(3).inverse.apply([kept])
    assert not back[:3].any()
    assert same(SkipRows(3).apply([back]), [kept])
    assert SkipRows(3).inverse.inverse == SkipRows(3)
    assert (SkipRows(3).one_way, SkipRows(3).keeps_rows(2)) == (True, True)
    with pytest.raises(ValueError, match="no more than 4 rows"):
        SkipRows(4).apply([rows])


def test_some_rows_are_taken_and_the_others_are_lost() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert same(TakeRows((3, 1)).apply([rows]), [rows[[3, 1]]])
    assert same(TakeRows((2,), keeps_whole=True).apply([rows]), [rows, rows[2:3]])
    assert (TakeRows((3,)).one_way, TakeRows((3,)).keeps_rows(1)) == (True, False)
    assert TakeRows((3,)).inverse == OneWay(())
    with pytest.raises(ValueError, match="has no row 4"):
        TakeRows((0, 4)).apply([rows])


@given(moves())
def test_what_keeps_rows_moves_each_row_as_a_whole(case: tuple[Operation, list[Array]]) -> None:
    operation, arrays = case
    if not all(operation.keeps_rows(a.ndim) for a in arrays):
        return
    halves = [a[..., :1] for a in arrays]
    assert same([a[..., :1] for a in operation.apply(arrays)], operation.apply(halves))


@given(moves(), st.integers(1, 3))
def test_what_moves_groups_moves_their_scales_along(
    case: tuple[Operation, list[Array]], size: int
) -> None:
    operation, arrays = case
    array = arrays[0]
    grouped = None if len(arrays) > 1 else over_groups([operation], [array.shape], size)
    if grouped is None or array.shape[-1] % size != 0:
        return
    scales = array[..., ::size]
    assert same([a[..., ::size] for a in operation.apply([array])], grouped[0].apply([scales]))


def test_columns_move_by_whole_groups_or_not_at_all() -> None:
    heads = PermuteGrid((2, 3, 4), (1, 0, 2), axis=1)
    assert over_groups([heads], [(5, 24)], 2) == (PermuteGrid((2, 3, 2), (1, 0, 2), axis=1),)
    assert over_groups([OnPart(0, heads)], [(5, 24)], 4) is not None
    assert over_groups([heads], [(5, 24)], 8) is None
    assert over_groups([PermuteGrid((6, 4), (1, 0), axis=1)], [(5, 24)], 2) is None
    assert over_groups([Transpose()], [(5, 24)], 1) is None


@given(st.lists(st.floats(0.5, 2.0**20, width=32), min_size=1))
def test_one_that_a_file_adds_is_taken_away_exactly_from_half_of_it_on(held: list[float]) -> None:
    values = np.array(held, np.float32)
    back = Add(1.0).inverse.apply([values])
    assert same(Add(1.0).apply(back), [values])


@given(st.lists(st.floats(-50.0, -(2.0**-10), width=32), min_size=1))
def test_decays_come_back_to_their_last_digits(held: list[float]) -> None:
    decays = np.array(held, np.float32)
    (found,) = NegativeExp().apply(LogOfNegative().apply([decays]))
    assert np.allclose(found, decays, rtol=1e-6, atol=0.0)
    assert not NegativeExp().moves
    assert NegativeExp().inverse == LogOfNegative()


def test_a_decay_that_is_not_below_zero_has_no_logarithm() -> None:
    for value in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match="not below zero"):
            LogOfNegative().apply([np.array([-1.0, value], np.float32)])


@given(st.lists(st.floats(-4.0, 4.0, width=32), min_size=6, max_size=6), st.floats(0.25, 4.0))
def test_factors_are_taken_away_to_the_last_digits(held: list[float], number: float) -> None:
    rows = np.array(held, np.float32).reshape(3, 2)
    scaled = ScaleRows((number, 2.0), (1, 2))
    assert np.array_equal(scaled.apply([rows])[0][1:], Scale(2.0).apply([rows[1:]])[0])
    for operation in (scaled, Scale(number)):
        (back,) = operation.inverse.apply(operation.apply([rows]))
        assert np.allclose(back, rows, rtol=4e-7, atol=1e-37)
        assert not operation.moves


def test_one_way_steps_are_undone_as_they_state() -> None:
    rows = np.arange(1.0, 7.0, dtype=np.float32).reshape(3, 2)
    steps = OneWay((Scale(3.0), Transpose()), (Transpose(),))
    (made,) = steps.apply([rows])
    assert same([made], [rows.T * np.float32(3.0)])
    assert same(steps.inverse.apply([made]), [rows * np.float32(3.0)])
    assert steps.inverse.inverse == steps
    assert steps.shapes([(3, 2)]) == [(2, 3)]
    assert (steps.one_way, steps.moves, steps.keeps_rows(2)) == (True, False, False)
    assert not Transpose().one_way


@pytest.mark.parametrize(
    ("operation", "shapes", "problem"),
    [
        (MergeAxes(3), [(4, 2)], "has not 3 at axis 0"),
        (PermuteGrid((2, 3), (1, 0)), [(7, 2)], "has 6 at axis 0"),
        (Split((1, 2), axis=1), [(3, 4)], "has not 3 at axis 1"),
        (Concatenate((1, 2)), [(1, 4), (3, 4)], r"are not \(1, 2\) at axis 0"),
        (Concatenate((1, 2)), [(1, 4), (2, 5)], "at axis 0"),
        (Stack(2), [(1, 4)], "one shape 2 times"),
        (Stack(2), [(1, 4), (4, 1)], "one shape 2 times"),
        (Unstack(3), [(2, 4)], "no stack of 3"),
        (ScaleRows((1.0, 2.0), (1, 2)), [(4, 2)], "has not 3 rows"),
    ],
)
def test_other_shapes_are_refused(
    operation: Operation, shapes: list[tuple[int, ...]], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        operation.shapes(shapes)
    with pytest.raises(ValueError, match=problem):
        operation.apply([np.zeros(shape, np.float32) for shape in shapes])


def test_several_operations_are_undone_from_the_last_one_on() -> None:
    steps = (SplitAxis(2), Split((4, 2), axis=1), Concatenate((4, 2), axis=1), Transpose())
    rows = np.arange(12 * 5).reshape(12, 5)
    arrays: list[Array] = [rows]
    for step in (*steps, *inverse_of(steps)):
        arrays = step.apply(arrays)
    assert np.array_equal(arrays[0], rows)
