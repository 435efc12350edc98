"""Tables of tensors: both directions are a look-up, nothing is read before it is needed."""

from __future__ import annotations

import numpy as np
import pytest

from oxibonsai.architectures.schema.operations import Add, Concatenate, PermuteGrid, Split, Stack
from oxibonsai.architectures.schema.tensors import (
    FromConfig,
    Lazy,
    Tensor,
    TensorTable,
    bias,
    norm,
    weight,
)
from oxibonsai.errors import FormatError, UnsupportedError

ROWS = np.arange(24, dtype=np.float32).reshape(6, 4)


def lazy(values: np.ndarray) -> Lazy:  # type: ignore[type-arg]
    return Lazy(values.shape, lambda: values)


def never(*shape: int) -> Lazy:
    def read() -> np.ndarray:  # type: ignore[type-arg]
        raise AssertionError("nothing needs the values yet")

    return Lazy(shape, read)


def table() -> TensorTable:
    """One of each kind of entry."""
    return TensorTable(
        "folder",
        "Toy",
        [
            weight("model.embed", "token_embd"),
            weight("lm_head", "output", optional=True),
            norm("model.norm", "output_norm", Add(1.0)),
            Tensor(("q.weight", "k.weight"), ("qk.weight",), (Concatenate((4, 2)),)),
            FromConfig("rope_freqs.weight", np.ones(2, np.float32)),
        ],
        ignored=("*.inv_freq",),
    )


PARAMETERS = ["k.weight", "model.embed.weight", "model.norm.weight", "q.weight"]
TENSORS = ["output_norm.weight", "qk.weight", "rope_freqs.weight", "token_embd.weight"]


def test_entries_come_in_the_order_of_what_they_are_looked_up_by() -> None:
    found = table().of_parameters([*PARAMETERS, "layers.0.inv_freq"])
    assert [e.tensors[0] for e in found] == ["qk.weight", "token_embd.weight", "output_norm.weight"]
    found = table().of_tensors(TENSORS)
    assert [e.parameters[0] for e in found] == [
        "model.norm.weight",
        "q.weight",
        "model.embed.weight",
    ]


def test_a_name_that_no_entry_has_is_refused_by_name() -> None:
    with pytest.raises(
        UnsupportedError, match=r"folder: .* parameter model\.ghost, .* none of Toy's"
    ):
        table().of_parameters([*PARAMETERS, "model.ghost"])
    with pytest.raises(
        UnsupportedError, match=r"folder: the tensor blk\.0\.ghost is none of Toy's"
    ):
        table().of_tensors([*TENSORS, "blk.0.ghost"])


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(FormatError, match=rf"folder lacks 1 of the parameters .* first is {name}"):
        table().of_parameters([n for n in PARAMETERS if n != name])


@pytest.mark.parametrize("name", ["output_norm.weight", "qk.weight", "token_embd.weight"])
def test_a_tensor_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(FormatError, match=rf"folder: .* place for its lack of {name}"):
        table().of_tensors([n for n in TENSORS if n != name])


def test_what_is_optional_may_be_there() -> None:
    assert len(table().of_parameters([*PARAMETERS, "lm_head.weight"])) == 4


def test_nothing_is_read_before_it_is_needed() -> None:
    entry = Tensor(("w",), ("a", "b"), (PermuteGrid((3, 2), (1, 0)), Split((4, 2))))
    assert [t.shape for t in entry.forwards([never(6, 4)])] == [(4, 4), (2, 4)]
    assert [p.shape for p in entry.backwards([never(4, 4), never(2, 4)])] == [(6, 4)]


def test_an_entry_leads_there_and_back() -> None:
    entry = Tensor(("w",), ("a", "b"), (PermuteGrid((3, 2), (1, 0)), Split((4, 2))))
    there = entry.forwards([lazy(ROWS)])
    (back,) = entry.backwards(there)
    assert np.array_equal(back.read(), ROWS)
    assert not np.array_equal(np.concatenate([t.read() for t in there]), ROWS)


def test_without_operations_the_values_are_those_of_the_parameter() -> None:
    entry = bias("a", "b")
    assert entry.forwards([lazy(ROWS)])[0].read() is ROWS
    assert not entry.matrix


def test_a_parameter_of_another_shape_is_named() -> None:
    with pytest.raises(FormatError, match=r"q\.weight, k\.weight of shape .* are not \(4, 2\)"):
        table().of_parameters(PARAMETERS)[0].forwards([never(3, 4), never(2, 4)])


def test_an_entry_that_computes_says_so() -> None:
    assert weight("a", "b", PermuteGrid((2, 3), (1, 0))).moves
    assert Tensor(("a", "b"), ("c",), (Stack(2),)).moves
    assert not norm("a", "b", Add(1.0)).moves
