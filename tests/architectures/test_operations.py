"""Every operation between folders and files is undone by its inverse, in both directions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from oxibonsai.architectures.schema.operations import (
    Add,
    Array,
    Concatenate,
    LogOfNegative,
    MergeAxes,
    NegativeExp,
    Operation,
    PermuteGrid,
    Split,
    SplitAxis,
    Stack,
    Transpose,
    Unstack,
    inverse_of,
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
        st.sampled_from(["split", "merge", "permute", "transpose", "parts", "join", "stack"])
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
    if kind == "transpose":
        return Transpose(), [array(*shape)]
    if kind == "parts":
        return Split(grid, axis), [array(*shape[:axis], sum(grid), *shape[axis + 1 :])]
    if kind == "join":
        return Concatenate(grid, axis), [array(*shape[:axis], n, *shape[axis + 1 :]) for n in grid]
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


@given(moves())
def test_what_keeps_rows_moves_each_row_as_a_whole(case: tuple[Operation, list[Array]]) -> None:
    operation, arrays = case
    if not all(operation.keeps_rows(a.ndim) for a in arrays):
        return
    halves = [a[..., :1] for a in arrays]
    assert same([a[..., :1] for a in operation.apply(arrays)], operation.apply(halves))


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
