"""The suite behind ``oxibonsai verify --device`` covers every op, and sees a bit that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oxibonsai import _core
from oxibonsai.errors import UnsupportedError
from oxibonsai.models.parity_suite import compare_all_ops


class Wrong:
    """A CPU, of which one op gives one bit that is wrong, or has no kernel."""

    def __init__(self, op: str, error: Exception | None = None) -> None:
        self._device = _core.CpuDevice(2)
        self._op = op
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def compile(self, graph: _core.Graph) -> Any:
        executable = self._device.compile(graph)
        if self._op not in graph.ops:
            return executable
        if self._error is not None:
            raise self._error
        return Flipped(executable)


class Flipped:
    """An executable, of whose first result the last bit of a value is turned."""

    def __init__(self, executable: _core.Executable) -> None:
        self._executable = executable

    def run(self, *arguments: Any) -> Any:
        results = self._executable.run(*arguments)
        next(iter(results.values())).view(np.uint32)[-1, -1] ^= 1
        return results


@pytest.fixture(scope="module")
def definition() -> _core.CpuDevice:
    return _core.CpuDevice(2, "scalar")


def test_this_machine_gives_the_definitions_bytes(definition: _core.CpuDevice) -> None:
    found = dict(compare_all_ops(_core.CpuDevice(2), definition))
    assert {name for name, wrong in found.items() if wrong} == set()
    assert {f"linear {t['name']}" for t in _core.quant_types()} <= set(found)


@pytest.mark.parametrize(
    ("op", "names"),
    [
        (
            "attend",
            {
                "attention",
                "attention in a window with gaps",
                "attention to blocks",
                "attention with a window and a soft-cap",
                "attention within chunks",
                "attention with linear biases",
                "attention with sinks",
                "latent attention",
            },
        ),
        ("hadamard", {"Hadamard transform"}),
        ("expert_linear", {"experts"}),
        ("conv1d", {"convolution"}),
        (
            "rope",
            {
                "attention within chunks",
                "norms, rope and activations",
                "rope over several axes",
                "rope with a temperature",
            },
        ),
    ],
)
def test_one_wrong_bit_is_seen(definition: _core.CpuDevice, op: str, names: set[str]) -> None:
    found = compare_all_ops(Wrong(op), definition)  # type: ignore[arg-type]
    assert {name for name, wrong in found if wrong} == names


def test_an_op_without_a_kernel_is_no_difference(definition: _core.CpuDevice) -> None:
    device = Wrong("hadamard", UnsupportedError("no kernel"))
    found = dict(compare_all_ops(device, definition))  # type: ignore[arg-type]
    assert isinstance(found["Hadamard transform"], UnsupportedError)
    assert found["convolution"] == []
