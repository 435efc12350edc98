"""Types within a number of bits: the best choice, of what a model says to each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import float_model
import oxibonsai
from oxibonsai import RequestError
from oxibonsai.calibrate import choose_types, target_bits
from oxibonsai.calibrate.measured_mixes import MeasuredMixes
from oxibonsai.calibrate.target_bits import Option, best_within
from oxibonsai.engine import Engine
from oxibonsai.imatrix import collect
from oxibonsai.quantize import TypeRules, find_mix, make_plan
from oxibonsai.quantize.type_choice import Tensor

WINDOWS = [tuple(w) for w in np.random.default_rng(8).integers(0, 256, (2, 32)).tolist()]
# Sizes and costs of three matrices of 64 weights; the second's middle one is on no lower hull.
OPTIONS = {
    "a": [Option("Q2", 16, 9.0), Option("Q4", 32, 3.0), Option("Q8", 64, 1.0)],
    "b": [Option("Q2", 16, 4.0), Option("Q4", 32, 3.9), Option("Q8", 64, 0.1)],
    "c": [Option("Q2", 16, 0.5), Option("Q4", 32, 0.4), Option("Q8", 64, 0.3)],
}


@pytest.mark.parametrize("nbytes", [48, 64, 96, 112, 144, 192])
def test_the_cheapest_choice_that_fits_is_taken(nbytes: int) -> None:
    found = best_within(OPTIONS, 192, nbytes * 8 / 192)
    every = itertools.product(*OPTIONS.values())
    fitting = [choice for choice in every if sum(o.nbytes for o in choice) <= nbytes]
    best = min(fitting, key=lambda choice: sum(o.cost for o in choice))
    assert list(found.types.values()) == [o.type_name for o in best]
    assert found.bits <= nbytes * 8 / 192


def test_fewer_bits_than_the_smallest_types_are_refused() -> None:
    with pytest.raises(RequestError, match=r"1\.9 bits .* which are 2\.00"):
        best_within(OPTIONS, 192, 1.9)
    with pytest.raises(RequestError, match="no matrices"):
        best_within({}, 0, 2.0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A tiny model in float32 whose feed-forward layers hardly count: their gates are near zero."""
    path = tmp_path_factory.mktemp("floats") / "floats.gguf"
    random = np.random.default_rng(2)
    small = random.normal(0, 1e-3, (256, 128)).astype(np.float32).tobytes()
    float_model.write(
        path, tensors={f"blk.{i}.ffn_gate.weight": ((256, 128), 0, small) for i in range(2)}
    )
    return oxibonsai.load(path, parallel=1, ctx_size=64)


def chosen(
    engine: Engine, mix: str, bits: float, fixed: Callable[[Tensor], bool]
) -> Mapping[str, str]:
    """The types of a model's matrices, those of at most so many bits."""
    *_, imatrix = collect(engine, WINDOWS)
    plan = make_plan(engine.model.weights.checkpoint.file, TypeRules(find_mix(mix)), imatrix)
    found = choose_types(
        engine.model,
        engine.kv_type,
        plan,
        imatrix,
        WINDOWS,
        bits,
        fixed=fixed,
        feedback=True,
        threads=1,
        progress=lambda *_: None,
    )
    assert bits - 0.5 < found.bits <= bits
    return found.types


def test_what_hardly_counts_gets_the_fewest_bits(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_bits, "_SAMPLE_ROWS", 8)
    types = chosen(engine, "Q4_0", 3.5, lambda tensor: "attn_q" in tensor.name)
    assert len(types) == 12
    assert not any("attn_q" in name for name in types)
    few = {"Q2_0_g64", "IQ2_XXS", "IQ2_S", "Q2_K"}
    assert {t for n, t in types.items() if "ffn_up" in n or "ffn_down" in n} <= few
    assert few.isdisjoint(t for n, t in types.items() if "attn_v" in n or "_output" in n)


def test_a_plans_own_types_that_are_measured_to_cost_less_stay(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_bits, "_SAMPLE_ROWS", 8)

    def divergence(mixes: MeasuredMixes, types: Mapping[str, str]) -> float:
        return 1.0 if set(types.values()) == {"Q4_0"} else 1.1

    monkeypatch.setattr(MeasuredMixes, "divergence", divergence)
    types = chosen(engine, "Q4_0", 4.5, lambda tensor: False)
    assert len(types) == 14
    assert set(types.values()) == {"Q4_0"}
    types = chosen(engine, "Q4_0", 4.4, lambda tensor: False)
    assert "Q4_0" not in types.values()


def test_no_type_is_chosen_where_none_has_groups_that_divide_the_rows(tmp_path: Path) -> None:
    shapes = {"ffn_gate": (240, 128), "ffn_up": (240, 128), "ffn_down": (128, 240)}
    random = np.random.default_rng(3)
    float_model.write(
        tmp_path / "m.gguf",
        changes={"qwen3.feed_forward_length": (240, "u32")},
        tensors={
            f"blk.{i}.{name}.weight": (
                shape,
                0,
                random.normal(0, 0.05, shape).astype(np.float32).tobytes(),
            )
            for i in range(2)
            for name, shape in shapes.items()
        },
    )
    engine = oxibonsai.load(tmp_path / "m.gguf", parallel=1, ctx_size=64)
    types = chosen(engine, "Q4_0", 4.5, lambda tensor: "ffn" not in tensor.name)
    names = {f"blk.{i}.{name}.weight" for i in range(2) for name in ("ffn_gate", "ffn_up")}
    assert types.keys() == names
