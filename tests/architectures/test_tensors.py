"""Tables of tensors: both directions are a look-up, nothing is read before it is needed."""

from __future__ import annotations

import numpy as np
import pytest

from oxibonsai.architectures.schema.arithmetic import Add
from oxibonsai.architectures.schema.operations import (
    Concatenate,
    Expect,
    Operation,
    PermuteGrid,
    Split,
    Stack,
    Transpose,
)
from oxibonsai.architectures.schema.tensors import (
    Either,
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


PARAMETERS = dict.fromkeys(
    ("k.weight", "model.embed.weight", "model.norm.weight", "q.weight"), lazy(ROWS)
)
TENSORS = ["output_norm.weight", "qk.weight", "rope_freqs.weight", "token_embd.weight"]


def test_entries_come_in_the_order_of_what_they_are_looked_up_by() -> None:
    found = table().of_parameters({**PARAMETERS, "layers.0.inv_freq": lazy(ROWS)})
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
        table().of_parameters({**PARAMETERS, "model.ghost": lazy(ROWS)})
    with pytest.raises(
        UnsupportedError, match=r"folder: the tensor blk\.0\.ghost is none of Toy's"
    ):
        table().of_tensors([*TENSORS, "blk.0.ghost"])


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(FormatError, match=rf"folder lacks 1 of the parameters .* first is {name}"):
        table().of_parameters({n: held for n, held in PARAMETERS.items() if n != name})


@pytest.mark.parametrize("name", ["output_norm.weight", "qk.weight", "token_embd.weight"])
def test_a_tensor_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(FormatError, match=rf"folder: .* place for its lack of {name}"):
        table().of_tensors([n for n in TENSORS if n != name])


def test_what_is_optional_may_be_there() -> None:
    assert len(table().of_parameters({**PARAMETERS, "lm_head.weight": lazy(ROWS)})) == 4


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


def mixture(*, experts: int = 2) -> TensorTable:
    """Gate and up of a layer's experts: one by one, or all in one parameter, whose columns may be rows."""
    both = tuple(f"blk.0.ffn_{part}_exps.weight" for part in ("gate", "up"))
    alone = [tuple(f"experts.{e}.{part}" for e in range(experts)) for part in ("gate", "up")]
    stacked = (Expect((experts, 6, 4)), Split((3, 3), axis=1))
    turned = (Expect((experts, 4, 6)), Transpose(), Split((3, 3), axis=1))
    return TensorTable(
        "folder",
        "Toy",
        [
            Either(
                (
                    tuple(
                        Tensor(p, (t,), (Stack(experts),)) for p, t in zip(alone, both, strict=True)
                    ),
                    (Tensor(("experts.gate_up",), both, stacked),),
                    (Tensor(("experts.gate_up",), both, turned),),
                )
            )
        ],
    )


ALONE = {f"experts.{e}.{part}": never(3, 4) for e in range(2) for part in ("gate", "up")}


@pytest.mark.parametrize(
    ("held", "operations"),
    [
        (ALONE, (Stack,)),
        ({"experts.gate_up": never(2, 6, 4)}, (Expect, Split)),
        ({"experts.gate_up": never(2, 4, 6)}, (Expect, Transpose, Split)),
    ],
)
def test_of_several_spellings_the_one_is_taken_that_fits(
    held: dict[str, Lazy], operations: tuple[type[Operation], ...]
) -> None:
    for entry in mixture().of_parameters(held):
        assert tuple(map(type, entry.operations)) == operations
        made = entry.forwards([held[name] for name in entry.parameters])
        assert [lazy.shape for lazy in made] == [(2, 3, 4)] * len(entry.tensors)


def test_what_is_written_has_the_first_spelling() -> None:
    names = ["blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"]
    found = mixture().of_tensors(names)
    assert [e.parameters for e in found] == [
        ("experts.0.gate", "experts.1.gate"), ("experts.0.up", "experts.1.up"),
    ]  # fmt: skip


def test_of_a_spelling_that_is_there_in_part_the_rest_is_missing() -> None:
    held = {n: lazy for n, lazy in ALONE.items() if n != "experts.1.up"}
    with pytest.raises(FormatError, match=r"lacks 1 of .* the first is experts\.1\.up"):
        mixture().of_parameters(held)
    with pytest.raises(FormatError, match=r"two parameters of one meaning: .* experts\.gate_up"):
        mixture().of_parameters({**ALONE, "experts.gate_up": never(2, 6, 4)})


def test_a_spelling_of_another_shape_is_refused_by_its_name() -> None:
    held = {"experts.gate_up": never(2, 5, 4)}
    (entry,) = mixture().of_parameters(held)
    with pytest.raises(FormatError, match=r"experts\.gate_up of shape .*\(2, 5, 4\)"):
        entry.forwards([held["experts.gate_up"]])


def test_a_part_of_a_stack_is_read_alone() -> None:
    entry = Tensor(("a", "b"), ("c",), (PermuteGrid((3, 2), (1, 0)), Stack(2)))
    (stack,) = entry.forwards([lazy(ROWS), never(6, 4)])
    assert (stack.shape, [part.shape for part in stack.parts]) == ((2, 6, 4), [(6, 4), (6, 4)])
    assert np.array_equal(stack.parts[0].read(), ROWS[[0, 2, 4, 1, 3, 5]])
    first, _ = entry.backwards([stack])
    assert np.array_equal(first.read(), ROWS)
    with pytest.raises(AssertionError):
        stack.read()


def test_a_stack_without_parts_is_taken_apart() -> None:
    entry = Tensor(("a", "b"), ("c",), (Transpose(), Stack(2)))
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert np.array_equal(entry.backwards([lazy(whole)])[1].read(), whole[1].T)
    (stack,) = entry.forwards([lazy(whole[0].T), lazy(whole[1].T)])
    assert np.array_equal(stack.read(), whole)
