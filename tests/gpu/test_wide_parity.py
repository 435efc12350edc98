"""``verify --device --wide`` reaches every kernel that a card can run, and sees one that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import oxibonsai
from native_build import needs_compiler
from oxibonsai import _core
from oxibonsai.devices import open_device
from oxibonsai.graph import Builder
from oxibonsai.models import parity
from oxibonsai.models.parity_graphs import graph_of, random_matrix, random_values
from oxibonsai.models.parity_steps import DECODING, compare_steps
from oxibonsai.models.parity_suite import compare_all_ops
from oxibonsai.models.parity_wide import compare_top, compare_wide, heads_of

pytestmark = needs_compiler

# More than gemv takes in one step, and more than one for the smallest blocks of scales.
COLUMNS = 1280


def run_kernels(card: Any) -> set[str]:
    return set(card.kernels_run().decode().split())


def selectable(card: Any, generation: int) -> set[str]:
    """All kernels of the sources but those of products that cards of the generation lack."""
    suffix = "_mma" if generation >= 80 else "_mma8"
    names = card.kernels().decode().split()
    return {n for n in names if not n.startswith("gemm_") or n.endswith(suffix)}


# Kernels of pictures, on rows that the suite does not make: tests/native/test_gpu_ops.cc has them.
NOT_COMPARED = {
    *("add_gated", "conv2d", "insert_rows", "modulate", "norm_pixels", "sum_runs"),
}


@pytest.mark.release
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("generation", [90, 75])
def test_wide_cases_have_the_scalar_tiers_bytes(card: Any, generation: int) -> None:
    card.set_generation(generation)
    device, definition = open_device("cuda:0", 2), _core.CpuDevice(2, "scalar")
    found = dict(compare_wide(device, definition, (COLUMNS,)))
    assert {name: result for name, result in found.items() if result} == {}


@pytest.mark.release
@pytest.mark.parametrize("generation", [90, 75])
def test_every_kernel_that_a_card_can_run_is_compared(card: Any, generation: int) -> None:
    card.set_generation(generation)
    card.idle(True)
    device, definition = open_device("cuda:0", 2), _core.CpuDevice(2, "scalar")
    found = dict(compare_all_ops(device, definition, wide=True, columns=(512,)))
    assert selectable(card, generation) - run_kernels(card) == NOT_COMPARED
    # Kernels that do nothing are seen in each case.
    assert [name for name, result in found.items() if not result] == []


@pytest.mark.slow
def test_a_wrong_kernel_of_decoding_is_seen(card: Any) -> None:
    devices = open_device("cuda:0", 2), _core.CpuDevice(2, "scalar")

    def differs() -> bool:
        graph = graph_of(heads_of(4, 2, 32, norms=True))
        return compare_steps(graph, *devices, "f16", DECODING[2:])[0]

    assert not differs()
    assert card.graph_launches() > 0
    for kernel in (
        "attend_one_F16",
        "prepare_heads_F16",
        "attend_tile_F16",
        "merge_tiles",
        "select_rows",
        "gemv_q8_4",
    ):
        assert kernel in run_kernels(card)
        card.spoil(kernel.encode())
        assert differs(), kernel
    card.spoil(b"")
    assert not compare_top(*devices)
    card.spoil(b"top_k")
    assert compare_top(*devices)


def test_a_wrong_kernel_of_joined_products_is_seen(card: Any) -> None:
    def layer(b: Builder) -> None:
        x = b.input("x", 64)
        gate, up, down = (random_matrix(64, 64, "Q8_0", name=n) for n in ("gate", "up", "down"))
        unit = b.swiglu(*b.linear(x, gate, up))
        (y,) = b.linear(unit, down, add=x)
        b.output("y", b.rms_norm(y, random_values(64), 1e-6))

    devices = open_device("cuda:0", 2), _core.CpuDevice(2, "scalar")
    graph = graph_of(layer)
    assert parity.compare_ops(graph, *devices) == []
    for kernel, reader in (("gemv_gated_q8", "gated"), ("gemv_norm_q8", "rms_norm")):
        assert kernel in run_kernels(card)
        card.spoil(kernel.encode())
        (name,) = parity.compare_ops(graph, *devices)
        assert name.startswith(f"linear layer and {reader}, Q8_0"), kernel


@pytest.mark.release
def test_auto_refuses_a_card_by_the_kernel_that_is_wrong_or_that_nothing_compares(
    card: Any, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def device() -> str:
        options: dict[str, Any] = {"ctx_size": 64, "parallel": 1, "kv_type": "f16", "threads": 2}
        return oxibonsai.load(tiny_path, device="auto", **options).model.device.name

    card.spoil(b"attend_one_F16")
    with pytest.warns(UserWarning, match="attend over long contexts"):
        assert device() == "cpu"
    card.spoil(b"top_k")
    with pytest.warns(UserWarning, match="the search for the largest values"):
        assert device() == "cpu"
    card.spoil(b"")
    monkeypatch.setattr(parity, "GPU_ROW_COUNTS", (1, 3))
    with pytest.warns(UserWarning, match="the kernel gemv_[a-z0-9_]+_8, which nothing compares"):
        assert device() == "cpu"
