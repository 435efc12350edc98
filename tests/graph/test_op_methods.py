"""The stub and the builder's methods are those of the ops that are compiled in."""

from __future__ import annotations

import make_op_methods as made
import numpy as np
import pytest

from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.graph import Builder


def test_the_stub_has_the_ops_of_the_core() -> None:
    assert made.stub_text() == made.STUB.read_text(encoding="utf-8")


def test_the_builder_has_a_method_for_every_op() -> None:
    assert made.methods_text() == made.METHODS.read_text(encoding="utf-8")
    assert all(hasattr(Builder, op.name) for op in made.read_ops())


def test_arguments_come_in_order_or_by_name() -> None:
    graph = _core.Graph()
    x = graph.input("x", 8)
    weight = np.ones(4, np.float32)
    named = graph.rms_norm(eps=1e-5, groups=2, x=x, weight=weight)
    assert graph.rms_norm(x, weight, 1e-5, 2).cols == named.cols == 8
    assert graph.layer_norm(x, np.ones(8, np.float32), None, 1e-5).rows == x.rows


@pytest.mark.parametrize(
    ("arguments", "named", "said"),
    [
        ((), {}, r"scale\(\) lacks x"),
        (("x",), {"factor": 1.0}, r"scale\(\) takes a Value as x"),
        ((), {"x": None, "factor": 1.0}, r"scale\(\) takes no None as x"),
        ((1.0, 2.0, 3.0), {}, r"scale\(\) takes a Value as x"),
        ((), {"facter": 1.0}, r"scale\(\) lacks x"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: tuple[object, ...], named: dict[str, object], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        _core.Graph().scale(*arguments, **named)  # type: ignore[arg-type]


def test_surplus_arguments_are_refused() -> None:
    graph = _core.Graph()
    x = graph.input("x", 8)
    with pytest.raises(TypeError, match=r"scale\(\) takes 2 arguments"):
        graph.scale(x, 1.0, 2.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"scale\(\) has no argument by"):
        graph.scale(x, 1.0, by=2.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"scale\(\) has an argument twice"):
        graph.scale(x, 1.0, factor=2.0)  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"rms_norm\(\) takes no None as groups"):
        graph.rms_norm(x, np.ones(8, np.float32), 1e-5, None)  # type: ignore[arg-type]


def test_an_unknown_name_is_said_with_those_that_are_known() -> None:
    graph = _core.Graph()
    with pytest.raises(
        RequestError,
        match="no part of the positions is called alles; there are all, encoded and own",
    ):
        graph.attend(graph.input("x", 8), 0, 2, 1.0, part="alles")
