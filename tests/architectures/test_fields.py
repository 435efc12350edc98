"""Fields of families: read from folders and files, written to both, refused where they make no sense."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from fake_file import config_json, keys_of

from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import (
    COUNT,
    Checked,
    Fixed,
    Implied,
    Stated,
    biased,
    count,
    count_or_zero,
    field,
    fixed,
    flag,
    real,
    told_by_tensors,
)
from oxibonsai.errors import FormatError, UnsupportedError


@dataclass(frozen=True, kw_only=True)
class Toy:
    """One field of each kind."""

    num_layers: int = count(("num_layers", "n_layer"), "block_count")
    width: int = count("width", "width", default=lambda known: 8 * known["num_layers"])
    window: int = count_or_zero("window", "window", default=0, none_is=0, unsaid=True)
    factor: float = real("factor", "factor", default=1.0, key_default=1.0, unsaid=True)
    parallel: bool = flag("parallel", "parallel", default=True, key_default=True)
    act: str = fixed("silu", "swish", name="act")
    bias: bool = biased("bias", "attn_q")
    tied: bool = told_by_tensors("tied", "output.weight", absent=True)


TOY: Family[Any] = Family(
    "toy", ("toy", "toy_old"), "Toy", "Toy", Toy, lambda c: iter(()), lambda *_: _
)  # type: ignore[arg-type, type-var, return-value]


def test_a_folder_is_read_by_any_of_a_field_s_names_and_filled_up_from_fields_before() -> None:
    found = TOY.read_config_json(config_json(n_layer=3, act="swish", window=None))
    assert found == Toy(
        num_layers=3, width=24, window=0, factor=1.0, parallel=True, act="silu", bias=False,
        tied=False,
    )  # fmt: skip


def test_a_file_is_written_in_the_order_of_the_table_without_what_is_unsaid() -> None:
    c = TOY.read_config_json(config_json(num_layers=3, factor=0.5, parallel=False))
    assert list(TOY.write_gguf(c).items()) == [
        ("toy.block_count", (3, "u32")),
        ("toy.width", (24, "u32")),
        ("toy.factor", (0.5, "f32")),
        ("toy.parallel", (False, "bool")),
    ]


def test_a_file_is_read_by_its_keys_and_by_its_tensors() -> None:
    keys = {"toy.block_count": 3, "toy.width": 7, "toy.parallel": False}
    shapes = {"blk.0.attn_q.bias": (7,), "output.weight": (5, 7)}
    found = TOY.read_gguf(keys_of("toy", keys, shapes))
    assert found == Toy(
        num_layers=3, width=7, window=0, factor=1.0, parallel=False, act="silu", bias=True,
        tied=False,
    )  # fmt: skip
    assert TOY.read_gguf(keys_of("toy", keys)).tied
    assert not TOY.read_gguf(keys_of("toy", keys)).bias


def test_a_folder_is_written_under_the_first_names() -> None:
    c = TOY.read_config_json(config_json(n_layer=3))
    assert TOY.write_config_json(c) == {
        "architectures": ["ToyForCausalLM"], "model_type": "toy", "num_layers": 3, "width": 24,
        "window": None, "factor": 1.0, "parallel": True, "act": "silu", "bias": False, "tied": False,
    }  # fmt: skip
    assert TOY.read_config_json(config_json(**TOY.write_config_json(c))) == c


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "num_layers is None, not a positive count"),
        ({"num_layers": True}, "num_layers is True"),
        ({"num_layers": 0}, "num_layers is 0"),
        ({"num_layers": 3, "window": False}, "window is False"),
        ({"num_layers": 3, "window": -1}, "window is -1"),
        ({"num_layers": 3, "factor": "1"}, "factor is '1', not a number above zero"),
        ({"num_layers": 3, "parallel": 1}, "parallel is 1, not true or false"),
        ({"num_layers": 3, "bias": 0}, "bias is 0, not true or false"),
    ],
)
def test_a_field_that_makes_no_sense_is_named_with_its_file(
    fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(FormatError, match=rf"config\.json: {problem}"):
        TOY.read_config_json(config_json(**fields))


def test_a_key_that_no_family_owns_is_refused_by_name() -> None:
    keys = keys_of("toy", {"toy.block_count": 3, "toy.width": 7, "toy.depth": 2})
    TOY.read_gguf(keys)
    with pytest.raises(UnsupportedError, match=r"the key toy\.depth, which this version does not"):
        keys.refuse_unread()


@pytest.mark.parametrize(
    ("value", "other"), [(False, 0), (0, False), (1, True), (True, 1), (1, 1.0)]
)
def test_fixed_compares_types(value: Any, other: Any) -> None:
    described = Fixed(value, name="it", key="it", kind="u32")
    assert described.read_config_json(config_json(it=value), {}) is value
    assert described.read_gguf(keys_of("toy", {"toy.it": value}), {}) is value
    with pytest.raises(
        UnsupportedError, match=rf"config\.json: it is {other!r}; known are {value!r}"
    ):
        described.read_config_json(config_json(it=other), {})
    with pytest.raises(UnsupportedError, match=rf"file\.gguf: it is {other!r}; known is {value!r}"):
        described.read_gguf(keys_of("toy", {"toy.it": other}), {})


def test_a_fixed_field_that_transformers_would_read_otherwise_must_be_there() -> None:
    described = Fixed(True, name="it", required=True)
    assert described.read_config_json(config_json(it=True), {}) is True
    with pytest.raises(UnsupportedError, match=r"config\.json: it is missing; known is True"):
        described.read_config_json(config_json(), {})


def test_what_readers_of_a_file_know_is_refused_in_a_folder_that_says_otherwise() -> None:
    described = Implied("heads", lambda known: 2 * known["num_layers"])
    assert described.read_config_json(config_json(), {"num_layers": 3}) == 6
    assert described.read_config_json(config_json(heads=6), {"num_layers": 3}) == 6
    assert described.write_gguf(6, None) == {}
    with pytest.raises(UnsupportedError, match=r"heads is 7; files have no key .* take 6"):
        described.read_config_json(config_json(heads=7), {"num_layers": 3})


def test_a_field_may_have_to_suit_those_before_it() -> None:
    described = Checked(
        Stated(COUNT, ("heads",), "heads"),
        lambda known, heads: "" if known["width"] % heads == 0 else f"{heads} heads do not divide",
    )
    assert described.read_config_json(config_json(heads=4), {"width": 8}) == 4
    assert described.read_gguf(keys_of("toy", {"toy.heads": 4}), {"width": 8}) == 4
    assert described.write_gguf(4, None) == {"heads": (4, "u32")}
    assert described.write_config_json(4, None) == {"heads": 4}
    with pytest.raises(FormatError, match=r"config.json: 3 heads do not divide"):
        described.read_config_json(config_json(heads=3), {"width": 8})
    with pytest.raises(FormatError, match=r"file.gguf: 3 heads do not divide"):
        described.read_gguf(keys_of("toy", {"toy.heads": 3}), {"width": 8})


def test_a_key_may_have_no_architecture_before_it() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Named(Toy):
        """The same with a field more."""

        version: int = count("version", "/toy_version")

    named = replace(TOY, config=Named)
    c = named.read_config_json(config_json(num_layers=3, version=7))
    assert named.write_gguf(c)["toy_version"] == (7, "u32")
    keys = keys_of("toy", {"toy.block_count": 3, "toy.width": 4, "toy_version": 8})
    assert named.read_gguf(keys).version == 8


def test_a_field_that_is_restated_keeps_its_place() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wider(Toy):
        """The same with another width, and one field more."""

        depth: int = count("depth", "depth", default=2)
        width: int = field(Fixed(16, name="width", key="width", kind="u32"))

    wider = Family("toy", ("toy",), "Toy", "Toy", Wider, lambda c: iter(()), lambda *_: _)  # type: ignore[arg-type, type-var, return-value]
    c = wider.read_config_json(config_json(num_layers=3))
    assert list(wider.write_gguf(c)) == [
        "toy.block_count",
        "toy.width",
        "toy.parallel",
        "toy.depth",
    ]
